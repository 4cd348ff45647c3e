"""Many modules of one kind as one, and modules that can be called per example."""

from __future__ import annotations

import flambeau
from flambeau import nn


def stack_module_state(models: list | tuple) -> tuple[dict, dict]:
    """(parameters, buffers) of modules of one kind, each stacked along a new first dimension."""
    if len(models) == 0:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or not any(m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same "
                           "training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = {}
    for name, first in models[0].named_parameters():
        each = [dict(m.named_parameters())[name] for m in models]
        stacked = flambeau.stack([p.detach() for p in each])
        parameters[name] = stacked.requires_grad_(first.requires_grad)
    buffers = {name: flambeau.stack([dict(m.named_buffers())[name] for m in models])
               for name, _ in models[0].named_buffers()}
    return parameters, buffers


def replace_all_batch_norm_modules_(root: nn.Module) -> nn.Module:
    """Batch norms of root no longer follow running statistics, which per-example calls cannot."""
    for module in root.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
