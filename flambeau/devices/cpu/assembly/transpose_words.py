"""The words that a transposed copy is described by."""

from __future__ import annotations

from .conv_words import Record

#: sizes of two outer loops and of the square's two dimensions, and strides in bytes: of the outer
#: loops, of the result between columns, of the source between rows. A row has its elements side by
#: side in the source, a column in the result.
TURN = Record("""first second columns rows out_first out_second source_first source_second out
    source grain""")
#: columns of a block
BLOCK = 256
