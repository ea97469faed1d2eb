"""Reading and breakdown over three sizes, beside sqlite3 with pandas and HolisticTraceAnalysis: time, memory, growth.

Each repetition runs both sides in turn, each in a process of its own (`read_profiles.py` says what they do), and their
totals must agree. HolisticTraceAnalysis wants older packages than ours: it is installed into build/hta, which takes a
minute the first time.

    python benchmarks/read_growth.py [--repetitions 3] [--smallest]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from generate_nsys import generate
from read_profiles import CURVESCOPE, HTA, PANDAS, run, write_copies
from results import Result, Row, write

HTA_FOLDER = Path(__file__).parents[1] / "build" / "hta"
HTA_VERSION = "0.5.0"
KERNELS = (100_000, 400_000, 1_600_000)
COPIES = (1, 4, 16)

Facts = dict[str, float]


def hta_python() -> str | None:
    """Python of an environment with HolisticTraceAnalysis, made if need be; null where it cannot be had."""
    python = HTA_FOLDER / "bin" / "python"
    wanted = f"import importlib.metadata as m; assert m.version('HolisticTraceAnalysis') == {HTA_VERSION!r}"
    if python.exists() and subprocess.run([python, "-c", wanted], capture_output=True).returncode == 0:
        return str(python)
    print(f"installing HolisticTraceAnalysis {HTA_VERSION} into {HTA_FOLDER}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", HTA_FOLDER], check=True)
    install = [python, "-m", "pip", "install", "--quiet", f"HolisticTraceAnalysis=={HTA_VERSION}"]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode:
        print(f"HolisticTraceAnalysis is not to be had here:\n{done.stderr[-500:]}")
        return None
    return str(python)


def repeated(
    ours: Callable[[Path], Facts], theirs: Callable[[Path], Facts], same: tuple[str, ...], repetitions: int
) -> list[tuple[Facts, Facts]]:
    """Both sides in turn; what both find must be the same."""
    pairs = []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory(prefix="curvescope-bench-") as folder:
            pairs.append((ours(Path(folder)), theirs(Path(folder))))
        assert all(pairs[-1][0][name] == pairs[-1][1][name] for name in same), pairs[-1]
    return pairs


def rows_of(what: str, peer: str, pairs: list[tuple[Facts, Facts]]) -> list[Row]:
    """Wall time, CPU time and peak memory; prints them."""
    made = []
    for label, name, unit in (("wall time", "wall_s", "s"), ("CPU time", "cpu_s", "s"), ("memory", "peak_gb", "GB")):
        ours, theirs = [us[name] for us, _ in pairs], [them[name] for _, them in pairs]
        row = Row.of(f"{what}: {label}", peer, unit, ours, theirs, [b / a for a, b in zip(ours, theirs, strict=True)])
        print(f"{row.what:<40}{row.ours:>9.2f} {unit:<3}{row.theirs:>9.2f} {unit:<3}{row.ratio[0]:>7.2f} x", flush=True)
        made.append(row)
    return made


def growth(counts: list[int], seconds: list[tuple[float, float]], what: str) -> None:
    """Print how time grows with size: from one size to the next, and per million."""
    for (a, ours), (b, later) in zip(
        zip(counts, seconds, strict=True), zip(counts[1:], seconds[1:], strict=True), strict=False
    ):
        print(
            f"{a:,} to {b:,} {what}, {b / a:.0f} times: ours takes {later[0] / ours[0]:.1f} times as long, theirs "
            f"{later[1] / ours[1]:.1f}; each further million {(later[0] - ours[0]) / (b - a) * 1e6:.2f} s and "
            f"{(later[1] - ours[1]) / (b - a) * 1e6:.2f} s"
        )


def walls(pairs: list[tuple[Facts, Facts]]) -> tuple[float, float]:
    """Medians of the wall times of both sides."""
    row = Row.of("", "", "", [us["wall_s"] for us, _ in pairs], [them["wall_s"] for _, them in pairs], [])
    assert row.ours is not None
    assert row.theirs is not None
    return row.ours, row.theirs


def main() -> None:
    """Measure every size and leave one document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3, help="of every size and tool (default: 3)")
    parser.add_argument("--smallest", action="store_true", help="the smallest size only, to see that all runs")
    args = parser.parse_args()
    sizes = slice(1 if args.smallest else None)
    rows: list[Row] = []
    seconds = []
    with tempfile.TemporaryDirectory(prefix="curvescope-bench-") as place:
        path = Path(place) / "large.sqlite"
        for kernels in KERNELS[sizes]:
            path.unlink(missing_ok=True)
            generate(kernels, path)
            pairs = repeated(
                lambda folder: run(sys.executable, CURVESCOPE, path, folder / "recording"),
                lambda folder: run(sys.executable, PANDAS, path, folder),
                ("kernel_ns", "kernels"),
                args.repetitions,
            )
            rows += rows_of(f"nsys, {kernels:,} kernels", "sqlite3 and pandas", pairs)
            seconds.append(walls(pairs))
    growth(list(KERNELS[sizes]), seconds, "kernels")
    if (python := hta_python()) is not None:
        counts, seconds = [], []
        with tempfile.TemporaryDirectory(prefix="curvescope-bench-") as place:
            path = Path(place) / "trace.json"
            for copies in COPIES[sizes]:
                counts.append(write_copies(copies, path))
                pairs = repeated(
                    lambda folder: run(sys.executable, CURVESCOPE, path, folder / "recording"),
                    lambda folder: run(python, HTA, path, folder),
                    ("device_ns",),
                    args.repetitions,
                )
                rows += rows_of(f"torch.profiler, {counts[-1]:,} events", "HolisticTraceAnalysis", pairs)
                seconds.append(walls(pairs))
        growth(counts, seconds, "events")
    better = (
        "sqlite3 runs any SQL query without an import, and HolisticTraceAnalysis analyses all ranks of a job together "
        "and the overlap with communication. Ours also writes a recording that can be read without the file."
    )
    write(Result("read", "Reading and breakdown", rows, better))


if __name__ == "__main__":
    main()
