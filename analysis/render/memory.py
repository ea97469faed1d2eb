"""Output of `diagnose` and `explain` with `--of memory`: text or one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from ...base.numbers import number, quantity
from ...profiling.recording.axis import Axis
from ...profiling.recording.store import Recording
from ..decompose.curve import UNKNOWN
from ..decompose.statistics import Estimate
from ..memory import LargestBatch, MemoryDiagnosis, MemoryTerm, Peak, SplitFinding, explain_memory
from . import terminal, text, words
from .documents import print_document
from .everything import show_gaps
from .facts import recording_line
from .tables import table
from .words import dim, list_values, number_cell

MEMORY = text.Quantity("memory", "M", "MB", "GB", 1e3)
_MOST_TERMS = 12
_NOTE = (
    "Bytes that the allocator had given out at the peak of one step, a count: its interval of ±0.1 "
    "% stands for what a library may allocate otherwise in another process. MB are 10⁶ bytes."
)


@dataclass(frozen=True, kw_only=True)
class MemoryDocument:
    """Peak memory over batch sizes: `diagnose` and `explain` with `--of memory`."""

    recording: str  # folder of the recording
    complete: bool  # whether nothing was lost
    lost: Mapping[str, Any] | None  # what was lost, by name
    peaks: Sequence[Peak]  # the peak of each batch size
    findings: Sequence[SplitFinding]  # every test
    # memory that does not grow with the batch size; null if it is not significant
    fixed_mb: Estimate | None
    per_sample_mb: float | None  # growth between the two largest batch sizes; null for a single one
    # the largest batch size that fits, predicted; null if unknown
    largest_batch: LargestBatch | None


def show_memory(
    recording: Recording,
    *,
    axis: str = "log2",
    by_instance: bool = False,
    limit_bytes: int | None = None,
    everything: bool = False,
    as_json: bool = False,
) -> None:
    """Print the curve of peak memory, what makes it, its tests, and the largest batch size that
    fits; or JSON.
    """
    diagnosis = explain_memory(recording, axis, by_instance=by_instance, limit_bytes=limit_bytes)
    if as_json:
        document = MemoryDocument(
            recording=str(recording.named),
            complete=recording.complete,
            lost=recording.meta.get("lost"),
            peaks=diagnosis.peaks,
            findings=diagnosis.findings,
            fixed_mb=diagnosis.fixed_mb,
            per_sample_mb=diagnosis.per_sample_mb,
            largest_batch=diagnosis.largest_batch,
        )
        print_document(document)
        return
    console, last = terminal.console(), diagnosis.peaks[-1]
    console.print(recording_line(recording), style="bold")
    console.print()
    for line in sentences(diagnosis):
        console.print(Text(line, "bold"))
    if last.batch is not None:
        terminal.print_below(console, text.render_curve(diagnosis.curve, diagnosis.axis, MEMORY))
    _print_kinds(console, diagnosis)
    limit = None if everything else _MOST_TERMS
    peak = f"peak of {_name_peak(last, diagnosis.axis)}"
    _print_split(console, peak, last.memory_mb.value, last.terms, limit)
    tests = [finding.finding for finding in diagnosis.findings]
    if last.batch is not None:
        terminal.print_below(console, text.render_findings(tests, diagnosis.axis, MEMORY))
    for split in diagnosis.findings:
        if everything or split.is_anomaly:
            label, whole = split.finding.tested.label, split.finding.tested_value.value
            _print_split(console, label, whole, split.shares, limit)
    terminal.print_below(console, Text(_NOTE, "dim"))
    show_gaps(console, recording, diagnosis.axis)
    console.print(Text(f"Recorded in {recording.named}."))


def sentences(diagnosis: MemoryDiagnosis) -> list[str]:
    """What the memory is, how it grows, and what fits, each in a sentence."""
    last, axis = diagnosis.peaks[-1], diagnosis.axis
    whole = last.memory_mb.value
    kinds = sorted(last.kinds, key=last.kinds.__getitem__, reverse=True)
    most = ", ".join(f"{kind} {words.share(last.kinds[kind], whole)}" for kind in kinds[:3])
    made = f"; the last before the peak are {last.made_by}" if last.made_by else ""
    needs = f"A step of {_name_peak(last, axis)} needs {_mb(whole)} at its peak"
    lines = [f"{needs}: {most}{made}."]
    if diagnosis.per_sample_mb is not None:
        beside = ""
        if diagnosis.fixed_mb is not None:
            fixed = _mb(diagnosis.fixed_mb.value)
            beside = f" beside {fixed} that {axis.name} does not change"
        growth = _mb(diagnosis.per_sample_mb)
        lines.append(f"It grows by {growth} per {axis.one}{beside}.")
    return lines + _fits(diagnosis.largest_batch, axis.name)


def _name_peak(peak: Peak, axis: Axis) -> str:
    return f"unknown {axis.name}" if peak.batch is None else axis.name_size(peak.batch)


def _fits(largest: LargestBatch | None, name: str) -> list[str]:
    if largest is None:
        return []
    sizes = f"{name} {largest.batch} ({largest.low} to {largest.high})"
    line = f"{_mb(largest.limit_mb)} hold {sizes}: predicted"
    if largest.checked is not None:
        off = f"{abs(largest.checked):.1%} off"
        line += f"; the largest peak, predicted from the smaller ones, is {off}"
    if largest.failed:
        line += f"; {name} {list_values(largest.failed)} did run out of memory"
    return [f"{line}."]


def _mb(size_mb: float) -> str:
    return quantity(size_mb * 1e6, "B")


def _print_kinds(console: Console, diagnosis: MemoryDiagnosis) -> None:
    peaks = diagnosis.peaks
    rows = table("MB at the peak", *(str(peak.batch or UNKNOWN) for peak in peaks))
    for kind in dict.fromkeys(kind for peak in peaks for kind in peak.kinds):
        sizes = [number(peak.kinds.get(kind, 0.0)) for peak in peaks]
        rows.add_row(kind, *sizes)
    rows.add_section()
    rows.add_row("step", *(number(peak.memory_mb.value) for peak in peaks))
    cached = [number_cell(peak.cached_mb) for peak in peaks]
    if any(cached):
        rows.add_row("cached beside it", *cached)
    terminal.print_below(console, rows)
    notes = []
    if len({peak.made_by or "the beginning of the step" for peak in peaks}) > 1:
        places = [f"{peak.batch}: {peak.made_by or 'beginning of the step'}" for peak in peaks]
        moved = f"by {diagnosis.axis.name}: {'; '.join(places)}"
        notes.append(f"The peak is where these are allocated, {moved}.")
    unused = max(peak.unused_mb for peak in peaks)
    if unused:
        more = f"Up to {_mb(unused)} more are of tensors that the step does not use"
        notes.append(f"{more}; they are in no number.")
    for note in dim(notes):
        console.print(note)


def _print_split(
    console: Console, label: str, whole: float, terms: Sequence[MemoryTerm], limit: int | None
) -> None:
    """The largest terms of a functional or a peak, and the others in one line so that
    they add up.
    """
    terms = [term for term in terms if term.value.value]
    rows = table(label, "MB", "share", "line", left=("line",))
    for term in terms[:limit]:
        amount = term.value.value
        part = words.share(amount, whole)
        rows.add_row(term.label, number(amount), part, term.line or "")
    rest = terms[len(terms[:limit]) :]
    if rest:
        amount = sum(term.value.value for term in rest)
        part = words.share(amount, whole)
        rows.add_row(f"{len(rest)} others", number(amount), part, "")
    terminal.print_below(console, rows)
