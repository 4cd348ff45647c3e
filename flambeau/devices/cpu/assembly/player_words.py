"""What `player.py` is told by its caller, and what it answers, as words in memory."""

from __future__ import annotations

#: what the caller says, one word each
PLAN = ("words", "word_count", "guards", "guard_count", "grads", "grad_count", "pools", "slots",
        "pool_count", "kept", "kept_count", "table", "failed", "work", "threshold", "code", "type")
#: words of a row about memory: an address, and the word that must be there
PAIR = 2
#: words of a row: tensor, signature, node, place in the table; or leaf, signature, place, and room
#: for the gradient that it had
ROW = 4
#: words of a row about a tensor that is handed out: signature, node, which memory, bytes further
KEPT = 4
#: answers: nothing was done because a tensor is another, or a gradient is held by somebody; others
#: are EMPTY and FAILED of settle_words
CHANGED, HELD = 1, 4
