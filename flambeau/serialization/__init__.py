"""Objects with tensors in files: torch's own format both ways, and nothing run while reading."""

from .checkpoint import (
    DEFAULT_PROTOCOL,
    get_unsafe_globals_in_checkpoint,
    load,
    save,
    skip_data,
)
from .locations import (
    MAP_LOCATION,
    default_restore_location,
    location_tag,
    register_package,
    validate_cuda_device,
    validate_hpu_device,
)
from .names import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from .options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
)

__all__ = [
    "DEFAULT_PROTOCOL", "LoadEndianness", "MAP_LOCATION", "add_safe_globals", "clear_safe_globals",
    "default_restore_location", "get_crc32_options", "get_default_load_endianness",
    "get_default_mmap_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load",
    "location_tag", "register_package", "safe_globals", "save", "set_crc32_options",
    "set_default_load_endianness", "set_default_mmap_options", "skip_data",
    "validate_cuda_device", "validate_hpu_device",
]
