"""The axis of a recording: the number that its steps vary, in the column `batch`, and the words for
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import CurvescopeError

BATCH = "batch"
TOKENS = "tokens"  # of networks that take text
MODES = ("training", "forward", "forward+backward")  # what a step of a network runs
_NAME = re.compile(r"[a-z][a-z0-9_]*", re.IGNORECASE)


@dataclass(frozen=True)
class Axis:
    """What the values of a cost curve count."""

    # name of the axis, e.g. batch, tokens or resolution; the argument of a user's `make_step`
    name: str = BATCH
    # what one value counts, plural, where neither the name nor `samples` says it
    counted: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise CurvescopeError(
                f"{self.name!r} is no name of an axis: write a word, e.g. --axis tokens=128..4096."
            )

    @property
    def unit(self) -> str:
        """What one value counts, plural: as recorded, else samples for a batch, else the name."""
        usual = "samples" if self.name == BATCH else self.name
        return self.counted or usual

    @property
    def one(self) -> str:
        """One of the unit: sample, token."""
        return self.unit[:-1] if self.unit.endswith("s") else self.unit

    @property
    def values(self) -> str:
        """A noun for several values: batch sizes, or values of tokens."""
        return "batch sizes" if self.name == BATCH else f"values of {self.name}"

    @property
    def value(self) -> str:
        """A noun for one value: batch size, or value of tokens."""
        return "batch size" if self.name == BATCH else f"value of {self.name}"

    @property
    def title(self) -> str:
        """A name for titles: batch size, or tokens."""
        return self.value if self.name == BATCH else self.name

    def name_size(self, size: object) -> str:
        """A size with the axis, e.g. batch 8."""
        return f"{self.name} {size}"

    @property
    def entry(self) -> dict[str, str]:
        """Its entry of `recording.json`."""
        return {"name": self.name, "unit": self.unit}


def axis_of(meta: Mapping[str, Any]) -> Axis:
    """The axis of a recording, by its `recording.json`; batch if it names none."""
    entry = meta.get("axis")
    if not isinstance(entry, Mapping) or not entry.get("name"):
        return Axis()
    unit = str(entry.get("unit", ""))
    return Axis(str(entry["name"]), unit if _NAME.fullmatch(unit) else "")
