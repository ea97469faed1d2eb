"""Compares a layer's cost in a recorded step with its cost alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.table import Table

    from ...kernels.runner import Result
    from ...kernels.sweeps import Sweep


class Held(NamedTuple):
    """Cost of one layer and phase at one batch size.

    Attributes:
        layer: module path.
        phase: forward or backward.
        batch: number of samples in the step.
        in_step_ms: exclusive time of its kernels in the profiled steps.
        alone_ms: sum of the medians of its operators alone; backward is the sum to the data and to the weights.
    """

    layer: str
    phase: str
    batch: int
    in_step_ms: float
    alone_ms: float


def hold_against(recording_path: Path, done: Sequence[tuple[Sweep, Sequence[Result]]]) -> list[Held]:
    """What was measured alone, beside the same layers of a recording.

    Args:
        recording_path: a recording of the network.
        done: its layers' sweeps with their results; those with a problem that was not timed are left out.

    Raises:
        CurvescopeError: the recording does not exist, or contains none of the layers and batch sizes.
    """
    from ...analysis.decompose.breakdown import break_down
    from ...analysis.decompose.kernel_times import device_work
    from ...profiling.errors import CurvescopeError
    from ...profiling.recording.store import open_recording

    recording = open_recording(recording_path)
    steps = recording.frame("steps")
    alone = _alone_ms(done)
    recorded = {int(b) for b in steps.loc[steps["profiled"].astype(bool), "batch"].dropna()}
    held = []
    for batch in sorted(recorded & {batch for _, _, batch in alone}):
        work = device_work(recording)
        rows = {row.label: row.time_ms for row in break_down(steps, work, "layer", batch, recording.statistic).rows}
        held += [
            Held(layer, phase, batch, rows[f"{layer} {phase}"], alone_ms)
            for (layer, phase, at), alone_ms in alone.items()
            if at == batch and f"{layer} {phase}" in rows
        ]
    if not held:
        measured = ", ".join(map(str, sorted(recorded))) or "none"
        raise CurvescopeError(
            f"{recording_path} has none of these layers and batch sizes; its profiled batch sizes are {measured}; "
            "choose one of them with --batch, and the recorded network with --from."
        )
    return held


def _alone_ms(done: Sequence[tuple[Sweep, Sequence[Result]]]) -> dict[tuple[str, str, int], float]:
    """By layer, phase and batch; a sum that lacks a part is left out."""
    alone: dict[tuple[str, str, int], float] = {}
    missing = set()
    for sweep, results in done:
        for result in results:
            for layer in sweep.layers:
                key = (layer, sweep.phase or "", result.value)
                if result.median_ns is None:
                    missing.add(key)
                else:
                    alone[key] = alone.get(key, 0.0) + result.median_ns / 1e6
    return {key: value for key, value in alone.items() if key not in missing}


def render(held: Sequence[Held]) -> Table:
    """One row per entry."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("layer", "phase"):
        table.add_column(name)
    for name in ("batch", "in the step ms", "alone ms", "ratio"):
        table.add_column(name, justify="right")
    for one in held:
        ratio = f"{one.in_step_ms / one.alone_ms:.2f}"
        table.add_row(one.layer, one.phase, str(one.batch), f"{one.in_step_ms:.4g}", f"{one.alone_ms:.4g}", ratio)
    return table
