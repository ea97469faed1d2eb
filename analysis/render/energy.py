"""Output of `diagnose` and `explain` with `--of energy`: text or one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, with_sign
from ...profiling.recording.store import Recording
from ..decompose.statistics import Estimate
from ..energy import EnergyDiagnosis, explain_energy
from . import terminal, text, words
from .documents import print_document
from .everything import show_gaps
from .facts import recording_line
from .tables import table

_NO_LAYERS = (
    "Energy is measured for the step as a whole: no counter gives that of a kernel, so it has no "
    "split over layers."
)
_SPLIT = (
    "By time: what the step's time alone explains, at the power of the smaller batch size "
    "(`explain` splits it over layers). By power: what the difference of power adds. Both add up "
    "to the functional."
)


@dataclass(frozen=True)
class EnergyPoint:
    """Energy at one batch size."""

    batch: int  # the batch size
    energy_j: Estimate  # energy of a step
    j_per_sample: float  # energy of a sample
    power_w: float  # mean power in the steps
    spread: float | None  # interquartile range over the energy; null for a single step
    n: int  # number of steps with an energy
    rounds: int  # number of their rounds


@dataclass(frozen=True)
class EnergyFinding:
    """A tested functional of the curve of energy."""

    functional: str  # its label
    unit: str  # its unit
    value: Estimate  # its value
    verdict: str  # as for times
    p_adjusted: float  # p, adjusted over the family
    by_time_j: float  # the functional of time, at the power of the smallest batch size in it
    by_power_j: float  # what the other powers at the other batch sizes add


@dataclass(frozen=True, kw_only=True)
class EnergyDocument:
    """The curve of energy of a recording: `diagnose` and `explain` with `--of energy`."""

    recording: str  # folder or URL of the recording
    complete: bool  # whether everything that was asked for is recorded
    lost: Mapping[str, Any] | None  # what the recording lost, by name
    source: Mapping[str, Any]  # what measured the energy, and of what
    locked_sm_clock_hz: int | None  # clock that Curvescope locked the SMs at; null if it did not
    unmeasured_steps: int  # number of timed steps without an energy
    curve: Sequence[EnergyPoint]  # energy by batch size
    findings: Sequence[EnergyFinding]  # every excess, then every curvature
    # energy that does not grow with the batch size; null if it is not significant
    fixed_cost_j: Estimate | None


def show_energy(
    recording: Recording, *, axis: str = "log2", everything: bool = False, as_json: bool = False
) -> None:
    """Print the curve of energy, its tests, and the anomalies or everything split into time and
    power; or JSON.
    """
    diagnosis = explain_energy(recording, axis)
    if as_json:
        print_document(energy_document(recording, diagnosis))
        return
    console, over = terminal.console(), diagnosis.axis
    console.print(recording_line(recording), style="bold")
    source = diagnosis.source
    console.print(Text(f"Energy of {source['scope']}, by {source['name']}.", "dim"))
    terminal.print_below(console, text.render_curve(diagnosis.curve, over, text.ENERGY))
    powers = []
    for batch in diagnosis.curve.conditions:
        powers.append(f"{batch}: {number(diagnosis.power_w(batch), 3)} W")
    console.print(Text(f"Mean power in steps by {over.name}: {', '.join(powers)}.", "dim"))
    terminal.print_below(console, text.render_findings(diagnosis.findings, over, text.ENERGY))
    if diagnosis.fixed_cost is not None:
        functional, value = diagnosis.fixed_cost
        amount = f"{with_sign(value.value)} J ({words.interval(value)})"
        terminal.print_below(console, Text(f"{functional.label}: {amount} of every step."))
    rows = table("functional", "J", "by time", "by power")
    for finding, split in zip(diagnosis.findings, diagnosis.splits, strict=True):
        if everything or finding in diagnosis.anomalies:
            unit = text.unit_text(finding.shown.unit, over, text.ENERGY)
            parts = (finding.value.value, split.by_time_j, split.by_power_j)
            rows.add_row(f"{finding.shown.label} ({unit})", *map(with_sign, parts))
    if rows.cells(0):
        terminal.print_below(console, rows, Text(_SPLIT, "dim"))
    console.print(Text(_NO_LAYERS, "dim"))
    if diagnosis.unmeasured:
        steps = counted(diagnosis.unmeasured, "timed step")
        console.print(Text(f"No energy of {steps}: too short a visit.", "yellow"))
    console.print()
    show_gaps(console, recording, over)
    console.print(Text(f"Recorded in {recording.named}. Next:"))
    terminal.print_commands(console, f"curvescope explain {recording.named}")


def energy_document(recording: Recording, diagnosis: EnergyDiagnosis) -> EnergyDocument:
    """The document of a curve of energy."""
    curve = []
    for point in diagnosis.curve.points:
        size, energy_j = point.condition, point.time_ms
        entry = EnergyPoint(
            batch=size,
            energy_j=energy_j,
            j_per_sample=energy_j.value / size,
            power_w=diagnosis.power_w(size),
            spread=point.spread,
            n=point.n,
            rounds=point.rounds,
        )
        curve.append(entry)
    findings = []
    for finding, split in zip(diagnosis.findings, diagnosis.splits, strict=True):
        tested = EnergyFinding(
            functional=finding.shown.label,
            unit=text.unit_text(finding.shown.unit, diagnosis.axis, text.ENERGY),
            value=finding.value,
            verdict=finding.verdict,
            p_adjusted=finding.p_adjusted,
            by_time_j=split.by_time_j,
            by_power_j=split.by_power_j,
        )
        findings.append(tested)
    return EnergyDocument(
        recording=str(recording.named),
        complete=recording.complete,
        lost=recording.meta.get("lost"),
        source=diagnosis.source,
        locked_sm_clock_hz=recording.meta.get("locked_sm_clock_hz"),
        unmeasured_steps=diagnosis.unmeasured,
        curve=curve,
        findings=findings,
        fixed_cost_j=None if diagnosis.fixed_cost is None else diagnosis.fixed_cost[1],
    )
