"""nn.Module: registration, traversal, state, hooks, conversion, copying, printing."""

import copy
import gc
import io
import pickle
import weakref
from collections import OrderedDict

import pytest

import flambeau
from flambeau import nn
from flambeau.nn.modules import module as module_hooks


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.scale = nn.Parameter(flambeau.ones(2))
        self.register_buffer("seen", flambeau.zeros(1))
        self.register_buffer("scratch", flambeau.zeros(1), persistent=False)
        self.tail = nn.Sequential(nn.ReLU(), nn.Linear(2, 1, bias=False))

    def forward(self, x):
        return self.tail(self.fc(x) * self.scale)


PARAMETERS = ["scale", "fc.weight", "fc.bias", "tail.1.weight"]


@pytest.fixture
def net():
    flambeau.manual_seed(0)
    return Net()


def equal(a, b):
    return flambeau.equal(a.detach(), b.detach())


# -- registration -----------------------------------------------------------------------------


def test_assignment_registers(net):
    assert [name for name, _ in net.named_parameters()] == PARAMETERS
    assert [name for name, _ in net.named_buffers()] == ["seen", "scratch"]
    assert [name for name, _ in net.named_children()] == ["fc", "tail"]
    paths = ["", "fc", "tail", "tail.0", "tail.1"]
    assert [path for path, _ in net.named_modules()] == paths
    assert net.scale is dict(net.named_parameters())["scale"]


def test_reading_a_parameter_is_a_plain_lookup(net):
    assert net.__dict__["scale"] is net.scale
    assert net.__dict__["fc"] is net.fc
    assert net._parameters["scale"] is net.scale


def test_getattr_by_its_own_name(net):
    """Programs that number their layers call it so, and wrappers call their parent's."""
    for name, value in [*net.named_parameters(recurse=False), *net.named_children()]:
        assert net.__getattr__(name) is value
    with pytest.raises(AttributeError, match="no attribute 'layer_7'"):
        net.__getattr__("layer_7")


def test_views_write_through(net):
    other = nn.Parameter(flambeau.zeros(2))
    net._parameters["scale"] = other
    assert net.scale is other
    del net._parameters["scale"]
    assert not hasattr(net, "scale")
    assert "scale" not in net._parameters
    with pytest.raises(KeyError):
        net._parameters["fc"]


def test_replacing_and_deleting(net):
    fresh = nn.Parameter(flambeau.zeros(2))
    net.scale = fresh
    assert dict(net.named_parameters())["scale"] is fresh
    net.scale = None
    assert "scale" not in dict(net.named_parameters())
    assert net.scale is None
    del net.scale
    assert not hasattr(net, "scale")
    del net.fc
    assert [name for name, _ in net.named_children()] == ["tail"]


def test_a_name_can_change_kind(net):
    net.seen = nn.ReLU()
    assert "seen" in net._modules
    assert "seen" not in net._buffers
    net.seen = nn.Parameter(flambeau.ones(1))
    assert "seen" in net._parameters
    assert "seen" not in net._modules
    assert list(net._parameters) == ["scale", "seen"]


def test_buffers_take_tensors_and_nothing_else(net):
    net.seen = flambeau.ones(1)
    assert float(net._buffers["seen"]) == 1
    with pytest.raises(TypeError, match="as buffer 'seen'"):
        net.seen = 3
    net.extra = nn.Buffer(flambeau.ones(2), persistent=False)
    assert "extra" in net._buffers
    assert "extra" not in net.state_dict()


def test_a_plain_tensor_is_a_plain_attribute(net):
    net.note = flambeau.ones(2)
    assert "note" not in net._buffers
    assert "note" not in net.state_dict()


@pytest.mark.parametrize(
    ("deed", "error", "text"),
    [
        (lambda m: setattr(m, "scale", flambeau.ones(2)), TypeError, "as parameter 'scale'"),
        (lambda m: setattr(m, "fc", 3), TypeError, "as child module 'fc'"),
        (lambda m: m.register_parameter("a.b", None), KeyError, "contain"),
        (lambda m: m.register_parameter("", None), KeyError, "empty string"),
        (lambda m: m.register_parameter("forward", None), KeyError, "already exists"),
        (lambda m: m.register_parameter("p", flambeau.ones(1)), TypeError, "Parameter or None"),
        (lambda m: m.register_buffer("fc", None), KeyError, "already exists"),
        (lambda m: m.register_buffer(3, None), TypeError, "should be a string"),
        (lambda m: m.add_module("x", 3), TypeError, "not a Module subclass"),
        (lambda m: m.no_such_thing, AttributeError, "has no attribute 'no_such_thing'"),
        (lambda m: m.train("yes"), ValueError, "expected to be boolean"),
        (lambda m: m.get_submodule("fc.x"), AttributeError, "has no attribute `x`"),
        (lambda m: m.get_parameter("fc"), AttributeError, "not an nn.Parameter"),
        (lambda m: m.get_buffer("scale"), AttributeError, "not a buffer"),
        (lambda m: m.to(flambeau.int64), TypeError, "floating point or complex"),
    ],
)
def test_mistakes_are_named(net, deed, error, text):
    with pytest.raises(error, match=text):
        deed(net)


def test_assignment_before_init_is_refused():
    class Early(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"before Module.__init__\(\) call"):
        Early()


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        nn.Module(size=3)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        nn.Module(3)


def test_shared_parameters_are_listed_once(net):
    net.again = net.fc
    net.tied = net.scale
    assert [name for name, _ in net.named_parameters()] == ["scale", *PARAMETERS[1:]]
    duplicates = [name for name, _ in net.named_parameters(remove_duplicate=False)]
    assert "again.weight" in duplicates
    assert "tied" in duplicates


def test_lookup_by_path(net):
    assert net.get_submodule("tail.1") is net.tail[1]
    assert net.get_submodule("") is net
    assert net.get_parameter("fc.weight") is net.fc.weight
    assert net.get_buffer("seen") is net.seen
    new = nn.Tanh()
    net.set_submodule("tail.0", new)
    assert net.tail[0] is new


def test_registration_hooks():
    seen = []
    handle = module_hooks.register_module_parameter_registration_hook(
        lambda module, name, value: seen.append((type(module).__name__, name))
    )
    with handle:
        nn.Linear(1, 1)
    nn.Linear(1, 1)
    assert seen == [("Linear", "weight"), ("Linear", "bias")]


def test_a_module_is_freed_without_the_garbage_collector():
    gc.disable()
    try:
        module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        inner = weakref.ref(module[0])
        del module
        assert inner() is None
    finally:
        gc.enable()


# -- modes, gradients, conversion -------------------------------------------------------------


def test_train_and_eval_reach_everything(net):
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    net.train()
    assert all(module.training for module in net.modules())


def test_requires_grad_and_zero_grad(net):
    net(flambeau.ones(1, 3)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all(float(p.grad.abs().sum()) == 0 for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_conversion_keeps_parameters_the_same_objects(net):
    before = list(net.parameters())
    net.double()
    assert all(a is b for a, b in zip(before, net.parameters()))
    assert all(p.dtype == flambeau.float64 for p in net.parameters())
    assert net.seen.dtype == flambeau.float64
    assert all(p.is_leaf and p.requires_grad for p in net.parameters())
    for convert, dtype in (("half", flambeau.float16), ("bfloat16", flambeau.bfloat16)):
        assert getattr(net, convert)().scale.dtype == dtype
    assert net.to(flambeau.float32).scale.dtype == flambeau.float32
    assert net.to("cpu", flambeau.float64).fc.weight.dtype == flambeau.float64
    assert net.to(flambeau.ones(1)).fc.weight.dtype == flambeau.float32


def test_integer_buffers_keep_their_dtype():
    norm = nn.BatchNorm1d(2).double()
    assert norm.num_batches_tracked.dtype == flambeau.int64
    assert norm.running_mean.dtype == flambeau.float64


def test_conversion_takes_gradients_along(net):
    net(flambeau.ones(1, 3)).sum().backward()
    net.double()
    assert net.scale.grad.dtype == flambeau.float64


def test_apply_visits_children_first(net):
    seen = []
    net.apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


# -- state --------------------------------------------------------------------------------------


def test_state_dict_names_and_sharing(net):
    state = net.state_dict()
    assert list(state) == ["scale", "seen", "fc.weight", "fc.bias", "tail.1.weight"]
    assert isinstance(state, OrderedDict)
    assert state._metadata["fc"] == {"version": 1}
    with flambeau.no_grad():
        net.scale.fill_(7)
    assert float(state["scale"][0]) == 7
    assert not state["scale"].requires_grad
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    assert list(net.fc.state_dict(prefix="x.")) == ["x.weight", "x.bias"]


def test_state_round_trip(net):
    other = Net()
    report = other.load_state_dict(net.state_dict())
    assert str(report) == "<All keys matched successfully>"
    assert all(equal(a, b) for a, b in zip(net.parameters(), other.parameters()))
    assert other.scale is not net.scale


def test_assign_takes_the_tensors_themselves(net):
    weight = flambeau.zeros(2, 3, dtype=flambeau.float64)
    bias = nn.Parameter(flambeau.zeros(2))
    net.fc.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    assert net.fc.bias is bias
    assert net.fc.weight.dtype == flambeau.float64
    assert isinstance(net.fc.weight, nn.Parameter)
    assert net.fc.weight.data_ptr() == weight.data_ptr()


def test_strictness(net):
    state = net.state_dict()
    state["stranger"] = state.pop("scale")
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    assert text.startswith("Error(s) in loading state_dict for Net:\n\tMissing key(s)")
    assert 'Missing key(s) in state_dict: "scale". ' in text
    assert 'Unexpected key(s) in state_dict: "stranger". ' in text
    report = net.load_state_dict(state, strict=False)
    assert report.missing_keys == ["scale"]
    assert report.unexpected_keys == ["stranger"]


def test_size_mismatch_is_named(net):
    with pytest.raises(RuntimeError, match="size mismatch for weight: copying a param with shape"):
        net.fc.load_state_dict({"weight": flambeau.ones(2, 2), "bias": flambeau.ones(2)})


def test_a_wrapper_in_the_keys_is_recognised(net):
    wrapped = {f"module.{key}": value for key, value in net.state_dict().items()}
    with pytest.raises(RuntimeError, match=r"has 'module\.' in front"):
        net.load_state_dict(wrapped)


def test_a_renamed_key_is_recognised(net):
    state = net.state_dict()
    state["fc.weights"] = state.pop("fc.weight")
    with pytest.raises(RuntimeError, match=r"Perhaps renamed: 'fc\.weights' -> 'fc\.weight'"):
        net.load_state_dict(state)


def test_what_is_not_a_state_is_refused(net):
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like"):
        net.load_state_dict([1, 2])
    with pytest.raises(RuntimeError, match='While copying the parameter named "weight"'):
        net.fc.load_state_dict({"weight": 3, "bias": flambeau.ones(2)})


def test_extra_state():
    class Counting(nn.Linear):
        calls = 0

        def get_extra_state(self):
            return {"calls": self.calls}

        def set_extra_state(self, state):
            self.calls = state["calls"]

    one, two = nn.Sequential(Counting(1, 1)), nn.Sequential(Counting(1, 1))
    one[0].calls = 5
    state = one.state_dict()
    assert state["0._extra_state"] == {"calls": 5}
    two.load_state_dict(state)
    assert two[0].calls == 5
    del state["0._extra_state"]
    with pytest.raises(RuntimeError, match="_extra_state"):
        two.load_state_dict(state)


def test_state_hooks(net):
    log = []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: log.append("before saving"))
    net.register_state_dict_post_hook(lambda m, state, prefix, meta: state.pop("seen"))
    net.register_load_state_dict_pre_hook(lambda m, state, *rest: state.update(seen=m.seen + 1))
    net.register_load_state_dict_post_hook(lambda m, keys: log.append("after loading"))
    with pytest.raises(RuntimeError, match="must return None"):
        net.state_dict()
    net._state_dict_hooks.clear()

    def drop(module, state, prefix, metadata):
        del state["seen"]

    net.register_state_dict_post_hook(drop)
    state = net.state_dict()
    assert "seen" not in state
    net.load_state_dict(state)
    assert float(net.seen) == 1
    assert log == ["before saving", "before saving", "after loading"]


# -- hooks --------------------------------------------------------------------------------------


def test_forward_hooks_run_in_order_and_replace():
    layer, log = nn.Identity(), []

    def pre(module, args):
        log.append("pre")
        return (args[0] + 1,)

    def post(module, args, output):
        log.append("post")
        return output * 10

    handles = [
        layer.register_forward_hook(post),
        layer.register_forward_pre_hook(pre),
        layer.register_forward_pre_hook(lambda m, args: log.append("first"), prepend=True),
    ]
    assert float(layer(flambeau.ones(1))) == 20
    assert log == ["first", "pre", "post"]
    for handle in handles:
        handle.remove()
    assert float(layer(flambeau.ones(1))) == 1


def test_hooks_with_keyword_arguments():
    class Scale(nn.Module):
        def forward(self, x, by=1):
            return x * by

    layer, seen = Scale(), []
    layer.register_forward_pre_hook(lambda m, args, kw: (args, {"by": 3}), with_kwargs=True)
    layer.register_forward_hook(lambda m, args, kw, out: seen.append(kw["by"]), with_kwargs=True)
    assert float(layer(flambeau.ones(1), by=2)) == 3
    assert seen == [3]
    layer.register_forward_pre_hook(lambda m, args, kw: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        layer(flambeau.ones(1))


def test_always_called_hooks_see_failures():
    class Failing(nn.Module):
        def forward(self, x):
            raise ZeroDivisionError

    layer, seen = Failing(), []
    layer.register_forward_hook(lambda *given: seen.append("usual"))
    layer.register_forward_hook(lambda *given: seen.append("always"), always_call=True)
    with pytest.raises(ZeroDivisionError):
        layer(1)
    assert seen == ["always"]


def test_full_backward_hooks_see_and_change_gradients():
    layer, seen = nn.Linear(2, 2, bias=False), {}
    with flambeau.no_grad():
        layer.weight.copy_(flambeau.tensor([[1.0, 2.0], [3.0, 4.0]]))

    def pre(module, grad_output):
        seen["pre"] = grad_output
        return (grad_output[0] * 2,)

    def post(module, grad_input, grad_output):
        seen["input"], seen["output"] = grad_input[0].clone(), grad_output[0].clone()
        return (grad_input[0] * 10,)

    layer.register_full_backward_pre_hook(pre)
    layer.register_full_backward_hook(post)
    x = flambeau.ones(1, 2, requires_grad=True)
    layer(x).sum().backward()
    assert seen["pre"][0].tolist() == [[1, 1]]
    assert seen["output"].tolist() == [[2, 2]]
    assert seen["input"].tolist() == [[8, 12]]
    assert x.grad.tolist() == [[80, 120]]
    assert layer.weight.grad.tolist() == [[2, 2], [2, 2]]


def test_full_backward_hook_without_an_input_gradient():
    layer, seen = nn.Linear(2, 1), []
    layer.register_full_backward_hook(lambda m, gin, gout: seen.append((gin, gout[0].tolist())))
    layer(flambeau.ones(1, 2)).sum().backward()
    assert seen == [((None,), [[1]])]


def test_full_backward_hook_of_several_outputs():
    class Two(nn.Module):
        def forward(self, x, y):
            return x * 2, "text", y * 3

    layer, seen = Two(), []

    def hook(module, grad_input, grad_output):
        seen.append([None if g is None else float(g) for g in (*grad_input, *grad_output)])

    layer.register_full_backward_hook(hook)
    x, y = flambeau.ones(1, requires_grad=True), flambeau.ones(1, requires_grad=True)
    a, _, b = layer(x, y)
    (a + 5 * b).sum().backward()
    assert seen == [[2, 15, 1, None, 5]]


def test_backward_hooks_of_two_flavours_do_not_mix():
    layer = nn.Linear(1, 1)
    layer.register_full_backward_hook(lambda *given: None)
    with pytest.raises(RuntimeError, match="Cannot use both"):
        layer.register_backward_hook(lambda *given: None)


def test_hooks_of_every_module(net):
    seen = []
    with module_hooks.register_module_forward_hook(
        lambda module, args, out: seen.append(type(module).__name__)
    ):
        net(flambeau.ones(1, 3))
    net(flambeau.ones(1, 3))
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


def test_removed_hooks_cost_nothing():
    layer = nn.Identity()
    layer.register_forward_hook(lambda *given: None).remove()
    module_hooks.register_module_forward_hook(lambda *given: None).remove()
    layer(1)
    assert not layer._hooked


# -- copying ------------------------------------------------------------------------------------


def test_deepcopy_is_independent(net):
    net.twin = net.fc
    other = copy.deepcopy(net)
    assert other.fc is not net.fc
    assert other.twin is other.fc
    assert other.scale.requires_grad
    assert isinstance(other.scale, nn.Parameter)
    with flambeau.no_grad():
        other.scale.fill_(9)
    assert float(net.scale[0]) == 1
    assert list(other.state_dict()) == list(net.state_dict())
    assert "scratch" not in other.state_dict()


def test_shallow_copy_registers_on_its_own(net):
    other = copy.copy(net)
    assert other.fc is net.fc
    other.extra = nn.Parameter(flambeau.ones(1))
    assert "extra" not in net._parameters


def test_pickle_round_trip(net):
    net.eval()
    other = pickle.loads(pickle.dumps(net))
    assert not other.training
    assert [name for name, _ in other.named_parameters()] == PARAMETERS
    assert all(equal(a, b) for a, b in zip(net.parameters(), other.parameters()))
    assert equal(other(flambeau.ones(1, 3)), net(flambeau.ones(1, 3)))
    assert isinstance(other.scale, nn.Parameter)


def test_the_pickled_state_has_the_known_names(net):
    state = net.__getstate__()
    assert list(state["_parameters"]) == ["scale"]
    assert list(state["_buffers"]) == ["seen", "scratch"]
    assert list(state["_modules"]) == ["fc", "tail"]
    assert "scale" not in state


def test_a_state_without_hook_tables_can_be_set(net):
    layer = nn.Linear.__new__(nn.Linear)
    wanted = ("training", "in_features", "out_features", "_parameters", "_buffers", "_modules")
    state = {k: v for k, v in net.fc.__getstate__().items() if k in wanted}
    layer.__setstate__(state)
    assert equal(layer(flambeau.ones(1, 3)), net.fc(flambeau.ones(1, 3)))
    layer.register_forward_hook(lambda *given: None)


def test_parameters_copy_and_pickle_as_parameters():
    parameter = nn.Parameter(flambeau.arange(3.0), requires_grad=False)
    for other in (copy.deepcopy(parameter), pickle.loads(pickle.dumps(parameter))):
        assert isinstance(other, nn.Parameter)
        assert not other.requires_grad
        assert other.tolist() == [0, 1, 2]
        assert other.data_ptr() != parameter.data_ptr()


def test_what_is_computed_from_a_parameter_is_a_tensor():
    parameter = nn.Parameter(flambeau.ones(2))
    assert type(parameter * 2) is flambeau.Tensor
    assert type(parameter.detach()) is flambeau.Tensor
    assert type(parameter.data) is flambeau.Tensor
    assert parameter.is_leaf
    assert repr(parameter).startswith("Parameter containing:\ntensor(")


def test_state_survives_a_file(net):
    file = io.BytesIO()
    pickle.dump(net.state_dict(), file)
    file.seek(0)
    state = pickle.load(file)
    Net().load_state_dict(state)
    assert state._metadata["fc"] == {"version": 1}


# -- printing -----------------------------------------------------------------------------------


def test_repr(net):
    assert repr(nn.Linear(3, 2)) == "Linear(in_features=3, out_features=2, bias=True)"
    assert repr(net) == (
        "Net(\n"
        "  (fc): Linear(in_features=3, out_features=2, bias=True)\n"
        "  (tail): Sequential(\n"
        "    (0): ReLU()\n"
        "    (1): Linear(in_features=2, out_features=1, bias=False)\n"
        "  )\n"
        ")"
    )


def test_dir_lists_what_is_registered(net):
    assert {"fc", "scale", "seen", "forward"} <= set(dir(net))
    assert "0" not in dir(net.tail)


def test_a_full_backward_hook_before_an_op_in_place():
    net, seen = nn.Sequential(nn.Linear(3, 2), nn.ReLU(inplace=True)), []
    net[0].register_full_backward_hook(lambda _, into, out: seen.append(out[0].shape))
    net(flambeau.ones(4, 3)).sum().backward()
    assert seen == [(4, 2)] and net[0].weight.grad is not None


def test_what_cannot_be_assigned_is_said_in_torchs_words():
    layer = nn.Linear(1, 1)
    with pytest.raises(TypeError, match=r"cannot assign 'torch.FloatTensor' as parameter 'weight' "
                                        r"\(torch.nn.Parameter or None expected\)"):
        layer.weight = flambeau.ones(1)
    with pytest.raises(TypeError, match=r"cannot assign 'int' object to buffer 'b' "
                                        r"\(torch.nn.Buffer, torch.Tensor or None required\)"):
        layer.register_buffer("b", 3)
