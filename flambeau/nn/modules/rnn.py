"""Recurrent layers and their single steps."""

import math
import numbers
import warnings

import flambeau
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.packed import PackedSequence
from flambeau.nn.parameter import Parameter

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

# mode: gates per hidden unit
GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def apply_permutation(tensor, permutation, dim=1):
    """The tensor with its entries along dim in another order."""
    return tensor.index_select(dim, permutation)


class RNNBase(Module):
    """What recurrent layers share: checks, weights, and the handling of batches and packing."""

    def __init__(
        self,
        mode,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        _check_sizes(input_size, hidden_size, num_layers, proj_size)
        _check_settings(mode, num_layers, bias, batch_first, dropout)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._flat_weights_names = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: 1 + bidirectional]:
                for name, shape in self._weight_shapes(layer):
                    parameter = Parameter(flambeau.empty(shape, device=device, dtype=dtype))
                    setattr(self, f"{name}_l{layer}{suffix}", parameter)
                    self._flat_weights_names.append(f"{name}_l{layer}{suffix}")
        self.reset_parameters()

    @property
    def _directions(self):
        return 2 if self.bidirectional else 1

    @property
    def _output_size(self):
        return self.proj_size or self.hidden_size

    def _weight_shapes(self, layer):
        """Names and shapes of the weights of one layer in one direction."""
        gates = GATES[self.mode] * self.hidden_size
        inputs = self._output_size * self._directions if layer else self.input_size
        yield "weight_ih", (gates, inputs)
        yield "weight_hh", (gates, self._output_size)
        if self.bias:
            yield "bias_ih", (gates,)
            yield "bias_hh", (gates,)
        if self.proj_size:
            yield "weight_hr", (self.proj_size, self.hidden_size)

    @property
    def _flat_weights(self):
        return [getattr(self, name) for name in self._flat_weights_names]

    @property
    def all_weights(self):
        """The weights of each layer and direction."""
        weights, size = self._flat_weights, 2 + 2 * self.bias + bool(self.proj_size)
        return [weights[i : i + size] for i in range(0, len(weights), size)]

    def flatten_parameters(self):
        """Nothing to do: weights are used where they are."""

    def reset_parameters(self):
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def __getstate__(self):
        """As torch has it: names of weights by layer and direction, too."""
        names, size = self._flat_weights_names, 2 + 2 * self.bias + bool(self.proj_size)
        layers = [names[i : i + size] for i in range(0, len(names), size)]
        return {**super().__getstate__(), "_all_weights": layers,
                "_flat_weights": self._flat_weights}

    def __setstate__(self, state):
        state = {"proj_size": 0, **state}
        state.pop("_all_weights", None)
        state.pop("_flat_weights", None)
        state.pop("_flat_weight_refs", None)
        super().__setstate__(state)

    # -- checks ---------------------------------------------------------------------------

    def check_input(self, input, batch_sizes):
        dims = 3 if batch_sizes is None else 2
        if input.dtype != self.weight_ih_l0.dtype and not (
                flambeau.is_autocast_enabled(input.device.type)):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype "
                f"({self.weight_ih_l0.dtype}). Convert input: input.to({self.weight_ih_l0.dtype}), "
                f"or convert model: model.to({input.dtype})"
            )
        if input.dim() != dims:
            raise RuntimeError(f"input must have {dims} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {input.size(-1)}"
            )
        if batch_sizes is None and input.size(1 if self.batch_first else 0) == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")

    def _batch_of(self, input, batch_sizes):
        if batch_sizes is not None:
            return int(batch_sizes[0])
        return input.size(0 if self.batch_first else 1)

    def get_expected_hidden_size(self, input, batch_sizes):
        """Layers and directions, batch, units."""
        layers = self.num_layers * self._directions
        return layers, self._batch_of(input, batch_sizes), self._output_size

    def check_hidden_size(self, hx, expected_hidden_size, msg="Expected hidden size {}, got {}"):
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(tuple(expected_hidden_size), list(hx.shape)))

    def check_forward_args(self, input, hidden, batch_sizes):
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx, permutation):
        return hx if permutation is None else apply_permutation(hx, permutation)

    # -- forward --------------------------------------------------------------------------

    def _zeros(self, input, batch, units):
        shape = (self.num_layers * self._directions, batch, units)
        return flambeau.zeros(shape, dtype=input.dtype, device=input.device)

    def _initial(self, input, batch):
        """The hidden state to start from when none is given."""
        return self._zeros(input, batch, self._output_size)

    def _check_hidden_dims(self, hx, batched):
        n, kind = (3, "batched 3-D") if batched else (2, "unbatched 2-D")
        if hx.dim() != n:
            raise RuntimeError(
                f"For {kind} input, hx should also be {n}-D but got {hx.dim()}-D tensor"
            )

    def forward(self, input, hx=None):
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            raise ValueError(
                f"{self._get_name()}: Expected input to be 2D or 3D, got {input.dim()}D instead"
            )
        batched = input.dim() == 3
        batch_dim = 0 if self.batch_first else 1
        if not batched:
            input = input.unsqueeze(batch_dim)
        if hx is None:
            hx = self._initial(input, input.size(batch_dim))
        else:
            self._check_hidden_dims(hx, batched)
            hx = hx if batched else _each(hx, lambda h: h.unsqueeze(1))
        self.check_forward_args(input, hx, None)
        output, hidden = self._run(input, None, hx)
        if batched:
            return output, hidden
        return output.squeeze(batch_dim), _each(hidden, lambda h: h.squeeze(1))

    def _forward_packed(self, packed, hx):
        data, batch_sizes, sorted_indices, unsorted_indices = packed
        if hx is None:
            hx = self._initial(data, int(batch_sizes[0]))
        else:
            hx = self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(data, hx, batch_sizes)
        output, hidden = self._run(data, batch_sizes, hx)
        output = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        return output, self.permute_hidden(hidden, unsorted_indices)

    def _run(self, input, batch_sizes, hx):
        """Output and last hidden state."""
        settings = (
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
        )
        function = getattr(flambeau, self.mode.lower())
        if batch_sizes is None:
            output, *hidden = function(input, hx, *settings, self.batch_first)
        else:
            output, *hidden = function(input, batch_sizes, hx, *settings)
        return output, hidden[0] if len(hidden) == 1 else tuple(hidden)

    def extra_repr(self):
        shown = [f"{self.input_size}, {self.hidden_size}"]
        for name, usual in (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0),
            ("bidirectional", False),
        ):
            if getattr(self, name) != usual:
                shown.append(f"{name}={getattr(self, name)}")
        return ", ".join(shown)


def _each(hidden, function):
    """Apply to the hidden state, or to both tensors of an LSTM's."""
    return tuple(map(function, hidden)) if isinstance(hidden, tuple) else function(hidden)


def _check_settings(mode, num_layers, bias, batch_first, dropout):
    if mode not in GATES:
        raise ValueError(f"Unrecognized RNN mode: {mode}")
    for name, value in (("bias", bias), ("batch_first", batch_first)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
    number = isinstance(dropout, numbers.Number) and not isinstance(dropout, bool)
    if not number or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an "
            f"element being zeroed, got {dropout!r}"
        )
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
            f"expects num_layers greater than 1, but got dropout={dropout} and "
            f"num_layers={num_layers}",
            stacklevel=4,
        )


def _check_sizes(input_size, hidden_size, num_layers, proj_size):
    for name, value in (
        ("input_size", input_size),
        ("hidden_size", hidden_size),
        ("num_layers", num_layers),
    ):
        if not isinstance(value, int):
            raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero, got {value}")
    if proj_size < 0:
        raise ValueError(
            "proj_size should be a positive integer or zero to disable projections, "
            f"got {proj_size}"
        )
    if proj_size >= hidden_size:
        raise ValueError(f"proj_size has to be smaller than hidden_size, got {proj_size}")


class RNN(RNNBase):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu in place of tanh."""

    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(mode, input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = nonlinearity


class GRU(RNNBase):
    """The gated recurrent unit: an update gate, a reset gate and a candidate."""

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory: the hidden state is a pair (h, c)."""

    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)

    def _initial(self, input, batch):
        return (
            self._zeros(input, batch, self._output_size),
            self._zeros(input, batch, self.hidden_size),
        )

    def _check_hidden_dims(self, hx, batched):
        n, kind = (3, "batched 3-D") if batched else (2, "unbatched 2-D")
        if hx[0].dim() != n or hx[1].dim() != n:
            raise RuntimeError(
                f"For {kind} input, hx and cx should also be {n}-D but got "
                f"({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
            )

    def get_expected_cell_size(self, input, batch_sizes):
        layers, batch, _ = self.get_expected_hidden_size(input, batch_sizes)
        return layers, batch, self.hidden_size

    def check_forward_args(self, input, hidden, batch_sizes):
        self.check_input(input, batch_sizes)
        h, c = hidden
        self.check_hidden_size(
            h,
            self.get_expected_hidden_size(input, batch_sizes),
            "Expected hidden[0] size {}, got {}",
        )
        self.check_hidden_size(
            c, self.get_expected_cell_size(input, batch_sizes), "Expected hidden[1] size {}, got {}"
        )

    def permute_hidden(self, hx, permutation):
        if permutation is None:
            return hx
        return tuple(apply_permutation(part, permutation) for part in hx)


# -- single steps ---------------------------------------------------------------------------------


class RNNCellBase(Module):
    """What single steps share: weights of `num_chunks` gates."""

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        for name, shape, wanted in (
            ("weight_ih", (gates, input_size), True),
            ("weight_hh", (gates, hidden_size), True),
            ("bias_ih", (gates,), bias),
            ("bias_hh", (gates,), bias),
        ):
            tensor = flambeau.empty(shape, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, Parameter(tensor) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _check_dims(self, tensor, what="input"):
        if tensor.dim() not in (1, 2):
            raise ValueError(
                f"{self._get_name()}: Expected {what} to be 1D or 2D, got {tensor.dim()}D instead"
            )

    def _zeros(self, input):
        shape = (input.size(0), self.hidden_size)
        return flambeau.zeros(shape, dtype=input.dtype, device=input.device)

    def _weights(self):
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _step(self, function, input, hx):
        """One step, for a batch or a single input."""
        self._check_dims(input)
        if hx is not None:
            self._check_dims(hx, "hidden")
        batched = input.dim() == 2
        input = input if batched else input.unsqueeze(0)
        if hx is None:
            hx = self._zeros(input)
        elif not batched:
            hx = hx.unsqueeze(0)
        out = function(input, hx, *self._weights())
        return out if batched else out.squeeze(0)

    def extra_repr(self):
        shown = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            shown += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            shown += f", nonlinearity={self.nonlinearity}"
        return shown


class RNNCell(RNNCellBase):
    """One step of RNN."""

    def __init__(
        self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None
    ):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        steps = {"tanh": flambeau.rnn_tanh_cell, "relu": flambeau.rnn_relu_cell}
        if self.nonlinearity not in steps:
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(steps[self.nonlinearity], input, hx)


class GRUCell(RNNCellBase):
    """One step of GRU."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input, hx=None):
        return self._step(flambeau.gru_cell, input, hx)


class LSTMCell(RNNCellBase):
    """One step of LSTM."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        self._check_dims(input)
        for i, part in enumerate(hx or ()):
            self._check_dims(part, f"hx[{i}]")
        batched = input.dim() == 2
        input = input if batched else input.unsqueeze(0)
        if hx is None:
            zeros = self._zeros(input)
            hx = (zeros, zeros)
        elif not batched:
            hx = tuple(part.unsqueeze(0) for part in hx)
        h, c = flambeau.lstm_cell(input, hx, *self._weights())
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))
