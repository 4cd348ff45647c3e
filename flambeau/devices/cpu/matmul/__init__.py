"""Matrix products as generated machine code: register tiles, pack functions, and loops around them.

    host.py     the register tile and the cache blocks of this machine
    tile.py     the microkernel: `rows` x `vectors` sums kept in registers over a loop in k
    pairs.py    bfloat16 two by two, where an instruction multiplies pairs
    amx.py      bfloat16 by tiles, where instructions do
    pack.py     operands copied into panels, from any strides, transposed in registers
    drive.py    blocks of a product, batches, threads: the function that is called
    scratch.py  aligned buffers that native code takes and gives back
"""
