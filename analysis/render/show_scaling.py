"""Output of `scale measure` and `explain` for a scaling run: tables and the split of the lost
efficiency, or JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.text import Text

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...profiling.measure.scaling_plan import (
    PLAN_FILE,
    ScalingPlan,
    ScalingPoint,
    is_complete,
    rank_recordings,
)
from ...profiling.recording.rank_info import rank_info_of
from ...profiling.recording.store import Recording
from ..decompose.kernel_times import copies
from ..ranks.parts import KERNEL_COLUMNS, RankTables
from ..scaling import PointTables, Series, scale
from . import terminal
from .documents import print_document
from .scaling import render_series, scaling_sentence

_TEXTS = dict.fromkeys(("name", "phase", "layer", "op"), object)


def show_scaling(folder: Path, everything: bool = False, as_json: bool = False) -> None:
    """Print the results of a scaling run so far; raises CurvescopeError if nothing is
    measured yet.
    """
    plan = PLAN_FILE.read(folder)
    recordings = {}
    for devices in plan.devices:
        ranks = rank_recordings(folder, devices)
        if ranks:
            recordings[devices] = ranks
    measured, empty = [], []
    for point in plan.points:
        if point.devices in recordings:
            measured.append(_tables(point, recordings[point.devices]))
    for devices, ranks in recordings.items():
        empty += [(devices, cell) for cell in ranks[0].meta.get("unmeasured") or ()]
    series = scale(measured, plan.weak, plan.strong, plan.protocol.statistic)
    resume = f"curvescope scale measure --resume {folder}"
    if not series and not empty:
        raise CurvescopeError(
            f"{folder} has no step on one device yet: `{resume}` resumes the run."
        )
    meta = next((ranks[0].meta for ranks in recordings.values()), {})
    complete = is_complete(folder, plan)
    if as_json:
        document = ScalingDocument(
            run=str(folder),
            complete=complete,
            network=plan.configuration.network,
            mode=plan.configuration.mode,
            precision=plan.configuration.precision,
            threads=plan.threads,
            input=plan.source,
            device=meta.get("device"),
            protocol=meta.get("protocol"),
            versions=meta.get("versions"),
            lost=meta.get("lost"),
            empty=[{"devices": devices, **cell} for devices, cell in empty],
            series=series,
        )
        print_document(document)
        return
    console = terminal.console()
    for sentence in filter(None, map(scaling_sentence, series)):
        console.print(Text(sentence, "bold"))
    console.print(Text(_headline(plan, meta)))
    for run in series:
        terminal.print_below(console, render_series(run, everything))
    console.print()
    for devices, cell in empty:
        where = f"Batch {cell['batch']} on {counted(devices, 'device')}"
        console.print(Text(f"{where}: {cell['why']} ({cell['detail']}).", "yellow"))
    if not complete:
        console.print(Text("Not complete: some points are not measured yet.", "yellow"))
    console.print(Text(f"Recorded in {folder}, one recording per rank. Next:"))
    first = folder / "devices1" / "rank0"
    last = folder / f"devices{plan.devices[-1]}" / "rank0"
    if not complete:
        terminal.print_commands(console, resume)
    if not everything:
        terminal.print_commands(console, f"curvescope explain {folder} --all")
    terminal.print_commands(console, f"curvescope compare {first} {last} --by layer")


def _tables(point: ScalingPoint, recordings: Sequence[Recording]) -> PointTables:
    ranks = []
    for index, recording in enumerate(recordings):
        steps = recording.frame("steps")
        rank = rank_info_of(recording.meta)
        node = None if rank is None else rank.node
        kernels = [recording.frame("kernels", KERNEL_COLUMNS)]
        for piece in copies(recording, KERNEL_COLUMNS):
            kernels.append(piece.to_pandas().astype(_TEXTS))
        work = pd.concat(kernels, ignore_index=True)
        chosen = steps[steps["batch"] == point.batch]
        ranks.append(RankTables(index, node, chosen, work, recording.frame("ranges")))
    discarded = int(recordings[0].meta.get("discarded_steps", 0))
    return PointTables(point, tuple(ranks), discarded)


def _headline(plan: ScalingPlan, meta: dict[str, Any]) -> str:
    configuration, device = plan.configuration, meta.get("device") or {}
    facts = [configuration.network, f"{configuration.mode} step"]
    facts += [configuration.precision or "fp32", str(device.get("name"))]
    if plan.threads:
        facts.append(f"{counted(plan.threads, 'thread')} per process")
    facts += [f"protocol {plan.protocol.name}", f"input {plan.source}"]
    return ", ".join(facts)


@dataclass(frozen=True, kw_only=True)
class ScalingDocument:
    """A scaling run: `scale measure`, and `explain` of its folder."""

    run: str  # folder of the run
    complete: bool  # whether every point is measured
    network: str  # name of the network
    mode: str  # what a step runs
    precision: str | None  # precision of a step
    device: Mapping[str, Any] | None  # device of the first rank
    threads: int | None  # threads per process on a CPU
    input: str  # source of the samples
    protocol: Mapping[str, Any] | None  # how it was measured
    versions: Mapping[str, Any] | None  # versions of the libraries
    lost: Mapping[str, Any] | None  # what the first rank lost, by name
    empty: Sequence[Mapping[str, Any]]  # points without a measurement
    series: Sequence[Series]  # weak and strong scaling
