"""Checkpoints that keep the results of chosen ops, and compute the others again.

Between the two runs of a checkpointed function the results of chosen calls are kept, in order. The
second run takes them from there instead of computing them; what such a call had kept for its way
back is given to the checkpoint as the call itself would have.
"""

import enum
import functools
from collections import defaultdict

from flambeau import Tensor
from flambeau.assemble import modes
from flambeau.autograd.graph import saved_tensors_hooks
from flambeau.utils._python_dispatch import Packet, TorchDispatchMode
from flambeau.utils._pytree import tree_leaves, tree_map

__all__ = ["CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]


class CheckpointPolicy(enum.Enum):
    """What a selective checkpoint may decide about one op."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4


KEPT = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, CheckpointPolicy.MUST_CPU_OFFLOAD)


class SelectiveCheckpointContext:
    """What a policy is told beside the op: whether this is the second run."""

    def __init__(self, *, is_recompute, op_output=None):
        self.is_recompute, self.op_output = is_recompute, op_output


def create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """The two contexts of a checkpoint (`context_fn=`) that keeps what a policy says.

    The policy is a function (context, op, *args, **kwargs) -> CheckpointPolicy, or a list of ops
    that are kept; ops are given as `torch.ops.aten.mm.default`.
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if isinstance(op, Packet) or not hasattr(op, "overloadpacket"):
                extra = (" Please update the OpOverloadPacket to a specific OpOverload, e.g. "
                         "aten.mm -> aten.mm.default." if isinstance(op, Packet) else "")
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} "
                                 f"of type {type(op)}.{extra}")
        policy = functools.partial(_in_list, policy_fn_or_list)
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept = defaultdict(list)
    return (_Keeping(policy, kept),
            _Recalling(policy, kept, allow_cache_entry_mutation))


def _in_list(ops, ctx, func, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if func in ops else CheckpointPolicy.PREFER_RECOMPUTE


class _Asking(TorchDispatchMode):
    """Asks the policy about every op."""

    is_recompute = False

    def __init__(self, policy, kept):
        super().__init__()
        self.policy, self.kept = policy, kept

    def keeps(self, func, args, kwargs):
        ctx = SelectiveCheckpointContext(is_recompute=self.is_recompute)
        chosen = self.policy(ctx, func, *args, **kwargs)
        if isinstance(chosen, bool):
            return chosen
        return chosen in KEPT


class _Keeping(_Asking):
    """The first run."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not self.keeps(func, args, kwargs):
            return func(*args, **kwargs)
        seen = []
        with _passed_on(seen.append):
            result = func(*args, **kwargs)
        self.kept[func].append(_Result(result, [_place_of(x, args, result) for x in seen]))
        return result


class _Recalling(_Asking):
    """The second run."""

    is_recompute = True

    def __init__(self, policy, kept, changes_allowed):
        super().__init__(policy, kept)
        self.changes_allowed = changes_allowed

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not self.keeps(func, args, kwargs):
            return func(*args, **kwargs)
        if not self.kept.get(func):
            raise RuntimeError(f"{func} encountered during backward, but not found in storage; the "
                               "checkpointed function must do the same in both runs")
        found = self.kept[func].pop(0)
        if found.changed() and not self.changes_allowed:
            raise RuntimeError("Tensor cached during selective activation checkpoint has been "
                               "mutated")
        result = found.again()
        for place in found.places:
            _tell(_at(place, args, result))
        return result


class _Result:
    """What an op returned, without its graph, and what it kept for its way back."""

    def __init__(self, result, places):
        self.values = tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, result)
        self.learned = [x.requires_grad for x in _tensors(result)]
        self.versions = [x._version for x in _tensors(self.values)]
        self.places = places

    def changed(self):
        return self.versions != [x._version for x in _tensors(self.values)]

    def again(self):
        """The same values, that want gradients where the op's did."""
        learned = iter(self.learned)
        return tree_map(lambda x: x.detach().requires_grad_(next(learned))
                        if isinstance(x, Tensor) else x, self.values)


# -- what an op keeps for its way back -------------------------------------------------------------


def _passed_on(see):
    """Inside, tensors that are kept are seen here and then go where they would have gone."""
    pack, unpack = modes.pack[-1] if modes.pack else (_same, _same)

    def keep(x):
        see(x)
        return pack(x)

    return saved_tensors_hooks(keep, unpack)


def _same(x):
    return x


def _tell(x):
    if modes.pack:
        modes.pack[-1][0](x)


def _place_of(x, args, result):
    """Where a kept tensor is found again: among the arguments, the results, or only here."""
    for name, values in (("args", args), ("result", result)):
        for k, other in enumerate(_tensors(values)):
            if other is x or (other.data_ptr() == x.data_ptr() and other.shape == x.shape
                              and other.stride() == x.stride()):
                return name, k
    return None, x.detach()


def _at(place, args, result):
    name, k = place
    if name is None:
        return k
    return _tensors(args if name == "args" else result)[k]


def _tensors(values):
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]
