"""Causes planted on this machine: real sweeps of small models, recorded in processes of their own.

`python -m tests.analysis.causes.planted_machine DIR` records each as test data; tests/data/causes
was made by it.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.diagnosis.explain import explain, explain_one
from curvescope.analysis.diagnosis.result import Explanation
from curvescope.profiling.recording.store import Recording, RecordingWriter, open_recording

from ...shared import ROOT

_TABLES = ("kernels", "clocks", "steps")

_RECORD = """
import sys
from pathlib import Path
import torch
from curvescope.profiling.workload.networks import from_factory
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.workload.network_step import Workload

# One thread: with more, torch gives oneDNN every convolution, and a neighbour takes less than half.
torch.set_num_threads(1)
model, mode, shape, pair, rounds, profiled, path = sys.argv[1:]
network = from_factory("tests.analysis.causes.planted_models:" + model, tuple(map(int, shape.split(","))))
protocol = Protocol("planted", (int(rounds), int(rounds)), 1, (3, 3), 0.0, int(profiled), None)
run_sweep(Here(Workload(network, mode=mode)), tuple(map(int, pair.split(","))), protocol, Path(path))
"""  # noqa: E501


@dataclass(frozen=True)
class Planted:
    """One real case."""

    cause: str
    model: str  # of planted_models
    shape: str  # of a sample
    pair: tuple[int, int] = (2, 4)  # the cause sets in between them
    mode: str = "forward"


CASES = {
    case.model: case
    for case in (
        Planted("launch- or host-bound", "WaitsForItsInput", "3,32,32", mode="training"),
        Planted("algorithm switch", "Convolution", "64,56,56", (8, 16)),
        Planted("cache capacity", "OutgrowsTheCache", str(3 * 2**18)),
        Planted("page faults", "FreshMemory", str(12 * 2**18)),
        Planted("CPU contention", "BusyNeighbour", "64,1024"),
    )
}


def record(case: Planted, path: Path, rounds: int = 10, profiled: int = 10) -> Recording:
    """Run the sweep of a case, with nothing of the tests' own in its process; so many steps of a
    visit are profiled.
    """
    words = (
        case.model,
        case.mode,
        case.shape,
        ",".join(map(str, case.pair)),
        str(rounds),
        str(profiled),
        str(path),
    )
    done = subprocess.run(
        [sys.executable, "-c", _RECORD, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return open_recording(path)


def name_cause(case: Planted, recording: Recording) -> Explanation:
    """The excess between the case's two batch sizes, split."""
    found = explain(recording)
    return explain_one(found, excess(*case.pair))


def keep(recording: Recording, path: Path) -> None:
    """The same recording with each table in one part, and without the folder it was made in."""
    with RecordingWriter(path, {**recording.meta, "argv": recording.meta["argv"][:-1]}) as writer:
        for table in _TABLES:
            writer.write(table, recording.arrow(table))


def main() -> None:
    """Record every case under the folder named on the command line."""
    import tempfile

    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            keep(record(case, Path(folder, "run")), Path(sys.argv[1], name))


if __name__ == "__main__":
    main()
