"""Routines written as machine code, in Python; loaded by `foundry.py` when not on disk already."""
