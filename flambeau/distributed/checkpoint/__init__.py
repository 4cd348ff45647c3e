"""Checkpoints that every rank writes its part of: torch.distributed.checkpoint.

They can be loaded by another number of processes: pieces are matched by their place in the tensor.
"""

from .files import load, load_state_dict, save, save_state_dict

__all__ = ["save", "load", "save_state_dict", "load_state_dict"]
