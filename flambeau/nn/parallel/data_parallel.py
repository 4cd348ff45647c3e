"""A module whose batches are shared out to devices; on a CPU, the module itself."""

import flambeau
from flambeau.nn.modules import Module
from flambeau.nn.parallel.pieces import gather, parallel_apply, replicate, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Runs shares of a batch on several devices; parameters are those of `module`.

    Without accelerators there is nothing to share out to, and the module is called as it is.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.module = module
        self.dim = dim
        self.device_ids = [d for d in device_ids or () if flambeau.cuda.is_available()]
        self.output_device = output_device

    def forward(self, *inputs, **kwargs):
        if len(self.device_ids) < 2:
            return self.module(*inputs, **kwargs)
        return _shared_out(self.module, inputs, kwargs, self.device_ids, self.output_device,
                           self.dim)


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """Call a module on shares of the inputs, one for each device, and join the results."""
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    if not device_ids or len(device_ids) < 2:
        return module(*inputs, **(module_kwargs or {}))
    return _shared_out(module, inputs, module_kwargs or {}, device_ids, output_device, dim)


def _shared_out(module, inputs, kwargs, devices, output_device, dim):
    inputs, kwargs = scatter_kwargs(inputs, kwargs, devices, dim)
    used = devices[: len(inputs)]
    outputs = parallel_apply(replicate(module, used), inputs, kwargs, used)
    return gather(outputs, devices[0] if output_device is None else output_device, dim)
