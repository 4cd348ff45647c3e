"""Every switch: environment variable, default, one-line meaning. Read when planning, never when running."""

from __future__ import annotations

SWITCHES = {
    "FLAMBEAU_CACHE":  ("", "folder of machine code on disk; 'off' keeps none"),
    "FLAMBEAU_DEVICE": ("llvm", "what runs kernels: 'llvm', or 'reference' for numpy, the specification"),
}
