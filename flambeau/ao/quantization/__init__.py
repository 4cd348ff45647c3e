"""Linear layers of trained models as layers of bytes: quantize_dynamic, and how weights become so.

    small = quantize_dynamic(model, {nn.Linear})

Weights are signed bytes with one scale, or one for each row (per_channel_dynamic_qconfig); inputs
become bytes in every call, by their own range.
"""

from __future__ import annotations

import copy
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.ao.nn.quantized import dynamic
from flambeau.ao.nn.quantized.dynamic.linear import symmetric
from flambeau.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper

__all__ = ["DeQuantStub", "QConfig", "QuantStub", "QuantWrapper", "default_dynamic_qconfig",
           "float16_dynamic_qconfig", "get_default_dynamic_quant_module_mappings",
           "per_channel_dynamic_qconfig", "quantize_dynamic"]


class QConfig:
    """How the weight of a layer becomes small."""

    def __init__(self, name: str, dtype: Any, by_channel: bool = False):
        self.name, self.dtype, self.by_channel = name, dtype, by_channel

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def quantized_weight(self, weight: Tensor) -> tuple[Any, Any]:
        """(dtype, the weight in it)"""
        if self.dtype is flambeau.float16:
            return self.dtype, weight.half().float()
        return self.dtype, symmetric(weight, self.by_channel)


default_dynamic_qconfig = QConfig("default_dynamic_qconfig", flambeau.qint8)
per_channel_dynamic_qconfig = QConfig("per_channel_dynamic_qconfig", flambeau.qint8, True)
float16_dynamic_qconfig = QConfig("float16_dynamic_qconfig", flambeau.float16)
_BY_DTYPE = {flambeau.qint8: default_dynamic_qconfig, flambeau.float16: float16_dynamic_qconfig}


def get_default_dynamic_quant_module_mappings() -> dict:
    """Layers of floats, and what they become."""
    return {nn.Linear: dynamic.Linear}


def quantize_dynamic(model: nn.Module, qconfig_spec: Any = None, dtype: Any = flambeau.qint8,
                     mapping: dict | None = None, inplace: bool = False) -> nn.Module:
    """A model whose linear layers hold bytes (qint8) or halves (float16).

    `qconfig_spec` is a set of layer types and of paths of modules, or says for each of them how:
    {nn.Linear: per_channel_dynamic_qconfig}.
    """
    if dtype not in _BY_DTYPE:
        raise RuntimeError(f"Don't know how to quantize with default settings for {dtype}. Provide "
                           "full qconfig please: dtype is torch.qint8 or torch.float16")
    mapping = get_default_dynamic_quant_module_mappings() if mapping is None else mapping
    spec = set(mapping) if qconfig_spec is None else qconfig_spec
    if not isinstance(spec, dict):
        spec = dict.fromkeys(spec, _BY_DTYPE[dtype])
    unknown = [k for k in spec if isinstance(k, type) and k not in mapping]
    if unknown:
        raise RuntimeError(f"quantize_dynamic: no layer of bytes is known for "
                           f"{', '.join(k.__name__ for k in unknown)}; there is one for "
                           f"{', '.join(k.__name__ for k in mapping)}")
    model = model if inplace else copy.deepcopy(model)
    if type(model) in mapping and type(model) in spec:
        return _small(model, spec[type(model)], mapping)
    _replace(model, "", None, spec, mapping)
    return model


def _replace(module: nn.Module, path: str, inherited: Any, spec: dict, mapping: dict) -> None:
    for name, child in list(module.named_children()):
        at = f"{path}.{name}" if path else name
        config = spec.get(at, spec.get(type(child), inherited))
        if type(child) in mapping and config is not None:
            setattr(module, name, _small(child, config, mapping))
        else:
            _replace(child, at, spec.get(at, inherited), spec, mapping)


def _small(module: nn.Module, config: Any, mapping: dict) -> nn.Module:
    module.qconfig = config
    made = mapping[type(module)].from_float(module)
    del module.qconfig
    return made
