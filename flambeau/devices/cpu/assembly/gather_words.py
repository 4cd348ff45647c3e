"""What `gather.py` is told by its callers, and what it answers, as words in memory."""

from __future__ import annotations

#: what the caller says of an update, one word each
UPDATE = ("items", "count", "width", "known", "states", "counters", "table", "item_size", "entries",
          "snapshot", "list", "state", "wide", "old", "new")
#: words of an item before what it knows: tensor, signature, elements, dict of state
ITEM = 4
#: instead of elements: there is no gradient; there may be one, and it is not our business
ABSENT, ANY = -1, -2

#: what the caller says of all groups of an optimizer, one word each
WHOLE = ("list", "groups", "group_count", "updates", "update_count")
#: words of a group: its dict, the keys and values in there, and how many pairs those are
GROUP = 3
#: words of an update: its plan, code (count, constants, numbers) with those constants and room for
#: the numbers, how many they are, and code (table, rows, numbers, elements)
ROW = ("plan", "numbers", "constants", "given", "count", "code", "elements")

#: what the caller says of a list of tensors, one word each
SEARCH = ("list", "table", "room", "dtype", "device", "item_size", "results", "gradients", "type",
          "true", "elements")
#: answers of a search that found no table to write
OTHERWISE, TOO_SMALL = -1, -2
