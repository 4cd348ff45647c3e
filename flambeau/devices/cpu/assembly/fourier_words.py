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

#: factors that have a pass of their own
RADICES = (8, 4, 2, 3, 5)

#: numbers in a row at most, and in one for which there is room at hand
MOST, NEAR = 1 << 20, 1 << 12

#: numbers in one of several rows that go together: where they follow one another, and where they
#: are abreast in memory too, so that one alone would be read number by number
SHORT, ABREAST = 1 << 8, 1 << 10
