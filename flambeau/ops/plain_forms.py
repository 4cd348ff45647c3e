"""torch's own forms of functions that nn.functional has too: other orders of parameters, and
reductions as numbers (0 none, 1 mean, 2 sum).
"""

from __future__ import annotations

from .batch_norm import instance_norm as functional_instance_norm
from .ctc import ctc_loss as functional_ctc_loss
from .declare import composite
from .distance import vector_norm
from .loss import binary_cross_entropy_with_logits as functional_logit_entropy
from .loss import kl_div as functional_kl_div
from .loss import poisson_nll_loss as functional_poisson_nll_loss
from .margin import cosine_embedding_loss as functional_cosine_embedding_loss
from .margin import hinge_embedding_loss as functional_hinge_embedding_loss
from .margin import margin_ranking_loss as functional_margin_ranking_loss
from .margin import triplet_margin_loss as functional_triplet_margin_loss


@composite(method=False)
def cosine_embedding_loss(input1, input2, target, margin=0.0, reduction=1):
    """1 - cosine where target is 1, max(0, cosine - margin) where it is -1."""
    return functional_cosine_embedding_loss(input1, input2, target, margin, reduction=reduction)


@composite(method=False)
def hinge_embedding_loss(input, target, margin=1.0, reduction=1):
    """input where target is 1, max(0, margin - input) where it is -1."""
    return functional_hinge_embedding_loss(input, target, margin, reduction=reduction)


@composite(method=False)
def margin_ranking_loss(input1, input2, target, margin=0.0, reduction=1):
    """max(0, -target (input1 - input2) + margin)"""
    return functional_margin_ranking_loss(input1, input2, target, margin, reduction=reduction)


@composite(method=False)
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False,
                        reduction=1):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d being a p-norm."""
    return functional_triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap,
                                          reduction=reduction)


@composite(method=False)
def poisson_nll_loss(input, target, log_input, full, eps, reduction):
    """Minus the log-likelihood of counts under Poisson distributions."""
    return functional_poisson_nll_loss(input, target, log_input, full, None, eps, None, reduction)


@composite(method=False)
def kl_div(input, target, reduction=1, *, log_target=False):
    """How far log-probabilities are from a distribution."""
    return functional_kl_div(input, target, reduction=reduction, log_target=log_target)


@composite(method=False)
def binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None, reduction=0):
    """Binary cross entropy of logits."""
    return functional_logit_entropy(input, target, weight, reduction=reduction,
                                    pos_weight=pos_weight)


@composite(method=False)
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=1,
             zero_infinity=False):
    """Minus the log-probability of sequences of labels over all their alignments."""
    return functional_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction,
                               zero_infinity)


@composite(method=False)
def instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps,
                  cudnn_enabled=True):
    """Normalise each channel of each sample over its places, or by running statistics."""
    return functional_instance_norm(input, running_mean, running_var, weight, bias, use_input_stats,
                                    momentum, eps)


@composite(method=False)
def norm_except_dim(v, pow=2, dim=0):
    """Norms over all dimensions but one; over all of them if dim is -1."""
    if dim == -1:
        return vector_norm(v, pow)
    return vector_norm(v, pow, [d for d in range(v.dim()) if d != dim], True)
