"""Calling a module with other parameters than its own."""

from contextlib import contextmanager

from flambeau import Tensor

__all__ = ["functional_call"]

ABSENT = object()  # where a module has nothing of that name


def functional_call(
    module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False
):
    """module(*args, **kwargs) with these tensors, by path, in place of its own."""
    values = parameters_and_buffers
    if not isinstance(values, dict):
        if not isinstance(values, (list, tuple)) or not all(isinstance(d, dict) for d in values):
            raise ValueError(
                "Expected parameters_and_buffers to be a dict, or a list/tuple of dicts, "
                f"but got {type(values).__name__}"
            )
        names = [name for d in values for name in d]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ValueError(f"{sorted(repeated)} appeared in multiple dictionaries")
        values = {name: value for d in values for name, value in d.items()}
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrized(module, values, tie_weights, strict):
        return module(*args, **(kwargs or {}))


@contextmanager
def _reparametrized(module, values, tie_weights, strict):
    swapped = _tied(module, values) if tie_weights else dict(values)
    if strict:
        _check_complete(module, swapped)
    before = {path: _put(module, path, value) for path, value in swapped.items()}
    try:
        yield
    finally:
        after = {path: _put(module, path, value) for path, value in before.items()}
        values.update({path: after[path] for path in values})


def _put(module, path, value):
    """Set what a path leads to, whatever it is registered as; return what was there."""
    owner_path, _, name = path.rpartition(".")
    owner = module.get_submodule(owner_path)
    if value is not ABSENT and not isinstance(value, Tensor):
        raise TypeError(f"{path}: {value} is not an instance of Tensor")
    for slots in (owner._parameters, owner._buffers):
        if name in slots:
            previous = slots[name]
            slots[name] = value
            return previous
    previous = owner.__dict__.pop(name, ABSENT)
    if value is not ABSENT:
        object.__setattr__(owner, name, value)
    return previous


def _tied(module, values):
    """The values, repeated for every name that shares a tensor with one given."""
    names_of = {}
    for named in (module.named_parameters, module.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            names_of.setdefault(id(tensor), []).append(name)
    result = dict(values)
    for names in names_of.values():
        given = [name for name in names if name in values]
        if not given:
            continue
        if any(values[name] is not values[given[0]] for name in given):
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(given)}, which are tied. "
                "Consider using tie_weights=False"
            )
        result.update(dict.fromkeys(names, values[given[0]]))
    return result


def _check_complete(module, values):
    own = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    own |= {name for name, _ in module.named_buffers(remove_duplicate=False)}
    missing, unexpected = sorted(own - set(values)), sorted(set(values) - own)
    problems = []
    if unexpected:
        problems.append(f"Unexpected key(s): {', '.join(unexpected)}.")
    if missing:
        problems.append(f"Missing key(s): {', '.join(missing)}.")
    if problems:
        details = "\n\t".join(problems)
        raise RuntimeError(f"Error(s) in reparametrizing for {type(module).__name__}:\n\t{details}")
