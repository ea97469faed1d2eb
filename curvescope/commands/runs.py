"""List the recordings in a folder or a shared store, oldest first.

`--history` draws the times of each step that was recorded six times or more, and says from which
recording, and which commit, on they changed, and in which layer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from .. import options
from ..analysis.render import terminal
from ..analysis.render.tables import table
from ..profiling.recording.remote_store import as_path

if TYPE_CHECKING:
    from ..profiling.recording.remote_store import AnyPath
    from ..profiling.recording.store import Recording, Unreadable

UNREADABLE = "unreadable"  # status
_UNLOCKED_S = 5.0  # in which the writer of a new recording may not have locked it yet


@dataclass(frozen=True, kw_only=True)
class ListedRecording:
    """One recording of a folder."""

    path: str  # folder or URL
    status: str  # complete, or why not; unreadable if its `recording.json` cannot be read
    created_utc: str | None  # when it was made
    network: str | None  # name of the network or step
    device: str | None  # name of the device
    batches: Sequence[int] | None  # its batch sizes
    experiments: int  # number of experiments on its causes
    unreadable: str | None  # why it cannot be read, with the remedy; null if it can be


@dataclass(frozen=True)
class RunsDocument:
    """The recordings of a folder or store: `runs`."""

    recordings: Sequence[ListedRecording]  # oldest first


def add_arguments(parser: argparse.ArgumentParser) -> None:
    location = parser.add_mutually_exclusive_group()
    location.add_argument("root", nargs="?", type=as_path, help="folder to look in (default: runs)")
    location.add_argument(
        "--store", type=as_path, metavar="URL", help="URL of a shared store, e.g. s3://bucket/team"
    )
    parser.add_argument(
        "--history", action="store_true", help="show how the times of each step changed"
    )
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    from ..profiling.recording.store import Status, has_chunks, list_recordings

    root = args.store or args.root or as_path("runs")
    if args.history:
        _show_history(root, args.json)
        return 0
    rows = [_row(run) for run in list_recordings(root)]
    if args.json:
        from ..analysis.render.documents import print_document

        print_document(RunsDocument([ListedRecording(**row) for row in rows]))
        return 0
    if not rows:
        print(f"No recordings in {root}. `curvescope diagnose alexnet` makes one.")
        return 0

    columns = ("recording", "network", "device", "batches", "experiments", "status")
    listed = table(
        *columns,
        left=columns,
        whole=("recording",),
        words=("device", "batches"),
        optional=("experiments",),
    )
    for row in rows:
        batches = ", ".join(map(str, row["batches"] or ()))
        experiments = str(row["experiments"] or "none")
        words = (row[name] or "unknown" for name in ("network", "device"))
        listed.add_row(row["path"], *words, batches, experiments, row["status"])
    console = terminal.console()
    console.print(listed)
    for row in rows:
        if row["unreadable"] is not None:
            terminal.print_below(console, Text(f"Unreadable: {row['unreadable']}", "yellow"))
    for row in rows:
        if has_chunks(as_path(row["path"])) and row["status"] == Status.INTERRUPTED:
            cut = f"Cut: {row['path']}. `curvescope explain {row['path']}` completes it."
            terminal.print_below(console, Text(cut, "yellow"))
    return 0


def _show_history(root: AnyPath, as_json: bool) -> None:
    """Print how the times of each step in a folder changed."""
    from ..analysis.history import read_histories
    from ..analysis.render.documents import print_document
    from ..analysis.render.history import HistoryDocument, render_history
    from ..profiling.recording.store import Recording, list_recordings

    recordings = [each for each in list_recordings(root) if isinstance(each, Recording)]
    histories = read_histories(recordings)
    if as_json:
        print_document(HistoryDocument.of(histories))
        return
    console = terminal.console()
    for history in histories:
        for line in render_history(history, console.width):
            console.print(line, soft_wrap=True)


def _row(run: Recording | Unreadable) -> dict[str, Any]:
    """The fields of `documents.ListedRecording`."""
    from ..profiling.recording.store import Recording

    meta = run.meta if isinstance(run, Recording) else {}
    return {
        "path": str(run.path),
        "status": _status(run) if isinstance(run, Recording) else UNREADABLE,
        "created_utc": meta.get("created_utc"),
        "network": meta.get("network"),
        "device": (meta.get("device") or {}).get("name"),
        "batches": meta.get("batches"),
        "experiments": len(meta.get("experiments") or ()),
        "unreadable": None if isinstance(run, Recording) else run.reason,
    }


def _status(recording: Recording) -> str:
    """The status of a recording, which is interrupted if a process that was killed left it as in
    progress.
    """
    from ..profiling.recording.atomic_files import is_locked
    from ..profiling.recording.store import META_FILE, Status

    status, path = str(recording.meta["status"]), recording.path
    if status != Status.RECORDING or not isinstance(path, Path):
        return status
    try:
        age_s = time.time() - (path / META_FILE).stat().st_mtime
    except OSError:
        return status
    return Status.INTERRUPTED if age_s > _UNLOCKED_S and not is_locked(path) else status
