"""Modules that are shared out among processes in place."""
