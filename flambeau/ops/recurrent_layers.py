"""Stacks of recurrent layers, in one direction or both, over padded or packed sequences."""

from __future__ import annotations

from .declare import composite, engine, registry
from .dropout import dropout
from .recurrent import CELLS, Weights, from_input, linear, recurrent_layer_by_ops


def _grouped(params, has_biases: bool, projected: bool) -> list[Weights]:
    size = 2 + 2 * bool(has_biases) + projected
    groups = [list(params[i:i + size]) for i in range(0, len(params), size)]
    if not has_biases:
        groups = [[*g[:2], None, None, *g[2:]] for g in groups]
    return [Weights(*g) for g in groups]


def _layer(name: str, x, states, w: Weights, sizes, reverse: bool):
    """One layer in one direction over the rows of all steps."""
    if w.projection is None:
        found = engine.recurrent_layer(name, x, states, w[:4], sizes, reverse)
        if found is not None:
            return found
    return recurrent_layer_by_ops(name, x, states, w, sizes, reverse)


def _stacked(name: str, x, states, groups, sizes, num_layers, p, train, bidirectional):
    """All layers; dropout between them. Last states come as (layers x directions, batch, units)."""
    shape, packed = x.shape, x.dim() == 2
    x = x if packed else engine.reshape(x, (-1, shape[-1]))
    directions, last = 2 if bidirectional else 1, []
    for layer in range(num_layers):
        outs = []
        for d in range(directions):
            k = layer * directions + d
            own = tuple(registry["select"](s, 0, k) for s in states)
            out, *ended = _layer(name, x, own, groups[k], sizes, d == 1)
            outs.append(out)
            last.append(ended)
        x = outs[0] if directions == 1 else engine.cat(outs, -1)
        if p > 0 and train and layer < num_layers - 1:
            x = dropout(x, p, True)
    x = x if packed else engine.reshape(x, (*shape[:-1], x.shape[-1]))
    return x, *(engine.stack([ended[k] for ended in last], 0) for k in range(len(states)))


def _declared(name: str):
    paired = name == "lstm"

    def layers(input, *args):
        is_packed = isinstance(args[2], (list, tuple)) and not isinstance(args[2], bool)
        if is_packed:
            batch_sizes, hx, params, has_biases, num_layers, p, train, bidirectional = args
            sizes = tuple(int(n) for n in batch_sizes.tolist())
        else:
            hx, params, has_biases, num_layers, p, train, bidirectional, *rest = args
            if rest and rest[0]:
                input = registry["transpose"](input, 0, 1)
            sizes = (input.shape[1],) * input.shape[0]
        states = tuple(hx) if paired else (hx,)
        projected = paired and states[0].shape[-1] != states[1].shape[-1]
        groups = _grouped(params, has_biases, projected)
        out, *last = _stacked(name, input, states, groups, sizes, num_layers, p, train,
                              bidirectional)
        if not is_packed and rest and rest[0]:
            out = registry["transpose"](out, 0, 1)
        return out, *last

    layers.__name__ = name
    layers.__doc__ = f"Layers of `{name}` over a batch of sequences; results and last states."
    return composite(name=name, method=False)(layers)


for _name in CELLS:
    _declared(_name)


# -- single steps ----------------------------------------------------------------------------------


def _check_cell(name: str, input, states, w_ih, w_hh) -> None:
    if input.shape[-1] != w_ih.shape[1]:
        raise RuntimeError(f"{name}: input has inconsistent input_size: got {input.shape[-1]} "
                           f"expected {w_ih.shape[1]}")
    for k, hidden in enumerate(states):
        if input.shape[0] != hidden.shape[0]:
            raise RuntimeError(f"{name}: Input batch size {input.shape[0]} doesn't match hidden{k} "
                               f"batch size {hidden.shape[0]}")
        if hidden.shape[-1] != w_hh.shape[1]:
            raise RuntimeError(f"{name}: hidden{k} has inconsistent hidden_size: got "
                               f"{hidden.shape[-1]}, expected {w_hh.shape[1]}")


def _cell(name: str, paired: bool):
    cell = CELLS[name]

    def step(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        states = tuple(hx) if paired else (hx,)
        _check_cell(f"{name}_cell", input, states, w_ih, w_hh)
        given, bias = from_input(cell, input, Weights(w_ih, w_hh, b_ih, b_hh))
        after = cell.after(given, linear(states[0], w_hh, bias), states)
        return tuple(after) if paired else after[0]

    step.__name__, step.__doc__ = f"{name}_cell", f"One step of `{name}`."
    return composite(name=f"{name}_cell", method=False)(step)


for _name in CELLS:
    _cell(_name, _name == "lstm")
