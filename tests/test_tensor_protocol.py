"""What a tensor is besides its ops: conversions, memory shared with others, copies, subclasses."""

import copy
import os
import pickle

import numpy as np
import pytest

import flambeau as torch


def test_to_returns_the_tensor_itself_when_nothing_changes():
    x = torch.ones(2, 3)
    assert x.to(torch.float32) is x and x.to("cpu") is x and x.to(x) is x and x.float() is x
    assert x.to() is x and x.to(device="cpu", dtype=torch.float32) is x
    assert x.to(torch.float32, copy=True) is not x


@pytest.mark.parametrize(
    ("args", "kwargs", "dtype"),
    [
        ((torch.float64,), {}, torch.float64),
        (("cpu", torch.int32), {}, torch.int32),
        ((torch.ones(1, dtype=torch.int8),), {}, torch.int8),
        ((), {"dtype": torch.float16}, torch.float16),
        ((torch.device("cpu"),), {"dtype": torch.bool, "non_blocking": True}, torch.bool),
    ],
)
def test_forms_of_to(args, kwargs, dtype):
    assert torch.ones(2).to(*args, **kwargs).dtype == dtype


def test_gradients_flow_through_conversions():
    x = torch.ones(2, requires_grad=True)
    x.double().mul(3).sum().backward()
    assert x.grad.dtype == torch.float32 and x.grad.tolist() == [3, 3]


def test_type_by_name_and_by_constructor():
    x = torch.ones(1)
    assert x.type() == "torch.FloatTensor" and x.type("torch.IntTensor").dtype == torch.int32
    assert x.type(torch.LongTensor).dtype == torch.int64 and x.type_as(x.half()).dtype == torch.half
    with pytest.raises(ValueError, match="invalid type"):
        x.type("foo")


@pytest.mark.parametrize("move", [lambda x: x.cuda(), lambda x: x.to("cuda")])
def test_there_is_no_cuda(move):
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        move(torch.ones(1))
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0


def test_memory_formats():
    x = torch.empty(2, 3, 4, 5)
    y = x.to(memory_format=torch.channels_last)
    assert y.stride() == (60, 1, 15, 3) and y.is_contiguous(memory_format=torch.channels_last)
    assert not y.is_contiguous() and y.contiguous().is_contiguous()
    assert y.clone().stride() == y.stride()
    assert y.clone(memory_format=torch.contiguous_format).is_contiguous()


# -- numpy ---------------------------------------------------------------------------------------


def test_numpy_shares_memory_both_ways():
    x = torch.zeros(2, 3)
    array = x.transpose(0, 1).numpy()
    array[2, 1] = 5
    assert x[1, 2].item() == 5
    back = torch.from_numpy(array)
    back[0, 0] = 7
    assert x[0, 0].item() == 7


def test_the_array_outlives_the_tensor():
    array = torch.full((1000,), 3.0).numpy()
    for _ in range(10):
        torch.zeros(1000)
    assert (array == 3).all()


def test_numpy_of_something_recorded():
    x = torch.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"detach\(\)\.numpy\(\)"):
        x.numpy()
    assert x.numpy(force=True).tolist() == [1]


def test_numpy_functions_give_tensors_back():
    x = torch.ones(2)
    assert isinstance(np.exp(x), torch.Tensor)
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert isinstance(x * np.ones(2), torch.Tensor)


# -- DLPack --------------------------------------------------------------------------------------


def test_dlpack_with_numpy_is_zero_copy():
    x = torch.arange(6.0).reshape(2, 3).transpose(0, 1)
    array = np.from_dlpack(x)
    assert np.shares_memory(array, x.numpy()) and array.strides == (4, 12)
    back = torch.from_dlpack(np.arange(3))
    assert back.tolist() == [0, 1, 2] and back.dtype == torch.int64
    assert x.__dlpack_device__() == (1, 0)


def test_dlpack_memory_lives_as_long_as_it_is_used():
    from flambeau.engine import dlpack

    before = len(dlpack._given)
    array = np.from_dlpack(torch.full((100,), 2.0))
    assert len(dlpack._given) == before + 1 and (array == 2).all()
    del array
    capsule = torch.ones(2).__dlpack__()
    del capsule
    assert len(dlpack._given) == before


def test_a_capsule_is_taken_once():
    capsule = torch.ones(2).__dlpack__()
    assert torch.from_dlpack(capsule).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="only once"):
        torch.from_dlpack(capsule)
    with pytest.raises(BufferError, match="require gradient"):
        torch.ones(1, requires_grad=True).__dlpack__()


# -- storages ------------------------------------------------------------------------------------


def test_storages():
    x = torch.arange(6.0).reshape(2, 3)
    assert x.untyped_storage().nbytes() == 24
    assert x[1].untyped_storage() == x.untyped_storage() and x[1].storage_offset() == 3
    assert x.storage().tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.empty(0).set_(x.storage(), 1, (2,), (2,)).tolist() == [1, 3]
    with pytest.raises(RuntimeError, match="out of bounds"):
        torch.empty(0).set_(x.storage(), 4, (3,), (1,))
    assert x.is_set_to(x.view(2, 3)) and not x.is_set_to(x[0])


def test_resize_keeps_the_elements():
    x = torch.tensor([1.0, 2.0])
    x.resize_(1, 200)
    assert x.shape == (1, 200) and x[0, :2].tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="require grad"):
        torch.ones(2, requires_grad=True).resize_(3)


def test_apply_and_map():
    x = torch.tensor([1.0, 2.0])
    assert x.apply_(lambda v: v * 10).tolist() == [10, 20]
    assert x.map_(torch.tensor([1.0, 2.0]), lambda a, b: a + b).tolist() == [11, 22]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_only_shared_memory_is_shared_with_children():
    shared, private = torch.zeros(2).share_memory_(), torch.zeros(2)
    child = os.fork()
    if not child:
        shared.numpy()[:] = 5
        private.numpy()[:] = 5
        os._exit(0)
    os.waitpid(child, 0)
    assert shared.tolist() == [5, 5] and private.tolist() == [0, 0]
    assert shared.is_shared() and not private.is_shared()


# -- copies and pickles --------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
def test_what_was_shared_stays_shared(copied):
    x = torch.arange(6.0).reshape(2, 3)
    whole, row, across = copied([x, x[1], x.transpose(0, 1)])
    row[0] = 77
    assert whole[1, 0].item() == 77 == across[0, 1].item() and x[1, 0].item() == 3
    assert across.stride() == (1, 3)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_copies_keep_everything(copied, dtype):
    x = torch.tensor([1, 0, 1], dtype=dtype)
    x.note = "mine"
    if dtype.is_floating_point:
        x.requires_grad_()
    y = copied(x)
    assert y.dtype == dtype and y.tolist() == x.tolist() and y.note == "mine"
    assert y.requires_grad == x.requires_grad and y.data_ptr() != x.data_ptr()


def test_only_leaves_are_copied():
    y = torch.ones(1, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(y)


def test_what_was_computed_is_pickled_as_a_leaf():
    found = pickle.loads(pickle.dumps(torch.ones(1, requires_grad=True) * 2))
    assert found.tolist() == [2]
    assert found.is_leaf
    assert found.requires_grad


@pytest.mark.parametrize("value", [torch.float32, torch.device("cpu"), torch.Size([2]),
                                   torch.channels_last, torch.strided, torch.Generator()])
def test_other_things_are_pickled(value):
    back = pickle.loads(pickle.dumps(value))
    assert type(back) is type(value)
    assert isinstance(value, torch.Generator) or back == value


# -- subclasses ----------------------------------------------------------------------------------


class Plain(torch.Tensor):
    pass


class Counting(torch.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_results_of_a_subclass_are_of_the_subclass():
    x = Plain([1.0, 2.0])
    found = [x + 1, 1 - x, x.sum(), torch.exp(x), x[0], x.reshape(2, 1), x.unbind()[0], x.double()]
    assert [type(f) for f in found] == [Plain] * len(found)
    assert x.add_(1) is x and repr(x) == "Plain([2., 3.])"
    assert type(copy.deepcopy(x)) is Plain


def test_gradients_reach_a_leaf_of_a_subclass():
    x = Plain([1.0, 2.0]).requires_grad_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_an_override_sees_the_public_function():
    Counting.calls.clear()
    x = torch.ones(2).as_subclass(Counting)
    assert type(x * 2 + torch.ones(2)) is Counting
    assert Counting.calls == ["mul", "add"]


def test_parameters_give_plain_tensors():
    assert type(torch.nn.Parameter(torch.ones(1)) * 2) is torch.Tensor


def test_duck_typed_tensors():
    class Answer:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return 42 if func is torch.add else NotImplemented

    assert torch.add(Answer(), 1) == 42 == torch.add(torch.ones(1), Answer())
    with pytest.raises(TypeError, match=r"no implementation found for 'torch\.exp'"):
        torch.exp(Answer())
    assert torch.overrides.has_torch_function((1, Answer()))

    class Told:
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func.__name__, args[0] is self  # a method of the argument, as older programs do

    assert torch.exp(Told()) == ("exp", True)
    assert torch.overrides.is_tensor_like(Answer())


# -- Python's own protocols ----------------------------------------------------------------------


def test_numbers():
    x = torch.tensor(3)
    assert int(x) == 3 and float(x) == 3.0 and [10, 20, 30, 40][x] == 40 and bool(x)
    assert f"{torch.tensor(1.5):.3f}" == "1.500" and hash(x) == id(x)
    assert 2 in torch.arange(3) and 2.5 not in torch.arange(3) and x in torch.full((2, 2), 3)
    with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
        assert "3" in torch.arange(4)
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(torch.ones(2))
    with pytest.raises(TypeError, match="0-d"):
        len(x)
    with pytest.raises(TypeError):
        format(torch.ones(2), ".2f")


def test_settings():
    assert torch.get_num_threads() >= 1
    with pytest.raises(RuntimeError, match="positive"):
        torch.set_num_threads(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert torch.get_deterministic_debug_mode() == 1
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.result_type(torch.ones(1, dtype=torch.int8), 2.5) == torch.float32
    assert torch.promote_types(torch.int8, torch.uint8) == torch.int16
    assert not torch.can_cast(torch.float32, torch.int32)
    assert torch.broadcast_shapes((2, 1), (3,)) == (2, 3)
