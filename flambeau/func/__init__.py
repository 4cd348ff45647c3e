"""torch.func: from a function, its gradient, its Jacobian, or its form for batches."""

from flambeau.nn.utils.stateless import functional_call

from .batch import vmap
from .derive import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from .functionalize import functionalize
from .modules import replace_all_batch_norm_modules_, stack_module_state
from .rearrange import rearrange

__all__ = ["functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd",
           "jacrev", "jvp", "linearize", "rearrange", "replace_all_batch_norm_modules_",
           "stack_module_state", "vjp", "vmap"]
