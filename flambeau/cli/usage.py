"""Mistakes of the person at the terminal: told in one line, never with a traceback."""


class UsageError(Exception):
    """The command cannot do what it was asked; the message says why, and what would do."""
