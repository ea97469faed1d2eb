"""The six files that hold what the campaign left so far; every stage writes them anew.

summary.md      a row per stage and their tables
evidence.json   the device, the software, and every number of those tables
test_data.tgz   real records for `tests/data`
diagnosis.tgz   the recording of `diagnose`, what it printed and its document
ncu.csv         what Nsight Compute said of the kernels of the stage `truth`
logs.tgz        what every command printed
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import scripts

MOST_BYTES = 15 * 1024 * 1024  # of one file
SMALL_BYTES = 200_000  # a result that is no recording
_SMALL = (".json", ".txt", ".csv")
_TABLES_COMPRESS = 0.25  # size of text in an archive, as a share; recordings are compressed already


def done_stages(output: Path) -> list[dict[str, Any]]:
    """What `done.json` says of every stage that began in this call or an earlier one, the earliest
    first.
    """
    found = [json.loads(path.read_text()) for path in output.glob("*/done.json")]
    return sorted(found, key=lambda done: done["utc"])


def tables_of(stage: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table of a stage, by the table's name."""
    return {path.stem: scripts.read_rows(path) for path in sorted(stage.glob(scripts.TABLES))}


def evidence(output: Path, virtual: bool) -> dict[str, Any]:
    """All numbers of the campaign as one document."""
    device = output / "gate" / "device.json"
    return {
        "virtual": virtual,
        "device": json.loads(device.read_text()) if device.exists() else None,
        "stages": [
            {**done, "tables": tables_of(output / done["stage"])} for done in done_stages(output)
        ],
    }


def pack(output: Path, summary: str, virtual: bool, target: Path) -> list[str]:
    """Write the six files; returns what was too large for them."""
    target.mkdir(parents=True, exist_ok=True)
    stages = [output / done["stage"] for done in done_stages(output)]
    logs = [path for stage in stages for path in sorted(stage.iterdir()) if _is_small(path)]
    left_out = [
        *_archive(target / "test_data.tgz", output, (stage / "test_data" for stage in stages)),
        *_archive(target / "diagnosis.tgz", output, [output / "diagnosis"]),
        *_archive(target / "logs.tgz", output, logs),
    ]
    if (csv := output / "truth" / "ncu.csv").exists():
        _replace(target / "ncu.csv", csv.read_bytes())
    _replace(target / "evidence.json", json.dumps(evidence(output, virtual), indent=1).encode())
    if left_out:
        summary += "\n".join(
            ["\n## Not packed, as too large", "", *(f"- {name}" for name in left_out), ""]
        )
    _replace(target / "summary.md", summary.encode())
    return left_out


def _is_small(path: Path) -> bool:
    small = (
        path.suffix in (*_SMALL, ".jsonl") and path.is_file() and path.stat().st_size <= SMALL_BYTES
    )
    return small or path.name == "log.txt"


def _archive(target: Path, output: Path, entries: Iterable[Path]) -> list[str]:
    """Pack files, the small ones first; returns those that did not fit.

    Without any file there is no archive.
    """
    files = [
        path for entry in entries for path in ([entry] if entry.is_file() else entry.rglob("*"))
    ]
    files = sorted((path for path in files if path.is_file()), key=lambda path: path.stat().st_size)
    left_bytes, left_out, data = float(MOST_BYTES), [], io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=6) as archive:
        for path in files:
            share = 1.0 if path.suffix in (".parquet", ".gz") else _TABLES_COMPRESS
            if (size := share * path.stat().st_size + 512) > left_bytes:
                left_out.append(f"{path.relative_to(output)} ({path.stat().st_size / 1e6:.1f} MB)")
                continue
            left_bytes -= size
            archive.add(path, path.relative_to(output), filter=_nameless)
    if files:
        _replace(target, data.getvalue())
    return left_out


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(data)
    partial.replace(path)


def _nameless(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uname = entry.gname = ""
    entry.uid = entry.gid = 0
    return entry
