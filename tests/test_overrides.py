"""Modes see every call of a public function while they are on, and are not there afterwards."""

import threading

import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, overrides
from flambeau.overrides import BaseTorchFunctionMode, TorchFunctionMode, resolve_name


class Log(TorchFunctionMode):
    def __init__(self, told=None):
        super().__init__()
        self.told = [] if told is None else told

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.told.append(resolve_name(func))
        return func(*args, **(kwargs or {}))


def test_names_mean_the_same_functions_afterwards():
    before = [dict(vars(space)) for space in (torch, F, torch.Tensor)]
    with Log():
        assert torch.add is not before[0]["add"] and torch.add == before[0]["add"]
    after = [dict(vars(space)) for space in (torch, F, torch.Tensor)]
    for was, now in zip(before, after, strict=True):
        assert all(now[name] is value for name, value in was.items())
    assert torch.ones(2).__add__(1).sum() == 4


def test_handlers_find_functions_by_identity_and_in_tables_made_before():
    table, found = {torch.mul: "mul", torch.Tensor.grad.__get__: "grad"}, []

    class Looking(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            found.append((func is torch.add, table.get(func), func == torch.Tensor.shape.__get__))
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with Looking():
        torch.add(x, x)
        torch.mul(x, x)
        _ = x.grad
        _ = x.shape
    assert found == [(True, None, False), (False, "mul", False), (False, "grad", False),
                     (False, None, True)]


def test_modes_nest_innermost_first():
    order = []

    class Named(TorchFunctionMode):
        def __init__(self, name):
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            order.append((self.name, func.__name__))
            return func(*args, **(kwargs or {}))

    with Named("outer"):
        with Named("inner"), BaseTorchFunctionMode():
            x = torch.zeros(2)
            _ = x.dtype
        torch.ones(2)
    assert order == [("inner", "zeros"), ("outer", "zeros"), ("inner", "__get__"),
                     ("outer", "__get__"), ("outer", "ones")]


def test_a_mode_may_answer_otherwise():
    class Doubling(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out * 2 if func is F.linear else out

    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    expected = layer(x) * 2
    with Doubling():
        assert torch.equal(layer(x), expected)


def test_gradients_are_nobodys_business():
    x = torch.randn(3, 3, requires_grad=True)
    with Log() as log:
        y = (x @ x).tanh().sum()
        (g,) = torch.autograd.grad(y, x)
        (x * x).sum().backward()
    assert log.told == ["torch.Tensor.matmul", "torch.Tensor.tanh", "torch.Tensor.sum",
                        "torch.Tensor.mul", "torch.Tensor.sum", "torch.Tensor.backward"]
    assert g.shape == x.grad.shape


def test_other_threads_are_not_seen():
    log, x = Log(), torch.ones(3)
    with log:
        worker = threading.Thread(target=lambda: torch.add(x, x).sum())
        worker.start()
        worker.join()
    assert log.told == []


def test_subclasses_answer_after_modes():
    order = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            order.append("subclass")
            return super().__torch_function__(func, types, args, kwargs or {})

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            order.append(types)
            return func(*args, **(kwargs or {}))

    x = torch.ones(2).as_subclass(Own)
    with Mode():
        out = torch.add(x, 1)
    assert order == [(Own,), "subclass"] and type(out) is Own
    with torch._C.DisableTorchFunctionSubclass():
        assert not torch._C._is_torch_function_enabled()
        assert type(x + 1) is torch.Tensor
    assert type(x + 1) is Own


def test_errors():
    class Silent(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    x = torch.ones(1)
    with Silent(), pytest.raises(TypeError, match=r"Multiple dispatch failed for 'torch\.add'"):
        torch.add(x, 1)
    with TorchFunctionMode(), pytest.raises(NotImplementedError):
        torch.ones(1)
    with pytest.raises(ValueError, match="inside"), Log():
        raise ValueError("inside")
    assert overrides._get_current_function_mode_stack() == []


def test_helpers():
    assert resolve_name(torch.add) == "torch.add"
    assert resolve_name(torch.Tensor.add) == "torch.Tensor.add"
    assert resolve_name(torch.Tensor.grad.__get__) == "torch.Tensor.grad.__get__"
    assert resolve_name(torch.linalg.norm) == "torch.linalg.norm"
    assert resolve_name(print) is None
    assert overrides.is_tensor_method_or_property(torch.Tensor.add)
    assert overrides.is_tensor_method_or_property(torch.Tensor.shape.__get__)
    assert not overrides.is_tensor_method_or_property(torch.add)
    assert torch.zeros in overrides.get_ignored_functions()
    assert torch.add not in overrides.get_ignored_functions()
    assert torch.add in overrides.get_overridable_functions()[torch]
    assert F.linear in overrides.get_overridable_functions()[F]
    with Log() as log:
        assert overrides.has_torch_function((torch.ones(1),))
        assert overrides._get_current_function_mode() is log
        assert torch._C._len_torch_function_stack() == 1


def test_forms_in_place_ask_whatever_they_are_given():
    """x is plain, and what it is changed by answers for the call."""
    seen = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func.__name__, len(args), *sorted(kwargs or {})))
            return super().__torch_function__(func, types, args, kwargs or {})

    x, rows = torch.ones(2, 3), torch.tensor([0, 1])
    own, mask = torch.ones(2, 3).as_subclass(Own), (torch.ones(2, 3) > 0).as_subclass(Own)
    for _ in range(2):
        assert isinstance(x.add_(own), Own) and isinstance(x.add_(own, alpha=2), Own)
        x.lerp_(torch.ones(2, 3), weight=own)
        x.clamp_(min=own)
        x.masked_fill_(mask, 1.5)
        x.copy_(own)
        assert own.copy_(x) is own
        x[rows] = own
        x[rows.as_subclass(Own)] = 2.0
        x[mask] = 3.0
        assert seen == [("add_", 2), ("add_", 2, "alpha"), ("lerp_", 2, "weight"),
                        ("clamp_", 1, "min"), ("masked_fill_", 3), ("copy_", 2), ("copy_", 2),
                        ("__setitem__", 3), ("__setitem__", 3), ("__setitem__", 3)]
        assert x.tolist() == [[3.0] * 3] * 2
        seen.clear()
