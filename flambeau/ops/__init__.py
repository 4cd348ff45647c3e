"""Declarations of ops, by family. Nothing here knows a tensor or a device."""
