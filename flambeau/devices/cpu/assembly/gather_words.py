"""What `gather.py` is told by its callers, and what it answers, as words in memory."""

from __future__ import annotations

#: what the caller says of an update, one word each
UPDATE = ("items", "count", "width", "known", "states", "counters", "table", "item_size", "entries",
          "snapshot", "list", "state", "wide", "old", "new")
#: words of an item before what it knows: tensor, signature, elements, dict of state
ITEM = 4
#: instead of elements: there is no gradient; there may be one, and it is not our business
ABSENT, ANY = -1, -2

#: what the caller says of a list of tensors, one word each
SEARCH = ("list", "table", "room", "dtype", "device", "item_size", "results", "gradients", "type",
          "true", "elements")
#: answers of a search that found no table to write
OTHERWISE, TOO_SMALL = -1, -2
