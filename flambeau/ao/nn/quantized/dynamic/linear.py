"""A linear layer whose weight is bytes; its inputs become bytes by their own range in each call."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from .....assemble import convert, engine
from .....devices.cpu.quantized import Packed
from ....quantized_tensor import QuantizedTensor, chosen

#: inputs use half of their bytes, as torch's do, so that pairs of products fit in 16 bits anywhere
_LEAST, _MOST = 0, 127


class LinearPackedParams(nn.Module):
    """The weight and the bias, and the weight as it is multiplied."""

    def __init__(self, dtype=flambeau.qint8):
        super().__init__()
        self.dtype = dtype
        self._packed_params: Any = None
        self._panels: Any = None

    def set_weight_bias(self, weight, bias) -> None:
        self._packed_params = weight, bias
        self._panels = None

    def panels(self) -> Packed:
        """The weight in panels, made when it is first multiplied."""
        if self._panels is None:
            weight, bias = self._packed_params
            scale = np.broadcast_to(np.float32(weight.scale), weight.shape[0])
            self._panels = Packed(convert.to_array(weight.held), scale,
                                  None if bias is None else convert.to_array(bias.detach()))
        return self._panels

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}dtype"] = self.dtype
        destination[f"{prefix}_packed_params"] = self._packed_params

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys,
                              unexpected_keys, error_msgs):
        for name in ("dtype", "_packed_params"):
            if f"{prefix}{name}" in state_dict:
                setattr(self, name, state_dict[f"{prefix}{name}"])
            elif strict:
                missing_keys.append(f"{prefix}{name}")
        self._panels = None

    def __getstate__(self):
        return {**self.__dict__, "_panels": None}


class Linear(nn.Module):
    """x @ weight.T + bias, of bytes that are added up as integers."""

    def __init__(self, in_features: int, out_features: int, bias_: bool = True,
                 dtype=flambeau.qint8):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.scale, self.zero_point = 1.0, 0
        self._packed_params = LinearPackedParams(dtype)
        weight: Any = flambeau.zeros(out_features, in_features)
        if dtype is flambeau.qint8:
            weight = flambeau.quantize_per_tensor(weight, 1.0, 0, dtype)
        self.set_weight_bias(weight, flambeau.zeros(out_features) if bias_ else None)

    def set_weight_bias(self, w, b) -> None:
        """Another weight, of qint8, and another bias."""
        self._packed_params.set_weight_bias(w, b)

    def weight(self):
        """The weight: quantized, or rounded to halves."""
        return self._packed_params._packed_params[0]

    def bias(self):
        """The bias, of floats."""
        return self._packed_params._packed_params[1]

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight()
        if not isinstance(weight, QuantizedTensor):
            return F.linear(x, weight, self.bias())
        if x.dtype is not flambeau.float32:
            raise RuntimeError("DynamicQuantizedLinear: expected scalar type Float but found "
                               f"{x.dtype}: its inputs are float32")
        if x.shape[-1] != self.in_features:
            raise RuntimeError(f"DynamicQuantizedLinear: the input has {x.shape[-1]} features, the "
                               f"weight wants {self.in_features}")
        rows: Any = x.detach().reshape(-1, self.in_features).contiguous()
        out: Any = engine.empty((rows.shape[0], self.out_features), flambeau.float32)
        if rows.shape[0]:
            least, most = (float(v) for v in rows.aminmax())
            scale, zero = chosen(least, most, _LEAST, _MOST)
            self._packed_params.panels().times(out.ptr, rows.ptr, rows.shape[0], scale, zero)
        return out.reshape(*x.shape[:-1], self.out_features)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def extra_repr(self) -> str:
        said = (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"dtype={self._packed_params.dtype}")
        if self._packed_params.dtype is flambeau.qint8:
            said += f", qscheme={self.weight().qscheme()}"
        return said

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination[f"{prefix}scale"] = flambeau.tensor(self.scale)
        destination[f"{prefix}zero_point"] = flambeau.tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys,
                              unexpected_keys, error_msgs):
        for name, kind in (("scale", float), ("zero_point", int)):
            if f"{prefix}{name}" in state_dict:
                setattr(self, name, kind(state_dict[f"{prefix}{name}"]))
            elif strict:
                missing_keys.append(f"{prefix}{name}")

    @classmethod
    def from_float(cls, mod: nn.Linear, use_precomputed_fake_quant: bool = False) -> Linear:
        """The layer of a layer of floats, by its `qconfig` or in the usual way."""
        from_config = getattr(mod, "qconfig", None)
        weight, dtype = mod.weight.detach().float(), flambeau.qint8
        if from_config is not None:
            dtype, weight = from_config.quantized_weight(weight)
        else:
            weight = symmetric(weight)
        made = cls(mod.in_features, mod.out_features, mod.bias is not None, dtype)
        made.set_weight_bias(weight, mod.bias)
        made.train(mod.training)
        return made


def symmetric(weight: Any, by_channel: bool = False):
    """A weight as signed bytes around 0, with one scale or one for each row."""
    least = np.finfo(np.float32).eps
    if by_channel:
        largest = convert.to_array(weight.abs().amax(1)) if weight.numel() else np.zeros(0)
        scales = np.maximum(largest / np.float32(127.5), least)
        return flambeau.quantize_per_channel(
            weight, flambeau.from_numpy(scales), flambeau.zeros(scales.size), 0, flambeau.qint8)
    scale = max(np.float32(weight.abs().max().item()) / np.float32(127.5), least)
    return flambeau.quantize_per_tensor(weight, float(scale), 0, flambeau.qint8)
