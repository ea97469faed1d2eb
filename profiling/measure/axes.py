"""The axes of a measurement: the one of the cost curve, a family of such curves, and
fixed values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...base.errors import CurvescopeError
from ..recording.axis import BATCH, Axis
from .protocol import parse_batches

DEFAULT_BATCHES = "1..32"


@dataclass(frozen=True)
class Axes:
    """Axes by name, with their increasing values."""

    curve: str
    values: tuple[int, ...]
    family: str | None = None  # each of its values has a curve of its own
    family_values: tuple[int, ...] = ()
    fixed: tuple[tuple[str, int], ...] = ()  # other arguments

    @property
    def curves(self) -> list[tuple[tuple[str, int], ...]]:
        """Names and values of all arguments but the curve's, one entry per curve."""
        if self.family is None:
            return [self.fixed]
        return [(*self.fixed, (self.family, value)) for value in self.family_values]


def parse_axes(texts: Sequence[str], batches: Sequence[int] | None = None) -> Axes:
    """Parse the values of `--axis`, e.g. `tokens=128..4096`; the forms of values are those of
    `--batch`.

    The first axis with several values is the curve, a second one the family, a third an error; a
    single value is fixed. The values of `--batch` are those of the last axis.
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
    if len(varied) > 2:
        raise CurvescopeError(
            f"The axes {', '.join(varied)} have several values: one is the curve and one the "
            "family; give the others one value."
        )
    curve = varied[0] if varied else next(iter(values))
    family = varied[1] if len(varied) == 2 else None
    fixed = tuple(
        (name, listed[0]) for name, listed in values.items() if name not in (curve, family)
    )
    return Axes(curve, values[curve], family, values[family] if family else (), fixed)
