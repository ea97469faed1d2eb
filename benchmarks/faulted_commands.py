"""The commands into which `faults.py` injects faults, the store that they work in, and what each
has recorded.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROFILE = ROOT / "tests" / "data" / "profiles" / "kineto_resnet50_w0_a.pt.trace.json.gz"
EXAMPLE = ROOT / "examples" / "recordings" / "alexnet-cpu"  # has measured remedies
CLI = [sys.executable, "-m", "curvescope.cli"]
NET = (
    "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(48, "
    "4))\n"
)
# A line, the time, for each range that has ended: what has to be in the recording.
RANGES = """
import os, time, nvtx
done = os.open("done", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for n in range(200):
    with nvtx.annotate(f"step {n}"):
        time.sleep(0.005)
    try:
        os.write(done, b"%d\\n" % time.monotonic_ns())
    except OSError:
        pass
"""
ASK = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},'  # noqa: E501
ASK += '"clientInfo":{"name":"faults","version":"1"}}}'
LATE_NS = 500_000_000  # ranges that ended so shortly before a kill of all processes may be missing

# The networks and files are small and the protocol short, so that most moments of a run are ones in
# which it writes.
_TRAINED = ["net:build", "--input-shape", "3,4,4", "--device", "cpu"]
_NET = [*_TRAINED, "--mode", "forward"]
_QUICK = ["--batch", "1,2", "--quick", "--time-limit", "0.5"]
# what it says is not ours
_PROGRAM = [
    "--",
    "sh",
    "-c",
    'exec "$0" ranges.py 2> /dev/null',
    sys.executable,
]
_NEW = ["-o", "store/new"]


def ranges_in(folder: Path, store: str = "new") -> int:
    """Number of ranges in a recording, those counted as lost included, after a recovery where one
    is needed.
    """
    from curvescope.base.errors import CurvescopeError
    from curvescope.profiling.collect.kept_chunks import recover
    from curvescope.profiling.recording.store import has_chunks, open_recording

    path = folder / "store" / store
    with suppress(CurvescopeError):
        recording = recover(path) if has_chunks(path) else open_recording(path)
        lost = (
            recording.meta["lost"].get(f"nvtx_{name}", {})
            for name in ("unwritten", "unsaved", "dropped", "unclosed")
        )
        return recording.count_rows("ranges") + sum(entry.get("count", 0) for entry in lost)
    return 0


def ranges_done(folder: Path, killed_ns: int | None) -> int:
    """Number of ranges that the program had ended, long enough before a kill of all its
    processes.
    """
    lines = (folder / "done").read_text().split() if (folder / "done").exists() else []
    return sum(killed_ns is None or int(line) < killed_ns - LATE_NS for line in lines)


def rows_in(store: str) -> Callable[[Path], int]:
    """Number of steps and of experiments' steps in the recordings of a store."""

    def count(folder: Path) -> int:
        import pyarrow.parquet as pq

        found = 0
        for table in ("steps", "experiments"):
            for part in (folder / "store").glob(f"{store}/**/{table}/*.parquet"):
                with suppress(OSError):  # it is removed meanwhile
                    found += pq.read_metadata(part).num_rows
        return found

    return count


@dataclass(frozen=True)
class Tried:
    """A command that is tried: its arguments, and what it records, if it does so step by step."""

    arguments: list[str]
    unit: str | None = None  # what is counted: ranges, or steps
    count: Callable[[Path], int] = lambda _folder: 0  # of those that are recorded
    given: str = ""  # its standard input


_STEPS = rows_in("new")
COMMANDS = {
    "record": Tried(["record", *_NEW, *_PROGRAM], "ranges", ranges_in),
    "explain cut": Tried(
        ["explain", "store/cut"], "ranges", lambda folder: ranges_in(folder, "cut")
    ),
    "diagnose": Tried(
        ["diagnose", *_NET, *_QUICK, "--experiments", "1s", "--probe", "0", *_NEW], "steps", _STEPS
    ),
    "confirm": Tried(
        ["confirm", "store/measured", "--experiments", "2s", "--run-its-code"],
        "steps", rows_in("measured"),
    ),
    "sweep": Tried(["sweep", *_NET, *_QUICK, *_NEW], "steps", _STEPS),
    "scale measure": Tried(
        ["scale", "measure", *_TRAINED, "--devices", "1,2", "--quick", *_NEW], "steps", _STEPS
    ),
    "bench": Tried(
        ["bench", "gemm", "--axis", "n=4,8", "--device", "cpu", "--time-limit", "0.2", *_NEW],
        "steps", _STEPS,
    ),
    "diagnose --of memory": Tried(
        ["diagnose", "--of", "memory", *_NET, "--batch", "1,2", *_NEW], "steps", _STEPS
    ),
    "diagnose --of energy": Tried(
        ["diagnose", "--of", "energy", *_NET, *_QUICK, *_NEW], "steps", _STEPS
    ),
    "diagnose --card": Tried(["diagnose", "vgg_a", "--card", "gtx1080", "--batch", "1..8", *_NEW]),
    "import": Tried(["import", str(PROFILE), *_NEW]),
    "report": Tried(["report", "store/model", "-o", "store/new.html"]),
    "export": Tried(["export", "store/model", "--parquet", *_NEW]),
    "explain --as-env": Tried(["explain", str(EXAMPLE), "--as-env"]),
    "explain": Tried(["explain", "store/model"]),
    "breakdown": Tried(["breakdown", "store/model"]),
    "compare": Tried(["compare", "store/model", "store/model"]),
    "roofline": Tried(["roofline", "store/model"]),
    "scale read": Tried(["scale", "read", "store/model", "store/model"]),
    "runs": Tried(["runs", "store"]),
    "compare --steps": Tried(["compare", "--steps", "store/model"]),
    "mcp": Tried(["mcp"], given=ASK + "\n"),
}  # fmt: skip
CHANGES = ("explain cut", "confirm")  # a recording that was there before


@cache
def template() -> Path:
    """A folder with a store of recordings; made once, gone at exit."""
    made = Path(tempfile.mkdtemp(prefix="curvescope-faults-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    (made / "net.py").write_text(NET)
    (made / "ranges.py").write_text(RANGES)
    for arguments in (
        ["diagnose", "vgg_a", "--card", "gtx1080", "--batch", "1..4", "-o", "store/model"],
        ["diagnose", *_NET, *_QUICK, "--experiments", "0", "--probe", "0", "-o", "store/measured"],
    ):
        subprocess.run([*CLI, *arguments], cwd=made, check=True, capture_output=True)
    _cut(made)
    return made


def _cut(made: Path) -> None:
    """A recording whose command was killed."""
    recording = subprocess.Popen(
        [*CLI, "record", "-o", "store/cut", *_PROGRAM],
        cwd=made,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    while ranges_done(made, None) < 100:
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(recording.pid, 9)
    recording.wait()
    (made / "done").unlink()


@contextmanager
def trial_folder() -> Iterator[Path]:
    """A copy of the template for one trial, with room for temporary files, which a killed command
    leaves.
    """
    with tempfile.TemporaryDirectory(
        prefix="curvescope-trial-", ignore_cleanup_errors=True
    ) as folder:
        shutil.copytree(template(), folder, dirs_exist_ok=True, symlinks=True)
        yield Path(folder)
