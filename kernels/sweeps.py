"""Sweeps: problems that differ along one axis, created from options like `--axis n=1,2,4..256`."""

from __future__ import annotations

import csv
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..base.errors import CurvescopeError
from ..base.sizes import parse_sizes
from .problem import Problem

P = TypeVar("P", bound=Any)


@dataclass(frozen=True)
class Around:
    """The problem of a recorded step that a sweep lies around."""

    size: int  # its value on the axis
    calls: int  # its calls in the step


@dataclass(frozen=True)
class Sweep:
    """Problems along one axis: one cost curve and one recording."""

    label: str  # the problems' common properties
    axis: str  # its values are stored in the recording's `batch` column
    problems: Mapping[int, Problem]  # by axis value, increasing
    # module paths of the layers with this problem, if it belongs to a network
    layers: tuple[str, ...] = ()
    phase: str | None = None  # forward or backward, if the problem has a direction
    around: Around | None = None  # the problem of a recorded step among them, if there is one

    @property
    def layer(self) -> str | None:
        """The first of the layers; None without layers."""
        return self.layers[0] if self.layers else None


def single(problem: Any) -> Sweep:
    """A sweep of one problem; its axis is the problem's first integer field."""
    for name in _field_names(problem):
        value = getattr(problem, name)
        if isinstance(value, int):
            return along(name, {value: problem})
    return Sweep(problem.label, "problem", {1: problem})


def parse_axis(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse `n=1,2,4..256` (see `base.sizes`) or `transpose=NN,TN` to a name and values."""
    name, _, listed = text.partition("=")
    name = name.strip()
    values: list[str] = []
    for part in map(str.strip, listed.split(",")):
        values += map(str, parse_sizes("--axis", part)) if ".." in part else [part]
    if not name or not all(values):
        raise CurvescopeError(
            f"--axis {text}: write a name and values, e.g. n=1,2,4..256 or n=32..160+8."
        )
    return name, tuple(dict.fromkeys(values))


def span(
    base: P, axes: Sequence[str], precisions: str = "fp32", batch_axis: str = "n"
) -> list[Sweep]:
    """All combinations of the values of axes (see `parse_axis`) and of precisions, joined by
    commas, as sweeps.

    Fields without an axis keep the value of `base`. The batch axis is the axis of the cost curve.
    If it has one value, the first numeric axis with several becomes the batch axis.
    """
    values: dict[str, tuple[str, ...]] = {"precision": tuple(precisions.split(","))}
    for text in axes:
        name, listed = parse_axis(text)
        _check_axis(base, name, f"--axis {text}")
        values[name] = listed
    several = [name for name, listed in values.items() if len(listed) > 1]
    numeric = [name for name in several if isinstance(getattr(base, name), int)]
    if numeric and batch_axis not in numeric:
        batch_axis = numeric[0]
    spanned = []
    for combination in itertools.product(*values.values()):
        texts = zip(values, combination, strict=True)
        changes = {name: _parse_value(base, name, text) for name, text in texts}
        spanned.append(dataclasses.replace(base, **changes))
    return group(spanned, batch_axis)


def list_shapes(base: P, texts: Sequence[str], precisions: str = "fp32") -> list[Sweep]:
    """Problems that are given one by one, each as `m=512,n=64,k=1024`, or as the rows of a CSV file
    with a column for each axis.

    Fields that are not given keep the value of `base`. Problems that differ in n alone are one
    sweep.
    """
    problems = []
    for text in texts:
        for row in _read_shapes(text):
            for name in row:
                _check_axis(base, name, f"--shapes {text}")
            for precision in precisions.split(","):
                given = {"precision": precision, **row}
                changes = {name: _parse_value(base, name, value) for name, value in given.items()}
                problems.append(dataclasses.replace(base, **changes))
    return group(problems, "n")


def _read_shapes(text: str) -> list[dict[str, str]]:
    """The values of the axes of each problem."""
    if not text.endswith(".csv"):
        return [{name: values[0] for name, values in map(parse_axis, text.split(","))}]
    try:
        with open(text, newline="", encoding="utf-8") as file:
            rows = [dict(row) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError) as error:
        raise CurvescopeError(f"--shapes {text}: {error}.") from error
    if not rows or any(None in row or None in row.values() for row in rows):
        raise CurvescopeError(
            f"--shapes {text}: write a line of axes, e.g. m,n,k, and a line of values for each "
            "problem."
        )
    return rows


def _check_axis(base: Any, name: str, given: str) -> None:
    """Refuse an axis that a problem does not have."""
    fields = _field_names(base)
    if name not in fields:
        kind, axes_of = type(base).__name__.lower(), ", ".join(fields)
        raise CurvescopeError(f"{given}: the axes of {kind} are {axes_of}.")


def _field_names(problem: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(problem)]


def _parse_value(base: Any, name: str, value: str) -> Any:
    now = getattr(base, name)
    if isinstance(now, str):
        return value
    try:
        # A pair is written as one number for both, or as 2x1: height and width.
        numbers = tuple(int(part) for part in value.split("x"))
    except ValueError:
        raise CurvescopeError(f"--axis {name}={value}: not a whole number.") from None
    if isinstance(now, tuple):
        return numbers * 2 if len(numbers) == 1 else numbers
    if len(numbers) != 1:
        raise CurvescopeError(f"--axis {name}={value}: write one whole number.")
    return numbers[0]


def group(problems: Sequence[P], batch_axis: str) -> list[Sweep]:
    """Group problems that differ only along the batch axis, the name of a field, into sweeps."""
    families: dict[Any, dict[int, P]] = {}
    for problem in problems:
        common = [getattr(problem, name) for name in _field_names(problem) if name != batch_axis]
        family = families.setdefault(tuple(common), {})
        family[getattr(problem, batch_axis)] = problem
    return [along(batch_axis, family) for family in families.values()]


def along(axis: str, problems: Mapping[int, Any]) -> Sweep:
    """A sweep of problems that differ only along an axis, by its values in any order."""
    ordered = dict(sorted(problems.items()))
    first = next(iter(ordered.values()))
    label = first.label if len(ordered) == 1 else first.label_along(axis)
    return Sweep(label, axis, ordered, phase=phase_of(getattr(first, "direction", None)))


def phase_of(direction: str | None) -> str | None:
    """The phase of a direction, e.g. bwd_data; None without one."""
    if direction is None:
        return None
    return "forward" if direction == "fwd" else "backward"
