"""Programs that leave their Python behind: traced once, saved, loaded and run without the class.

    program = jit.trace(model, example)
    program.save("model.pt")
    jit.load("model.pt")(x)

`script` takes functions and modules as they are: there is no second language here. Saved, they are
programs as well.
"""

from flambeau.jit.annotations import (
    Attribute,
    Error,
    Final,
    Future,
    ScriptModule,
    TracerWarning,
    annotate,
    export,
    fork,
    freeze,
    ignore,
    interface,
    is_scripting,
    is_tracing,
    isinstance,
    onednn_fusion_enabled,
    optimize_for_inference,
    run_frozen_optimizations,
    script_if_tracing,
    script_method,
    set_fusion_strategy,
    unused,
    wait,
)
from flambeau.jit.program import (
    ScriptFunction,
    TopLevelTracedModule,
    TracingCheckError,
    load,
    save,
    trace,
    trace_module,
)
from flambeau.jit.scripted import RecursiveScriptModule, script

_script_if_tracing = script_if_tracing
_overload = _overload_method = unused  # signatures that are declared beside a function

__all__ = ["Attribute", "Error", "Final", "Future", "RecursiveScriptModule", "ScriptFunction",
           "ScriptModule", "TopLevelTracedModule", "TracerWarning", "TracingCheckError", "annotate",
           "export", "fork", "freeze", "ignore", "interface",
           "is_scripting", "is_tracing", "isinstance", "load", "onednn_fusion_enabled",
           "optimize_for_inference", "run_frozen_optimizations", "save", "script",
           "script_if_tracing", "script_method", "set_fusion_strategy", "trace", "trace_module",
           "unused", "wait"]
