"""Values of the tensors of replayed calls: valid for the operator, and stable over any number of
runs.

- Floating-point operands are standard normal. Of a logarithm, a root, a quotient or a probability
  they lie between 1/4 and 3/4. NaN and denormal numbers may change the time of these.
- A tensor that the operator changes in place starts at 0, and the other operands are near 1. So
  sums grow until the increment vanishes in rounding, moving averages converge, products stay 0:
  nothing becomes infinite or denormal.
- Indices are uniform over their range, which is each dimension's extent. A max-pool's backward pass
  takes the indices of its forward pass.
- The groups of a grouped product end where they were recorded to end; else each has as many rows.
- Recorded facts on the numbers of a call go before. There are as many distinct indices, in
  ascending order if they were, and as many zeros in a mask. Denormal operands or results give
  numbers of the same distribution.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ...profiling.recording.operand_numbers import Numbers
from ...profiling.recording.operators import TORCH_DTYPES, TensorArgument, TensorList, Value
from .recorded_call import CannotReplay, RecordedCall

# Operators on values from 0 to 1, or above 0.
_POSITIVE_OPS = re.compile(
    r"(_foreach_|_fused_)?(bernoulli|binary_cross_entropy|multinomial|log|sqrt|rsqrt|reciprocal|pow|div|acos|asin|atanh"
    r"|erfinv|lgamma|digamma|addcdiv|poisson)"
)
_POSITIVE_NAMES = re.compile(r".*(var|invstd|rstd|denom|p)")
# In-place operators that have 1 as a fixed point, and not 0.
_ONE_STAYS = re.compile(r"(_foreach_)?(reciprocal|rsqrt|log\w*|digamma|lgamma)_")
_MAX_POOL_BACKWARD = re.compile(r"(adaptive_)?max_pool[23]d(_with_indices)?_backward")


def dtype_of(torch: Any, name: str) -> Any:
    """The element type that PyTorch's profiler names so.

    CannotReplay: it is not known, or quantized.
    """
    if name not in TORCH_DTYPES:
        raise CannotReplay(f"element type {name or 'of a list'} is not known")
    return getattr(torch, TORCH_DTYPES[name])


def storage_elements(tensor: TensorArgument) -> int:
    """Elements of memory that a tensor with these extents and strides spans."""
    if 0 in tensor.shape:
        return 0
    if tensor.strides is None:
        return prod(tensor.shape)
    pairs = zip(tensor.shape, tensor.strides, strict=True)
    return 1 + sum((extent - 1) * stride for extent, stride in pairs)


class Values:
    """Creates the tensors of one call; names are the schema's, `mutated` the arguments that the
    operator changes in place.
    """

    def __init__(
        self,
        torch: Any,
        call: RecordedCall,
        names: Sequence[str],
        mutated: frozenset[int],
        device: str,
        seed: int,
    ) -> None:
        self._torch, self._names, self._mutated, self._device = torch, names, mutated, device
        self._op = call.op.partition("::")[2]
        self._recorded = dict(zip(names, call.arguments, strict=False))
        self._numbers = call.numbers.operands
        self._generator = torch.Generator(device=device).manual_seed(seed)
        single = [each for each in call.arguments if isinstance(each, TensorArgument)]
        # profilers do not record the type of lists
        self._list_dtype = next((each.dtype for each in single if each.shape), "float")

    def tensor(self, recorded: TensorArgument, index: int) -> Any:
        """A tensor like the recorded one."""
        dtype = dtype_of(self._torch, recorded.dtype or self._list_dtype)
        how = {
            "dtype": dtype,
            "device": "cpu" if self._is_number(recorded, index) else self._device,
        }
        shape, strides = recorded.shape, recorded.strides
        if strides is None:
            return self._fill(self._torch.empty(shape, **how), recorded, index)
        pairs = zip(shape, strides, strict=True)
        if any(extent > 1 and not stride for extent, stride in pairs):
            # The elements of an expanded tensor share memory, which cannot be filled through it.
            memory = self._torch.empty(storage_elements(recorded), **how)
            return self._fill(memory, recorded, index).as_strided(shape, strides)
        memory = self._torch.empty_strided(shape, strides, **how)
        return self._fill(memory, recorded, index)

    def _is_number(self, recorded: TensorArgument, index: int) -> bool:
        """Whether it is a number in a program, e.g. the 2 in `x * 2`: a tensor of one element on
        the host.
        """
        if recorded.shape or recorded.dtype not in ("double", "long int"):
            return False
        is_seed = self._names[index].startswith("philox_")  # of attention's dropout, on its device
        return index > 0 and index not in self._mutated and not is_seed

    def positions(self, recorded: TensorArgument, index: int, dimension: int) -> Any:
        """Positions along a dimension of `self`, uniform over its extent, or a mask: one tensor of
        a list of them.

        They are whole numbers, if the type is not recorded; `index` is the list's, `dimension` the
        position in it.
        """
        dtype = recorded.dtype or "long int"
        tensor = self.tensor(replace(recorded, dtype=dtype, strides=None), index)
        extents = _shape(self._recorded.get("self"))
        if tensor.dtype != self._torch.bool and dimension < len(extents):
            self._fill_indices(tensor, index, extents[dimension])
        return tensor

    def finish(self, arguments: list[Any]) -> None:
        """Set the values that follow from other arguments."""
        if _MAX_POOL_BACKWARD.fullmatch(self._op):
            self._copy_pool_indices(dict(zip(self._names, arguments, strict=True)))

    def _fill(self, memory: Any, recorded: TensorArgument, index: int) -> Any:
        name = self._names[index]
        numbers = self._numbers.get(index)
        generator = self._generator_of(memory)
        if memory.dtype == self._torch.bool:
            memory.fill_(True)
            if numbers is not None:
                memory.bernoulli_(1 - numbers.zeros, generator=generator)
            elif name not in ("attn_mask", "mask"):
                memory.random_(0, 2, generator=generator)
        elif name == "offs":
            self._fill_ends(memory, numbers)
        elif not memory.is_floating_point() and not memory.is_complex():
            limit = self._index_limit(name)
            if limit is None:
                is_positive = _POSITIVE_OPS.match(self._op) is not None
                memory.fill_(1 if is_positive or not recorded.shape else 0)
            else:
                self._fill_indices(memory, index, limit)
        elif index in self._mutated:
            memory.fill_(1 if _ONE_STAYS.fullmatch(self._op) else 0)
        elif not recorded.shape or memory.is_complex() or memory.dtype.itemsize == 1:
            memory.fill_(1)
        elif numbers is not None and numbers.order:
            order = self._torch.tensor(numbers.order, dtype=memory.dtype, device=memory.device)
            at = self._torch.empty(memory.numel(), dtype=self._torch.int64, device=memory.device)
            at.random_(0, len(order), generator=generator)
            memory.copy_(order[at].view(memory.shape))
        elif self._mutated:
            memory.uniform_(0.5, 1.5, generator=generator)
        elif _POSITIVE_OPS.match(self._op) or _POSITIVE_NAMES.fullmatch(name):
            memory.uniform_(0.25, 0.75, generator=generator)
        else:
            memory.normal_(generator=generator)
        return memory

    def _fill_indices(self, memory: Any, index: int, limit: int) -> None:
        limit, numbers = max(limit, 1), self._numbers.get(index)
        if numbers is None or numbers.distinct is None:
            memory.random_(0, limit, generator=self._generator_of(memory))
            return
        count = memory.numel()
        distinct = min(max(round(numbers.distinct * count), 1), limit)
        chosen = self._permute(limit)[:distinct]
        repeated = chosen.repeat(-(-count // distinct))[:count]
        indices = repeated[self._permute(count)]
        if numbers.ascending:
            indices = indices.sort().values
        memory.copy_(indices.view(memory.shape))

    def _permute(self, count: int) -> Any:
        return self._torch.randperm(count, generator=self._generator)

    def _fill_ends(self, memory: Any, recorded: Numbers | None) -> None:
        """The ends of the groups of a grouped product: of rows, of columns, or of terms to add."""
        first, second = (_shape(self._recorded.get(name)) for name in ("self", "mat2"))
        groups = memory.numel()
        if recorded is not None and len(recorded.values) == groups:
            ends = recorded.values
        else:
            of_first = first[0] if len(second) == 3 else first[-1]
            extent = second[-1] if len(first) == 3 else of_first
            ends = tuple(extent * (at + 1) // groups for at in range(groups))
        memory.copy_(self._torch.tensor(ends, dtype=memory.dtype).view(memory.shape))

    def _generator_of(self, memory: Any) -> Any:
        return self._generator if str(memory.device) == str(self._generator.device) else None

    def _index_limit(self, name: str) -> int | None:
        """One more than the largest valid index in this argument; None if it holds no indices."""
        recorded = self._recorded
        if name == "target":
            scores = recorded.get("self") or recorded.get("input") or recorded.get("log_probs")
            batch_and_classes = _shape(scores)[:2]
            return batch_and_classes[-1] if batch_and_classes else None
        if name == "self" and self._op == "one_hot":
            return _number(recorded.get("num_classes")) or 1
        if name not in ("index", "indices", "offset2bag", "ind"):
            return None
        count = _number(recorded.get("num_weights"))
        if count is not None:
            return count
        if weight := _shape(recorded.get("weight")):
            return weight[0]
        shape = _shape(recorded.get("self"))
        extents = _extents(recorded, "sizes", "self_sizes", "input_sizes") or shape
        dim = _number(recorded.get("dim"))
        if dim is not None and extents:
            return extents[dim]
        if "pool" in self._op:
            return prod(shape[2:])
        return prod(extents) if extents else None

    def _copy_pool_indices(self, arguments: Mapping[str, Any]) -> None:
        image, indices = arguments["self"], arguments["indices"]
        forward = getattr(self._torch.ops.aten, self._op.removesuffix("_backward"))
        if self._op.startswith("adaptive"):
            geometry = [list(indices.shape[2:])]
        else:
            names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
            geometry = [arguments[name] for name in names]
        _, of_forward = forward(image, *geometry)
        indices.copy_(of_forward)


def _shape(argument: Any) -> tuple[int, ...]:
    if isinstance(argument, TensorList):
        return argument.tensors[0].shape
    return argument.shape if isinstance(argument, TensorArgument) else ()


def _number(argument: Any) -> int | None:
    value = argument.value if isinstance(argument, Value) else None
    return value if isinstance(value, int) else None


def _extents(recorded: Mapping[str, Any], *names: str) -> tuple[int, ...]:
    """The first list of numbers among these arguments; empty without one."""
    for name in names:
        argument = recorded.get(name)
        if isinstance(argument, Value) and isinstance(argument.value, tuple):
            return argument.value
    return ()
