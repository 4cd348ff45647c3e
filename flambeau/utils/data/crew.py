"""The workers of a DataLoader, seen from the loader: jobs go out, batches come in, faults are
noticed."""

import contextlib
import gc
import os
import pickle
import selectors
import signal
import time
from multiprocessing import sharedctypes

from . import lending
from . import worker as work
from .channel import Channel

LIVENESS_CHECK = 0.5  # seconds of silence after which workers are looked at
GRACE = 1.0  # seconds a worker has to end by itself
DUMP_TIME = 0.5  # seconds a worker has to say where it hangs


class Member:
    """One worker: its process, the way to it, and its memory."""

    def __init__(self, number, process, channel, status, count):
        self.number, self.process, self.channel, self.status = number, process, channel, status
        self.library = lending.Library(count)
        self.pid = process.pid  # of the process that serves now
        self.words = None
        self.streams = None  # of random numbers, after the batch that was given out last
        self.indices = {}  # of the jobs it has

    def last_words(self):
        """The traceback that a worker left behind, if there is one."""
        if self.words is None:
            return ""
        # The worker writes where the file was last read or written, so reading must not move that.
        found = os.pread(self.words, os.fstat(self.words).st_size, 0)
        return found.decode(errors="replace").strip()

    def whereabouts(self):
        """Which samples a worker was busy with, as a phrase."""
        index, number = self.status
        indices = self.indices.get(number)
        if indices is None:
            return ""
        place = work.describe(indices, None if index < 0 else index)
        return f" while fetching batch {number}{place}"


class Crew:
    """All workers of a loader. `send` and `receive` are the two things to do with them."""

    def __init__(self, loader, context, base_seed, make_fetcher):
        self.members, self.inbox, self.stopped = [], [], False
        self.owner = os.getpid()
        self.selector = selectors.DefaultSelector()
        count, ours = [0], []
        collecting = gc.isenabled()
        gc.disable()  # a collection in the child would copy what it inherits
        try:
            for i in range(loader.num_workers):
                near, far = context.Pipe()
                ours.append(near)
                status = sharedctypes.RawArray("q", [-1, -1])
                forked = context.get_start_method() == "fork"
                duty = work.Duty(i, loader.num_workers, loader.dataset, make_fetcher, far,
                                 list(ours) if forked else [], status, base_seed,
                                 loader.worker_init_fn)
                process = context.Process(target=work.run, args=(duty,), daemon=True)
                process.start()
                far.close()
                member = Member(i, process, Channel(near), status, count)
                member.channel.peer = process.pid
                self.selector.register(near, selectors.EVENT_READ, member)
                self.members.append(member)
        except BaseException:
            self.stop()
            raise
        finally:
            if collecting:
                gc.enable()

    def send(self, worker, order):
        """Give a worker an order; takes in what has come if the way to it is full."""
        member = self.members[worker]
        if isinstance(order, work.Job):
            member.indices[order.number] = order.indices
            order = order._replace(returned=member.library.to_return())
        data = pickle.dumps(order, 5)
        try:
            while not member.channel.takes_more():
                self._take_in(LIVENESS_CHECK)
            member.channel.send(data)
        except (BrokenPipeError, ConnectionError):
            self._take_in(0)  # what it said before it died comes first
            self._died(member)

    def receive(self, timeout):
        """The next (worker, number of the job, result); an error if a worker has died."""
        deadline = time.monotonic() + timeout if timeout else None
        while not self.inbox:
            wait = LIVENESS_CHECK
            if deadline is not None:
                wait = min(wait, max(0.0, deadline - time.monotonic()))
            if self._take_in(wait):
                continue
            for member in self.members:
                if not member.process.is_alive():
                    self._died(member)
            if deadline is not None and time.monotonic() >= deadline:
                self._hangs(timeout)
        member, result, blocks = self.inbox.pop(0)
        member.indices.pop(result.number, None)
        batch = member.library.unpacked(result.data, result.buffers, blocks)
        return member.number, result.number, batch, result.streams

    def _take_in(self, wait):
        """Put all messages that are there into the inbox; whether there was any."""
        events = self.selector.select(wait)
        dead = []
        for key, _ in events:
            member = key.data
            try:
                self._read(member)
            except (EOFError, ConnectionError):
                dead.append(member)
        if dead and not self.inbox:
            self._died(dead[0])
        return bool(events)

    def _read(self, member):
        content = pickle.loads(member.channel.receive())
        if isinstance(content, work.Hello):
            member.pid = member.channel.peer = content.pid
            member.library.forget_before(content.generation)
            if member.words is not None:
                os.close(member.words)
            member.words = member.channel.receive_handle() if lending.POSSIBLE else None
            return
        result = work.Result(*content)
        for number, nbytes in result.new:
            member.library.learn(number, member.channel.receive_handle(), nbytes)
        blocks = [member.library.blocks[number] for number, _ in result.used]
        member.library.forget(result.gone)
        self.inbox.append((member, result, blocks))

    def _died(self, member):
        member.process.join(timeout=GRACE)
        code, told = member.process.exitcode, member.last_words()
        place = member.whereabouts()
        self.stop()
        how = "exited unexpectedly"
        if code is not None and code < 0:
            how += f": killed by signal {signal.Signals(-code).name}"
        elif code:
            how += f" with code {code}"
        trace = f"\nTraceback of the worker:\n{told}" if told else ""
        raise RuntimeError(
            f"DataLoader worker {member.number} (pid(s) {member.pid}) {how}{place}{trace}"
        ) from None

    def _hangs(self, timeout):
        """Ask those who are busy where they are, and give up."""
        busy = [member for member in self.members if member.indices]
        for member in busy:
            if work.DUMP_SIGNAL is not None:
                with contextlib.suppress(OSError):
                    os.kill(member.pid, work.DUMP_SIGNAL)
        until, before = time.monotonic() + DUMP_TIME, None
        while time.monotonic() < until:
            words = [member.last_words() for member in busy]
            if all(words) and words == before:  # nobody is still writing
                break
            before = words
            time.sleep(0.02)
        told = [f"Worker {m.number} (pid {m.pid}){m.whereabouts()}:\n{m.last_words()}"
                for m in busy]
        self.stop()
        raise RuntimeError(
            "\n".join([f"DataLoader timed out after {timeout} seconds", *told])) from None

    def stop(self):
        """End the workers; kindly, then not."""
        if self.stopped or os.getpid() != self.owner:
            return
        self.stopped = True
        self.inbox.clear()
        for member in self.members:
            member.channel.close()
        until = time.monotonic() + GRACE
        for member in self.members:
            member.process.join(timeout=max(0.0, until - time.monotonic()))
        for end in ("terminate", "kill"):
            for member in self.members:
                if member.process.is_alive():
                    getattr(member.process, end)()
                    member.process.join(timeout=GRACE)
        for member in self.members:
            if member.words is not None:
                os.close(member.words)
                member.words = None
        self.selector.close()
