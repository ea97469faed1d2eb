"""The operators of one step, recorded once and run again without the code between them.

PyTorch's dispatcher shows every operator below autograd, also in the backward pass and in the
optimizer. A replay runs them in their order on the same tensors. So Python, autograd and the
optimizer's loops go away; the operators and their dispatch stay. Views are kept as sizes and
strides. A replay frees every result where the step freed it, so that the allocator does the same
work. What the host computed without operators, e.g. a learning rate or a tensor made of a list,
keeps the value of the recorded step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from ...base.errors import CurvescopeError
from ...profiling.recording.operators import find_written_arguments

_ROUNDING = 1e-2  # of the size of a tensor


class _Place(NamedTuple):
    result: int
    # size, strides and offset; None for the result as the operator returned it
    view: tuple[Any, ...] | None


@dataclass
class _Call:
    run: Callable[..., Any]
    arguments: list[Any]  # its arguments; a result of the step is a `_Place`, also inside lists
    named: dict[str, Any]  # the same, by name
    filled: tuple[tuple[int, ...], tuple[str, ...]]  # where arguments and `named` have a `_Place`
    # position among the returned values and number of each new result
    results: list[tuple[int, int]]
    freed: list[int]  # numbers of the results that the step freed before this call


class OperatorTape:
    """The operators of one step."""

    def __init__(self, step: Callable[[], object], *, check: bool = True) -> None:
        """Record a step by running it; earlier calls made lasting tensors, e.g. the state of an
        optimizer.

        `check` replays it once from the same state, with copies of all that the step changes.
        CurvescopeError says where it uses tensors that are no plain arrays, or does work that is no
        operator of PyTorch.
        """
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        # The checking replay draws the random numbers of the step once more.
        with torch.random.fork_rng(devices, enabled=check), _Recorder(keep=check) as recorder:
            result = step()
        self._calls, self._results = recorder.calls, len(recorder.live)
        self._returned = tree_map(recorder.place, result)
        self._kept: list[Any] = []
        if check:
            recorded = _tensors(tree_leaves(result)) + recorder.list_changed()
            expected = [tensor.detach().clone() for tensor in recorded]
            recorder.restore()
            replayed = _tensors(tree_leaves(self.replay())) + recorder.list_changed()
            if not all(map(_alike, expected, replayed)):
                raise CurvescopeError(
                    "a replay of the step's operators gives another result: it does more than they "
                    "do"
                )

    def replay(self) -> object:
        """Run the operators; returns the result of the recorded step, with the tensors of this
        replay.
        """
        with torch.no_grad():
            # What outlived the recorded step, e.g. gradients, outlives a replay until the next.
            kept = self._kept = [None] * self._results
            for call in self._calls:
                for number in call.freed:
                    kept[number] = None
                _run(call, kept)
            return tree_map(lambda entry: _fill(entry, kept), self._returned, is_leaf=_is_place)


def _run(call: _Call, kept: list[Any]) -> None:
    arguments, named = call.arguments, call.named
    positions, names = call.filled
    if positions:
        arguments = arguments.copy()
        for position in positions:
            arguments[position] = _fill(arguments[position], kept)
    if names:
        named = named.copy()
        for name in names:
            named[name] = _fill(named[name], kept)
    returned = call.run(*arguments, **named)
    for position, number in call.results:
        kept[number] = returned if isinstance(returned, torch.Tensor) else returned[position]


def _fill(value: Any, kept: list[Any]) -> Any:
    if isinstance(value, _Place):
        base = kept[value.result]
        return base if value.view is None else torch.as_strided(base, *value.view)
    if isinstance(value, list):
        return [_fill(entry, kept) for entry in value]
    return value


def _is_place(value: Any) -> bool:
    return isinstance(value, _Place)


class _Recorder(TorchDispatchMode):
    """Records every operator call while a step runs; `keep` copies the tensors that it changes and
    did not make.
    """

    def __init__(self, *, keep: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_Call] = []
        self.live: list[StorageWeakRef] = []
        self._keep = keep
        # changed tensors with their former values
        self._before: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._unfreed: dict[int, StorageWeakRef] = {}
        self._numbers: dict[int, int] = {}  # results by address of their storage
        # by result, the form in which the operator returned it
        self._made: list[tuple[Any, ...]] = []

    def list_changed(self) -> list[Any]:
        """The tensors that the step changed and did not make, as they are now."""
        return [tensor for tensor, _ in self._before.values()]

    def restore(self) -> None:
        """Give them the values from before the step; the first copy of overlapping ones is the
        oldest.
        """
        with torch.no_grad():
            for tensor, before in reversed(self._before.values()):
                tensor.copy_(before)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        kwargs = kwargs or {}
        addresses = set(map(_address, _tensors([*args, *kwargs.values()])))
        arguments = [self.place(argument) for argument in args]
        named = {name: self.place(argument) for name, argument in kwargs.items()}
        places = enumerate(map(_has_place, arguments))
        positions = tuple(position for position, has_place in places if has_place)
        names = tuple(name for name, argument in named.items() if _has_place(argument))
        writes = _write_back(func, arguments, named)
        for target in _tensors(writes) if self._keep else ():
            self._before.setdefault((_address(target), *_form(target)), (target, target.clone()))
        returned = func(*args, **kwargs)
        values = returned if isinstance(returned, (tuple, list)) else (returned,)
        if any(isinstance(value, (tuple, list)) and _tensors(value) for value in values):
            raise CurvescopeError(f"the operator {func} returns lists of tensors in a tuple")
        results = []
        for position, target in enumerate(values):
            if (
                isinstance(target, torch.Tensor)
                and (at := _address(target)) not in addresses
                and at not in self._numbers
            ):
                results.append((position, self._new(target)))
        if results or writes or not _tensors(values):
            freed = [number for number, tensor in self._unfreed.items() if tensor.expired()]
            for number in freed:
                del self._unfreed[number]
            self.calls.append(_Call(func._op, arguments, named, (positions, names), results, freed))
        return returned

    def place(self, value: Any) -> Any:
        """The place of a tensor, also inside a list; the tensor without autograd if the step did
        not make it.
        """
        if isinstance(value, (list, tuple)):
            return [self.place(entry) for entry in value]
        if not isinstance(value, torch.Tensor):
            return value
        number = self._numbers.get(_address(value))
        if number is None:
            return value.detach()
        (dtype, *view), made = _form(value), self._made[number]
        if dtype != made[0]:
            raise CurvescopeError("the step reads the memory of a tensor in another format")
        return _Place(number, None if (dtype, *view) == made else tuple(view))

    def _new(self, tensor: Any) -> int:
        number, address = len(self.live), _address(tensor)
        self.live.append(StorageWeakRef(tensor.untyped_storage()))
        self._unfreed[number], self._numbers[address] = self.live[-1], number
        self._made.append(_form(tensor))
        return number


def _tensors(values: Iterable[Any]) -> list[Any]:
    """The tensors among values and in lists of them."""
    tensors = []
    for value in values:
        entries = value if isinstance(value, (list, tuple)) else (value,)
        tensors += [entry for entry in entries if isinstance(entry, torch.Tensor)]
    return tensors


def _has_place(value: Any) -> bool:
    return any(map(_is_place, value)) if isinstance(value, list) else _is_place(value)


def _write_back(func: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """The arguments that an operator writes."""
    schema = func._schema
    names = [argument.name for argument in schema.arguments]
    by_name = dict(zip(names, arguments, strict=False)) | dict(named)
    written = [names[index] for index in sorted(find_written_arguments(schema))]
    return [by_name[name] for name in written if name in by_name]


def _alike(first: Any, other: Any) -> bool:
    """Whether two tensors are equal but for rounding, which atomic additions change from run to
    run.
    """
    if first.shape != other.shape:
        return False
    if first.dtype not in (torch.float32, torch.float64):
        first, other = _to_float64(first), _to_float64(other)
    finite = torch.isfinite(first)
    if not finite.all():
        if not torch.equal(finite, torch.isfinite(other)):
            return False
        first, other = first[finite], other[finite]
    allowed = _ROUNDING * first.norm() + torch.finfo(torch.float32).tiny
    return bool((first - other).norm() <= allowed)


def _to_float64(tensor: Any) -> Any:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _address(tensor: Any) -> int:
    plain = tensor.layout == torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)
    if not plain or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise CurvescopeError(
            "the step uses tensors that are no plain arrays, e.g. sparse or complex conjugates"
        )
    return int(tensor.untyped_storage()._cdata)


def _form(tensor: Any) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
