"""Constructs that packages written for PyTorch rely on, each in a few lines."""

import io
import pickle
import warnings

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.utils import _pytree as pytree


def test_what_is_registered_is_asked_of_a_getattr_of_the_class():
    asked = []

    class Asking(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.inner = nn.Linear(1, 1)
            self.plain = 3

        def __getattr__(self, name):
            asked.append(name)
            return super().__getattr__(name)

    class Below(Asking):
        pass

    module = Below()
    asked.clear()
    assert module.weight.shape == (2,) and module.plain == 3
    assert isinstance(module.inner, nn.Linear)
    assert asked == ["weight", "inner"]
    with pytest.raises(AttributeError):
        module.missing
    assert sorted(module.state_dict()) == ["inner.bias", "inner.weight", "weight"]


def test_modules_may_use_the_names_of_helpers():
    names = ("_collect", "_register", "_named", "_assign", "_at", "_replace", "_vacate", "_own",
             "_own_state", "_strangers", "_load_tensor", "_hooked_state", "_check_name",
             "_add_hook", "_choose_backward", "_float_to", "_members")
    taken = {name: None for name in names}
    Module = type("Module", (nn.Linear,), taken)
    module = Module(2, 1)
    module.register_buffer("count", torch.zeros(1))
    module.register_forward_hook(lambda m, i, o: o * 0)
    module.child = nn.Linear(1, 1)
    assert [name for name, _ in module.named_parameters()] == [
        "weight", "bias", "child.weight", "child.bias"]
    assert len(list(module.modules())) == 2 and module.double().weight.dtype is torch.float64
    module.load_state_dict(module.state_dict())
    assert module(torch.ones(1, 2).double()).item() == 0


def test_named_members_and_views_of_registered():
    model = nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2))
    found = model._named_members(lambda m: m._buffers.items(), prefix="net")
    assert [name for name, _ in found] == [
        "net.1.running_mean", "net.1.running_var", "net.1.num_batches_tracked"]
    assert [name for name, _ in reversed(model._modules.items())] == ["1", "0"]


def test_data_of_a_result_has_a_version_of_its_own():
    x = torch.arange(3.0, requires_grad=True)
    h = x * 2
    total = (h * h).sum()
    h.data.mul_(2)
    assert h.tolist() == [0, 4, 8] and h._version == 0
    total.backward()
    assert x.grad.tolist() == [0, 16, 32]
    kept = (x * 3).data
    assert kept.add_(1).tolist() == [1, 4, 7]


def test_a_scratch_tensor_is_filled_behind_the_graph():
    class Fill(torch.autograd.Function):
        @staticmethod
        def forward(ctx, scratch, value, index):
            ctx.index = index
            scratch.data[index] = value
            return scratch

        @staticmethod
        def backward(ctx, g):
            return g, g[ctx.index], None

    x = torch.arange(3.0, requires_grad=True)
    steps, total = torch.empty(3, 4), 0
    for i in range(4):
        steps = Fill.apply(steps, x * (i + 1), (..., i))
        total = total + (steps[..., :i + 1] * steps[..., :i + 1]).sum()
    total.backward()
    assert x.grad.tolist() == [0, 100, 200]


def test_subclasses_stay_what_they_are():
    class Kind(torch.Tensor):
        pass

    x = torch.arange(6.0).view(2, 3).as_subclass(Kind).t()
    form = torch.contiguous_format
    assert type(x.data) is type(x.to(memory_format=form)) is type(x.clone(memory_format=form)) is (
        type(x.to(torch.float64, memory_format=form))) is Kind
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert type(torch.tensor(x)) is torch.Tensor
    assert type(nn.Parameter(torch.ones(1)).data) is torch.Tensor


def test_keys_of_trees():
    tree = {"a": [1, (2, 3)], "b": 4}
    found, spec = pytree.tree_flatten_with_path(tree)
    assert [(pytree.keystr(path), leaf) for path, leaf in found] == [
        ("['a'][0]", 1), ("['a'][1][0]", 2), ("['a'][1][1]", 3), ("['b']", 4)]
    assert pytree.key_get(tree, found[2][0]) == 3
    assert spec == pytree.tree_structure(tree)
    assert pytree.tree_map_with_path(lambda path, x, y: (len(path), x + y), tree, tree) == {
        "a": [(2, 2), ((3, 4), (3, 6))], "b": (1, 8)}
    assert pytree.MappingKey(0) != pytree.SequenceKey(0)
    node = pytree.SUPPORTED_NODES[pytree._get_node_type({"x": 1})]
    assert node.flatten_fn({"x": 1}) == ([1], ["x"])


def test_records_of_a_checkpoint_one_by_one():
    file = io.BytesIO()
    torch.save({"x": torch.arange(4.0)}, file)
    file.seek(0)
    reader = torch.PyTorchFileReader(file)
    assert "data.pkl" in reader.get_all_records() and not reader.has_record("data/9")
    assert reader.get_record("data.pkl").startswith(b"\x80")
    numbers = reader.get_storage_from_record("data/0", 4, torch.float32)
    assert numbers.shape == (0,) and list(numbers._typed_storage()) == [0, 1, 2, 3]
    bytes_only = reader.get_storage_from_record("data/0", 16, torch.UntypedStorage)
    assert bytes_only._typed_storage()._untyped_storage.nbytes() == 16
    start = reader.get_record_offset("data/0")
    assert file.getvalue()[start:start + 16] == torch.arange(4.0).numpy().tobytes()


def test_transforms_and_distributions_that_are_modules():
    class Scaling(torch.distributions.Transform, nn.Module):
        domain = codomain = torch.distributions.constraints.real
        bijective = True

        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(1, 1)

    class Own(torch.distributions.Distribution, nn.Module):
        arg_constraints = {}

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

    assert len(list(Scaling().parameters())) == 2 and len(list(Own().parameters())) == 1


def test_divergence_of_distributions_of_other_packages():
    class Alone:
        pass

    @torch.distributions.register_kl(Alone, Alone)
    def _(p, q):
        return torch.tensor(3.0)

    assert torch.distributions.kl_divergence(Alone(), Alone()) == 3
    with pytest.raises(TypeError):
        torch.distributions.register_kl("p", Alone)


def test_loaders_of_other_packages():
    from flambeau.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter

    class Loader:
        _IterableDataset_len_called = _index_sampler_made = generator = None
        _auto_collation, drop_last, in_order, persistent_workers = False, False, True, False
        num_workers = timeout = 0
        pin_memory, prefetch_factor, _dataset_kind = False, 2, _DatasetKind.Iterable
        worker_init_fn = multiprocessing_context = None
        collate_fn = staticmethod(lambda x: x)

        def __init__(self):
            self.dataset = self
            self._index_sampler = iter(range(9))

        def __iter__(self):
            return iter([torch.ones(2), torch.zeros(1)])

    assert [x.tolist() for x in _SingleProcessDataLoaderIter(Loader())] == [[1, 1], [0]]
    fetch = _DatasetKind.create_fetcher(_DatasetKind.Map, [1, 2, 3], True, list, False)
    assert fetch([0, 2]) == [1, 3]
    data = torch.utils.data
    assert data.DataLoader([1])._dataset_kind == _DatasetKind.Map
    assert data.DataLoader(type("S", (data.IterableDataset,), {})())._dataset_kind == 1


def test_checks():
    torch._check(True)
    for check, kind in ((torch._check, RuntimeError), (torch._check_index, IndexError),
                        (torch._check_value, ValueError), (torch._check_type, TypeError)):
        with pytest.raises(kind, match="too far"):
            check(False, lambda: "too far")
    with pytest.raises(RuntimeError, match="m"):
        torch._assert_async(torch.tensor(False), "m")


def test_sums_of_a_summary_are_written_as_others_made_them(tmp_path):
    from flambeau.utils.tensorboard import SummaryWriter
    from flambeau.utils.tensorboard.records import read_records
    from flambeau.utils.tensorboard.summary import hparams

    writer = SummaryWriter(tmp_path)
    for part in hparams({"lr": 0.1}, {"loss": 1.0}):
        writer._get_file_writer().add_summary(part, 2)
    writer.close()
    (file,) = tmp_path.iterdir()
    assert sum(b"_hparams_/" in record for record in read_records(file)) == 3


def test_private_names_are_there():
    from flambeau import futures, jit
    from flambeau._tensor_str import PRINT_OPTS, _tensor_str
    from flambeau._utils import _element_size, _get_device_index
    from flambeau.utils._foreach_utils import _group_tensors_by_device_and_dtype

    assert futures.Future[int] and issubclass(jit.TracerWarning, Warning)
    assert PRINT_OPTS.precision == 4 and _tensor_str(torch.ones(2), 0) == "[1., 1.]"
    assert _element_size(torch.float16) == 2 and _get_device_index("cpu", allow_cpu=True) == -1
    x, y = torch.ones(1), torch.ones(1).double()
    groups = _group_tensors_by_device_and_dtype([[x, y], [y, x]], with_indices=True)
    lists, places = groups[torch.device("cpu"), torch.float64]
    assert lists[0][0] is y and lists[1][0] is x and places == [1]
    assert torch._C._nn._parse_to("cpu", torch.float64)[:2] == (torch.device("cpu"), torch.float64)
    assert isinstance(torch.Tensor, torch._C._TensorMeta)
    assert not isinstance(torch.compile(nn.Linear(1, 1)), torch._dynamo.OptimizedModule)
    assert x._cdata == x._cdata != y._cdata
    assert torch.distributed.tensor.DTensor and torch.distributed.rpc.is_available() is False
    assert pickle.loads(pickle.dumps(torch.complex64)) is torch.complex64


def test_active_transforms_are_told():
    told = []

    def f(x):
        told.append(torch._C._are_functorch_transforms_active())
        return x * 2

    torch.vmap(f)(torch.ones(2))
    assert told == [True] and not torch._C._are_functorch_transforms_active()


def test_rows_of_sparse_matrices():
    rows, columns = torch.tensor([0, 0, 2]), torch.tensor([1, 0, 2])
    begins = torch._convert_indices_from_coo_to_csr(rows, 4)
    assert begins.tolist() == [0, 2, 2, 3, 3]
    back = torch._convert_indices_from_csr_to_coo(begins, columns, transpose=True)
    assert back.tolist() == [[1, 0, 2], [0, 0, 2]]
    aten = torch.ops.aten
    x = torch.eye(2).to_sparse()
    assert aten._sparse_addmm.default(torch.zeros(2, 2), x, torch.ones(2, 2)).sum() == 4
    assert aten._to_copy.default(begins, dtype=torch.int32).dtype is torch.int32


def test_operands_of_einsum_are_recorded_one_by_one():
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    x, y = (torch.fx.Proxy(graph.placeholder(name), tracer) for name in "xy")
    both = torch.einsum("ij,jk->ik", [x, y]) + torch.einsum("ij,jk->ik", (x, y))
    graph.output(both.node)
    calls = [node for node in graph.nodes if node.name.startswith("einsum")]
    assert [len(node.args) for node in calls] == [3, 3]
    assert torch.einsum("ij,jk->ik", [torch.ones(1, 2), torch.ones(2, 1)]).item() == 2
    program = torch.fx.GraphModule(nn.Module(), graph)
    assert program(torch.ones(1, 2), torch.ones(2, 1)).item() == 4
