"""What the stage `records` left, made small and free of names of the machine: a folder for
tests/data.

Arguments: the folder to make, and what to put there. Run in the stage's folder. What is missing is
said; the whole stays under a megabyte, and a file that is too large for that is left out, and said.
"""

from __future__ import annotations

import csv
import gzip
import json
import platform
import shutil
import sys
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from curvescope.base.errors import BackendMissingError
from curvescope.profiling.collect.chunks import read_chunks
from curvescope.profiling.hardware.cuda_driver import CudaDriver
from curvescope.profiling.hardware.nvml import find_device
from curvescope.profiling.recording.schema import TABLES
from curvescope.profiling.recording.store import RecordingWriter, open_recording

MOST_BYTES = 1_000_000
HEAD = """# Records of a real device, as test data

Recorded by the stage `records` of `benchmarks/gpu/campaign.py` on {device}, {date}; {versions}.

| file | how |
|---|---|
{rows}

`tests/native/test_device_data.py` replays what lies here. Host names, paths and process names were taken out; no number
was changed.
"""  # noqa: E501


def pack_raw_buffers(source: Path, target: Path) -> str | None:
    """CUPTI's buffers of the process with the most records."""
    files = sorted(
        source.glob("*"), key=lambda file: sum(len(b.offsets) for b in read_chunks(file).raw)
    )
    if not files:
        return None
    name = f"{source.name}.chunks.gz"
    _gzip(files[-1].read_bytes(), target / name)
    return name


def pack_recording(source: Path, target: Path) -> str | None:
    """A recording of the collector, each table in one part."""
    if not (source / "recording.json").is_file():
        return None
    recording = open_recording(source)
    meta = {**recording.meta, "argv": [Path(word).name for word in recording.meta.get("argv", ())]}
    meta.pop("host", None)
    meta = without_paths(meta)
    with RecordingWriter(target / source.name, meta) as writer:
        for table in TABLES:
            writer.write(table, recording.arrow(table))
    return source.name


def without_paths(entry: Any) -> Any:
    """An entry of `recording.json` whose absolute paths are the names of their files."""
    if isinstance(entry, dict):
        return {name: without_paths(value) for name, value in entry.items()}
    if isinstance(entry, list):
        return [without_paths(value) for value in entry]
    return Path(entry).name if isinstance(entry, str) and entry.startswith("/") else entry


def pack_trace(source: Path, target: Path) -> str | None:
    """The trace of torch.profiler, without the path it was written to."""
    if not source.is_file():
        return None
    document = json.loads(source.read_bytes())
    document.pop("traceName", None)
    _gzip(json.dumps(document, separators=(",", ":")).encode(), target / "torch_trace.json.gz")
    return "torch_trace.json.gz"


def pack_ncu(source: Path, target: Path) -> str | None:
    """The CSV of Nsight Compute, without messages and without the names of process and host."""
    if not source.is_file():
        return None
    lines = [line for line in source.read_text().splitlines(keepends=True) if line.startswith('"')]
    rows = list(csv.reader(lines))
    if not rows:
        return None
    for name in ("Process Name", "Host Name"):
        if name in rows[0]:
            place = rows[0].index(name)
            for row in rows[1:]:
                row[place] = "python" if row[place] and name == "Process Name" else ""
    with (target / "ncu.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return "ncu.csv"


_RAW = "`CURVESCOPE_RAW_BUFFERS=DIR curvescope record` around"
# In the order of their value; the last are left out first.
HOW = {
    "raw_buffers.chunks.gz": f"{_RAW} the step: CUPTI's own buffers",
    "collector": "the recording of the same process",
    "program_raw_buffers.chunks.gz": f"{_RAW} `recorded_program.py driver copy streams graph`",
    "program": "the recording of the same process",
    "blocks_raw_buffers.chunks.gz": "`recorded_program.py blocks`: two blocks of one process",
    "block-1": "the recording of the first block",
    "block-2": "the recording of the second block",
    "driver_raw_buffers.chunks.gz": f"{_RAW} `recorded_program.py driver`, without torch",
    "driver": "the recording of the same process",
    "processes": "`curvescope record` around `recorded_program.py processes`: two processes with a "
    "GPU at once",
    "profiler": "the same around `recorded_program.py profiler`: torch.profiler inside the "
    "recorded process",
    "torch_trace.json.gz": "torch.profiler's `export_chrome_trace` of one warm training step, with "
    "shapes",
    "ncu.csv": "`ncu --csv --page=raw --clock-control=none --cache-control=none --launch-count=60` "
    "around the step",
}


def pack_one(name: str, target: Path) -> str | None:
    """Pack what is called so in the folder; returns None where it was not recorded."""
    if name.endswith(".chunks.gz"):
        return pack_raw_buffers(Path(name.removesuffix(".chunks.gz")), target)
    if name == "torch_trace.json.gz":
        return pack_trace(Path("torch_trace.json"), target)
    return pack_ncu(Path(name), target) if name == "ncu.csv" else pack_recording(Path(name), target)


def main() -> int:
    target = Path(sys.argv[1])
    target.mkdir()
    wanted = [
        name for name in HOW if name.removesuffix(".gz").removesuffix(".chunks") in sys.argv[2:]
    ]
    made = [pack_one(name, target) for name in wanted]
    left_bytes, kept = MOST_BYTES, []
    for name in filter(None, made):
        size = sum(
            file.stat().st_size
            for file in [target / name, *(target / name).rglob("*")]
            if file.is_file()
        )
        if size > left_bytes:
            print(f"{name}: {size} bytes are too many, left out")
            _remove(target / name)
            continue
        left_bytes -= size
        kept.append(name)
        print(f"{name}: {size} bytes")
    for name in (name for name in wanted if name not in made):
        print(f"{name}: not recorded here")
    rows = "\n".join(f"| {name} | {HOW[name]} |" for name in kept)
    (target / "README.md").write_text(HEAD.format(rows=rows, **_machine()))
    return 0


def _machine() -> dict[str, Any]:
    device = platform.machine()
    with suppress(BackendMissingError):  # on a CPU, in a rehearsal
        gpu = find_device("cuda:0")
        driver = gpu.library.nvmlSystemGetDriverVersion()
        device = f"{gpu.read('nvmlDeviceGetName')} (driver {driver}, CUDA {CudaDriver().version()})"
    versions = {name: version(name) for name in ("torch", "nvidia-cuda-cupti") if _installed(name)}
    said = ", ".join(
        f"{name} {number}"
        for name, number in {**versions, "Python": platform.python_version()}.items()
    )
    return {"device": device, "date": f"{datetime.now(timezone.utc):%Y-%m-%d}", "versions": said}


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _gzip(data: bytes, path: Path) -> None:
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


if __name__ == "__main__":
    sys.exit(main())
