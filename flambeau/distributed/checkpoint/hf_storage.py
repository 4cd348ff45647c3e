"""Checkpoints of many processes in safetensors files, which are not written here.

Programs name the classes when they are imported.
"""

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]


class _Refused:
    def __init__(self, path, *_args, **_options) -> None:
        raise RuntimeError(f"{type(self).__name__}: {path}: checkpoints of many processes have "
                           "files of their own here (torch.distributed.checkpoint.save and load); "
                           "a whole state dict is written by safetensors.torch.save_file")


class HuggingFaceStorageReader(_Refused):
    """Reads parts of tensors from safetensors files."""


class HuggingFaceStorageWriter(_Refused):
    """Writes parts of tensors to safetensors files."""
