"""Versions: of this library, and of what it was built with."""

from flambeau import __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "xpu"]

debug = False
cuda = None
hip = None
xpu = None
git_version = "unknown"
