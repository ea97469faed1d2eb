"""One file that holds what a call of the campaign left: the summary first, then small results, then recordings."""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

MOST_BYTES = 15 * 1024 * 1024
SMALL_BYTES = 200_000  # a result that is committed; more is a recording
SMALL = (".md", ".json", ".txt", ".csv")
_HEADER_BYTES = 1024  # of one file in the archive, before compression


def small_results(stage: Path) -> list[Path]:
    """Results of a stage that are no recordings."""
    found = [path for path in sorted(stage.iterdir()) if path.is_file() and path.suffix in SMALL]
    return [path for path in found if 0 < path.stat().st_size <= SMALL_BYTES]


def _units_of(output: Path, stages: Iterable[str]) -> Iterator[tuple[str, list[Path]]]:
    """Name and files of what is packed together or not at all, most valuable first."""
    folders = [output / name for name in stages if (output / name).is_dir()]
    yield "carry", _files(output / "carry")
    small = {folder: small_results(folder) for folder in folders}
    for folder in folders:
        yield f"{folder.name}: small results", small[folder]
    rest = [entry for folder in folders for entry in sorted(folder.iterdir()) if entry not in small[folder]]
    # Test data is what later work without a GPU needs most.
    for entry in sorted(rest, key=lambda entry: entry.name != "test_data"):
        yield f"{entry.parent.name}/{entry.name}", _files(entry)


def pack(output: Path, stages: Iterable[str], target: Path, most_bytes: int = MOST_BYTES) -> list[str]:
    """Write the packed file of stages, the most valuable first; returns names of what did not fit."""
    left_bytes, chosen, left_out = most_bytes - SMALL_BYTES, [], []
    for name, files in _units_of(output, stages):
        size = sum(_HEADER_BYTES + len(zlib.compress(path.read_bytes(), 6)) + 64 for path in files)
        if size <= left_bytes:
            left_bytes -= size
            chosen += files
        else:
            left_out.append(f"{name} ({size / 1e6:.1f} MB)")
    summary = (output / "summary.md").read_text()
    if left_out:
        summary += "\n".join(["\n## Not packed", "", *(f"- {name}" for name in left_out), ""])
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with tarfile.open(partial, "w:gz") as archive:
        data = summary.encode()
        entry = tarfile.TarInfo("summary.md")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
        for path in chosen:
            archive.add(path, path.relative_to(output), filter=_nameless)
    partial.replace(target)
    return left_out


def carry(output: Path, stage: str) -> None:
    """Keep what later calls need to know of a stage: `carry/STAGE` with its `done.json` and tables."""
    kept = output / "carry" / stage
    kept.mkdir(parents=True, exist_ok=True)
    for path in small_results(output / stage):
        if path.suffix == ".md" or path.name == "done.json":
            (kept / path.name).write_bytes(path.read_bytes())


def unpack_carried(output: Path, stage: str) -> None:
    """Make the folder of a stage; on another machine with the tables so far, to which its commands add."""
    if not (output / stage).exists():
        (output / stage).mkdir(parents=True)
        for path in (output / "carry" / stage).glob("*.md"):
            (output / stage / path.name).write_bytes(path.read_bytes())


def done_before(output: Path) -> list[dict[str, Any]]:
    """What `done.json` says of every stage that began in this call or an earlier one, the earliest first."""
    found = [json.loads(path.read_text()) for path in (output / "carry").glob("*/done.json")]
    return sorted(found, key=lambda done: done["utc"])


def _files(entry: Path) -> list[Path]:
    if entry.is_file():
        return [entry]
    return sorted(path for path in entry.rglob("*") if path.is_file() and not path.is_symlink())


def _nameless(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uname = entry.gname = ""
    entry.uid = entry.gid = 0
    return entry
