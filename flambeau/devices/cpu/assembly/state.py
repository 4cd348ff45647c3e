"""Where the parts of a random generator lie in memory, in bytes; shared with machine code."""

from __future__ import annotations

WORDS = 624
#: words that a fill draws before it makes numbers of them
CHUNK = 4096

LOCK = 0            # 1 while machine code draws
NEXT = 8            # the next of the tempered words; WORDS when all are drawn
FRESH = 16          # whether nothing was drawn since the seed
KEPT = 24           # whether a normal number is kept
NORMAL = 32         # that number
RAW = 64            # two blocks of words: the last one twice, or the last and the next
TEMPERED = RAW + 8 * WORDS
DRAWN = TEMPERED + 4 * WORDS
STATE_SIZE = DRAWN + 4 * CHUNK + 64
