"""Tables of vectors, looked up by index."""

import flambeau
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """The weights, and the checks, that both embeddings share."""

    def _make_table(
        self, num_embeddings, embedding_dim, padding_idx, weight, frozen, device, dtype
    ):
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = self._positive(padding_idx, num_embeddings)
        if weight is None:
            shape = (num_embeddings, embedding_dim)
            weight = flambeau.empty(shape, device=device, dtype=dtype)
            self.weight = Parameter(weight, requires_grad=not frozen)
            self.reset_parameters()
        elif list(weight.shape) != [num_embeddings, embedding_dim]:
            raise AssertionError(
                f"Shape of weight {list(weight.shape)} does not match num_embeddings and "
                f"embedding_dim {[num_embeddings, embedding_dim]}"
            )
        else:
            self.weight = Parameter(weight, requires_grad=not frozen)

    @staticmethod
    def _positive(padding_idx, size):
        if padding_idx is None:
            return None
        if not -size <= padding_idx < size:
            raise AssertionError(
                f"Padding_idx must be within num_embeddings: got {padding_idx} for {size}"
            )
        return padding_idx % size

    def reset_parameters(self):
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self):
        if self.padding_idx is not None:
            with flambeau.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def _settings(self, **usual):
        """Sizes, then every setting that is not as usual."""
        shown = [f"{self.num_embeddings}, {self.embedding_dim}"]
        for name, value in usual.items():
            if getattr(self, name) != value:
                shown.append(f"{name}={getattr(self, name)}")
        return shown


class Embedding(_Table):
    """The vectors at given indices."""

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        padding_idx=None,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        sparse=False,
        _weight=None,
        _freeze=False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self._make_table(
            num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype
        )

    def forward(self, input):
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self):
        return ", ".join(
            self._settings(
                padding_idx=None,
                max_norm=None,
                norm_type=2,
                scale_grad_by_freq=False,
                sparse=False,
            )
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings,
        freeze=True,
        padding_idx=None,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        sparse=False,
    ):
        """An embedding with these vectors, learned further only if not frozen."""
        _check_matrix(embeddings)
        return cls(
            *embeddings.shape,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight=embeddings,
            _freeze=freeze,
        )


class EmbeddingBag(_Table):
    """The sum, mean or largest of the vectors at each bag of indices."""

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        mode="mean",
        sparse=False,
        _weight=None,
        include_last_offset=False,
        padding_idx=None,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self._make_table(num_embeddings, embedding_dim, padding_idx, _weight, False, device, dtype)

    def forward(self, input, offsets=None, per_sample_weights=None):
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self):
        sizes, *rest = self._settings(max_norm=None, norm_type=2, scale_grad_by_freq=False)
        padding = [] if self.padding_idx is None else [f"padding_idx={self.padding_idx}"]
        return ", ".join([sizes, *rest, f"mode={self.mode!r}", *padding])

    @classmethod
    def from_pretrained(
        cls,
        embeddings,
        freeze=True,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        mode="mean",
        sparse=False,
        include_last_offset=False,
        padding_idx=None,
    ):
        """An embedding bag with these vectors, learned further only if not frozen."""
        _check_matrix(embeddings)
        bag = cls(
            *embeddings.shape,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            _weight=embeddings,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
        bag.weight.requires_grad_(not freeze)
        return bag


def _check_matrix(embeddings):
    if embeddings.dim() != 2:
        raise AssertionError(
            f"Embeddings parameter is expected to be 2-dimensional, got {embeddings.dim()}D"
        )
