"""Compares a layer's cost in a recorded step with its cost alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...analysis.render.tables import TextTable, table
from ...base.errors import CurvescopeError

if TYPE_CHECKING:
    from ...kernels.runner import Result
    from ...kernels.sweeps import Sweep


@dataclass(frozen=True)
class LayerCost:
    """Cost of one layer and phase at one batch size, in a step and alone."""

    layer: str  # module path
    phase: str  # forward or backward
    batch: int  # number of samples in the step
    in_step_ms: float  # exclusive time of the layer's kernels in the profiled steps
    # sum of the medians of the layer's operators alone; backward is the sum over data and weights
    alone_ms: float


def compare_with_step(
    recording_path: Path, measured: Sequence[tuple[Sweep, Sequence[Result]]]
) -> list[LayerCost]:
    """The cost of layers in a recorded step and alone; layers with a problem that was not timed are
    omitted.

    Raises:
        CurvescopeError: the recording does not exist, or contains none of the layers and batch
            sizes.
    """
    from ...analysis.decompose.breakdown import recorded_breakdown
    from ...analysis.decompose.terms import work_label
    from ...profiling.recording.store import open_recording

    recording = open_recording(recording_path)
    steps, classes = recording.frame("steps"), recording.meta.get("layer_classes") or {}
    alone = _alone_ms(measured)
    recorded = {int(b) for b in steps.loc[steps["profiled"].astype(bool), "batch"].dropna()}
    costs = []
    for batch in sorted(recorded & {batch for _, _, batch in alone}):
        rows = {
            row.label: row.time_ms for row in recorded_breakdown(recording, "layer", batch).rows
        }
        costs += [
            LayerCost(layer, phase, batch, rows[label], alone_ms)
            for (layer, phase, at), alone_ms in alone.items()
            if at == batch and (label := work_label(layer, phase, classes.get(layer))) in rows
        ]
    if not costs:
        batches = ", ".join(map(str, sorted(recorded))) or "none"
        raise CurvescopeError(
            f"{recording_path} has none of these layers and batch sizes; its profiled batch sizes "
            f"are {batches}; choose one of them with --batch, and the recorded network with --from."
        )
    return costs


def _alone_ms(
    measured: Sequence[tuple[Sweep, Sequence[Result]]],
) -> dict[tuple[str, str, int], float]:
    """Sum of the medians by layer, phase and batch size; incomplete sums are omitted."""
    alone: dict[tuple[str, str, int], float] = {}
    missing = set()
    for sweep, results in measured:
        for result in results:
            for layer in sweep.layers:
                key = (layer, sweep.phase or "", result.value)
                if result.median_ns is None:
                    missing.add(key)
                else:
                    alone[key] = alone.get(key, 0.0) + result.median_ns / 1e6
    return {key: value for key, value in alone.items() if key not in missing}


def render(costs: Sequence[LayerCost]) -> TextTable:
    """One row per layer, phase and batch size."""
    rows = table("layer", "phase", "batch", "in the step ms", "alone ms", "ratio", left=("phase",))
    for cost in costs:
        times = (
            f"{cost.in_step_ms:.4g}",
            f"{cost.alone_ms:.4g}",
            f"{cost.in_step_ms / cost.alone_ms:.2f}",
        )
        rows.add_row(cost.layer, cost.phase, str(cost.batch), *times)
    return rows
