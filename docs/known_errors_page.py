"""The page of known errors: what is known of each number without a card, and what the campaign's checks say on one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


class Row(NamedTuple):
    """One number.

    Attributes:
        number: what is reported.
        error: what is known of its error.
        how: where that is from: simulation, arithmetic, a measurement on a CPU or NVIDIA's documentation.
        check: name of the campaign's check that measures it on a card, see benchmarks/gpu/checks.py.
    """

    number: str
    error: str
    how: str
    check: str


ROWS = (
    Row(
        "Time of a kernel in isolation, by a pair of events",
        "at most 2 % or 2 µs for kernels of 2 µs to 5 ms; resolution 0.5 µs; the device's cost of a pair is unknown",
        "simulated stream (tests/kernels/test_virtual_stream.py); CUDA's documentation",
        "event_pair",
    ),
    Row(
        "The same with a flushed cache",
        "the flush is outside the time, and ends with a pass that reads: no changed line is written back inside",
        "simulated stream; what a line costs is unknown",
        "dirty_lines",
    ),
    Row(
        "Time of a step",
        "at most 2 µs, from its first call to the end of its last kernel, whatever is read around it; what waiting for "
        "the device takes is unknown",
        "simulated stream (tests/profiling/measure/test_virtual_steps.py)",
        "idle_before_step",
    ),
    Row(
        "SM clock of a step",
        "at most 1 µs of the global timer: 0.5 % at 0.2 ms, 0.005 % at 20 ms; shorter steps have no clock",
        "arithmetic; simulated card (tests/profiling/hardware/test_stream_clock.py)",
        "clock_under_load",
    ),
    Row(
        "Idle time at the start of a profiled step",
        "1.5 ms for CUPTI's first buffer if the step asked for it; a kernel in front of the step does",
        "a trace of a B200; the double of CUPTI",
        "first_work",
    ),
    Row(
        "T(b) in a process that has profiled",
        "unknown; the same for all batch sizes and rounds, so it enters the fixed cost",
        "torch stays attached to CUPTI after its first profile",
        "earlier_profiler",
    ),
    Row(
        "Step after a pause",
        "unknown; steps of 100 ms are discarded in front of each visit",
        "an idle H200 lowers its clock from 1980 to 345 MHz",
        "idle_before_step",
    ),
    Row(
        "Energy of a step",
        "at most 2 % at steps of 1 ms and more, with gaps of 1 ms for counters",
        "simulated meter (tests/profiling/hardware/test_energy.py)",
        "energy_updates",
    ),
    Row(
        "Start of a kernel against the host's clock",
        "stated in each recording",
        "the collector reads both clocks before and after",
        "clock_error",
    ),
    Row(
        "Marks and ranges",
        "on a CPU 13 % of 300 operators of 3 µs, none of it in the time of a layer; a GPU's steps have no marks",
        "measured on a CPU (benchmarks/instrument_cost.py)",
        "collector_overhead",
    ),
)


def known_errors_page() -> str:
    """The page, with a column of answers for every card that `benchmarks/gpu/keep.py` kept."""
    cards = {path.parents[1].name: _answers(path) for path in sorted(RESULTS.glob("*/checks/checks.md"))}
    heads = ("number", "known error", "from", *(cards or ("on a card",)))
    lines = [
        "# Known error of each number",
        "",
        "What is known of the errors of a GPU's numbers. `make gpu` measures each of them on a card, by the check that "
        "is named here until then ([guide](guides/gpu-campaign.md)).",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for row in ROWS:
        measured = [answers.get(row.check, "not measured") for answers in cards.values()]
        cells = (row.number, row.error, row.how, *(measured or [f"check `{row.check}`, not run yet"]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _answers(path: Path) -> dict[str, str]:
    """The answer of each check, by its name."""
    rows = [line.strip("| ").split(" | ") for line in path.read_text().splitlines()[2:]]
    return {name: answer for name, _, answer in rows}
