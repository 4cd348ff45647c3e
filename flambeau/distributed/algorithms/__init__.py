"""Ways of working together: uneven inputs (`join`), what is done to gradients on their way."""

from .join import Join, Joinable, JoinHook

__all__ = ["Join", "Joinable", "JoinHook"]
