"""Making batches, under the names of PyTorch's own file for it."""

import re

from flambeau.utils.data.collate import (
    collate,
    default_collate,
    default_collate_fn_map,
    default_convert,
)
from flambeau.utils.data.collate import (
    collate_arrays as collate_numpy_array_fn,
)
from flambeau.utils.data.collate import (
    collate_floats as collate_float_fn,
)
from flambeau.utils.data.collate import (
    collate_numbers as collate_int_fn,
)
from flambeau.utils.data.collate import (
    collate_numpy_scalars as collate_numpy_scalar_fn,
)
from flambeau.utils.data.collate import (
    collate_tensors as collate_tensor_fn,
)
from flambeau.utils.data.collate import (
    collate_text as collate_str_fn,
)

__all__ = ["collate", "collate_float_fn", "collate_int_fn", "collate_numpy_array_fn",
           "collate_numpy_scalar_fn", "collate_str_fn", "collate_tensor_fn", "default_collate",
           "default_collate_fn_map", "default_convert", "np_str_obj_array_pattern"]

#: kinds of numpy's elements that are no numbers
np_str_obj_array_pattern = re.compile(r"[SaUO]")
