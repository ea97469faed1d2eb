"""The page of known errors: what is known of each number without a card, and what the campaign's
checks say on one.
"""

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
        how: where that is from: simulation, arithmetic, a measurement, NVIDIA's documentation, or
            an estimate, which nobody has measured yet.
        check: name of the answer of the campaign that measures it on a card, see benchmarks/gpu.
    """

    number: str
    error: str
    how: str
    check: str


ROWS = (
    Row(
        "Time of a kernel in isolation, by a pair of events",
        "2.9 µs too long on an H100: nothing reads 1.3 µs, the smallest kernel 4.1, and CUPTI "
        "gives that kernel 1.2. So 2 % hold from 150 µs on. Twelve hot operators read 0.6 to 26 "
        "µs more than by the collector, median 3.5. Resolution 0.5 µs",
        "measured; simulated stream (tests/kernels/test_virtual_stream.py)",
        "event_pair",
    ),
    Row(
        "The same with a flushed cache",
        "the flush is outside the time, and writes no changed line back inside. "
        "`triton.testing.do_bench` leaves up to an L2 of changed lines: compare kernels over 0.3 "
        "ms",
        "simulated stream; the cost of a line is unknown",
        "dirty_lines",
    ),
    Row(
        "Kernels against Nsight Compute",
        "ncu reads 0.9 to 3.4 µs more for each hot kernel: 0.1 to 6 % of kernels over 20 µs, 39 % "
        "of one of 2 µs. Cycles differ by -7 to +6 %. Kernels that are cold in the step and warm "
        "in ncu are estimated 10 to 40 % faster there",
        "measured, 10 of 12 operators, 5 launches each; estimate",
        "against_ncu",
    ),
    Row(
        "Time of a step",
        "at most 2 µs, from its first call to the end of its last kernel. The waking of the host "
        "is not inside: estimated 5 to 15 µs",
        "simulated stream (tests/profiling/measure/test_virtual_steps.py); estimate",
        "idle_before_step",
    ),
    Row(
        "SM clock of a step",
        "at most 1 µs of the global timer: 0.5 % at 0.2 ms, 0.005 % at 20 ms. Shorter steps have "
        "no clock. In steps of 62 ms it was 0.1 to 0.4 % under NVML's",
        "arithmetic; measured; simulated card (tests/profiling/hardware/test_stream_clock.py)",
        "clock_under_load",
    ),
    Row(
        "Peak of the units, by products of ones",
        "above the reach of data, whose changing bits take more power. On an H100 the units reach "
        "988 TFLOP/s in bf16 with ones, a product of 8192 753 with random numbers, at 1500 MHz "
        "instead of 1831. On an H200 a product reached 894 with zeros and 788 with random numbers. "
        "The 65.2 TFLOP/s of fp32 are by a loop of which 128 in 133 instructions multiply and add",
        "measured; one run on an H200, with PyTorch alone",
        "units",
    ),
    Row(
        "Idle time at the start of a profiled step",
        "0.4 to 0.8 ms on an H100, alike at batch 64 and 1. A kernel in front of the step asks for "
        "CUPTI's first buffer, which else costs 1.5 ms",
        "measured, 10 steps; a trace of a B200; the double of CUPTI",
        "first_work",
    ),
    Row(
        "T(b) in a process that has profiled",
        "none seen in steps of 62 ms: 0.9995 of a fresh process after torch.profiler, 0.9993 "
        "after a recording. Steps of many launches were not measured",
        "measured, 50 steps each",
        "earlier_profiler",
    ),
    Row(
        "Step after a pause",
        "0.2 % at most: after 0.2 to 5 s of idle time, and one step discarded, steps of 62 ms took "
        "61.5 to 61.7 ms. Each visit discards steps of 100 ms",
        "measured, 2 to 5 pauses of each length",
        "idle_before_step",
    ),
    Row(
        "Energy of a step",
        "the counter changes every 98 ms on an H100: 10 % of a visit of 1 s. Over 2.9 s it gave "
        "609 W, and the driver's power at the end was 587. Estimated: joules within 5 %, ratios "
        "between sizes within 2 to 3 %. The arithmetic is within 2 % from 1 ms on",
        "measured, 30 changes; estimate; simulated meter (tests/profiling/hardware/test_energy.py)",
        "energy_updates",
    ),
    Row(
        "Start of a kernel against the host's clock",
        "stated in each recording: 36 to 46 ns in blocks on an H100, 54 to 642 ns in recorded "
        "programs. No kernel begins before its launch",
        "measured; the collector reads both clocks before and after",
        "clock_error",
    ),
    Row(
        "Marks and ranges",
        "on a CPU 13 % of 300 operators of 3 µs, none of it in the time of a layer. A GPU's steps "
        "have no marks. The cost of NVTX ranges on a GPU was not measured",
        "measured on a CPU (`python benchmarks/evidence.py instruments`)",
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
        "The errors of a GPU's numbers. *Measured* is on the card whose column has the answer of "
        "the check, at the clocks that it chose. `benchmarks/results/h100` has all numbers, and "
        "[the page on the H100](../case-studies/h100.md) tells of them. An *estimate* is an "
        "expectation that nobody has measured. `make gpu` measures them on another card "
        "([how](../internals/gpu-campaign.md)).",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for row in ROWS:
        measured = [answers.get(row.check, "not measured") for answers in cards.values()]
        cells = (
            row.number,
            row.error,
            row.how,
            *(measured or [f"check `{row.check}`, not run yet"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _answers(path: Path) -> dict[str, str]:
    """The answer of each check, by its name."""
    stages = json.loads(path.read_text())["stages"]
    return {
        row["check"]: row["answer"] for stage in stages for row in stage["tables"].get("checks", ())
    }
