"""compile: the same program, faster; never another meaning.

    compiled   a function, and which of its calls are traced, played or run eagerly
    habits     kinds of calls that are too rare to be learnt
    worth      what a program saves, and whether that is more than tracing costs
    trace      real Python on traced tensors, hop by hop through known paths
    knowing    what calls on a path are known by
    capture    an unknown path: ops run for real, and engine/tape records what they launch
    ending     where a segment ends its program runs, and phantoms become real
    simplify   what nobody needs is not computed
    reorder    rows are fetched in the order in which they are needed
    repeated   rows that a batch has several times are multiplied once
    fewer      launches as they were recorded become fewer:
    summed     what is added up over many calls of a layer is computed once
    fuse       launches that share a loop
    epilogue   what follows a product or a convolution is its last step
    row_groups what works on the same rows is one kernel
    known      small products are code that knows their sizes
    arrange    in which order, so that less memory is needed
    place      buffers that share bytes
    program    one native call
    reverse    the way back, as a program of its own
    script     a whole call without Python, for fullgraph=True
    calm       and for others, once they learn nothing new and nobody would miss Python
    witness    what Python does in such a call
    search     all that its code can reach
    actions    what such a call does, one after the other
    names      what that call may depend on besides its arguments
    gradients  and the gradients that it finds and leaves
    verify     programs against their op calls, made one by one
    report     what happened, for people: segments, paths, programs,
    guards     what calls depend on, and what was not as it had been
    loops      and programs as loops
    shown      what FLAMBEAU_SHOW asks to see of them
"""

from __future__ import annotations

from .api import (
    allow_in_graph,
    assume_constant_result,
    compile,
    compile_in_place,
    cudagraph_mark_step_begin,
    disable,
    explain,
    get_default_backend,
    is_compiling,
    is_dynamo_compiling,
    is_exporting,
    list_backends,
    nested_compile_region,
    reset,
    set_default_backend,
    set_stance,
    substitute_in_graph,
)
from .compiled import Compiled

__all__ = ["Compiled", "allow_in_graph", "assume_constant_result", "compile", "compile_in_place",
           "cudagraph_mark_step_begin", "disable", "explain", "get_default_backend", "is_compiling",
           "is_dynamo_compiling", "is_exporting", "list_backends", "nested_compile_region", "reset",
           "set_default_backend", "set_stance", "substitute_in_graph"]
