"""The page of known errors: what is known of each number without a card, and what the campaign's checks say on one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


class Row(NamedTuple):
    """One number.

    Attributes:
        number: what is reported.
        error: what is known of its error.
        how: where that is from: simulation, arithmetic, a measurement, NVIDIA's documentation, or an estimate, which
            nobody has measured yet.
        check: name of the answer of the campaign that measures it on a card, see benchmarks/gpu.
    """

    number: str
    error: str
    how: str
    check: str


ROWS = (
    Row(
        "Time of a kernel in isolation, by a pair of events",
        "estimated 2 to 4 µs too long, never too short: an empty kernel should read 4 to 6 µs, nothing 1 to 2.5. So "
        "2 % hold only from 150 µs on, and a shorter kernel's time has this bias. Resolution 0.5 µs. On a simulated "
        "stream, where events take no time, at most 2 % or 2 µs",
        "estimate; simulated stream (tests/kernels/test_virtual_stream.py); CUDA's documentation",
        "event_pair",
    ),
    Row(
        "The same with a flushed cache",
        "the flush is outside the time, and ends with a pass that reads: no changed line is written back inside. "
        "`triton.testing.do_bench` leaves up to an L2 of changed lines: compare kernels over 0.3 ms with it",
        "simulated stream; what a line costs is unknown",
        "dirty_lines",
    ),
    Row(
        "Kernels against Nsight Compute",
        "estimated: ncu repeats a kernel, which then finds its operands in the L2, 10 to 40 % faster than where the "
        "step's were cold; and it runs each alone, at up to 20 % more clock where the power limit slows the step down "
        "(bf16 products). Compare cycles; times only of hot fp32 kernels over 100 µs",
        "estimate",
        "against_ncu",
    ),
    Row(
        "Time of a step",
        "at most 2 µs, from its first call to the end of its last kernel, whatever is read around it. What the host "
        "takes to wake after it is not inside: estimated 5 to 15 µs, 3 % of a step of 0.3 ms",
        "simulated stream (tests/profiling/measure/test_virtual_steps.py); estimate",
        "idle_before_step",
    ),
    Row(
        "SM clock of a step",
        "at most 1 µs of the global timer: 0.5 % at 0.2 ms, 0.005 % at 20 ms; shorter steps have no clock. Idle time "
        "between kernels counts too",
        "arithmetic; simulated card (tests/profiling/hardware/test_stream_clock.py)",
        "clock_under_load",
    ),
    Row(
        "Peak of the units, by products of ones",
        "above what data reaches: their bits do not change, which takes less power. A bf16 product of 8192 reached 894 "
        "TFLOP/s with zeros, and 788 with random numbers",
        "one run on an H200, with PyTorch alone",
        "units",
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
        "estimated: joules within 5 %, by the board's sensors; ratios between batch sizes within 2 to 3 % after some "
        "rounds. A counter that changes every 0.1 s gives 10 % of a visit of 1 s. The arithmetic itself is within 2 % "
        "at steps of 1 ms and more",
        "estimate; simulated meter (tests/profiling/hardware/test_energy.py)",
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
        "ranges",
    ),
)


def known_errors_page() -> str:
    """The page, with a column of answers for every card that `benchmarks/gpu/keep.py` kept."""
    cards = {path.parent.name: _answers(path) for path in sorted(RESULTS.glob("*/evidence.json"))}
    heads = ("number", "known error", "from", *(cards or ("on a card",)))
    lines = [
        "# Known error of each number",
        "",
        "What is known of the errors of a GPU's numbers. An estimate is what to expect by what is known of such cards; "
        "nobody has measured it. `make gpu` measures each of them on a card, by the check that is named here until "
        "then ([guide](guides/gpu-campaign.md)).",
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
    stages = json.loads(path.read_text())["stages"]
    return {row["check"]: row["answer"] for stage in stages for row in stage["tables"].get("checks", ())}
