"""Several results under names: the types of `return_types`.

Each is a tuple whose members also have names, made from one sequence, and printed one per line.
"""

from __future__ import annotations

PACKAGE = "torch.return_types"


class Named(tuple):
    """A tuple with names for its members."""

    __slots__ = ()
    fields: tuple[str, ...] = ()

    def __repr__(self) -> str:
        members = zip(self.fields, self, strict=True)
        shown = ",\n".join(f"{name}={value!r}" for name, value in members)
        return f"{PACKAGE}.{type(self).__name__}(\n{shown})"

    def __reduce__(self):
        return (_again, (type(self).__name__, tuple(self)))


def _again(name: str, members: tuple) -> Named:
    return TYPES[name](members)


def _member(position: int) -> property:
    return property(lambda self: self[position])


def _named_type(name: str, fields: tuple[str, ...]) -> type[Named]:
    def create(cls, members):
        members = tuple(members)
        if len(members) != len(fields):
            raise TypeError(f"{PACKAGE}.{name}() takes a {len(fields)}-sequence "
                            f"({len(members)}-sequence given)")
        return tuple.__new__(cls, members)

    body = {field: _member(k) for k, field in enumerate(fields)}
    return type(name, (Named,), {
        "__slots__": (), "__new__": create, "__module__": PACKAGE, "fields": fields, **body,
        "n_fields": len(fields), "n_sequence_fields": len(fields), "n_unnamed_fields": 0})


_ORDERED = ("values", "indices")
#: name -> names of the members
FIELDS = {
    "aminmax":               ("min", "max"),
    "cummax":                _ORDERED,
    "cummin":                _ORDERED,
    "frexp":                 ("mantissa", "exponent"),
    "geqrf":                 ("a", "tau"),
    "histogram":             ("hist", "bin_edges"),
    "histogramdd":           ("hist", "bin_edges"),
    "kthvalue":              _ORDERED,
    "linalg_cholesky_ex":    ("L", "info"),
    "linalg_eig":            ("eigenvalues", "eigenvectors"),
    "linalg_eigh":           ("eigenvalues", "eigenvectors"),
    "linalg_inv_ex":         ("inverse", "info"),
    "linalg_ldl_factor":     ("LD", "pivots"),
    "linalg_ldl_factor_ex":  ("LD", "pivots", "info"),
    "linalg_lstsq":          ("solution", "residuals", "rank", "singular_values"),
    "linalg_lu":             ("P", "L", "U"),
    "linalg_lu_factor":      ("LU", "pivots"),
    "linalg_lu_factor_ex":   ("LU", "pivots", "info"),
    "linalg_qr":             ("Q", "R"),
    "linalg_slogdet":        ("sign", "logabsdet"),
    "linalg_solve_ex":       ("result", "info"),
    "linalg_svd":            ("U", "S", "Vh"),
    "lu_unpack":             ("P", "L", "U"),
    "max":                   _ORDERED,
    "median":                _ORDERED,
    "min":                   _ORDERED,
    "mode":                  _ORDERED,
    "nanmedian":             _ORDERED,
    "qr":                    ("Q", "R"),
    "slogdet":               ("sign", "logabsdet"),
    "sort":                  _ORDERED,
    "svd":                   ("U", "S", "V"),
    "topk":                  _ORDERED,
    "triangular_solve":      ("solution", "cloned_coefficient"),
}
TYPES = {name: _named_type(name, fields) for name, fields in FIELDS.items()}


def name_of(op) -> str:
    """What the results of an op are called: its public name, with its namespace."""
    name = getattr(op, "results_name", None) or op.name
    return f"{op.where}_{name}" if op.where else name


_types: dict = {}  # op -> the type of its results


def named(op, members) -> tuple:
    """The results of an op as the type of their names, or a plain tuple if they have none."""
    kind = _types.get(op)
    if kind is None:
        kind = _types[op] = TYPES.get(name_of(op), tuple)
    return tuple.__new__(kind, members)


def like_named(result: tuple, members) -> tuple:
    """Other members in a tuple of the same type."""
    return type(result)(members)
