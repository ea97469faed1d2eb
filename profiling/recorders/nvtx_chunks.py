"""Reads the chunk files that the collector leaves, one per process: native/src/chunk_format.h is their description."""

from __future__ import annotations

import mmap
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

MAGIC = 0x4B435643
VERSION = 1
STRINGS, EVENTS, LOST = 1, 2, 3
PUSH, POP, MARK, POP_UNMATCHED = 1, 2, 3, 4

HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("version", "<u2"),
        ("kind", "<u2"),
        ("payload_bytes", "<u8"),
        ("process", "<i8"),
        ("thread", "<i8"),
        ("payload_crc", "<u4"),
        ("header_crc", "<u4"),
    ]
)
EVENT = np.dtype(
    [
        ("time_ns", "<i8"),
        ("kind", "<u4"),
        ("name", "<u4"),
        ("domain", "<u4"),
        ("color_argb", "<u4"),
        ("has_color", "<u4"),
        ("reserved", "<u4"),
    ]
)
_LOST_COUNTS = 3
_Array = npt.NDArray[np.void]


@dataclass
class ProcessEvents:
    """What one process left.

    Attributes:
        process: its id.
        names: texts by id.
        threads: events of each thread, in order; dtype `EVENT`.
        lost: events without room, names without room, events that the disk did not take.
        torn_bytes: bytes after the last whole chunk, as a kill inside a write leaves them.
    """

    process: int = 0
    names: list[str] = field(default_factory=list)
    threads: dict[int, _Array] = field(default_factory=dict)
    lost: tuple[int, int, int] = (0, 0, 0)
    torn_bytes: int = 0


def read_chunks(path: Path) -> ProcessEvents:
    """Every whole chunk of one file, up to the first that is not."""
    found = ProcessEvents()
    size = path.stat().st_size
    if not size:
        return found
    pieces: dict[int, list[_Array]] = {}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = 0
        while at + HEADER.itemsize <= size:
            header = np.frombuffer(data[at : at + HEADER.itemsize], HEADER)[0]
            if (
                header["magic"] != MAGIC
                or header["version"] != VERSION
                or zlib.crc32(header.tobytes()[:-4]) != header["header_crc"]
            ):
                break
            begin = at + HEADER.itemsize
            payload = data[begin : begin + int(header["payload_bytes"])]
            if len(payload) != header["payload_bytes"] or zlib.crc32(payload) != header["payload_crc"]:
                break
            found.process = int(header["process"])
            if header["kind"] == STRINGS:
                found.names += _texts(payload)
            elif header["kind"] == EVENTS:
                pieces.setdefault(int(header["thread"]), []).append(np.frombuffer(payload, EVENT))
            elif header["kind"] == LOST:
                events, names, writes = np.frombuffer(payload, "<u8", _LOST_COUNTS).tolist()
                found.lost = (events, names, writes)
            at = begin + len(payload)
    found.torn_bytes = size - at
    found.threads = {thread: np.concatenate(events) for thread, events in pieces.items()}
    return found


def _texts(payload: bytes) -> list[str]:
    texts, at = [], 0
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at : at + 4], "little")
        texts.append(payload[at + 4 : end].decode("utf-8", "replace"))
        at = end
    return texts
