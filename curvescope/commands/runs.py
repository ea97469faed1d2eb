"""List the recordings in a folder or a shared store, oldest first."""

from __future__ import annotations

import argparse
from typing import Any

from .. import options
from ..analysis.render import terminal
from ..analysis.render.tables import table
from ..profiling.recording.remote_store import as_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    location = parser.add_mutually_exclusive_group()
    location.add_argument("root", nargs="?", type=as_path, help="folder to look in (default: runs)")
    location.add_argument("--store", type=as_path, metavar="URL", help="URL of a shared store, e.g. s3://bucket/team")
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    from ..profiling.recording.store import list_recordings

    root = args.store or args.root or as_path("runs")
    rows: list[dict[str, Any]] = [
        {
            "path": str(recording.path),
            "status": recording.meta["status"],
            "created_utc": recording.meta.get("created_utc"),
            "network": recording.meta.get("network"),
            "device": (recording.meta.get("device") or {}).get("name"),
            "batches": recording.meta.get("batches"),
            "experiments": len(recording.meta.get("experiments") or ()),
        }
        for recording in list_recordings(root)
    ]
    if args.json:
        from ..analysis.render.documents import print_document
        from ..documents import ListedRecording, RunsDocument

        print_document(RunsDocument([ListedRecording(**row) for row in rows]))
        return 0
    if not rows:
        print(f"No recordings in {root}. `curvescope diagnose alexnet` makes one.")
        return 0

    columns = ("recording", "network", "device", "batches", "experiments", "status")
    listed = table(*columns, left=columns, whole=("recording",), words=("device", "batches"), optional=("experiments",))
    for row in rows:
        batches = ", ".join(map(str, row["batches"] or ()))
        experiments = str(row["experiments"] or "none")
        known = (row[name] or "unknown" for name in ("network", "device"))
        listed.add_row(row["path"], *known, batches, experiments, row["status"])
    terminal.console().print(listed)
    return 0
