"""How much memory routines that order need beside their operands; shared with machine code."""

from __future__ import annotations

DIGITS = 256
#: rows up to this long are sorted in memory of the routine's own
SHORT = 256
#: how many parts rows are cut into at most, and so how much memory is needed beside
SLOTS = 16
#: so many candidates fit into memory of the routine's own
NEAR = 320
#: candidates are collected until there are twice as many as wanted, and so many more
SPARE = 24
#: keys that are counted at a time, where one of a rank is looked for
BLOCK = 64


def room_for_sort(n: int, short: int = SHORT) -> int:
    """Bytes to sort a row of n: packed elements twice, and counts of digits."""
    return 0 if n <= short else 16 * n + 4 * 4 * DIGITS


def room_for_best(k: int, wide: bool) -> int:
    """Bytes to find the k best of a row."""
    wanted = 3 * k + SPARE
    return 0 if wanted <= NEAR else wanted * (16 if wide else 8)


def room_for_rank(n: int, wide: bool) -> int:
    """Bytes to find one of a row of n by its rank."""
    return 0 if n <= NEAR else (n + BLOCK) * (8 if wide else 4)
