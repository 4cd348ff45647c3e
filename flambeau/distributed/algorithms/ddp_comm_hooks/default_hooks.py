"""Communication hooks: plain average, and averages of gradients sent in half precision."""

from __future__ import annotations

import flambeau
from flambeau.distributed import collectives, groups


def allreduce_hook(process_group, bucket):
    """The average, as without a hook."""
    flat = bucket.buffer().div_(groups.get_world_size(process_group))
    work = collectives.all_reduce(flat, group=process_group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def _compressed(dtype, process_group, bucket):
    small = bucket.buffer().to(dtype).div_(groups.get_world_size(process_group))
    work = collectives.all_reduce(small, group=process_group, async_op=True)
    return work.get_future().then(
        lambda future: bucket.buffer().copy_(future.value()[0].to(bucket.buffer().dtype)))


def fp16_compress_hook(process_group, bucket):
    """The average of gradients rounded to float16."""
    return _compressed(flambeau.float16, process_group, bucket)


def bf16_compress_hook(process_group, bucket):
    """The average of gradients rounded to bfloat16."""
    return _compressed(flambeau.bfloat16, process_group, bucket)
