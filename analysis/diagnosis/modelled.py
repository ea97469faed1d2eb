"""Facts of a modelled recording beside its times: convolutions whose algorithm changes."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pandas as pd

# Changes of algorithm: their number, and the least share of the step that one costs.
_SWITCHES, _WORTH_SAYING = 3, 0.005


class Switch(NamedTuple):
    """A convolution whose algorithm changes between two batch sizes."""

    excess_ms: float  # what the larger size costs beyond its share
    layer: str
    kind: str  # forward, backward data or backward weights
    small: int
    large: int
    before: str
    after: str


def find_switches(kernel_times: pd.DataFrame) -> list[Switch]:
    """The convolutions whose algorithm changes and costs more than its share, the costliest first.

    The model's error is larger than most of these, so they are no findings; but they say where to
    measure.
    """
    step_ms = kernel_times.groupby("batch")["exclusive_ms"].sum()
    kinds = kernel_times["name"].str.extract(r"^(forward|backward_data|backward_weights)_(\w+)$")
    named = kernel_times.assign(kind=kinds[0], algorithm=kinds[1]).dropna(subset=["kind", "layer"])
    switches = []
    for (layer, kind), rows in named.groupby(["layer", "kind"]):
        rows = rows.sort_values("batch")
        points = zip(rows["batch"], rows["algorithm"], rows["exclusive_ms"], strict=True)
        for (small, before, before_ms), (large, after, after_ms) in pairwise(points):
            excess_ms = after_ms - large / small * before_ms
            if before != after and excess_ms > _WORTH_SAYING * step_ms[large]:
                words = kind.replace("_", " ")
                switches.append(Switch(excess_ms, layer, words, small, large, before, after))
    return sorted(switches, reverse=True)[:_SWITCHES]
