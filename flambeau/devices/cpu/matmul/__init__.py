"""Matrix products as generated machine code: register tiles, pack functions, and loops around them.

    host.py     the register tile and the cache blocks of this machine
    tile.py     the microkernel: `rows` x `vectors` sums kept in registers over a loop in k
    pack.py     operands copied into panels, from any strides, transposed in registers
    drive.py    blocks of a product, batches, threads: the function that is called
    scratch.py  aligned buffers that native code takes and gives back
"""
