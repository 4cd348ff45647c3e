"""Linear layers of bytes, under the name that torch had for them first."""

from flambeau.ao.quantization import (
    QConfig,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    get_default_dynamic_quant_module_mappings,
    per_channel_dynamic_qconfig,
    quantize_dynamic,
)

__all__ = ["QConfig", "default_dynamic_qconfig", "float16_dynamic_qconfig",
           "get_default_dynamic_quant_module_mappings", "per_channel_dynamic_qconfig",
           "quantize_dynamic"]
