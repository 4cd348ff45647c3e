"""What a beginner gets wrong, and is told: torch's exception, the op, the given and the wanted.

Each row: what is done, the exception torch raises for it, and the words its message must have.
"""

import contextlib
import weakref

import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn


def leaf(*shape):
    return torch.ones(*shape).requires_grad_(True)


def whole(*shape):
    return torch.ones(*shape, dtype=torch.int64)


def backward_twice():
    y = (leaf(3) * 2).exp().sum()
    y.backward()
    y.backward()


def assign(x, name, value):
    setattr(x, name, value)


def put(x, index, value):
    x[index] = value


T, ones = torch.tensor, torch.ones
INDEX, TYPE, VALUE, RUN = IndexError, TypeError, ValueError, RuntimeError

SHAPES = {
    "add":        (lambda: ones(2, 3) + ones(4, 5), RUN,
                   "add", "size of tensor a (3) must match", "tensor b (5)", "[2, 3]", "[4, 5]"),
    "mul_":       (lambda: ones(2, 3).mul_(ones(4, 5)), RUN, "mul", "[2, 3]", "[4, 5]"),
    "mm":         (lambda: torch.mm(ones(2, 3), ones(4, 5)), RUN,
                   "mm", "shapes cannot be multiplied (2x3 and 4x5)"),
    "mm rank":    (lambda: torch.mm(ones(2, 3), ones(3)), RUN,
                   "mm", "mat2 must be a matrix", "1-D"),
    "matmul":     (lambda: ones(2, 3) @ ones(4, 5), RUN, "matmul", "(2x3 and 4x5)"),
    "bmm":        (lambda: torch.bmm(ones(2, 3, 4), ones(3, 4, 5)), RUN,
                   "bmm", "to be: [2, 4] but got: [3, 4]"),
    "dot":        (lambda: torch.dot(ones(2), ones(3)), RUN,
                   "dot", "inconsistent tensor size", "2 and 3 elements"),
    "einsum":     (lambda: torch.einsum("ij,jk->ik", ones(2, 3), ones(4, 5)), RUN,
                   "einsum", "subscript j has size 4", "size 3"),
    "linear":     (lambda: nn.Linear(4, 2)(ones(3, 5)), RUN,
                   "linear", "(3x5 and 4x2)", "5 features", "wants 4"),
    "conv2d":     (lambda: F.conv2d(ones(1, 3, 5, 5), ones(1, 1, 2, 2)), RUN,
                   "weight of size [1, 1, 2, 2]", "to have 1 channels, but got 3 channels"),
    "conv2d rank": (lambda: F.conv2d(ones(3, 3), ones(1, 1, 2, 2)), RUN,
                    "conv2d", "Expected 3D (unbatched) or 4D (batched)", "[3, 3]"),
    "cat":        (lambda: torch.cat([ones(2, 3), ones(2, 4)]), RUN,
                   "cat", "except in dimension 0", "Expected size 3 but got size 4", "number 1"),
    "stack":      (lambda: torch.stack([ones(2), ones(3)]), RUN,
                   "stack expects each tensor to be equal size", "[2] at entry 0",
                   "[3] at entry 1"),
    "view":       (lambda: ones(2, 3).view(4, 2), RUN, "shape '[4, 2]' is invalid", "size 6"),
    "view -1":    (lambda: ones(2, 3).view(-1, -1), RUN, "only one dimension can be inferred"),
    "view of t":  (lambda: ones(2, 3).t().view(6), RUN,
                   "view", "Use .reshape(...) instead", "(3, 2)", "(6,)"),
    "reshape":    (lambda: ones(2, 3).reshape(7), RUN, "shape '[7]' is invalid", "size 6"),
    "expand":     (lambda: ones(2, 3).expand(4, 3), RUN,
                   "expand", "(4) must match the existing size (2)", "[4, 3]", "[2, 3]"),
    "split":      (lambda: ones(5).split([2, 2]), RUN, "split", "sum exactly to 5", "[2, 2]"),
    "layer_norm": (lambda: F.layer_norm(ones(2, 3), (4,)), RUN,
                   "normalized_shape=[4]", "[*, 4]", "[2, 3]"),
    "loss":       (lambda: F.cross_entropy(ones(2, 3), T([0, 1, 2])), VALUE,
                   "batch_size (2)", "batch_size (3)"),
    "assign":     (lambda: put(ones(3), slice(0, 2), ones(5)), RUN,
                   "copy_", "(2) must match", "(5)", "non-singleton dimension 0"),
    "copy_":      (lambda: ones(2, 2).copy_(ones(3)), RUN, "copy_", "[2, 2]", "[3]"),
    "negative":   (lambda: ones(-1), RUN, "ones", "negative dimension -1"),
    "state_dict": (lambda: nn.Linear(2, 2).load_state_dict({"weight": ones(3, 3)}), RUN,
                   "Linear", "Missing key(s)", "bias", "[3, 3]", "[2, 2]"),
}  # fmt: skip

DTYPES = {
    "matmul":        (lambda: ones(2, 3) @ ones(3, 4, dtype=torch.float64), RUN,
                      "matmul", "same dtype", "float"),
    "mean":          (lambda: whole(2).mean(), RUN, "mean", "floating point", "Long"),
    "add_":          (lambda: whole(2).add_(1.5), RUN, "add", "Float can't be cast", "Long"),
    "and":           (lambda: ones(2) & ones(2), NotImplementedError, "bitwise_and", "Float"),
    "minus bools":   (lambda: T([True]) - T([True]), RUN, "Subtraction", "bool", "logical_xor"),
    "minus bool":    (lambda: -T([True]), RUN, "Negation", "bool", "logical_not"),
    "int power":     (lambda: T([2]) ** -1, RUN, "Integers to negative integer powers"),
    "target":        (lambda: F.cross_entropy(ones(2, 3), T([0.0, 1.0])), RUN,
                      "target", "Long", "Float"),
    "gather":        (lambda: torch.gather(ones(2, 2), 0, ones(1, 2)), RUN,
                      "gather", "Expected dtype int32/int64 for index", "float32"),
    "mask":          (lambda: ones(2).masked_fill(ones(2), 1.0), RUN,
                      "masked_fill", "only supports boolean masks", "float"),
    "requires_grad": (lambda: T([1, 2], requires_grad=True), RUN,
                      "Only Tensors of floating point", "require gradients"),
    "default":       (lambda: torch.set_default_dtype(torch.int64), TYPE,
                      "floating-point", "int64"),
}  # fmt: skip

INDICES = {
    "number":      (lambda: ones(3)[3], INDEX, "index 3 is out of bounds", "size 3"),
    "negative":    (lambda: ones(3)[-4], INDEX, "index -4 is out of bounds", "size 3"),
    "too many":    (lambda: ones(3)[0, 0], INDEX, "too many indices for tensor of dimension 1"),
    "tensor":      (lambda: ones(3)[T([0, 7])], INDEX, "index 7 is out of bounds", "size 3"),
    "float":       (lambda: ones(3)[1.5], INDEX, "only integers, slices", "float"),
    "mask":        (lambda: ones(3)[T([True, False])], INDEX, "mask [2]", "indexed tensor [3]"),
    "select":      (lambda: ones(4).select(0, 9), INDEX, "select", "index 9 out of range", "[4]"),
    "narrow":      (lambda: ones(4).narrow(0, 3, 3), RUN,
                    "start (3) + length (3) exceeds dimension size (4)"),
    "gather":      (lambda: torch.gather(ones(2, 2), 0, T([[5, 0]])), RUN,
                    "gather", "index 5 is out of bounds", "size 2"),
    "embedding":   (lambda: F.embedding(T([10]), ones(3, 2)), INDEX, "10", "3"),
    "target":      (lambda: F.cross_entropy(ones(2, 3), T([0, 5])), INDEX,
                    "Target 5 is out of bounds", "3 classes"),
    "topk":        (lambda: ones(3).topk(5), RUN, "topk", "k out of range", "5", "3"),
    "dim":         (lambda: ones(2, 3).sum(2), INDEX,
                    "sum", "Dimension out of range", "[-2, 1], but got 2"),
    "transpose":   (lambda: ones(2, 3).transpose(0, 2), INDEX,
                    "transpose", "Dimension out of range", "[-2, 1], but got 2"),
    "softmax":     (lambda: torch.softmax(ones(2, 3), 5), INDEX,
                    "Dimension out of range", "[-2, 1], but got 5"),
    "unsqueeze":   (lambda: ones(2).unsqueeze(5), INDEX, "unsqueeze", "[-2, 1], but got 5"),
    "permute":     (lambda: ones(2, 3).permute(0, 0), RUN, "permute", "dim"),
    "size":        (lambda: ones(2).size(3), INDEX, "Dimension out of range", "but got 3"),
}  # fmt: skip

GRADIENTS = {
    "not a scalar":  (lambda: (leaf(3) * 2).backward(), RUN,
                      "implicitly created only for scalar outputs", "(3,)", ".sum()"),
    "no graph":      (lambda: ones(3).sum().backward(), RUN,
                      "element 0 of tensors does not require grad"),
    "other shape":   (lambda: (leaf(3) * 2).backward(ones(4)), RUN,
                      "Mismatch in shape", "[4]", "[3]"),
    "in place":      (lambda: leaf(3).add_(1), RUN,
                      "add_", "leaf Variable that requires grad", "in-place", "no_grad()"),
    "twice":         (backward_twice, RUN,
                      "backward through the graph a second time", "retain_graph=True"),
    "numpy":         (lambda: leaf(3).numpy(), RUN, "numpy()", "requires grad", "detach()"),
    "int":           (lambda: whole(2).requires_grad_(), RUN, "only Tensors of floating point"),
    "not a leaf":    (lambda: assign(leaf(2) * 2, "requires_grad", False), RUN,
                      "requires_grad flags of leaf variables", "detach()"),
    "grad shape":    (lambda: assign(leaf(3), "grad", ones(2)), RUN, "2", "3", "size"),
    "grad type":     (lambda: assign(leaf(3), "grad", 5), TYPE, "Tensor or None", "int"),
    "unused":        (lambda: torch.autograd.grad(leaf(3).sum(), leaf(2)), RUN,
                      "not have been used in the graph", "allow_unused=True"),
    "not wanted":    (lambda: torch.autograd.grad(leaf(3).sum(), ones(2)), RUN,
                      "does not require grad"),
    "hook":          (lambda: ones(2).register_hook(print), RUN, "hook", "require gradient"),
    "retain_grad":   (lambda: ones(2).retain_grad(), RUN, "retain_grad", "requires_grad=False"),
}  # fmt: skip

VALUES = {
    "item":         (lambda: ones(3).item(), RUN, "3 elements cannot be converted to Scalar"),
    "float":        (lambda: float(ones(3)), VALUE, "only one element tensors", "float()", "(3,)"),
    "int":          (lambda: int(ones(3)), VALUE, "only one element tensors can be converted"),
    "bool":         (lambda: bool(ones(3)), RUN, "more than one value is ambiguous", "(3,)"),
    "bool of none": (lambda: bool(ones(0)), RUN, "no values is ambiguous"),
    "if":           (lambda: 1 if ones(2) > 0 else 0, RUN, "more than one value is ambiguous"),
    "len":          (lambda: len(T(1)), TYPE, "len() of a 0-d tensor"),
    "iterate":      (lambda: list(T(1)), TYPE, "iteration over a 0-d tensor"),
    "max of none":  (lambda: ones(0).max(), RUN, "max()", "dim", "numel() == 0"),
    "ragged":       (lambda: T([[1, 2], [3]]), VALUE, "length 2 at dim 1 (got 1)"),
    "text":         (lambda: T("abc"), TYPE, "invalid data type 'str'"),
    "nothing":      (lambda: T(None), RUN, "infer dtype of NoneType"),
    "division":     (lambda: T([2]) // T([0]), RUN, "ZeroDivisionError"),
    "singular":     (lambda: torch.linalg.inv(torch.zeros(2, 2)), RUN, "linalg.inv", "singular"),
    "inverse":      (lambda: torch.linalg.inv(torch.zeros(2, 3)), RUN,
                     "linalg.inv", "square matrices", "2 by 3"),
    "arange":       (lambda: torch.arange(0, 5, -1), RUN, "arange", "step sign", "0", "5", "-1"),
    "dropout":      (lambda: F.dropout(ones(2), p=1.5), VALUE, "dropout", "between 0 and 1", "1.5"),
    "optimizer":    (lambda: torch.optim.SGD([], lr=0.1), VALUE, "empty parameter list"),
    "clamp":        (lambda: ones(2).clamp(), RUN, "clamp", "At least one of 'min' or 'max'"),
    "chunk":        (lambda: ones(5).chunk(0), RUN, "chunk", "greater than 0, got: 0"),
    "cat nothing":  (lambda: torch.cat([]), VALUE, "cat", "non-empty list of Tensors"),
}  # fmt: skip

CALLS = {
    "add None":    (lambda: ones(2) + None, TYPE, "+", "'Tensor' and 'NoneType'"),
    "add text":    (lambda: ones(2) + "a", TYPE, "+", "'Tensor' and 'str'"),
    "sin":         (lambda: torch.sin(1.0), TYPE,
                    "sin(): argument 'input' (position 1) must be Tensor, not float"),
    "sum":         (lambda: torch.sum("a"), TYPE, "sum()", "must be Tensor, not str"),
    "cat":         (lambda: torch.cat(ones(2)), TYPE,
                    "cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"),
    "keyword":     (lambda: ones(2).sum(dims=0), TYPE, "sum()", "dims"),
    "missing":     (lambda: ones(2).gather(0), TYPE, "gather()", "missing", "index"),
    "size":        (lambda: torch.zeros(2.5), TYPE, "zeros()", "'size'", "not float"),
    "from_numpy":  (lambda: torch.from_numpy([1, 2]), TYPE, "np.ndarray", "list"),
    "attribute":   (lambda: ones(2).no_such, AttributeError, "'Tensor'", "'no_such'"),
    "function":    (lambda: torch.no_such, AttributeError, "no_such"),
    "type":        (lambda: ones(2).type("NoTensor"), VALUE, "invalid type: 'NoTensor'"),
    "device":      (lambda: ones(3, device="gpu"), RUN,
                    "Expected one of cpu", "device string: gpu"),
    "device 2":    (lambda: torch.device("cpu:x"), RUN, "Invalid device string: 'cpu:x'"),
    "two devices": (lambda: ones(3, device="meta") + ones(3), RUN, "add", "device", "cpu", "meta"),
}  # fmt: skip

TORCH_WORDS = {
    "pool rank":   (lambda: F.max_pool2d(ones(3, 4), 2), RUN,
                    "non-empty 3D or 4D (batch mode) tensor expected for input", "[3, 4]"),
    "pool empty":  (lambda: F.avg_pool3d(ones(2, 0, 3, 3, 3), 2), RUN,
                    "non-batch dimension 0 has length zero"),
    "pool stride": (lambda: F.max_pool1d(ones(1, 1, 4), 2, stride=0), RUN,
                    "max_pool1d() stride must be greater than zero, but got 0"),
    "pool small":  (lambda: F.max_pool1d(ones(1, 1, 2), 4), RUN,
                    "max_pool1d() Invalid computed output size: 0"),
    "margin":      (lambda: F.multi_margin_loss(ones(5, 4), whole(3)), RUN,
                    "Expected target size [5], but got [3]. Input has shape [5, 4]."),
    "margin type": (lambda: F.multi_margin_loss(ones(5, 4), ones(5)), RUN,
                    "expected scalar type Long but found Float"),
    "labels":      (lambda: F.multilabel_margin_loss(ones(5, 4), whole(4)), RUN,
                    "inconsistent target size: [4] for input of size: [5, 4]"),
    "target":      (lambda: F.nll_loss(ones(3, 4), ones(3)), RUN,
                    "expected target dtype to be Long or Byte, but got Float"),
    "reshape":     (lambda: ones(1).reshape(0, -1), RUN,
                    "shape '[0, -1]' is invalid for input of size 1"),
    "reshape of none": (lambda: ones(0).reshape(0, -1), RUN, "can be any value and is ambiguous"),
    "gather":      (lambda: torch.gather(ones(1, 1), 1, whole(2, 2)), RUN,
                    "Size does not match at dimension 0 expected index [2, 2] to be no larger than",
                    "[1, 1] apart from dimension 1"),
    "index_add":   (lambda: ones(3, 2).index_add(0, T([0, 1]), ones(2)), RUN,
                    "source tensor shape must match self tensor shape, excluding the specified",
                    "self.shape = [3, 2] source.shape = [2]"),
    "ormqr":       (lambda: torch.ormqr(ones(()), ones(()), ones(())), RUN,
                    "torch.ormqr: input must have at least 2 dimensions"),
    "histogramdd": (lambda: torch.histogramdd(ones(5, 6), [2] * 5), RUN,
                    "The size of bins must be equal to the innermost dimension of the input"),
    "renorm":      (lambda: torch.renorm(ones(()), 0.5, 0, 1.0), RUN,
                    "renorm: input needs at least 2 dimensions, got 0 dimensions"),
    "hsplit":      (lambda: torch.hsplit(ones(4), "abc"), TYPE,
                    "received an invalid combination of arguments - got (Tensor, str)"),
    "true":        (lambda: ones(2) - True, RUN, "Subtraction, the `-` operator, with a bool"),
    "floor":       (lambda: ones(2) // 1j, NotImplementedError, "div_floor_cpu", "ComplexFloat"),
    "remainder":   (lambda: ones(2) % 1j, NotImplementedError, "remainder_cpu", "ComplexFloat"),
    "targets":     (lambda: F.cross_entropy(ones(2, 3), whole(2, 1)), RUN,
                    "0D or 1D target tensor expected, multi-target not supported"),
    "1D target":   (lambda: F.cross_entropy(ones(3), whole(2)), VALUE,
                    "For 1D input, 1D target must have size 1, but got target size: 2"),
    "linear":      (lambda: nn.Linear(2, 2)(ones(1, 2).double()), RUN,
                    "mat1 and mat2 must have the same dtype, but got Double and Float"),
    "matmul":      (lambda: ones(2, 2) @ ones(2, 2).double(), RUN,
                    "expected m1 and m2 to have the same dtype, but got: float != double"),
    "add_module":  (lambda: nn.Module().add_module("a", ones(1)), TYPE,
                    "torch.FloatTensor is not a Module subclass"),
    "params":      (lambda: torch.optim.SGD(ones(1), lr=0.1), TYPE,
                    "an iterable of Tensors or dicts, but got torch.FloatTensor"),
    "timeout":     (lambda: next(iter(torch.utils.data.DataLoader([1], timeout=5))),
                    AssertionError, "requires timeout == 0"),
    "exp_":        (lambda: ones(2).exp_("a"), TYPE, "exp_()", "0 positional"),
    "float":       (lambda: ones(2).float("a"), TYPE, "positional"),
    "flip":        (lambda: ones(2).flip(0.5), TYPE, "float"),
    "sum(True)":   (lambda: ones(2, 5).amax(True), TYPE, "'dim' must be tuple of ints, not bool"),
    "Size":        (lambda: torch.Size([1.5]), TYPE, "an iterable of 'int' (item 0 is 'float')"),
    "linspace":    (lambda: torch.linspace(0, 1, 2.0), TYPE,
                    "received an invalid combination of arguments - got (int, int, float)"),
    "mean":        (lambda: ones(2).mean(dtype=torch.int64), RUN, "Optional dtype must be", "Long"),
    "out of amax": (lambda: torch.amax(ones(2), 0, out=whole(1)), RUN,
                    "got Float for input's dtype and Long for out's dtype"),
    "out of aminmax": (lambda: torch.aminmax(ones(2), out=(ones(()).double(), ones(()).double())),
                       RUN, "Expected out tensor to have dtype float, but got double instead"),
    "out of complex": (lambda: torch.complex(ones(2).double(), ones(2).double(),
                                             out=torch.zeros(2, dtype=torch.complex64)), RUN,
                       "scalar type ComplexDouble but got scalar type ComplexFloat for argument"),
    "normal_":     (lambda: ones(2).normal_(0, -1), RUN, "normal expects std >= 0.0, but found"),
    "multinomial": (lambda: torch.multinomial(T([-1.0, 2]), 2, True), RUN,
                    "invalid multinomial distribution (encountering probability entry < 0)"),
    "multinomial inf": (lambda: torch.multinomial(T([torch.inf, 2]), 2, True), RUN,
                        "(encountering probability entry = infinity or NaN)"),
    "multinomial out": (lambda: torch.multinomial(ones(2), 1, out=ones(1)), RUN,
                        "multinomial expects Long tensor out, got: Float"),
    "many":        (lambda: torch.multinomial(torch.empty(2**24 + 1), 1), RUN,
                    "number of categories cannot exceed 2^24"),
    "cell input":  (lambda: nn.GRUCell(10, 20)(ones(3, 11)), RUN,
                    "input has inconsistent input_size: got 11 expected 10"),
    "cell hidden": (lambda: nn.RNNCell(10, 20)(ones(3, 10), ones(3, 21)), RUN,
                    "hidden0 has inconsistent hidden_size: got 21, expected 20"),
    "cell batch":  (lambda: nn.LSTMCell(10, 20)(ones(3, 10), (ones(3, 20), ones(5, 20))), RUN,
                    "Input batch size 3 doesn't match hidden1 batch size 5"),
}  # fmt: skip

KINDS = {"shapes": SHAPES, "dtypes": DTYPES, "indices": INDICES, "gradients": GRADIENTS,
         "values": VALUES, "calls": CALLS, "torch's words": TORCH_WORDS}  # fmt: skip
CASES = [pytest.param(*row[:2], row[2:], id=f"{kind}: {name}")
         for kind, rows in KINDS.items() for name, row in rows.items()]


@pytest.mark.parametrize(("mistake", "kind", "words"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_a_mistake_is_explained(mistake, kind, words):
    with pytest.raises(kind) as caught:
        mistake()
    # Subclasses of its own would be caught by other handlers than those a torch program has.
    assert caught.type is kind or caught.type.__name__ == "LinAlgError"
    message = str(caught.value)
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


@pytest.mark.parametrize("change", ["y.add_(1)", "y.mul_(2)", "y[0] = 5.0", "y.t().zero_()",
                                    "y.detach().fill_(1)"])
def test_a_changed_tensor_names_the_line(change):
    """Which step kept the tensor, and the line that changed it."""
    x = leaf(2, 2)
    y = x * 1.0
    z = y * y
    code = compile(f"\n\n{change}", "changing.py", "exec")
    exec(code, {"y": y})
    with pytest.raises(RuntimeError) as caught:
        z.sum().backward()
    message = str(caught.value)
    for word in ("modified by an inplace operation", "[2, 2]", "MulBackward0", "version",
                 "changing.py:3"):
        assert word in message, f"{word!r} is not in: {message}"


def test_a_mistake_leaves_everything_as_it_was():
    x, y = leaf(3), ones(3)
    for mistake in (lambda: x.add_(1), lambda: y.add_(ones(4)), lambda: y.copy_(ones(2, 2)),
                    lambda: put(y, 7, 1.0), lambda: (x * 2).backward()):
        with pytest.raises((RuntimeError, IndexError)):
            mistake()
    assert x.tolist() == y.tolist() == [1.0, 1.0, 1.0]
    assert x.grad is None and torch.is_grad_enabled()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_a_mistake_holds_no_tensor():
    """An exception that is over does not keep what it was about."""
    x = ones(2, 3)
    gone = weakref.ref(x)
    with contextlib.suppress(RuntimeError):
        x + ones(4, 5)
    del x
    assert gone() is None


@pytest.mark.parametrize("call, words", [
    (lambda a, b: torch.where(a > 0, b, b),                       "where: The size of tensor a"),
    (lambda a, b: F.l1_loss(a, b),                                "l1_loss: The size of"),
    (lambda a, b: F.mse_loss(a, b),                               "mse_loss: The size of"),
    (lambda a, b: F.kl_div(a, b),                                 "kl_div: The size of"),
    (lambda a, b: torch.isclose(a, b),                            "isclose: The size of"),
    (lambda a, b: torch.clamp(a, b, b),                           "clamp: The size of"),
    (lambda a, b: a // b,                                         "floor_divide: The size of"),
    (lambda a, b: torch.fmod(a, b),                               "fmod: The size of"),
    (lambda a, b: a.max(5),                                       "max: Dimension out of range"),
    (lambda a, b: a.var(5),                                       "var: Dimension out of range"),
    (lambda a, b: a.norm(2, 5),                                   "norm: Dimension out of range"),
    (lambda a, b: a.nanmedian(5),                                 "nanmedian: Dimension out of"),
    (lambda a, b: F.embedding(torch.tensor([3]), torch.ones(3, 2)),
     r"index out of range in self: embedding\(\): index 3 is out of bounds"),
    (lambda a, b: torch.ones(2, 3).permute(0, -2),
     r"permute\(\): duplicate dims are not allowed"),
    (lambda a, b: torch.ones(2, 3).movedim((0, 0), (0, 1)), "movedim: repeated dim in `source`"),
])
@pytest.mark.filterwarnings("ignore")
def test_messages_name_the_op_that_was_called(call, words):
    with pytest.raises((RuntimeError, IndexError), match=f"^{words}"):
        call(torch.ones(3), torch.ones(4))


def test_a_recurrent_network_refuses_another_dtype():
    with pytest.raises(ValueError, match="does not match weight dtype"):
        torch.nn.LSTM(2, 3)(torch.ones(1, 2, dtype=torch.float64))


def test_a_result_of_another_shape_is_told_of():
    out = torch.zeros(2, 6)
    with pytest.warns(UserWarning, match=r"had shape \[2, 6\].* shape \[8, 6\]") as told:
        torch.cat((ones(4, 6), ones(4, 6)), out=out)
    assert out.shape == (8, 6)
    assert told[0].filename == __file__
