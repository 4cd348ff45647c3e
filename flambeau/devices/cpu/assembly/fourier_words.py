"""Words of plans of Fourier transforms; shared by plans and machine code."""

from __future__ import annotations

from .conv_words import Record

#: rows of `taken` numbers, brought to length n and transformed, of which `made` are kept; numbers
#: of a row are `inner` apart. `swapped` is 1 of an inverse; `scale` is the bits of a double.
#: The words of so many stages follow.
FOURIER = Record("rows inner n taken made swapped scale grain stages")

#: one pass: its factor; how far apart numbers of one transform are, and how many there are; and the
#: table of its weights
STAGE = Record("radix apart count table")

#: numbers in a row at most: four arrays of them have to be at hand
MOST = 1 << 12
