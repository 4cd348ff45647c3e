"""Every switch: environment variable, default, one-line meaning. Read when planning only."""

from __future__ import annotations

SWITCHES = {
    "FLAMBEAU_CALM":     ("16", "calls that learn nothing before Python is left out; '0': never"),
    "FLAMBEAU_CACHE":    ("", "folder of machine code on disk; 'off' keeps none"),
    "FLAMBEAU_DEVICE":   ("llvm", "runs kernels: 'llvm', or 'reference': numpy, the specification"),
    "FLAMBEAU_SMALL":    ("eager", "compiled functions of little work run 'eager' or 'compiled'"),
    "FLAMBEAU_SHOW":     ("", "of each program that is made: 'passes,program,llvm,assembly'"),
    "FLAMBEAU_PROGRESS": ("1", "'0' says nothing on terminals while programs are compiled"),
}

#: what random numbers start from until a seed is given
DEFAULT_SEED = 67280421310721
