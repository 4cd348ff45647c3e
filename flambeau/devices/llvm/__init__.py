"""kernel -> LLVM IR, as text.

Vectors are explicit, as wide as the host's registers, with narrower loops for what is left
over. Nothing here knows an op: it lowers loops, primitives and conversions.

From the ground up: `types` (how LLVM spells them), `writer` (one function's text), `vectors`,
`conversions` and `arithmetic` (registers), `exprs` (trees of them), `memory` (a kernel's operands),
`loops`, `folds`, `stages` and `blocks` (its loops), `kernel` (its functions, which
devices/parallel.py has called by threads). `weights` judges how much there is to do.
"""

from ...core.kernel import param_kinds
from .exprs import Exprs
from .kernel import Lowering, to_ir
from .types import number
from .writer import Place, Writer

__all__ = ["Exprs", "Lowering", "Place", "Writer", "number", "param_kinds", "to_ir"]
