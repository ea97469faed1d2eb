"""Sweeps: problems that differ along one axis, and how `--axis n=1,2,4..256` makes them."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..profiling.errors import CurvescopeError
from .problem import Problem

P = TypeVar("P", bound=Any)


@dataclass(frozen=True)
class Sweep:
    """Problems along one axis: one cost curve, and one recording.

    Attributes:
        label: what they have in common.
        axis: the axis they differ along: what `batch` stands for in their recording.
        problems: by the axis' value, increasing.
        layers: module paths, where the problem is a layer's; several where layers are alike.
        phase: forward or backward, where the problem is a layer's.
    """

    label: str
    axis: str
    problems: Mapping[int, Problem]
    layers: tuple[str, ...] = ()
    phase: str | None = None

    @property
    def layer(self) -> str | None:
        """The first of the layers; null where there is none."""
        return self.layers[0] if self.layers else None


def single(problem: Any) -> Sweep:
    """One problem by itself; the axis is the first number it has, else it is counted."""
    for field in dataclasses.fields(problem):
        value = getattr(problem, field.name)
        if isinstance(value, int):
            return Sweep(problem.label, field.name, {value: problem}, phase=getattr(problem, "phase", None))
    return Sweep(problem.label, "problem", {1: problem})


def parse_axis(text: str) -> tuple[str, tuple[str, ...]]:
    """Name and values of `n=1,2,4..256` (a range doubles), `n=32..160:8` (steps of 8) or `transpose=NN,TN`.

    Raises:
        CurvescopeError: not of these forms.
    """
    name, equals, listed = text.partition("=")
    values: list[str] = []
    for part in listed.split(","):
        if match := re.fullmatch(r"\s*(\d+)\.\.(\d+)(?::(\d+))?\s*", part):
            values.extend(map(str, _range(text, int(match[1]), int(match[2]), match[3])))
        else:
            values.append(part.strip())
    if not equals or not name.strip() or not all(values):
        raise CurvescopeError(f"--axis {text}: write a name and values, as in n=1,2,4..256 or n=32..160:8.")
    return name.strip(), tuple(dict.fromkeys(values))


def _range(text: str, first: int, last: int, step: str | None) -> list[int]:
    if first < 1 or last < first or step == "0":
        raise CurvescopeError(f"--axis {text}: a range goes from 1 or more upwards, as in 4..256 or 32..160:8.")
    if step is not None:
        return list(range(first, last + 1, int(step)))
    return [first << i for i in range((last // first).bit_length())]


def span(base: P, axes: Sequence[str], precisions: str = "fp32", batch_axis: str = "n") -> list[Sweep]:
    """The problems that the axes span, as sweeps.

    Where the batch axis has one value and another axis of numbers has several, it is that one.

    Args:
        base: what holds where no axis says otherwise; a frozen dataclass.
        axes: as `parse_axis` reads them, over the fields of `base`.
        precisions: names, joined by commas.
        batch_axis: the axis of the cost curve.

    Raises:
        CurvescopeError: no such field, or a value that it does not take.
    """
    fields = [f.name for f in dataclasses.fields(base)]
    values: dict[str, tuple[str, ...]] = {"precision": tuple(precisions.split(","))}
    for text in axes:
        name, listed = parse_axis(text)
        if name not in fields:
            raise CurvescopeError(f"--axis {text}: {type(base).__name__.lower()} has the axes {', '.join(fields)}.")
        values[name] = listed
    long = [name for name, listed in values.items() if len(listed) > 1 and isinstance(getattr(base, name), int)]
    if long and batch_axis not in long:
        batch_axis = long[0]
    spanned = []
    for chosen in itertools.product(*values.values()):
        changes = {name: _typed(base, name, value) for name, value in zip(values, chosen, strict=True)}
        spanned.append(dataclasses.replace(base, **changes))
    return group(spanned, batch_axis)


def _typed(base: Any, name: str, value: str) -> Any:
    now = getattr(base, name)
    if isinstance(now, str):
        return value
    try:
        # A pair is given as one number for both, or as 2x1: height and width.
        numbers = tuple(int(part) for part in value.split("x"))
    except ValueError:
        raise CurvescopeError(f"--axis {name}={value}: not a whole number.") from None
    if isinstance(now, tuple):
        return numbers * 2 if len(numbers) == 1 else numbers
    if len(numbers) != 1:
        raise CurvescopeError(f"--axis {name}={value}: one whole number.")
    return numbers[0]


def group(problems: Sequence[P], batch_axis: str) -> list[Sweep]:
    """Problems that differ along the batch axis alone belong together.

    Args:
        problems: in any order.
        batch_axis: a field of theirs.
    """
    families: dict[Any, dict[int, P]] = {}
    for problem in problems:
        family = tuple(getattr(problem, f.name) for f in dataclasses.fields(problem) if f.name != batch_axis)
        families.setdefault(family, {})[getattr(problem, batch_axis)] = problem
    return [_sweep(family, batch_axis) for family in families.values()]


def _sweep(family: dict[int, Any], batch_axis: str) -> Sweep:
    ordered = dict(sorted(family.items()))
    first = next(iter(ordered.values()))
    label = first.label if len(ordered) == 1 else first.label_along(batch_axis)
    return Sweep(label, batch_axis, ordered, phase=getattr(first, "phase", None))
