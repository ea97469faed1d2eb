"""The microbenchmark's method against pyperf, pytest-benchmark and torch.utils.benchmark, on one function.

Of each tool, in turn: the median of its values; how far its medians lie apart from one repetition to the next; and the
time it would need for a 95 % interval of its median of 1 % to either side, if its values were independent. A tool whose
medians lie further apart than its intervals allow sees less noise than there is.

Needs `pip install pyperf pytest-benchmark`; a tool that is missing is named and left out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from curvescope.kernels.backends import open_backend
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.method import BenchMeasurement, Method, median_interval

_SETUP = "import torch; torch.set_num_threads(1); a = torch.ones(192, 192); b = torch.ones(192, 192)"
_STATEMENT = "a @ b"
_REPETITIONS = 7  # of every tool
_WANTED = 0.01  # half the width of the interval, over the median

Values = Sequence[float]  # seconds


def ours(_: Path) -> Values:
    import torch

    torch.set_num_threads(1)
    backend = open_backend("torch", "cpu")
    method = Method(cache="hot", profile=False, verify=False)
    measurement = BenchMeasurement(Gemm(192, 192, 192))
    while not measurement.done(method):
        measurement.visit(backend, method)
    return [duration_ns / 1e9 for duration_ns in measurement.durations_ns()]


def pyperf(folder: Path) -> Values:
    """`pyperf timeit --fast`: processes of its own, calibrated."""
    file = folder / "pyperf.json"
    command = [sys.executable, "-m", "pyperf", "timeit", "--fast", "-q", "-o", file, "-s", _SETUP, _STATEMENT]
    subprocess.run(command, check=True, capture_output=True)
    return [v for run in json.loads(file.read_text())["benchmarks"][0]["runs"] for v in run.get("values", ())]


def pytest_benchmark(folder: Path) -> Values:
    (folder / "test_it.py").write_text(f"{_SETUP}\n\n\ndef test_it(benchmark):\n    benchmark(lambda: {_STATEMENT})\n")
    file = folder / "pytest.json"
    command = [sys.executable, "-m", "pytest", "-q", "test_it.py", f"--benchmark-json={file}", "--benchmark-save-data"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return list(json.loads(file.read_text())["benchmarks"][0]["stats"]["data"])


def torch_benchmark(_: Path) -> Values:
    from torch.utils.benchmark import Timer

    measured = Timer(_STATEMENT, setup=_SETUP).blocked_autorange(min_run_time=1.0)
    return [float(t) for t in measured.times]


TOOLS: dict[str, tuple[str, Callable[[Path], Values]]] = {
    "curvescope": ("curvescope", ours),
    "pyperf timeit --fast": ("pyperf", pyperf),
    "pytest-benchmark": ("pytest_benchmark", pytest_benchmark),
    "torch.utils.benchmark": ("torch", torch_benchmark),
}


def needed_s(values: Values, spent_s: float) -> float | None:
    """Time for an interval of the wanted width, by the width it has after `spent_s`; null where it has none."""
    found = median_interval(values)
    if found is None:
        return None
    half = (found[1] - found[0]) / 2 / statistics.median(values)
    return spent_s * (half / _WANTED) ** 2


def main() -> None:
    here = {name: run for name, (package, run) in TOOLS.items() if importlib.util.find_spec(package)}
    for name in TOOLS.keys() - here.keys():
        print(f"{name} is not installed: left out")
    medians: dict[str, list[float]] = {name: [] for name in here}
    times: dict[str, list[float]] = {name: [] for name in here}
    spent: dict[str, list[float]] = {name: [] for name in here}
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for _ in range(_REPETITIONS):
        for name, run in here.items():
            with tempfile.TemporaryDirectory(prefix="curvescope-bench-") as folder:
                began = time.monotonic()
                values = run(Path(folder))
                spent[name].append(time.monotonic() - began)
            medians[name].append(statistics.median(values))
            if (needed := needed_s(values, spent[name][-1])) is not None:
                times[name].append(needed)
    print(f"{'tool':<24}{'median us':>12}{'apart':>10}{'took s':>10}{'s for ±1 %':>14}{'over ours, least … most':>30}")
    for name in here:
        apart = (max(medians[name]) - min(medians[name])) / statistics.median(medians[name])
        took, wanted = statistics.median(spent[name]), statistics.median(times[name]) if times[name] else float("nan")
        print(
            f"{name:<24}{statistics.median(medians[name]) * 1e6:>12.1f}{apart:>10.1%}{took:>10.2f}{wanted:>14.2f}",
            end="",
        )
        ratios = [peer / ours for peer, ours in zip(times[name], times["curvescope"], strict=False) if ours > 0]
        print(f"{statistics.median(ratios):>12.2f}, {min(ratios):.2f} … {max(ratios):.2f}" if ratios else "")


if __name__ == "__main__":
    main()
