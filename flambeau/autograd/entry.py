"""torch.autograd.backward: the gradient of several tensors at once."""

from ..engine import backward as going_back


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False,
             grad_variables=None, inputs=None):
    """Accumulate into the leaves the gradients of all these tensors."""
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError("`grad_tensors` and `grad_variables` (deprecated) arguments both "
                               "passed to `backward()`. Please only use `grad_tensors`.")
        grad_tensors = grad_variables
    going_back.backward(tensors, grad_tensors, retain_graph, create_graph, inputs)


__all__ = ["backward"]
