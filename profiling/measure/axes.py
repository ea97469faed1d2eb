"""The axis of a cost curve, and the fixed values of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...base.errors import CurvescopeError
from ..recording.axis import BATCH, Axis
from .protocol import parse_batches

DEFAULT_BATCHES = "1..32"


@dataclass(frozen=True)
class Axes:
    """The axis of a curve with its increasing values, and one value of each other axis."""

    curve: str
    values: tuple[int, ...]
    fixed: tuple[tuple[str, int], ...] = ()  # other arguments


def parse_axes(texts: Sequence[str], batches: Sequence[int] | None = None) -> Axes:
    """Parse the values of `--axis`, e.g. `tokens=128..4096`; values have the forms of `--batch`.

    The axis with several values is the curve; a single value is fixed. `--batch` gives the values
    of the last axis. CurvescopeError: several axes have several values.
    """
    values: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        if not equals:
            raise CurvescopeError(f"--axis {text}: write a name and values, e.g. tokens=128..4096.")
        name = Axis(name.strip()).name
        if name in values or (name == BATCH and batches is not None):
            raise CurvescopeError(f"--axis {text}: give the values of {name} once.")
        values[name] = parse_batches(listed, f"--axis {name}=")
    if batches is not None:
        values[BATCH] = tuple(batches)
    values = values or {BATCH: parse_batches(DEFAULT_BATCHES)}
    varied = [name for name, listed in values.items() if len(listed) > 1]
    if len(varied) > 1:
        raise CurvescopeError(
            f"The axes {', '.join(varied)} have several values: a curve has one such axis. Give "
            "the others one value, and measure a curve for each."
        )
    curve = varied[0] if varied else next(iter(values))
    fixed = tuple((name, listed[0]) for name, listed in values.items() if name != curve)
    return Axes(curve, values[curve], fixed)
