"""Sparse tensors as text: indices and values, then what is known of the whole, as torch writes."""

from .printing import PROFILES, format_values, shows_dtype, with_suffixes

PREFIX = "tensor("


def sparse_text(
    places,
    values,
    shape,
    count,
    dtype_name,
    layout_name,
    *,
    options=PROFILES["default"],
    default_dtype_name="float32",
    requires_grad=False,
    grad_fn_name=None,
):
    """`repr` of a sparse tensor, from the arrays of its places, by name, and of its values."""
    parts = [_part(name, array, options) for name, array in {**places, "values": values}.items()]
    suffixes = [f"nnz={count}"]
    if shows_dtype(dtype_name, default_dtype_name, not values.size):
        suffixes.append(f"dtype=torch.{dtype_name}")
    suffixes.append(f"layout=torch.{layout_name}")
    if grad_fn_name:
        suffixes.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    if layout_name == "sparse_coo":  # its size has a line of its own
        parts.append(f"size={shape}")
    else:
        suffixes.insert(0, f"size={shape}")
    whole = PREFIX + (",\n" + " " * len(PREFIX)).join(parts)
    return with_suffixes(whole, suffixes, len(PREFIX), options)


def _part(name, array, options):
    prefix = f"{name}=tensor("
    text = format_values(array, options, len(PREFIX) + len(prefix))
    return f"{prefix}{text}" + (")" if array.size else f", size={array.shape})")
