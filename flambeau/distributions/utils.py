"""What distributions share: broadcasting of parameters, and probabilities against logits."""

from numbers import Number

import flambeau
from flambeau import Tensor

EULER = 0.57721566490153286060


def broadcast_all(*values):
    """All values as tensors of one shape; numbers take the dtype of the tensors among them."""
    if not all(isinstance(v, Tensor | Number) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, Tensor or objects implementing "
            "__torch_function__."
        )
    tensors = [v for v in values if isinstance(v, Tensor)]
    dtype = tensors[0].dtype if tensors else flambeau.get_default_dtype()
    return flambeau.broadcast_tensors(
        *(v if isinstance(v, Tensor) else flambeau.tensor(v, dtype=dtype) for v in values)
    )


def expanded(size, *shapes):
    """The sizes put together."""
    return flambeau.Size([n for shape in (size, *shapes) for n in shape])


def sum_rightmost(value, dims):
    """The sum over the last `dims` dimensions."""
    return value if dims == 0 else value.reshape(*value.shape[:-dims], -1).sum(-1)


def _standard_normal(shape, dtype, device):
    """Samples of a normal distribution around 0, of width 1."""
    return flambeau.randn(shape, dtype=dtype, device=device)


_sum_rightmost = sum_rightmost  # as other packages know it


def clamp_probs(probs):
    """Probabilities kept off 0 and 1, where logarithms end."""
    eps = flambeau.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits, is_binary=False):
    """sigmoid, or softmax over the last dimension."""
    return flambeau.sigmoid(logits) if is_binary else flambeau.softmax(logits, dim=-1)


def probs_to_logits(probs, is_binary=False):
    """log-odds, or log-probabilities."""
    safe = clamp_probs(probs)
    return safe.log() - flambeau.log1p(-safe) if is_binary else safe.log()


def vec_to_tril_matrix(vec, diag=0):
    """A lower triangle filled row by row from a vector, or from a batch of them."""
    n, rows = 0, flambeau.tensor(())
    while len(rows) < vec.shape[-1]:
        n += 1
        rows, columns = flambeau.tril_indices(n, n, diag)
    if len(rows) != vec.shape[-1]:
        raise ValueError(f"The size of last dimension is {vec.shape[-1]} which cannot be expressed "
                         "as the lower triangular part of a square D x D matrix.")
    out = vec.new_zeros(*vec.shape[:-1], n, n)
    if n:
        out[..., rows, columns] = vec
    return out


def tril_matrix_to_vec(mat, diag=0):
    """The lower triangle of a matrix, or of a batch of them, row by row."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = flambeau.tril_indices(n, n, diag)
    return mat[..., rows, columns]


class lazy_property:
    """An attribute that is worked out when first read, and kept."""

    def __init__(self, compute):
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with flambeau.enable_grad():
            value = self.compute(instance)
        setattr(instance, self.name, value)
        return value


def one_of(**given):
    """The name of the one argument that is not None."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        if given.keys() == {"probs", "logits"}:
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        wanted = " or ".join(given)
        raise ValueError(f"Exactly one of {wanted} may be specified.")
    return names[0]
