"""Batch normalisation, with the running statistics that evaluation uses."""

import flambeau
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.sync_norm import SynchronizedNorm
from flambeau.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d",
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d",
    "SyncBatchNorm",
]  # fmt: skip


class _NormBase(Module):
    """Weights and running statistics per channel, shared by batch and instance norms.

    `_input_dims` are the numbers of dimensions a subclass accepts.
    """

    _version = 2
    _input_dims: tuple[int, ...] = ()

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        options = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            value = Parameter(flambeau.empty(num_features, **options)) if wanted else None
            self.register_parameter(name, value)
        statistics = (None, None, None)
        if track_running_stats:
            count = flambeau.tensor(0, dtype=flambeau.long, device=device)
            shape = (num_features,)
            statistics = flambeau.zeros(shape, **options), flambeau.ones(shape, **options), count
        for name, value in zip(
            ("running_mean", "running_var", "num_batches_tracked"), statistics, strict=True
        ):
            self.register_buffer(name, value)
        self.reset_parameters()

    def reset_running_stats(self):
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input):
        if input.dim() not in self._input_dims:
            wanted = " or ".join(f"{n}D" for n in self._input_dims)
            raise ValueError(f"expected {wanted} input (got {input.dim()}D input)")

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *lists):
        """States of the first version have no count of batches."""
        version = local_metadata.get("version")
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats:
            count = self.num_batches_tracked
            known = count is not None and count.device.type != "meta"
            fresh = flambeau.tensor(0, dtype=flambeau.long)
            state_dict.setdefault(key, count if known else fresh)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *lists)


class _BatchNorm(_NormBase):
    """Subtract the mean of the batch, divide by its deviation, scale and shift."""

    def forward(self, input):
        self._check_input_dim(input)
        use_batch = self.training or (self.running_mean is None and self.running_var is None)
        tracking = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if tracking else None,
            self.running_var if tracking else None,
            self.weight,
            self.bias,
            use_batch,
            self._count_batch(),
            self.eps,
        )

    def _count_batch(self):
        """Count a training batch; the share of the running statistics it replaces."""
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # a cumulative mean
                return 1.0 / float(self.num_batches_tracked)
        return 0.0 if self.momentum is None else self.momentum


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L)."""

    _input_dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W)."""

    _input_dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W)."""

    _input_dims = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation whose statistics in training are those of all processes together."""

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        process_group=None,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.size(1) == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input):
        if not self.training or self._world_size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        return self._synchronized(input, self._count_batch())

    def _world_size(self):
        distributed = getattr(flambeau, "distributed", None)
        if distributed is None or not distributed.is_available():
            return 1
        if not distributed.is_initialized():
            return 1
        return distributed.get_world_size(self.process_group)

    def _synchronized(self, input, momentum):
        out, mean, variance, count = SynchronizedNorm.apply(
            input, self.weight, self.bias, self.eps, self.process_group
        )
        if self.track_running_stats and self.running_mean is not None:
            n = int(count)
            if n < 2:
                raise ValueError("Expected more than 1 value per channel when training, got input "
                                 f"size {input.size()}")
            with flambeau.no_grad():
                kept = self.running_mean.dtype
                self.running_mean.lerp_(mean.to(kept), momentum)
                self.running_var.lerp_((variance * (n / (n - 1))).to(kept), momentum)
        return out

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """Replace every batch norm in a module by a synchronized one."""
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            converted = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            for name in (*module._parameters, *module._buffers):
                setattr(converted, name, getattr(module, name))
            module = converted.train(module.training)
        for name, child in module.named_children():
            module.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return module


# -- lazy ---------------------------------------------------------------------------------------


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A norm whose number of channels is that of the first input."""

    def __init__(
        self,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(0, eps, momentum, False, False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        options = {"device": device, "dtype": dtype}
        if affine:
            self.weight = UninitializedParameter(**options)
            self.bias = UninitializedParameter(**options) if bias else None
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**options)
            self.running_var = UninitializedBuffer(**options)
            self.num_batches_tracked = flambeau.tensor(0, dtype=flambeau.long, device=device)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            owned = (self.weight, self.bias, self.running_mean, self.running_var)
            for tensor in owned:
                if tensor is not None:
                    tensor.materialize((self.num_features,))
            self.reset_parameters()
        elif self.num_features == 0:  # the shape came from a saved state
            known = self.weight if self.weight is not None else self.running_mean
            self.num_features = input.shape[1] if known is None else known.shape[0]


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """BatchNorm1d that learns its channels from the first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """BatchNorm2d that learns its channels from the first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """BatchNorm3d that learns its channels from the first input."""

    cls_to_become = BatchNorm3d
