"""Instance normalisation: each channel of each sample by its own statistics."""

import warnings

from flambeau.nn import functional as F
from flambeau.nn.modules.batchnorm import _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
]  # fmt: skip


class _InstanceNorm(_NormBase):
    """Instance normalisation; the smaller of `_input_dims` is a single sample."""

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=False,
        track_running_stats=False,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input):
        self._check_input_dim(input)
        single = input.dim() == min(self._input_dims)
        channels = input.size(0 if single else 1)
        if channels != self.num_features:
            self._complain(channels)
        out = F.instance_norm(
            input.unsqueeze(0) if single else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )
        return out.squeeze(0) if single else out

    def _complain(self, channels):
        if self.affine:
            raise ValueError(
                f"expected input's size at dim={-max(self._input_dims) + 1} to match num_features "
                f"({self.num_features}), but got: {channels}."
            )
        warnings.warn(
            f"input's size at dim={-max(self._input_dims) + 1} does not match num_features. You "
            "can silence this warning by not passing in num_features, which is not used because "
            "affine=False",
            stacklevel=4,
        )

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, *lists):
        """States of the first version have running statistics that were never meant."""
        _missing, _unexpected, errors = lists
        if local_metadata.get("version") is None and not self.track_running_stats:
            stray = [
                prefix + name
                for name in ("running_mean", "running_var")
                if prefix + name in state_dict
            ]
            if stray:
                errors.append(
                    f"Unexpected running stats buffer(s) {' and '.join(map(repr, stray))} for "
                    f"{type(self).__name__} with track_running_stats=False. If state_dict is a "
                    "checkpoint saved before 0.4.0, this may be expected; remove these keys."
                )
                for key in stray:
                    del state_dict[key]
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *lists)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L)."""

    _input_dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W)."""

    _input_dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W)."""

    _input_dims = (4, 5)


class LazyInstanceNorm1d(_LazyNormBase, InstanceNorm1d):
    """InstanceNorm1d that learns its channels from the first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, InstanceNorm2d):
    """InstanceNorm2d that learns its channels from the first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormBase, InstanceNorm3d):
    """InstanceNorm3d that learns its channels from the first input."""

    cls_to_become = InstanceNorm3d
