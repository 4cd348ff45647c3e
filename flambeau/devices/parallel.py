"""Who calls a kernel's loops: alone when there is little to do, else on the pool's threads.

A kernel is cut along its outermost loop. A fold into few places is cut along its outermost reduced
loop instead, into blocks whose number depends on the problem alone, so that sums come out the same
whatever the number of threads. Where elements are put at computed places, ranges that could meet
there are not cut: who comes first would be left to chance.
"""

from __future__ import annotations

from ..core.record import Record

#: a range should take about this long, in nanoseconds; twice as much is worth a second thread
RANGE_NS = 16_000
#: the last ranges may be this part of one, so that threads end together
LAST = 4
#: elements in a block of a fold, how many blocks there may be, and places that are few
BLOCK, BLOCKS, FEW = 1 << 15, 128, 32

#: what a function on blocks of a fold is given besides the kernel's arguments
BLOCK_ARGUMENTS = ("ptr %scratch", "i64 %blocks", "i64 %rows", "i64 %begin", "i64 %end")


def in_blocks(places: int, work: int) -> bool:
    """Whether a fold of so many elements into so many places is cut into blocks."""
    return places <= FEW and work >= 2 * BLOCK


class Call(Record):
    """What a caller has to know of a kernel."""

    name: str
    arguments: tuple[str, ...]  # as in a definition: type and name
    dense: bool
    kept: int
    reduced: int
    lanes: int  # ranges are multiples of this
    grain: int  # elements that are worth a range
    slots: int  # words of state per place of all folds that can be cut into blocks, or 0
    # Words of the layout that are 0 if two places of the outermost loop may be put at one.
    apart: tuple[int, ...] = ()

    @property
    def passed(self) -> str:
        return ", ".join(self.arguments)


def _struct(call: Call) -> str:
    return "{ " + ", ".join(a.split()[0] for a in (*call.arguments, *_MORE)) + " }"


_MORE = ("ptr %scratch", "i64 %blocks", "i64 %rows")


def _task(call: Call, name: str, target: str, more: tuple[str, ...]) -> str:
    """A body for the pool: take the arguments from their struct and run a range."""
    kind, names = _struct(call), (*call.arguments, *_MORE)
    lines = []
    for i, argument in enumerate(names):
        type_, register = argument.split()
        lines += [f"  {register}.at = getelementptr {kind}, ptr %context, i32 0, i32 {i}",
                  f"  {register} = load {type_}, ptr {register}.at"]
    passed = ", ".join((*call.arguments, *more, "i64 %begin", "i64 %end"))
    body = "\n".join(lines)
    return (f"define internal void @{name}(ptr %context, i64 %begin, i64 %end) #0 {{\n{body}\n"
            f"  call void @{target}({passed})\n  ret void\n}}\n")


def _packed(call: Call, more: tuple[str, ...]) -> str:
    kind = _struct(call)
    lines = [f"  %context = alloca {kind}"]
    for i, argument in enumerate((*call.arguments, *more)):
        type_, register = argument.split()
        lines += [f"  %at{i} = getelementptr {kind}, ptr %context, i32 0, i32 {i}",
                  f"  store {type_} {register}, ptr %at{i}"]
    return "\n".join(lines)


def _sizes(call: Call) -> str:
    """How far the outermost loop goes, how many elements there are, and the places of a fold."""
    if call.dense:
        one = bool(call.reduced)
        count = "1" if one else "%last"
        return (f"  %count = add i64 {count}, 0\n  %work = add i64 %last, 0\n"
                f"  %places = add i64 {count}, 0\n  %length = add i64 %last, 0\n")
    text = """  %layout = inttoptr i64 %last to ptr
  %count = load i64, ptr %layout
  %before = getelementptr i64, ptr %layout, i64 -1
  %work = load i64, ptr %before
"""
    held = "%count"
    for axis in range(1, call.kept):
        text += (f"  %q{axis} = getelementptr i64, ptr %layout, i64 {axis}\n"
                 f"  %n{axis} = load i64, ptr %q{axis}\n"
                 f"  %held{axis} = mul i64 {held}, %n{axis}\n")
        held = f"%held{axis}"
    return text + (f"  %places = add i64 {held}, 0\n"
                   f"  %lengthp = getelementptr i64, ptr %layout, i64 {call.kept}\n"
                   "  %length = load i64, ptr %lengthp\n")


def entry(call: Call, folds: int) -> str:
    """The function that the kernel is known by."""
    text = "declare void @flambeau_parallel(ptr, ptr, i64, i64)\n"
    text += _task(call, f"{call.name}_task", f"{call.name}_range", ())
    for number in range(folds):
        text += _task(call, f"{call.name}_block{number}", f"{call.name}_part{number}", _MORE)
    blocks = "blocked" if folds else "ranges"
    meet, meets = _meeting(call)
    text += f"""
define void @{call.name}({call.passed}) #0 {{
entry:
{_sizes(call)}{meet}  %little = icmp slt i64 %work, {2 * call.grain}
  %small = or i1 %little, {meets}
  br i1 %small, label %alone, label %wide
alone:
  call void @{call.name}_range({call.passed}, i64 0, i64 %count)
  ret void
wide:
  {f"%few = icmp sle i64 %places, {FEW}" if folds else "%few = add i1 false, 0"}
  {f"%long = icmp sge i64 %work, {2 * BLOCK}" if folds else "%long = add i1 false, 0"}
  %cut = and i1 %few, %long
  br i1 %cut, label %{blocks}, label %ranges
ranges:
  %share = mul i64 %count, {max(1, call.grain // LAST)}
  %each = sdiv i64 %share, %work
  %lanes = add i64 %each, {call.lanes}
  %grain = {f"and i64 %lanes, {-call.lanes}" if call.lanes > 1 else "add i64 %lanes, 0"}
  call void @{call.name}_many({call.passed}, i64 %count, i64 %grain)
  ret void
{_blocked(call, folds)}}}
{_many(call)}"""
    return text


def _meeting(call: Call) -> tuple[str, str]:
    """Whether ranges of the outermost loop may put elements at the same place."""
    text, meets = "", "false"
    for word in call.apart:
        text += (f"  %w{word} = getelementptr i64, ptr %layout, i64 {word}\n"
                 f"  %far{word} = load i64, ptr %w{word}\n"
                 f"  %near{word} = icmp eq i64 %far{word}, 0\n"
                 f"  %meet{word} = or i1 {meets}, %near{word}\n")
        meets = f"%meet{word}"
    return text, meets


def _many(call: Call) -> str:
    """Ranges on the pool; apart, so that the usual way needs no room for the struct."""
    scratch = ("ptr null", "i64 0", "i64 0")
    return f"""
define internal void @{call.name}_many({call.passed}, i64 %count, i64 %grain) #0 {{
{_packed(call, scratch)}
  call void @flambeau_parallel(ptr @{call.name}_task, ptr %context, i64 %count, i64 %grain)
  ret void
}}
"""


def _blocked(call: Call, folds: int) -> str:
    """Each fold over blocks, its parts joined in order, then what is made of the results."""
    if not folds:
        return ""
    steps = "".join(f"""  call void @flambeau_parallel(ptr @{call.name}_block{number}, ptr %context,
                               i64 %blocks, i64 1)
  call void @{call.name}_join{number}({call.passed}, {", ".join(_MORE)}, i64 0, i64 %places)
""" for number in range(folds))
    return f"""blocked:
  %wanted = sdiv i64 %work, {BLOCK}
  %over = icmp sgt i64 %wanted, {BLOCKS}
  %most = select i1 %over, i64 {BLOCKS}, i64 %wanted
  %lengthen = add i64 %length, %most
  %less = sub i64 %lengthen, 1
  %even = sdiv i64 %less, %most
  %round = add i64 %even, 63
  %whole = and i64 %round, -64
  %tiny = icmp slt i64 %even, 64
  %rows = select i1 %tiny, i64 %even, i64 %whole
  %up = add i64 %length, %rows
  %upper = sub i64 %up, 1
  %blocks = sdiv i64 %upper, %rows
  %and1 = add i64 %blocks, 1
  %cells = mul i64 %and1, %places
  %slots = mul i64 %cells, {call.slots}
  %scratch = alloca i64, i64 %slots
{_packed(call, _MORE)}
{steps}  call void @{call.name}_finish({call.passed}, {", ".join(_MORE)}, i64 0, i64 1)
  ret void
"""
