"""`profile`, which records a block, or the steps of a loop that a schedule chooses."""

import enum
import gzip
import os
import shutil
import socket
import tempfile
import time

from flambeau.autograd import profiler as recording
from flambeau.autograd.events import EventList


class ProfilerActivity(enum.Enum):
    """Whose work is recorded."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class DeviceType(enum.Enum):
    """Where an event happened."""

    CPU = 0
    CUDA = 1


class ProfilerAction(enum.Enum):
    """What to do during one step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities():
    """What can be recorded here: the CPU."""
    return {ProfilerActivity.CPU}


def kineto_available():
    """Whether the Chrome trace exists: it does."""
    return True


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """A function of the step: wait, then warm up, then record, and again, `repeat` times."""
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise ValueError("Invalid profiler schedule arguments: wait, warmup, repeat and skip_first "
                         "must be 0 or more and active at least 1")
    cycle = wait + warmup + active

    def action(step):
        if step < 0:
            raise ValueError(f"Step must be non-negative. Got {step}.")
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:  # the first cycle does without its wait
            step += wait
        if repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == cycle - 1 else ProfilerAction.RECORD

    return action


def _default_schedule_fn(_step):
    """The schedule of a block: record all of it."""
    return ProfilerAction.RECORD


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False, use_python_export=False):
    """An `on_trace_ready` that writes every trace to a folder that TensorBoard can show."""

    def handle(profiler):
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        profiler.export_chrome_trace(os.path.join(dir_name, name))

    return handle


class profile:
    """Record ops: all those in the block, or those of the steps that `schedule` chooses.

    Call `step()` after each step of the loop; `on_trace_ready(self)` is called when a round of
    recording is complete.
    """

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None,
                 record_shapes=False, profile_memory=False, with_stack=False, with_flops=False,
                 with_modules=False, experimental_config=None, execution_trace_observer=None,
                 acc_events=False, use_cuda=None, custom_trace_id_callback=None,
                 post_processing_timeout_s=None):
        self.schedule = schedule or _default_schedule_fn
        self.on_trace_ready = on_trace_ready
        self.options = {"record_shapes": record_shapes, "with_stack": with_stack}
        self.activities = set(activities or supported_activities())
        self.record_steps = schedule is not None
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.profiler = self.step_marker = None
        self.accumulated = EventList() if acc_events else None

    # -- rounds ------------------------------------------------------------------------------

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Begin with the first step."""
        self._begin()
        self._mark()

    def stop(self):
        """End; what has been recorded since the last complete round is handed over too."""
        self._unmark()
        if self._recording():
            self._end()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)

    def step(self):
        """Tell that a step of the loop has ended."""
        before = self.current_action
        self._unmark()
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE or (
                self._recording() and self.current_action is ProfilerAction.NONE):
            self._end()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        self._begin()
        self._mark()

    def _recording(self):
        return self.profiler is not None and self.profiler.function_events is None

    def _begin(self):
        wanted = self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if wanted and not self._recording():
            self.profiler = recording.profile(**self.options)
            self.profiler.__enter__()

    def _end(self):
        self.profiler.__exit__(None, None, None)
        if self.accumulated is not None:
            self.accumulated.extend(self.profiler.function_events)

    def _mark(self):
        if self.record_steps and self._recording():
            self.step_marker = recording.record_function(f"ProfilerStep#{self.step_num}")
            self.step_marker.__enter__()

    def _unmark(self):
        if self.step_marker is not None:
            self.step_marker.__exit__(None, None, None)
            self.step_marker = None

    # -- results -----------------------------------------------------------------------------

    def events(self):
        """The events of the last round, or of all with `acc_events`."""
        if self.profiler is None or self.profiler.function_events is None:
            raise RuntimeError("profile: nothing has been recorded yet; the schedule may not have "
                               "come to a recorded step, or the block has not ended")
        return self.accumulated if self.accumulated is not None else self.profiler.function_events

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0,
                     group_by_overload_name=False):
        """Sums by name; `.table()` prints them."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path):
        """Write what chrome://tracing and Perfetto read, packed where the name ends in .gz."""
        if not str(path).endswith(".gz"):
            self.events().export_chrome_trace(path)
            return
        with tempfile.TemporaryDirectory() as folder:
            plain = os.path.join(folder, "trace.json")
            self.events().export_chrome_trace(plain)
            with open(plain, "rb") as source, gzip.open(path, "wb") as packed:
                shutil.copyfileobj(source, packed)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write stacks for flame graphs; needs `with_stack=True`."""
        self.events().export_stacks(path, metric)

    def add_metadata(self, key, value):
        """Accepted for torch's sake; a trace has no place for it."""

    def toggle_collection_dynamic(self, enable, activities):
        """Stop recording for a while, or go on."""
        if enable:
            self._begin()
        elif self._recording():
            self._end()
