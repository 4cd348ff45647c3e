"""The steps of data parallelism: cut inputs, copy the module, run the copies, join the results."""

import threading

import flambeau
from flambeau import Tensor

__all__ = ["gather", "parallel_apply", "replicate", "scatter", "scatter_kwargs"]


def _device(target):
    return flambeau.device("cpu") if isinstance(target, int) else flambeau.device(target)


def scatter(inputs, target_gpus, dim=0):
    """One share of the inputs for each device: tensors are cut, everything else is repeated."""
    devices = [_device(d) for d in target_gpus]

    def cut(value):
        if isinstance(value, Tensor):
            return [piece.to(device) for piece, device
                    in zip(value.chunk(len(devices), dim), devices, strict=False)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return [type(value)(*each) for each in zip(*map(cut, value), strict=False)]
        if isinstance(value, (list, tuple)) and value:
            return [type(value)(each) for each in zip(*map(cut, value), strict=False)]
        if isinstance(value, dict) and value:
            keys = list(value)
            return [type(value)(zip(keys, each, strict=True))
                    for each in zip(*(cut(value[k]) for k in keys), strict=False)]
        return [value for _ in devices]

    return cut(inputs)


def scatter_kwargs(inputs, kwargs, target_gpus, dim=0):
    """Shares of positional and of named inputs, as many of one as of the other."""
    given = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(given), len(named))
    given += [()] * (count - len(given))
    named += [{}] * (count - len(named))
    return tuple(given), tuple(named)


def gather(outputs, target_device, dim=0):
    """Results of all devices as one, joined along a dimension."""
    first = outputs[0]
    if isinstance(first, Tensor):
        device = _device(target_device)
        parts = [x.to(device) for x in outputs]
        if all(x.dim() == 0 for x in parts):
            return flambeau.stack(parts)
        return flambeau.cat(parts, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(first) != len(each) for each in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((k, gather([each[k] for each in outputs], target_device, dim))
                           for k in first)
    joined = [gather(parts, target_device, dim) for parts in zip(*outputs, strict=True)]
    return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)


def replicate(network, devices, detach=False):
    """A copy of a module for each device; gradients of the copies reach the original's."""
    return [_copy(network, _device(device), detach, {}) for device in devices]


def _copy(module, device, detach, made):
    if module in made:
        return made[module]
    copy = made[module] = module.__new__(type(module))
    copy.__dict__ = dict(module.__dict__)
    copy.__dict__["_registered"] = dict(module._registered)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            value = parameter.detach() if detach else parameter.view_as(parameter)
            copy.__dict__[name] = value.to(device)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            copy.__dict__[name] = buffer.to(device)
    for name, child in module._modules.items():
        if child is not None:
            copy.__dict__[name] = _copy(child, device, detach, made)
    return copy


def parallel_apply(modules, inputs, kwargs_tup=None, devices=None):
    """Call each module with its inputs, each in a thread of its own."""
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of "
                             f"inputs {len(inputs)}")
    kwargs_tup = kwargs_tup or ({},) * len(modules)
    results = [None] * len(modules)
    recording = flambeau.is_grad_enabled()

    def run(k):
        given = inputs[k] if isinstance(inputs[k], (list, tuple)) else (inputs[k],)
        try:
            with flambeau.set_grad_enabled(recording):
                results[k] = modules[k](*given, **kwargs_tup[k])
        except Exception as error:
            error.add_note(f"in replica {k}")
            results[k] = error

    threads = [threading.Thread(target=run, args=(k,)) for k in range(1, len(modules))]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results
