"""What the stage `records` left, made small and free of names of the machine: a folder for tests/data.

Argument: the folder to make. Run in the stage's folder. What is missing is said; the whole stays under a megabyte, and
a file that is too large for that is left out, and said.
"""

from __future__ import annotations

import csv
import gzip
import json
import platform
import shutil
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from curvescope.profiling.collect.chunks import read_chunks
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
"""


def pack_raw_buffers(source: Path, target: Path) -> str | None:
    """CUPTI's buffers of the process with the most records."""
    files = sorted(source.glob("*"), key=lambda file: sum(len(b.offsets) for b in read_chunks(file).raw))
    if not files:
        return None
    _gzip(files[-1].read_bytes(), target / "raw_buffers.chunks.gz")
    return "raw_buffers.chunks.gz"


def pack_recording(source: Path, target: Path) -> str | None:
    """The collector's recording of the same step, each table in one part."""
    if not (source / "recording.json").is_file():
        return None
    recording = open_recording(source)
    meta = {**recording.meta, "argv": [Path(word).name for word in recording.meta["argv"]]}
    meta.pop("host", None)
    with RecordingWriter(target / "collector", meta) as writer:
        for table in TABLES:
            writer.write(table, recording.arrow(table))
    return "collector"


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


HOW = {
    "raw_buffers.chunks.gz": "`CURVESCOPE_RAW_BUFFERS=DIR curvescope record` around the step: CUPTI's own buffers",
    "collector": "the recording of the same process",
    "torch_trace.json.gz": "torch.profiler's `export_chrome_trace` of one warm training step, with shapes",
    "ncu.csv": "`ncu --csv --page=raw --clock-control=none --launch-count=60` around the step",
}


def main() -> int:
    """Pack what is there."""
    target = Path(sys.argv[1])
    target.mkdir()
    made = [
        pack_raw_buffers(Path("raw_buffers"), target),
        pack_recording(Path("collector"), target),
        pack_trace(Path("torch_trace.json"), target),
        pack_ncu(Path("ncu.csv"), target),
    ]
    left_bytes, kept = MOST_BYTES, []
    for name in filter(None, made):
        size = sum(file.stat().st_size for file in [target / name, *(target / name).rglob("*")] if file.is_file())
        if size > left_bytes:
            print(f"{name}: {size} bytes are too many, left out")
            _remove(target / name)
            continue
        left_bytes -= size
        kept.append(name)
        print(f"{name}: {size} bytes")
    for name in HOW.keys() - set(filter(None, made)):
        print(f"{name}: not recorded here")
    rows = "\n".join(f"| {name} | {HOW[name]} |" for name in kept)
    (target / "README.md").write_text(HEAD.format(rows=rows, **_machine()))
    return 0


def _machine() -> dict[str, Any]:
    import torch

    device = platform.machine()
    if torch.cuda.is_available():
        device = f"{torch.cuda.get_device_name(0)} (driver {_driver()})"
    versions = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, Python {platform.python_version()}"
    return {"device": device, "date": f"{datetime.now(timezone.utc):%Y-%m-%d}", "versions": versions}


def _driver() -> str:
    try:
        import pynvml  # pyright: ignore[reportMissingImports]

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # NVML's own errors, or no binding: a fact that is missing
        return "not known"


def _gzip(data: bytes, path: Path) -> None:
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


if __name__ == "__main__":
    sys.exit(main())
