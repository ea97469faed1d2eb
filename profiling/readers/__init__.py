"""Readers of other profilers' files. The format is told from the content; a new one is a module and a line here.

A reader module defines `NAME`, `recognises(head) -> bool` over the first bytes (decompressed), and
`read(data, batch) -> Profile` over all of them.
"""

from __future__ import annotations

import gzip
import importlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..errors import CurvescopeError
from ..schema import TABLES
from ..store import RecordingWriter, new_recording_path

_READERS = ("pytorch_json",)
_HEAD_BYTES = 1 << 16
_MOST_BYTES = 2 << 30  # unpacked; parsed it takes several times as much memory


@dataclass
class Profile:
    """What a reader found.

    Attributes:
        tables: rows by table, as dicts of schema columns.
        device: what the profile tells of its device; null where it tells nothing.
        lost: by name, a count and the sentence that explains it.
    """

    tables: dict[str, list[dict[str, Any]]]
    device: dict[str, Any] | None
    lost: dict[str, tuple[int, str]]


@dataclass(frozen=True)
class Imported:
    """A finished import: the recording's folder, the format, rows by table, and what was lost."""

    path: Path
    format: str
    rows: dict[str, int]
    lost: dict[str, tuple[int, str]]


def import_profile(source: Path, target: Path | None = None, batch: int | None = None) -> Imported:
    """Turn a profile into a recording. Neither its name nor any path in it is copied: both may name hosts and people.

    Args:
        source: the file, plain or gzip.
        target: folder to create; a dated one under `runs` if not given.
        batch: samples per step; read from the recorded shapes if not given.

    Raises:
        CurvescopeError: the file cannot be read, is damaged, or is of no known format.
    """
    data = _content(source)
    for module in _READERS:
        reader = importlib.import_module(f".{module}", __package__)
        if reader.recognises(data[:_HEAD_BYTES]):
            break
    else:
        raise CurvescopeError(
            f"{source} is no profile that Curvescope reads. Give it the JSON of the PyTorch profiler "
            "(`export_chrome_trace`), plain or gzip."
        )
    try:
        profile: Profile = reader.read(data, batch)
        tables = {name: pa.Table.from_pylist(rows, TABLES[name].arrow) for name, rows in profile.tables.items()}
    except CurvescopeError as error:
        raise CurvescopeError(f"{source}: {error}") from error
    except (pa.ArrowException, AttributeError, OverflowError, TypeError, ValueError) as error:
        raise CurvescopeError(f"{source} holds values that fit no column ({error}); record it again.") from error
    batches = sorted({row["batch"] for row in profile.tables.get("steps", ()) if row["batch"] is not None})
    meta = {"imported_from": reader.NAME, "network": None, "device": profile.device, "batches": batches or None}
    with RecordingWriter(target or new_recording_path("imported"), meta) as writer:
        for table, columns in tables.items():
            writer.write(table, columns)
        for lost, (count, sentence) in profile.lost.items():
            writer.count_lost(lost, count, sentence)
    return Imported(writer.path, reader.NAME, {t: len(r) for t, r in profile.tables.items()}, profile.lost)


def _content(source: Path) -> bytes:
    try:
        with source.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            data = (gzip.GzipFile(fileobj=file) if packed else file).read(_MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CurvescopeError(f"{source} is cut off or damaged ({error}); copy or record it again.") from error
    except OSError as error:
        raise CurvescopeError(f"{source} cannot be read ({error.strerror}); check the path.") from error
    if len(data) > _MOST_BYTES:
        raise CurvescopeError(f"{source} holds more than {_MOST_BYTES >> 30} GiB unpacked; record fewer steps.")
    if not data.strip():
        raise CurvescopeError(f"{source} is empty; record it again.")
    return data
