"""The page of the H100 and its picture: every number from the stored records of two days."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from curvescope.analysis.decompose.curve import Curve, cost_curve
from curvescope.analysis.decompose.kernel_times import select_profiled_steps
from curvescope.analysis.render.svg import DATA_COLOR, SLOW_COLOR, make_chart
from curvescope.base.numbers import number, percent
from curvescope.profiling.hardware.devices import get_device
from curvescope.profiling.recording.store import Recording, open_recording

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "h100"
FIRST_DAY = ROOT / "examples" / "recordings" / "vgg_a-h100"
SECOND_DAY = ROOT / "tests" / "data" / "h100" / "found-late"
_SHOWN = (16, 17, 32, 64)  # batch sizes of the table
_SLOW = 0.5  # share of its time by which a size lies above the line, to be called slow
_AT_ONCE_NS = 5_000  # a kernel that starts so soon after its launch had to wait for it
_LAUNCHED_ALONE = "cf32cf32"  # in the names of complex products


@dataclass(frozen=True)
class Launched:
    """Kernels with the API calls that launched them.

    Attributes:
        rows: `kernels` of profiled steps, with `call_ns`, the start of the call, and `late_ns`, the
            time from its end to the start of the kernel.
    """

    rows: pd.DataFrame

    @property
    def sum_ms(self) -> float:
        """The times of all kernels, added up."""
        return float(self.rows["duration_ns"].sum() / 1e6)

    @property
    def span_ms(self) -> float:
        """Time from the first start to the last end."""
        ends = self.rows["start_ns"] + self.rows["duration_ns"]
        return float((ends.max() - self.rows["start_ns"].min()) / 1e6)

    @property
    def union_ms(self) -> float:
        """Time in which at least one kernel runs."""
        rows = self.rows.sort_values("start_ns")
        busy_until = (rows["start_ns"] + rows["duration_ns"]).cummax().shift()
        gaps = (rows["start_ns"] - busy_until).clip(lower=0)
        return self.span_ms - float(gaps.sum() / 1e6)

    @property
    def waiting_share(self) -> float:
        """Share of the kernels that start as soon as they are launched."""
        return float((self.rows["late_ns"] < _AT_ONCE_NS).mean())


@dataclass(frozen=True)
class Day:
    """The sweep of one day."""

    recording: Recording

    @cached_property
    def curve(self) -> Curve:
        """Time of a step over the batch size."""
        return cost_curve(self.recording.frame("steps"), self.recording.statistic)

    def step_ms(self, batch: int) -> float:
        """Time of a step."""
        return self.curve.at(batch).time_ms.value

    @cached_property
    def above_line(self) -> dict[int, float]:
        """The fastest probe of each size over the line between the powers of two beside it, less
        1.
        """
        powers = [size for size in self.curve.conditions if size & (size - 1) == 0]
        above = {}
        for visit in self.recording.meta["probes"]["visits"]:
            size, fastest_ms = visit["batch"], min(visit["duration_ns"]) / 1e6
            if not powers[0] < size < powers[-1]:
                continue
            low = max(power for power in powers if power < size)
            high = min(power for power in powers if power > size)
            slope = (self.step_ms(high) - self.step_ms(low)) / (high - low)
            line_ms = self.step_ms(low) + slope * (size - low)
            share = fastest_ms / line_ms - 1
            above[size] = min(share, above.get(size, share))
        return above

    def times_of_probe(self, size: int) -> list[float]:
        """Times of the probed steps of a size."""
        visits = self.recording.meta["probes"]["visits"]
        return [
            time_ns / 1e6
            for visit in visits
            if visit["batch"] == size
            for time_ns in visit["duration_ns"]
        ]

    @cached_property
    def launched(self) -> Launched:
        """The kernels of all profiled steps."""
        calls = self.recording.frame("api_calls")
        calls = calls.assign(end_ns=calls["start_ns"] + calls["duration_ns"])
        calls = calls.rename(columns={"start_ns": "call_ns"})
        shared = ["step", "correlation_id"]
        kernels = self.recording.frame("kernels")
        rows = kernels.merge(calls[[*shared, "call_ns", "end_ns"]], on=shared, how="left")
        return Launched(rows.assign(late_ns=rows["start_ns"] - rows["end_ns"]))

    def select_profiled(self, batch: int) -> pd.DataFrame:
        """The profiled steps of a size."""
        return select_profiled_steps(self.recording.frame("steps"), batch)

    def kernels(self, batch: int, layer: str | None = None) -> Launched:
        """The kernels of a size; of a layer, those of its forward pass."""
        rows = self.launched.rows
        rows = rows[rows["step"].isin(self.select_profiled(batch)["step"])]
        if layer is not None:
            rows = rows[(rows["layer"] == layer) & (rows["phase"] == "forward")]
        return Launched(rows)

    def layer_ms(self, layer: str, batch: int) -> float:
        """Time of the kernels of a layer's forward pass in one step."""
        return self.kernels(batch, layer).sum_ms / len(self.select_profiled(batch))

    def tried_ms(self, factor: str | None, batch: int, scope: str) -> float:
        """Median time with a factor in the last experiment of that scope and size that has it;
        None is without any.
        """
        rows = self.recording.frame("experiments")
        numbers = [
            entry["number"]
            for entry in self.recording.meta["experiments"]
            if entry["scope"] == scope
        ]
        rows = rows[rows["experiment"].isin(numbers) & (rows["batch"] == batch)]
        named = rows["factor"].isna() if factor is None else rows["factor"] == factor
        rows = rows[named & (rows["experiment"] == rows.loc[named, "experiment"].max())]
        return float(rows["duration_ns"].median() / 1e6)


@cache
def days() -> tuple[Day, Day]:
    """The first day and the second."""
    return Day(open_recording(FIRST_DAY)), Day(open_recording(SECOND_DAY))


@cache
def read_table(day: str, stage: str, table: str) -> list[dict[str, Any]]:
    """Rows that a stage of the campaign kept."""
    stages = json.loads((RESULTS / day).read_text())["stages"]
    return next(entry["tables"][table] for entry in stages if entry["stage"] == stage)


def list_sizes(low: float, high: float, sizes: Mapping[int, float]) -> list[int]:
    """The sizes whose share lies in a range, increasing."""
    return [size for size in sorted(sizes) if low <= sizes[size] < high]


def widest(sizes: Sequence[int], shares: Mapping[int, float]) -> str:
    """The least and the largest share of some sizes."""
    chosen = [round(100 * shares[size]) for size in sizes]
    return f"{min(chosen)} to {max(chosen)} %".replace("-", "−")


def join_numbers(sizes: Sequence[int]) -> str:
    """E.g. 17, 31 and 33."""
    *first, last = map(str, sizes)
    return f"{', '.join(first)} and {last}" if first else last


@cache
def find_sizes_above() -> dict[int, float]:
    """The least that each size lies above its line on either day."""
    both: dict[int, float] = {}
    for day in days():
        for size, share in day.above_line.items():
            both[size] = min(share, both.get(size, share))
    return both


def h100_picture() -> str:
    """How far each probed size lies above the line between the powers of two."""
    above = find_sizes_above()
    ratios = {size: 1 + share for size, share in above.items()}
    chart = make_chart(
        "Every size that is far above the line is odd",
        "VGG-A on an H100: the fastest probe over the line between its powers of two",
        list(ratios),
        [0.98, *ratios.values()],
    )
    ticks = [(ratio, f"{ratio:g}×") for ratio in (1, 1.25, 1.5, 2)]
    powers = [(float(2**power), str(2**power)) for power in range(2, 9)]
    chart.axes(powers, ticks, "batch", "red: odd sizes, blue: even ones")
    for size, ratio in sorted(ratios.items()):
        chart.dot(size, ratio, SLOW_COLOR if size % 2 else DATA_COLOR, 5, f"{size}: {ratio:.2f}×")
        if ratio > 1 + _SLOW:
            chart.text(chart.across.at(size) + 8, chart.up.at(ratio) + 4, str(size))
    return chart.document()


def h100_page() -> str:
    """The page."""
    return "\n".join(line for part in _PARTS for line in part())


def say_device() -> Iterator[str]:
    """The title, and where the numbers are from."""
    device = days()[0].recording.meta["device"]
    yield "# VGG-A on an H100"
    yield ""
    yield (
        f"Curvescope ran on an {device['name']} (SXM, CUDA {device['cuda']}) for fifteen minutes "
        "on each of two days. No clock was locked. `docs/h100_page.py` computes every number from "
        "the stored records."
    )
    yield ""


def say_tf32() -> Iterator[str]:
    """What to do first."""
    rows = {
        row["factor"]: re.findall(r"([\d.]+) at", row["median ms"])
        for row in read_table("evidence-2026-11-27.json", "factors", "factors")
    }
    before, after = rows["unmodified"], rows["tf32"]
    small, large = (
        f"{float(new):.1f} ms in place of {float(old):.1f}"
        for old, new in zip(before, after, strict=True)
    )
    peaks = {row["problem"]: row for row in read_table("evidence.json", "peaks", "peaks")}
    tf32, fp32 = (
        peaks[f"gemm 8192x8192x8192 NN {precision}"]["tera_per_s"] for precision in ("tf32", "fp32")
    )
    yield "## First: TF32"
    yield ""
    yield (
        "All steps below are in fp32, with TF32 off. With TF32 for products and convolutions, a "
        f"step takes **{small}** at batch 8, and **{large}** at 64 (medians of five steps). "
        f"A product of 8192 runs at {number(tf32, 3)} TFLOP/s in place of {number(fp32, 3)}. "
        "Operands keep 10 bits of mantissa. PyTorch has TF32 on for "
        "convolutions only: add `torch.backends.cuda.matmul.allow_tf32 = True`."
    )
    yield ""


def say_sizes() -> Iterator[str]:
    """Which sizes are slow, and what to do."""
    second = days()[1]
    yield "## Some odd sizes are slow"
    yield ""
    yield "`curvescope diagnose vgg_a --batch 1..256 --time-limit 50`, on the second day:"
    yield ""
    yield "| batch | step ms | 95 % interval | n |"
    yield "|--:|--:|--:|--:|"
    for size in _SHOWN:
        point = second.curve.at(size)
        value, low, high = (
            number(time, 3) for time in (point.time_ms.value, point.time_ms.low, point.time_ms.high)
        )
        bold = f"**{value}**" if size == 17 else value
        yield f"| {size} | {bold} | {low} to {high} | {point.n} |"
    yield ""
    yield "![Probed sizes over the line between the powers of two](../figures/case_h100.svg)"
    yield ""
    above = find_sizes_above()
    odd = {size: share for size, share in above.items() if size % 2}
    large = {size: share for size, share in odd.items() if size > 16}
    slow = list_sizes(_SLOW, 9, large)
    middle = list_sizes(0.05, _SLOW, large)
    level = list_sizes(-1, 0.05, large)
    even = [size for size in above if size % 2 == 0]
    small = [size for size in odd if size < 16]
    pad = [time for day in days() for time in day.times_of_probe(24)]
    yield (
        f"{join_numbers(slow)} lie **{widest(slow, above)}** above the line, but "
        f"{join_numbers(middle)} only {widest(middle, above)}, {join_numbers(level)} and odd sizes "
        f"below 16 {widest([*level, *small], above)}, and even sizes "
        f"{widest(even, above)}. **Pad 17 samples to 24**, which take {min(pad):.1f} to "
        f"{max(pad):.1f} ms ({len(pad)} steps), and not to 32. 18 to 22 were not measured."
    )
    yield ""


def say_launches() -> Iterator[str]:
    """Why 17 is slow."""
    first, second = days()
    layer = second.kernels(17, "conv3_2")
    products = layer.rows[layer.rows["name"].str.contains(_LAUNCHED_ALONE)].sort_values("call_ns")
    alone = Launched(products)
    grid = int(products[["grid_x", "grid_y", "grid_z"]].iloc[0].prod())
    multiprocessors = second.recording.meta["device"]["sm_count"]
    apart_us = products["call_ns"].diff().median() / 1e3
    soon = second.kernels(17).waiting_share
    others = max(day.kernels(size).waiting_share for day in days() for size in (16, 32, 64))
    streams = products["stream"].nunique()
    step_ms = second.select_profiled(17)["duration_ns"].mean() / 1e6
    small = first.kernels(1)
    graphed, plain = (first.tried_ms(factor, 1, "step") for factor in ("cuda_graph", None))
    yield "## Launches make 17 slow"
    yield ""
    yield (
        f"At 17 cuDNN runs {len(products):,} small complex products in the forward pass of "
        f"conv3_2, where one kernel does their work at 16 and 32. Each runs on {grid} of "
        f"{multiprocessors} multiprocessors for {products['duration_ns'].median() / 1e3:.1f} µs. "
        f"A launch comes each **{apart_us:.1f} µs**, and half of the products start within "
        f"{products['late_ns'].median() / 1e3:.1f} µs of it. So the layer is bound by its "
        "launches, inside cuDNN."
    )
    yield ""
    yield (
        f"- The products take {alone.union_ms:.1f} ms of a profiled step of {step_ms:.1f}. With "
        f"all {streams} streams full they would take {alone.sum_ms / streams:.1f}."
    )
    yield (
        f"- No idle time shows it. But {percent(soon)} of all kernels start within "
        f"{_AT_ONCE_NS / 1e3:g} µs of their launch, and at 16, 32 and 64 at most {percent(others)}."
    )
    yield (
        f"- At batch 1 {percent(small.waiting_share)} of "
        f"{len(small.rows) // len(first.select_profiled(1))} kernels start so. A CUDA graph takes "
        f"{graphed:.1f} ms there in place of {plain:.1f} (medians of three starts). It was not "
        "tried at 17."
    )
    yield ""


def say_switch() -> Iterator[str]:
    """The algorithm that changes at 64."""
    first = days()[0]
    before, after = (first.layer_ms("conv4_1", size) for size in (32, 64))
    halves = first.tried_ms("split_batch", 64, "term")
    bend = first.step_ms(64) - 3 * first.step_ms(32) + 2 * first.step_ms(16)
    part = after - 3 * before + 2 * first.layer_ms("conv4_1", 16)
    whole, split = (first.tried_ms(factor, 32, "term") for factor in (None, "split_batch"))
    yield "## An algorithm that changes at 64"
    yield ""
    yield (
        f"The forward pass of conv4_1 takes {before:.2f} ms at 32 and **{after:.2f} ms at 64**, "
        f"but {halves:.2f} in two halves. cuDNN convolves by FFT at 32, and by an implicit GEMM at "
        f"64. This makes {part:.1f} of the {bend:.1f} ms by which the step lies above the line "
        f"through 16 and 32. Halves also slow 32, from {whole:.2f} to {split:.2f}: *undecided*."
    )
    yield ""


def say_peaks() -> Iterator[str]:
    """What products, units and memory reach."""
    device = get_device("h100_sxm")
    yield "## Peaks"
    yield ""
    yield "| problem | reached | of the datasheet | of the peak at that clock | n |"
    yield "|---|--:|--:|--:|--:|"
    for name, problem in (
        ("multiply-adds in registers, fp32", "units of fp32"),
        ("product of 8192, bf16", "gemm 8192x8192x8192 NN bf16"),
        ("product of 8192, TF32", "gemm 8192x8192x8192 NN tf32"),
        ("product of 4096, fp32", "gemm 4096x4096x4096 NN fp32"),
        ("reading 1 GiB", "memory read 1073741824 B fp32"),
    ):
        row = next(
            row
            for row in read_table("evidence.json", "peaks", "peaks")
            if row["problem"] == problem
        )
        at_clock = row["over_peak_at_clock"]
        yield (
            f"| {name} | {number(row['tera_per_s'], 3)} T{row['of']}/s | "
            f"{percent(row['over_nominal'])} | {percent(at_clock) if at_clock else ''} | "
            f"{row['n']} |"
        )
    yield ""
    yield (
        f"The datasheet has {device.clock_hz / 1e6:.0f} MHz, and "
        f"{device.tensor_clock_hz / 1e6:.0f} for tensor cores. The clock falls at 700 W. "
        "[How true the times are](../reference/known-errors.md)."
    )
    yield ""


_PARTS = (say_device, say_tf32, say_sizes, say_launches, say_switch, say_peaks)
