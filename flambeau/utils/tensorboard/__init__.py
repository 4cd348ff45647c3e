"""Event files that TensorBoard reads, written without it: `SummaryWriter`."""

from flambeau.utils.tensorboard.records import FileWriter, RecordWriter, read_records
from flambeau.utils.tensorboard.writer import SummaryWriter

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter", "read_records"]
