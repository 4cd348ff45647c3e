"""Arguments by name are put in their places before fronts are asked, and none can tell."""

import pytest

import flambeau as torch


def test_names_in_any_order():
    x = torch.arange(24.0).view(2, 3, 4)
    assert torch.equal(torch.cat([x, x], dim=1), torch.cat([x, x], 1))
    assert torch.equal(torch.cat((x, x), dim=-1), torch.cat((x, x), -1))
    assert torch.equal(torch.cat(tensors=[x, x], dim=1), torch.cat([x, x], 1))
    assert torch.equal(x.transpose(dim1=2, dim0=0), x.transpose(0, 2))
    assert torch.equal(x.flatten(end_dim=1), x.flatten(0, 1))
    assert torch.equal(x.softmax(dim=0), x.softmax(0))
    index = torch.tensor([[[1, 0, 1, 0]]])
    assert torch.equal(x.gather(index=index, dim=2), x.gather(2, index))
    assert torch.equal(torch.gather(input=x, dim=2, index=index), x.gather(2, index))
    assert x.topk(k=2, largest=False, dim=2)[0].tolist() == x.topk(2, 2, False)[0].tolist()


def test_what_does_not_fit_is_refused_as_ever():
    x = torch.ones(2, 3)
    with pytest.raises(TypeError):
        x.transpose(0, dim0=1)
    with pytest.raises(TypeError):
        x.flatten(0, start_dim=1)
    with pytest.raises(TypeError):
        torch.cat([x], dimension=1)
    with pytest.raises(TypeError):
        x.softmax(dim=1, way=2)


def test_modes_and_subclasses_see_the_names():
    seen = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(dict(kwargs or {}))
            return func(*args, **(kwargs or {}))

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(dict(kwargs or {}))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(2, 3)
    with Watch():
        torch.cat([x, x], dim=1)
    x.as_subclass(Own).softmax(dim=0)
    assert {"dim": 1} in seen and {"dim": 0} in seen


def test_an_argument_that_answers_sees_the_names_wherever_it_stands():
    seen = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((len(args), *sorted(kwargs or {})))
            return super().__torch_function__(func, types, args, kwargs or {})

    x, own = torch.ones(2, 3), torch.ones(2, 3).as_subclass(Own)
    index = torch.zeros(2, 3, dtype=torch.int64).as_subclass(Own)
    torch.cat([x, own], dim=1)
    torch.stack((x, own), dim=1)
    x.gather(dim=1, index=index)
    x.scatter(dim=1, index=index, src=x)
    torch.nn.functional.mse_loss(x, target=own)
    assert seen == [(1, "dim"), (1, "dim"), (1, "dim", "index"), (1, "dim", "index", "src"),
                    (1, "target")]


def test_values_of_any_type_have_their_place():
    x = torch.arange(24.0).view(2, 3, 4)
    assert x.sum(dim=(0, 1)).tolist() == x.sum((0, 1)).tolist()
    assert x.permute(dims=[2, 0, 1]).shape == (4, 2, 3)
    assert torch.flip(x, dims=torch.Size([0])).tolist() == x.flip(0).tolist()
    assert [p.shape[0] for p in x[0].split(split_size=[1, 2], dim=0)] == [1, 2]

    class Unhashable(type):
        __hash__ = None

    with pytest.raises(TypeError):
        x.softmax(dim=Unhashable("Odd", (), {})())


def test_gradients_by_name():
    x = torch.ones(2, 3, requires_grad=True)
    (torch.cat([x, 2 * x], dim=1).softmax(dim=-1)[:, 0] * 3).sum().backward()
    again = torch.ones(2, 3, requires_grad=True)
    (torch.cat([again, 2 * again], 1).softmax(-1)[:, 0] * 3).sum().backward()
    assert torch.equal(x.grad, again.grad)
