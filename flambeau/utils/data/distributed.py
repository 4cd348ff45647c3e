"""A sampler that gives every process of a group its own share of a data set."""

import math

import flambeau

from .sampler import Sampler


class DistributedSampler(Sampler):
    """Every num_replicas-th sample, from the rank on; the same order in all processes.

    Call `set_epoch` before each epoch, or every epoch has the same order.
    """

    def __init__(
        self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False
    ):
        if num_replicas is None or rank is None:
            group = getattr(flambeau, "distributed", None)
            if group is None or not group.is_available():
                raise RuntimeError("Requires distributed package to be available")
            num_replicas = group.get_world_size() if num_replicas is None else num_replicas
            rank = group.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        rounded = math.floor if drop_last else math.ceil
        self.num_samples = rounded(len(dataset) / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self):
        n = len(self.dataset)
        indices = list(range(n))
        if self.shuffle:
            generator = flambeau.Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = flambeau.randperm(n, generator=generator).tolist()
        # Every process must get as many: samples are repeated, or the last ones left out.
        repeats = math.ceil(self.total_size / n) if n else 0
        indices = (indices * repeats)[: self.total_size]
        return iter(indices[self.rank :: self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """Choose the order of the next epoch."""
        self.epoch = epoch
