"""Twelve hot operators by three clocks: a pair of events, our collector and Nsight Compute, in time
and in cycles.

    truth.py events DEVICE FILE  by a pair of events, and the clock of the stream
    truth.py launch DEVICE  the same operators, for `curvescope record` and for `ncu` around this process
    truth.py join FILE RECORDING CSV OUT ANSWERS  a row for each operator, and the answer to `against_ncu`

Kernels of the collector and of ncu are joined by name, grid, block and order. Each operator is hot:
it ran before. ncu runs each kernel alone and leaves the caches and the clocks as they are, so that
of a product that is limited by power only the cycles can be compared. Cycles of the pair of events
and of the collector are their times at the clock that the SMs had in the stream; those of ncu are
counted.
"""  # noqa: E501

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import scripts

from curvescope.base.errors import CurvescopeError
from curvescope.base.torch_runtime import import_torch
from curvescope.kernels.backends import open_backend
from curvescope.profiling.attribution.counted_kernels import align, has_geometry, launch_keys
from curvescope.profiling.attribution.cupti_names import GPU_COPIES
from curvescope.profiling.hardware.stream_clock import stream_clock
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

_QUESTION = "What are cycles and times of hot kernels by the collector over those by ncu?"
_RANGE = "truth "  # before the name of an operator
_WARM_UPS = 3
_CALLS = 5  # in one range
_SAMPLES = 50  # of a pair of events


def operators(device: str) -> dict[str, Callable[[], object]]:
    """The operators by name: products that fill the units, convolutions, and what waits
    for memory.
    """
    torch = import_torch()
    torch.backends.cudnn.benchmark = False

    def normal(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(*shape, device=device).to(dtype)

    found: dict[str, Callable[[], object]] = {}
    for extent, dtype in (
        (1024, "float32"),
        (2048, "float32"),
        (4096, "float32"),
        (2048, "bfloat16"),
        (8192, "bfloat16"),
    ):
        a = normal(extent, extent, dtype=getattr(torch, dtype))
        found[f"product {extent} {dtype}"] = lambda a=a: a @ a
    images, filters = normal(32, 64, 56, 56), normal(64, 64, 3, 3)
    found["convolution 64"] = lambda: torch.nn.functional.conv2d(images, filters, padding=1)
    for mebibytes in (4, 256):
        flat = normal(mebibytes << 18)
        found[f"add {mebibytes} MiB"] = lambda flat=flat: flat.add_(1.0)
    large = normal(4096, 4096)
    found["softmax"] = lambda: torch.softmax(large, -1)
    found["sum of rows"] = lambda: large.sum(-1)
    found["layer norm"] = lambda: torch.nn.functional.layer_norm(large, (4096,))
    found["transposed copy"] = lambda: large.t().contiguous()
    return found


def events(device: str, path: str) -> None:
    """Time each operator by a pair of events; a row each."""
    timer = open_backend("torch", device).timer
    for name, run in operators(device).items():
        timer.take(run, 1, _WARM_UPS, None)
        clock = stream_clock(device)
        if clock is not None:
            clock.begin()
        times_ns = [sample.duration_ns for sample in timer.take(run, 1, _SAMPLES, None)]
        clock_hz = clock.end() if clock else None
        low, middle, high = statistics.quantiles(times_ns, n=4)
        row = {
            "operator": name,
            "ns": middle,
            "low_ns": low,
            "high_ns": high,
            "n": len(times_ns),
            "clock_hz": clock_hz,
        }
        scripts.add_row(path, row)


def launch(device: str) -> None:
    """Run each operator some times in an NVTX range of its name."""
    import nvtx

    torch = import_torch()
    for name, run in operators(device).items():
        for _ in range(_WARM_UPS):
            run()
        torch.cuda.synchronize()
        with nvtx.annotate(_RANGE + name):
            for _ in range(_CALLS):
                run()
            torch.cuda.synchronize()


def collected(recording: Path) -> pd.DataFrame:
    """The kernels of a recording in the order of their launches, with the operator in whose range
    their call began.
    """
    opened = open_recording(recording)
    kernels, calls, ranges = (opened.frame(table) for table in ("kernels", "api_calls", "ranges"))
    began_ns = calls.drop_duplicates("correlation_id").set_index("correlation_id")["start_ns"]
    kernels = kernels.assign(launched_ns=kernels["correlation_id"].map(began_ns), operator=None)
    kernels = kernels[~kernels["name"].str.startswith(GPU_COPIES)].dropna(subset=["launched_ns"])
    kernels = kernels.sort_values(["launched_ns", "correlation_id"], ignore_index=True)
    for one in ranges[ranges["name"].str.startswith(_RANGE)].itertuples():
        inside = kernels["launched_ns"].between(one.start_ns, one.start_ns + one.duration_ns)
        kernels.loc[inside, "operator"] = str(one.name).removeprefix(_RANGE)
    return kernels


def counterparts(kernels: pd.DataFrame, counted: pd.DataFrame | None) -> list[int | None]:
    """The position in `counted` of each of these kernels, both in the order of their launches."""
    if counted is None or kernels.empty:
        return [None] * len(kernels)
    by_geometry = has_geometry(kernels) and has_geometry(counted)
    return align(launch_keys(kernels, by_geometry), launch_keys(counted, by_geometry))


def join(
    pairs: Sequence[Mapping[str, Any]], kernels: pd.DataFrame, counted: pd.DataFrame | None
) -> Iterator[dict[str, Any]]:
    """A row for each operator: its kernels, and time and cycles of one call by each clock that saw
    it.

    Args:
        pairs: rows of `events`.
        kernels: all kernels by the collector, see `collected`.
        counted: all kernels by ncu, in the order of their launches; None without ncu.
    """
    places = counterparts(kernels, counted)
    for pair in pairs:
        at = [
            position
            for position, name in enumerate(kernels["operator"])
            if name == pair["operator"]
        ]
        own, joined = (
            kernels.iloc[at],
            [place for place in map(places.__getitem__, at) if place is not None],
        )
        all_joined = counted is not None and len(joined) == len(at)
        of_ncu = (
            counted.iloc[joined]
            if all_joined
            else pd.DataFrame(columns=["duration_ns", "sm_cycles"])
        )
        ns = {
            "events": pair["ns"],
            "collector": _of_call(own["duration_ns"].tolist()),
            "ncu": _of_call(of_ncu["duration_ns"].tolist()),
        }
        clock_hz = pair["clock_hz"]
        cycles = {
            clock: value and clock_hz and value * clock_hz / 1e9 for clock, value in ns.items()
        }
        cycles["ncu"] = _of_call(of_ncu["sm_cycles"].tolist())
        yield {
            "operator": pair["operator"],
            "kernels": len(at) // _CALLS or None,
            "grid": _grid(own),
            "joined": f"{len(joined)} of {len(at)}",
            **{f"{clock}_us": value and value / 1e3 for clock, value in ns.items()},
            **{f"{clock}_kilocycles": value and value / 1e3 for clock, value in cycles.items()},
            "events - collector, us": _difference(ns["events"], ns["collector"]),
            "collector / ncu, time": _ratio(ns["collector"], ns["ncu"]),
            "collector / ncu, cycles": _ratio(cycles["collector"], cycles["ncu"]),
        }


def answer(rows: Sequence[Mapping[str, Any]]) -> str:
    """The ratios of the collector to ncu over all operators, and what a pair of events adds."""
    parts = []
    for what, name in (("cycles", "collector / ncu, cycles"), ("time", "collector / ncu, time")):
        ratios = [row[name] for row in rows if row[name] is not None]
        said = (
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
            if ratios
            else "unknown"
        )
        parts.append(f"{what} {said}, {len(ratios)} operators")
    added_us = [
        row["events - collector, us"] for row in rows if row["events - collector, us"] is not None
    ]
    said = f"{statistics.median(added_us):.2f} µs" if added_us else "an unknown time"
    return f"{'; '.join(parts)}; a pair of events adds {said}"


def _of_call(values: list[float]) -> float | None:
    """The median over the calls of the sum over a call's kernels; None where calls differ or a
    value is missing.
    """
    if not values or len(values) % _CALLS or any(pd.isna(value) for value in values):
        return None
    kernels = len(values) // _CALLS
    return float(
        statistics.median(sum(values[i * kernels : (i + 1) * kernels]) for i in range(_CALLS))
    )


def _grid(kernels: pd.DataFrame) -> str | None:
    """Grid of the longest kernel."""
    if kernels.empty:
        return None
    longest = kernels.loc[kernels["duration_ns"].idxmax()]
    return "x".join(str(longest[f"grid_{axis}"]) for axis in "xyz")


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else (one - other) / 1e3


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def _counted(csv: Path) -> pd.DataFrame | None:
    """The kernels of ncu's table; None where ncu did not run, or counted nothing."""
    if not csv.exists():
        return None
    try:
        with tempfile.TemporaryDirectory() as folder:
            return open_recording(import_profile(csv, Path(folder, "r")).path).frame("kernels")
    except CurvescopeError as error:
        print(error, file=sys.stderr)
        return None


def main() -> int:
    what, *words = sys.argv[1:]
    if what == "events":
        events(*words)
    elif what == "launch":
        launch(*words)
    else:
        pairs, recording, csv, path, answers = map(Path, words)
        rows = list(join(scripts.read_rows(pairs), collected(recording), _counted(csv)))
        for row in rows:
            scripts.add_row(path, row)
        scripts.add_row(
            answers, {"check": "against_ncu", "question": _QUESTION, "answer": answer(rows)}
        )
    return 0


if __name__ == "__main__":
    scripts.run(main)
