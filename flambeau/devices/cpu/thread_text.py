"""The machine code of the pool of threads: see threads.py for what it does."""

from __future__ import annotations

import signal
from array import array

#: how often a waiting thread looks before it goes to sleep: about 40 us, and about 300 us. To wake
#: a thread can take longer than a kernel does, most of all on a virtual machine, so a thread waits
#: long; but once one finds that it was kept from running while it waited, all wait shortly, and
#: then longer and longer again, by LOOKS with every job that comes while they wait.
FEW_LOOKS, MANY_LOOKS, LOOKS = 2_000, 15_000, 256
#: what a clock of the processor counts in some 40 us or less, a gap between two looks: of ARM's it
#: is a part of what it counts in a second, which is anything from 10 million to a thousand million
GAP, GAPS = 100_000, 25_000
_ARM = ("aarch64", "arm64")
#: the smallest ranges are this part of a thread's share; the first are larger, so that at the end
#: nobody waits long for a thread that took a range
RANGES = 32

# The state of the pool is one word, so that a worker enters a job and the caller closes it in one
# atomic step each: how many workers are inside, whether the job is open, and the job's number.
_OPEN, _INSIDE, _NUMBER = 1 << 15, (1 << 15) - 1, 16

# A line of the cache for each word that threads fight for.
FIELDS = {name: 64 * i for i, name in enumerate(
    ("state", "next", "asleep", "waiting", "busy", "limit", "started", "job", "patience",
     "mutex", "mutex2", "work", "work2", "done", "done2"))}
POOL_BYTES = 64 * len(FIELDS)
#: words of a job, and the core of who gave it
_JOB = ("body", "context", "count", "grain", "least", "core")

PTHREAD = {
    "pthread_create":         "i32 (ptr, ptr, ptr, ptr)",
    "pthread_detach":         "i32 (ptr)",
    "pthread_sigmask":        "i32 (i32, ptr, ptr)",
    "pthread_mutex_lock":     "i32 (ptr)",
    "pthread_mutex_unlock":   "i32 (ptr)",
    "pthread_cond_wait":      "i32 (ptr, ptr)",
    "pthread_cond_signal":    "i32 (ptr)",
    "pthread_cond_broadcast": "i32 (ptr)",
}

_FULL = "\\FF" * 128  # every bit of a set of signals
_SET = int(getattr(signal, "SIG_SETMASK", 2))

#: what a thread does between two looks, by machine; what ARM calls yielding takes no time on most
_PAUSE = {
    "x86_64":  ("llvm.x86.sse2.pause", "", ""),
    "aarch64": ("llvm.aarch64.isb", "i32", "i32 15"),
    "arm64":   ("llvm.aarch64.isb", "i32", "i32 15"),
}


#: what a thread of Linux needs to leave a core, and the bytes of a set of cores
CORES = {
    "sched_getcpu":      "i32 ()",
    "sched_getaffinity": "i32 (i32, i64, ptr)",
    "sched_setaffinity": "i32 (i32, i64, ptr)",
}
_CORE_BYTES = 128

_REGISTER = "call i64 @llvm.read_volatile_register.i64(metadata {})"
_CLOCK = {"x86_64": "call i64 @llvm.readcyclecounter()",
          **dict.fromkeys(_ARM, _REGISTER.format("!0"))}
_CLOCKS = {"x86_64": "declare i64 @llvm.readcyclecounter()\n", **dict.fromkeys(_ARM, """
declare i64 @llvm.read_volatile_register.i64(metadata)
!0 = !{!"cntvct_el0"}
!1 = !{!"cntfrq_el0"}
""")}


def _place(name: str) -> str:
    return f"getelementptr (i8, ptr @flambeau_pool, i64 {FIELDS[name]})"


def pool_words(count: int) -> array:
    """The words of a pool of so many threads before any has started."""
    words = array("q", bytes(POOL_BYTES))
    words[FIELDS["limit"] // 8], words[FIELDS["patience"] // 8] = count, MANY_LOOKS
    return words


def pool_text(triple: str, moves: bool) -> str:
    """The code of the pool for a machine; on Linux threads can move between cores."""
    code = _Code(triple.split("-")[0], moves)
    return "".join((code.apart() if moves else "", code.declared(), code.take(), code.rest(),
                    code.join(), code.worker(), code.hire(), code.await_(), code.parallel()))


class _Code:
    """The functions of the pool, and what they have in common."""

    def __init__(self, machine: str, moves: bool):
        self.machine, self.moves = machine, moves
        pause, _, argument = _PAUSE.get(machine, ("", "", ""))
        self.pause = f"call void @{pause}({argument})" if pause else "fence seq_cst"
        self.clock = _CLOCK.get(machine, "add i64 0, 0")
        self.gap = f"  %most = add i64 {GAP}, 0"
        if machine in _ARM:
            self.gap = f"""  %second = {_REGISTER.format("!1")}
  %most = udiv i64 %second, {GAPS}"""
        self.at = {name: f"ptr {_place(name)}" for name in FIELDS}
        self.job = {name: f"ptr getelementptr (i8, ptr @flambeau_pool, i64 {FIELDS['job'] + 8 * i})"
                    for i, name in enumerate(_JOB)}
        self.here = "call i32 @sched_getcpu()" if moves else "add i32 0, 0"
        self.away = "call void @apart()" if moves else ""

    def declared(self) -> str:
        """The words of the pool, and functions of the system."""
        pause, type_, _ = _PAUSE.get(self.machine, ("", "", ""))
        declared = "\n".join(f"declare {kind.replace('(', f'@{name}(', 1)}"
                             for name, kind in {**PTHREAD, **(CORES if self.moves else {})}.items())
        declared += f"\ndeclare void @{pause}({type_})" if pause else ""
        declared += f"\n{_CLOCKS.get(self.machine, '')}"
        return f"""
@flambeau_pool = external global [{POOL_BYTES} x i8]
@all_signals = private constant [128 x i8] c"{_FULL}"
{declared}

"""

    def apart(self) -> str:
        """A function for workers that wake: leave the core on which the caller runs.

        Where a system does not know which cores are near each other, as on many virtual machines,
        it wakes a thread where it slept, and later moves it, after longer than most kernels take.
        """
        return f"""
define internal void @apart() {{
entry:
  %all = alloca [{_CORE_BYTES} x i8]
  %others = alloca [{_CORE_BYTES} x i8]
  %theirs = load i32, {self.job['core']}
  %mine = call i32 @sched_getcpu()
  %same = icmp eq i32 %mine, %theirs
  br i1 %same, label %ask, label %done
ask:
  %refused = call i32 @sched_getaffinity(i32 0, i64 {_CORE_BYTES}, ptr %all)
  %byte = lshr i32 %mine, 3
  %known = icmp ult i32 %byte, {_CORE_BYTES}
  %granted = icmp eq i32 %refused, 0
  %may = and i1 %known, %granted
  br i1 %may, label %leave, label %done
leave:
  call void @llvm.memcpy.p0.p0.i64(ptr %others, ptr %all, i64 {_CORE_BYTES}, i1 false)
  %index = zext i32 %byte to i64
  %place = getelementptr i8, ptr %others, i64 %index
  %bits = load i8, ptr %place
  %low = trunc i32 %mine to i8
  %shift = and i8 %low, 7
  %bit = shl i8 1, %shift
  %without = xor i8 %bit, -1
  %left = and i8 %bits, %without
  store i8 %left, ptr %place
  %no = call i32 @sched_setaffinity(i32 0, i64 {_CORE_BYTES}, ptr %others)
  %still = call i32 @sched_setaffinity(i32 0, i64 {_CORE_BYTES}, ptr %all)
  br label %done
done:
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

    def take(self) -> str:
        """Take ranges until none is left: half of a thread's share of the rest, in whole grains."""
        at = self.at
        return f"""
define internal void @take() {{
entry:
  %body = load ptr, {self.job['body']}
  %context = load ptr, {self.job['context']}
  %count = load i64, {self.job['count']}
  %grain = load i64, {self.job['grain']}
  %least = load i64, {self.job['least']}
  %limit = load i64, {at["limit"]}
  %halves = mul i64 %limit, 2
  %first = load atomic i64, {at["next"]} seq_cst, align 8
  br label %more
more:
  %begin = phi i64 [ %first, %entry ], [ %seen, %claim ], [ %again, %run ]
  %left = sub i64 %count, %begin
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %claim, label %none
claim:
  %share = sdiv i64 %left, %halves
  %grains = sdiv i64 %share, %grain
  %whole = mul i64 %grains, %grain
  %small = icmp slt i64 %whole, %least
  %size = select i1 %small, i64 %least, i64 %whole
  %stop = add i64 %begin, %size
  %over = icmp sgt i64 %stop, %count
  %end = select i1 %over, i64 %count, i64 %stop
  %pair = cmpxchg {at["next"]}, i64 %begin, i64 %end seq_cst seq_cst
  %seen = extractvalue {{i64, i1}} %pair, 0
  %mine = extractvalue {{i64, i1}} %pair, 1
  br i1 %mine, label %run, label %more
run:
  call void %body(ptr %context, i64 %begin, i64 %end)
  %again = load atomic i64, {at["next"]} seq_cst, align 8
  br label %more
none:
  ret void
}}

"""

    def rest(self) -> str:
        """Rest between two looks, the last at %clock; impatient from now on if others ran then."""
        at = self.at
        return f"""
define internal i64 @rest(i64 %clock) {{
entry:
  {self.pause}
  %now = {self.clock}
  %gap = sub i64 %now, %clock
{self.gap}
  %long = icmp sgt i64 %gap, %most
  br i1 %long, label %kept, label %done
kept:
  store atomic i64 {FEW_LOOKS}, {at["patience"]} monotonic, align 8
  br label %done
done:
  ret i64 %now
}}

"""

    def join(self) -> str:
        """Enter a job if one is open and has room, work, and leave; the job's number."""
        at = self.at
        return f"""
define internal i64 @join(i64 %seen) {{
entry:
  br label %look
look:
  %state = load atomic i64, {at["state"]} seq_cst, align 8
  %number = lshr i64 %state, {_NUMBER}
  %same = icmp eq i64 %number, %seen
  br i1 %same, label %nothing, label %fresh
nothing:
  ret i64 %seen
fresh:
  %bit = and i64 %state, {_OPEN}
  %open = icmp ne i64 %bit, 0
  %inside = and i64 %state, {_INSIDE}
  %limit = load i64, {at["limit"]}
  %mates = add i64 %inside, 1
  %room = icmp slt i64 %mates, %limit
  %may = and i1 %open, %room
  br i1 %may, label %enter, label %late
late:
  ret i64 %number
enter:
  %with = add i64 %state, 1
  %pair = cmpxchg {at["state"]}, i64 %state, i64 %with seq_cst seq_cst
  %in = extractvalue {{i64, i1}} %pair, 1
  br i1 %in, label %work, label %look
work:
  call void @take()
  %before = atomicrmw sub {at["state"]}, i64 1 seq_cst
  %others = and i64 %before, {_INSIDE}
  %last = icmp eq i64 %others, 1
  %waiting = load atomic i64, {at["waiting"]} seq_cst, align 8
  %awaited = icmp ne i64 %waiting, 0
  %tell = and i1 %last, %awaited
  br i1 %tell, label %wake, label %gone
wake:
  call i32 @pthread_mutex_lock({at["mutex"]})
  call i32 @pthread_cond_signal({at["done"]})
  call i32 @pthread_mutex_unlock({at["mutex"]})
  br label %gone
gone:
  ret i64 %number
}}

"""

    def worker(self) -> str:
        """What a worker does all its life: wait, join, sleep."""
        at = self.at
        return f"""
define internal ptr @worker(ptr %start) {{
entry:
  %first = ptrtoint ptr %start to i64
  %start_clock = {self.clock}
  {self.away}
  br label %spin
spin:
  %seen = phi i64 [ %first, %entry ], [ %seen, %again ], [ %now, %joined ]
  %turn = phi i64 [ 0, %entry ], [ %turns, %again ], [ 0, %joined ]
  %clock = phi i64 [ %start_clock, %entry ], [ %later, %again ], [ %after, %joined ]
  %state = load atomic i64, {at["state"]} seq_cst, align 8
  %number = lshr i64 %state, {_NUMBER}
  %new = icmp ne i64 %number, %seen
  br i1 %new, label %awaited, label %wait
awaited:
  %patience = load atomic i64, {at["patience"]} monotonic, align 8
  %more = add i64 %patience, {LOOKS}
  %much = icmp sgt i64 %more, {MANY_LOOKS}
  %most = select i1 %much, i64 {MANY_LOOKS}, i64 %more
  store atomic i64 %most, {at["patience"]} monotonic, align 8
  br label %joined
joined:
  %known = phi i64 [ %seen, %awaited ], [ %seen, %rise ]
  %now = call i64 @join(i64 %known)
  %after = {self.clock}
  br label %spin
wait:
  %later = call i64 @rest(i64 %clock)
  %turns = add i64 %turn, 1
  %looks = load atomic i64, {at["patience"]} monotonic, align 8
  %tired = icmp sgt i64 %turns, %looks
  br i1 %tired, label %sleep, label %again
again:
  br label %spin
sleep:
  call i32 @pthread_mutex_lock({at["mutex"]})
  atomicrmw add {at["asleep"]}, i64 1 seq_cst
  br label %check
check:
  %state2 = load atomic i64, {at["state"]} seq_cst, align 8
  %number2 = lshr i64 %state2, {_NUMBER}
  %still = icmp eq i64 %number2, %seen
  br i1 %still, label %doze, label %rise
doze:
  call i32 @pthread_cond_wait({at["work"]}, {at["mutex"]})
  br label %check
rise:
  atomicrmw sub {at["asleep"]}, i64 1 seq_cst
  call i32 @pthread_mutex_unlock({at["mutex"]})
  {self.away}
  br label %joined
}}

"""

    def hire(self) -> str:
        """Start workers that are missing; they take no signals, which are for Python's thread."""
        at = self.at
        return f"""
define internal void @hire() {{
entry:
  %old = alloca [128 x i8]
  %thread = alloca i64
  %limit = load i64, {at["limit"]}
  %state = load i64, {at["state"]}
  %number = lshr i64 %state, {_NUMBER}
  %start = inttoptr i64 %number to ptr
  call i32 @pthread_sigmask(i32 {_SET}, ptr @all_signals, ptr %old)
  br label %more
more:
  %have = load i64, {at["started"]}
  %mine = add i64 %have, 1
  %enough = icmp sge i64 %mine, %limit
  br i1 %enough, label %done, label %one
one:
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %start)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %counted, label %done
counted:
  %handle = load ptr, ptr %thread
  call i32 @pthread_detach(ptr %handle)
  store i64 %mine, {at["started"]}
  br label %more
done:
  call i32 @pthread_sigmask(i32 {_SET}, ptr %old, ptr null)
  ret void
}}

"""

    def await_(self) -> str:
        """Wait until the workers have left a job that is closed."""
        at = self.at
        return f"""
define internal void @await() {{
entry:
  %begun = {self.clock}
  br label %spin
spin:
  %turn = phi i64 [ 0, %entry ], [ %turns, %again ]
  %clock = phi i64 [ %begun, %entry ], [ %later, %again ]
  %now = load atomic i64, {at["state"]} seq_cst, align 8
  %inside = and i64 %now, {_INSIDE}
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %end, label %wait
wait:
  %later = call i64 @rest(i64 %clock)
  %turns = add i64 %turn, 1
  %looks = load atomic i64, {at["patience"]} monotonic, align 8
  %tired = icmp sgt i64 %turns, %looks
  br i1 %tired, label %sleep, label %again
again:
  br label %spin
sleep:
  call i32 @pthread_mutex_lock({at["mutex"]})
  store atomic i64 1, {at["waiting"]} seq_cst, align 8
  br label %check
check:
  %then = load atomic i64, {at["state"]} seq_cst, align 8
  %within = and i64 %then, {_INSIDE}
  %left = icmp eq i64 %within, 0
  br i1 %left, label %rise, label %doze
doze:
  call i32 @pthread_cond_wait({at["done"]}, {at["mutex"]})
  br label %check
rise:
  store atomic i64 0, {at["waiting"]} seq_cst, align 8
  call i32 @pthread_mutex_unlock({at["mutex"]})
  ret void
end:
  ret void
}}
"""

    def parallel(self) -> str:
        """What kernels call."""
        at = self.at
        return f"""
define void @flambeau_parallel_pool(ptr %body, ptr %context, i64 %count, i64 %grain) {{
entry:
  %limit = load i64, {at["limit"]}
  %alone = icmp slt i64 %limit, 2
  %short = icmp sle i64 %count, %grain
  %simple = or i1 %alone, %short
  br i1 %simple, label %single, label %try
try:
  %busy = atomicrmw xchg {at["busy"]}, i64 1 seq_cst
  %taken = icmp ne i64 %busy, 0
  br i1 %taken, label %single, label %post
single:
  call void %body(ptr %context, i64 0, i64 %count)
  ret void
post:
  %parts = mul i64 %limit, {RANGES}
  %more = add i64 %count, %parts
  %less = sub i64 %more, 1
  %even = sdiv i64 %less, %parts
  %up = add i64 %even, %grain
  %upper = sub i64 %up, 1
  %grains = sdiv i64 %upper, %grain
  %least = mul i64 %grains, %grain
  %have = load i64, {at["started"]}
  %mine = add i64 %have, 1
  %enough = icmp sge i64 %mine, %limit
  br i1 %enough, label %open, label %missing
missing:
  %home = {self.here}
  store i32 %home, {self.job['core']}
  call void @hire()
  br label %open
open:
  store ptr %body, {self.job['body']}
  store ptr %context, {self.job['context']}
  store i64 %count, {self.job['count']}
  store i64 %grain, {self.job['grain']}
  store i64 %least, {self.job['least']}
  store atomic i64 0, {at["next"]} seq_cst, align 8
  %state = load atomic i64, {at["state"]} seq_cst, align 8
  %number = lshr i64 %state, {_NUMBER}
  %following = add i64 %number, 1
  %shifted = shl i64 %following, {_NUMBER}
  %opened = or i64 %shifted, {_OPEN}
  store atomic i64 %opened, {at["state"]} seq_cst, align 8
  %asleep = load atomic i64, {at["asleep"]} seq_cst, align 8
  %some = icmp ne i64 %asleep, 0
  br i1 %some, label %wake, label %share
wake:
  %current = {self.here}
  store i32 %current, {self.job['core']}
  call i32 @pthread_mutex_lock({at["mutex"]})
  call i32 @pthread_cond_broadcast({at["work"]})
  call i32 @pthread_mutex_unlock({at["mutex"]})
  br label %share
share:
  call void @take()
  atomicrmw and {at["state"]}, i64 {~_OPEN} seq_cst
  call void @await()
  store atomic i64 0, {at["busy"]} seq_cst, align 8
  ret void
}}
"""


#: where the system has no POSIX threads
ALONE = """
define void @flambeau_parallel_pool(ptr %body, ptr %context, i64 %count, i64 %grain) {
  call void %body(ptr %context, i64 0, i64 %count)
  ret void
}
"""
