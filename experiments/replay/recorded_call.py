"""Recorded operator calls, and how their arguments follow the batch size.

The table `operators` has the calls of one step per batch size. The same call at several batch sizes
is a family: layer, phase, operator and kinds of arguments are equal. Extents, strides and whole
numbers follow the batch size by rules. These give the call at batch sizes that were not recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

from ...base.torch_runtime import import_torch, pick_device
from ...profiling.recording.operand_numbers import CallNumbers, decode_numbers
from ...profiling.recording.operators import (
    Argument,
    TensorArgument,
    TensorList,
    Value,
    decode_arguments,
)
from ...profiling.recording.store import Recording

# A number of an argument: its argument, then the tensor in a list, the kind of number, and the
# dimension.
NumberPath: TypeAlias = tuple[int | str, ...]


class CannotReplay(Exception):  # noqa: N818 - reads as what it says where it is raised
    """A call cannot be run alone. The message is a clause that says why."""


@dataclass(frozen=True)
class RecordedCall:
    """One operator call of a step, or several equal ones."""

    op: str  # operator of the framework, e.g. `aten::linear`.
    arguments: tuple[Argument, ...]
    layer: str | None = None  # module path; None outside layers
    phase: str | None = None  # forward, backward or optimizer; None if unknown
    batch: int | None = None  # batch size of the step; None if unknown
    calls: int = 1  # number of equal calls in one step
    # time of all these calls in one profiled step; None if it was not recorded
    duration_ns: int | None = None
    # names of the kernels that the calls ran, longest first; None if unknown
    kernels: tuple[str, ...] | None = None
    position: int = 0  # position of the first of the calls among the operators of the step
    # what the numbers in its operands were like
    numbers: CallNumbers = field(default_factory=CallNumbers)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> RecordedCall:
        """The call in a row of the table `operators`."""
        names = ("layer", "phase", "batch", "calls", "duration_ns", "position")
        fields: dict[str, Any] = {name: row.get(name) for name in names}
        kernels = None if row["kernels"] is None else tuple(row["kernels"].split(" | "))
        return cls(
            row["op"],
            decode_arguments(row["arguments"]),
            kernels=kernels,
            numbers=decode_numbers(row.get("numbers")),
            **fields,
        )

    @property
    def label(self) -> str:
        """Operator and shapes of its tensors, e.g. `aten::linear 8x9216, 4096x9216, 4096`."""
        shapes = ["x".join(map(str, tensor.shape)) for tensor in tensors_of(self.arguments)]
        listed = ", ".join(shape or "scalar" for shape in shapes)
        return f"{self.op} {listed}".rstrip()


def tensors_of(arguments: Iterable[Argument]) -> Iterator[TensorArgument]:
    """The tensors among arguments, also in lists."""
    for argument in arguments:
        if isinstance(argument, TensorArgument):
            yield argument
        elif isinstance(argument, TensorList):
            yield from argument.tensors


def read_calls(
    recording: Recording,
    layer: str | None = None,
    phase: str | None = None,
    op: str | None = None,
) -> list[RecordedCall]:
    """The recorded calls, by batch size and position; a layer has its inner layers, an operator any
    namespace.
    """
    calls = []
    for row in recording.arrow("operators").to_pylist():
        is_inside = layer is None or f"{row['layer'] or ''}.".startswith(f"{layer}.")
        is_of_phase = phase is None or row["phase"] == phase
        is_op = op is None or op in (row["op"], row["op"].removeprefix("aten::"))
        if is_inside and is_of_phase and is_op:
            calls.append(RecordedCall.of_row(row))
    return sorted(calls, key=lambda call: (call.batch is not None, call.batch or 0, call.position))


def device_of(recording: Recording) -> str:
    """The device to replay a recording's calls on: the same GPU, else the first; the CPU for a
    CPU's.
    """
    recorded = recording.meta.get("device") or {}
    # Profiles of other tools describe a GPU without its kind.
    gpu = recorded.get("kind") == "cuda" or "compute_capability" in recorded
    if not gpu:
        return pick_device("cpu")
    first, same = pick_device("cuda"), recording.meta.get("torch_device")
    count = import_torch().cuda.device_count()
    here = {f"cuda:{index}" for index in range(count)}
    return str(same) if same in here else first


@dataclass(frozen=True)
class FillRule:
    """How one number of a call follows the batch size b: value = square·b² + slope·b + constant."""

    slope: Fraction = Fraction(0)
    constant: Fraction = Fraction(0)
    square: Fraction = Fraction(0)

    @property
    def moves(self) -> bool:
        """Whether the number depends on the batch size."""
        return bool(self.slope or self.square)

    def at(self, batch: int) -> int | None:
        """The number at a batch size; None if it would not be whole."""
        value = self.square * batch**2 + self.slope * batch + self.constant
        return int(value) if value.denominator == 1 else None


def find_rule(values: Mapping[int, int]) -> FillRule | None:
    """The simplest rule that gives all values, which are by batch size, exactly; None without one.

    A constant, a multiple of the batch size, and a multiple of its square are taken from two batch
    sizes. A sum of a multiple and a constant needs three, since every two points lie on a line.
    """
    points = sorted(values.items())
    (b0, v0), (b1, v1) = points[0], points[-1]
    candidates = [
        FillRule(constant=Fraction(v0)),
        FillRule(slope=Fraction(v0, b0)),
        FillRule(square=Fraction(v0, b0 * b0)),
    ]
    if len(points) > 2:
        slope = Fraction(v1 - v0, b1 - b0)
        candidates.append(FillRule(slope, v0 - slope * b0))
    for rule in candidates:
        if all(rule.at(batch) == value for batch, value in points):
            return rule
    return None


@dataclass(frozen=True)
class CallFamily:
    """The same call over batch sizes."""

    calls: Mapping[int, RecordedCall]
    rules: Mapping[NumberPath, FillRule | None]  # of each number of the arguments; None without one
    missing: Mapping[int, str] = field(default_factory=dict)  # why, by recorded batch size

    @property
    def largest(self) -> RecordedCall:
        """The call at the largest recorded batch size."""
        return self.calls[max(self.calls)]

    @property
    def moving(self) -> tuple[NumberPath, ...]:
        """The numbers of the arguments that depend on the batch size."""
        return tuple(path for path, rule in self.rules.items() if rule is None or rule.moves)

    @property
    def duration_ns(self) -> int:
        """Recorded time at all batch sizes."""
        return sum(call.duration_ns or 0 for call in self.calls.values())

    def batch_dimensions(self) -> dict[int, tuple[int, ...]]:
        """By index of a tensor argument, the dimensions whose extents depend on the batch size."""
        moving: dict[int, list[int]] = defaultdict(list)
        for path in self.moving:
            if len(path) == 3 and path[1] == "shape":
                moving[int(path[0])].append(int(path[2]))
        return {index: tuple(dimensions) for index, dimensions in moving.items()}

    def at(self, batch: int) -> RecordedCall:
        """The call at a batch size: the recorded one, or else one by the rules, without duration
        and kernels.
        """
        if batch in self.calls:
            return self.calls[batch]
        if len(self.calls) < 2:
            raise CannotReplay(
                f"only batch size {max(self.calls)} was recorded, so what depends on it is not "
                "known"
            )
        numbers: dict[NumberPath, int] = {}
        for path, rule in self.rules.items():
            value = None if rule is None else rule.at(batch)
            if value is None:
                number = _describe(path)
                raise CannotReplay(f"{number} follows no rule over the recorded batch sizes")
            numbers[path] = value
        nearest = self.calls[min(self.calls, key=lambda recorded: abs(recorded - batch))]
        arguments = _map(nearest.arguments, lambda path, _: numbers[path])
        return replace(
            nearest,
            arguments=arguments,
            batch=batch,
            duration_ns=None,
            kernels=None,
            numbers=nearest.numbers.at_another_size(),
        )


def families(calls: Sequence[RecordedCall]) -> list[CallFamily]:
    """Match the calls of several batch sizes; every call is in one family, some of one batch size
    only.

    Calls with the same layer, phase, operator and kinds of arguments are matched in the order of
    the step. A batch size may have fewer, e.g. because two calls are equal there and make one row.
    Then each is matched with the call that its rules predict. Calls without a known batch size are
    left out.
    """
    groups: dict[Any, dict[int, list[RecordedCall]]] = defaultdict(lambda: defaultdict(list))
    batches = set()
    for call in sorted(calls, key=lambda call: call.position):
        if call.batch is not None:
            kind = (call.layer, call.phase, call.op, _kind(call.arguments))
            groups[kind][call.batch].append(call)
            batches.add(call.batch)
    families: list[CallFamily] = []
    for group in groups.values():
        families += _match(group, sorted(batches))
    return sorted(families, key=lambda family: (family.largest.position, max(family.calls)))


def _match(group: Mapping[int, list[RecordedCall]], batches: Sequence[int]) -> list[CallFamily]:
    """The families of calls that may be the same, by batch size in order of the step."""
    most = max(map(len, group.values()))
    complete = {batch: rows for batch, rows in sorted(group.items()) if len(rows) == most}
    partial = sorted(set(group) - set(complete))
    families: list[CallFamily] = []
    matched: set[int] = set()  # identities of calls
    for index in range(most):
        calls = {batch: rows[index] for batch, rows in complete.items()}
        if len(calls) > 1:
            family = CallFamily(calls, _rules(calls))
            for batch in partial:
                call = _predict(family, group[batch], batch)
                if call is not None:
                    matched.add(id(call))
                    calls[batch] = _share(call, family)
        families.append(_family(calls, batches, "no such call was recorded at batch size {}"))
    for batch in partial:
        for call in group[batch]:
            if id(call) not in matched:
                alone = _family({batch: call}, batches, "no call at batch size {} matches it")
                families.append(alone)
    return families


def _family(calls: dict[int, RecordedCall], batches: Sequence[int], why: str) -> CallFamily:
    """The family of calls by batch size; `why` it has none at the others."""
    missing = {batch: why.format(batch) for batch in batches if batch not in calls}
    ordered = dict(sorted(calls.items()))
    return CallFamily(ordered, _rules(ordered), missing)


def _predict(family: CallFamily, rows: Sequence[RecordedCall], batch: int) -> RecordedCall | None:
    try:
        expected = _numbers(family.at(batch).arguments)
    except CannotReplay:
        return None
    return next((row for row in rows if _numbers(row.arguments) == expected), None)


def _share(call: RecordedCall, family: CallFamily) -> RecordedCall:
    calls = min(family.largest.calls, call.calls)
    if call.duration_ns is None:
        return replace(call, calls=calls)
    return replace(call, calls=calls, duration_ns=round(call.duration_ns * calls / call.calls))


def _rules(calls: Mapping[int, RecordedCall]) -> dict[NumberPath, FillRule | None]:
    by_batch = {batch: _numbers(call.arguments) for batch, call in calls.items()}
    rules = {}
    for path in next(iter(by_batch.values())):
        values = {batch: numbers[path] for batch, numbers in by_batch.items()}
        if path[-2] == "strides":
            # The stride of a single element is arbitrary.
            extent = (*path[:-2], "shape", path[-1])
            several = {b: value for b, value in values.items() if by_batch[b][extent] != 1}
            values = several or values
        rules[path] = find_rule(values)
    return rules


def _kind(argument: Any) -> Any:
    """The part that all batch sizes share: kinds of arguments, dimensions and types of tensors,
    flags and texts.
    """
    if isinstance(argument, TensorArgument):
        return "tensor", len(argument.shape), argument.dtype, argument.strides is None
    if isinstance(argument, TensorList):
        return "tensors", *map(_kind, argument.tensors)
    if isinstance(argument, Value):
        return "value", _kind(argument.value)
    if isinstance(argument, tuple):
        return tuple(map(_kind, argument))
    # Floating-point scalars may depend on the batch size, e.g. 1/b; their values do not change what
    # runs.
    if isinstance(argument, float) or _is_number(argument):
        return type(argument).__name__
    return argument


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _map(value: Any, change: Callable[[NumberPath, int], int], path: NumberPath = ()) -> Any:
    """Arguments with each whole number changed, which has a path."""
    if isinstance(value, tuple):
        return tuple(_map(entry, change, (*path, at)) for at, entry in enumerate(value))
    if isinstance(value, TensorArgument):
        shape = _map(value.shape, change, (*path, "shape"))
        strides = value.strides and _map(value.strides, change, (*path, "strides"))
        return replace(value, shape=shape, strides=strides)
    if isinstance(value, TensorList):
        return TensorList(_map(value.tensors, change, path))
    if isinstance(value, Value):
        return Value(_map(value.value, change, (*path, "value")))
    return change(path, value) if _is_number(value) else value


def _numbers(arguments: Sequence[Argument]) -> dict[NumberPath, int]:
    """Every whole number of the arguments, by its path."""
    numbers: dict[NumberPath, int] = {}
    _map(arguments, numbers.setdefault)
    return numbers


def _describe(path: NumberPath) -> str:
    words = {"shape": "extent", "strides": "stride", "value": "value"}
    kind = next(part for part in path if isinstance(part, str))
    number = words[kind] if path[-1] == kind else f"{words[kind]} {path[-1]}"
    return f"{number} of argument {path[0]}"
