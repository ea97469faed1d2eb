"""Memory that the processes of a command share with the recording command, which drains those that
ended.

A process keeps its events, names and counts in blocks of one file in memory (memfd), however it
ends. Events that it did not write itself are appended here to its chunk file, in the same format.
`native/src/shared_memory.h` and `event_ring.h` describe the blocks. The kernel frees the memory
with the last process that has it open: nothing of it is on a disk.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .chunks import (
    EVENT,
    EVENTS,
    EVENTS_HEADER,
    FIRST_NAMES,
    HEADER,
    MAGIC,
    NUMBER,
    NUMBERS,
    STRINGS,
    UNNAMED,
    VERSION,
    ProcessChunks,
    read_chunks,
    texts_of,
)

NAME = "memory"  # the link in the folder of the chunk files
_FILE_BYTES = 1 << 40  # mostly holes: no process has to extend the file
_STEP = 1 << 16  # blocks begin at multiples of it
_WATCH_S = 1.0  # the memory of a process that was killed is held at least as long
_LATE_S = 0.5  # within which a child may end after its command; a daemon costs as much
_POLL_S = 0.01
_MEMORY_MAGIC = 0x314D454D56435643
_BLOCK_MAGIC = 0x314B4C4256435643
_PROCESS = 1
_RING = 2
_NAMES = 3
_NUMBERS = 4
_RING_CAPACITY = 16384
_EVENTS_PER_CHUNK = 2048  # as many as there is room for, on a full disk

_BLOCK = np.dtype(
    [("magic", "<u8"), ("kind", "<u8"), ("bytes", "<u8"), ("process", "<i8"), ("started_ns", "<i8")]
)
_COUNTED = ("pid_namespace", "exited", "begun", "dropped", "unwritten", "unsaid", "gpu_buffers")
_COUNTS = np.dtype([*_BLOCK.descr, *((name, "<u8") for name in _COUNTED)])
_LOG = np.dtype([*_BLOCK.descr, ("used", "<u8")])
_RING_HEADER = np.dtype(
    [*_BLOCK.descr, ("id", "<u8"), ("thread", "<i8"), ("", "V8"), ("head", "<u8"), ("begun", "<u8", 2), ("", "V40"),  # noqa: E501
     ("tail", "<u8"), ("", "V56")]
)  # fmt: skip

# The smallest and largest block of each kind; a process that crashed may have written anywhere.
_BYTES = {
    _PROCESS: (_COUNTS.itemsize, _COUNTS.itemsize),
    _RING: (_RING_HEADER.itemsize + _RING_CAPACITY * EVENT.itemsize,) * 2,
    _NAMES: (_STEP, 1 << 27),  # texts have 64 MiB together
    _NUMBERS: (_STEP, _STEP),
}


# What the exit handlers of a process did, see `Exit` in `native/src/shared_memory.h`.
_WRITTEN = 1
_UNWRITTEN = 2
_EXITS = {
    _WRITTEN: "exit",
    _UNWRITTEN: "exit, while it still wrote to the disk; the rest was read from its memory",
}
STILL_RUNS = "not yet: it still ran when the recording ended"


class ProcessEnd(NamedTuple):
    """How one program of a process ended, and its counts."""

    process: int
    # time at which its recording began; with the process id, the name of its chunk file
    started_ns: int
    ended: str  # how it ended, in words
    begun: int  # number of recorded ranges and marks
    dropped: int  # number of ranges and marks dropped for lack of room
    unwritten: int  # number of ranges and marks that could not be written to disk
    unsaid: int  # number of lost GPU records whose counts by kind could not be written to disk
    gpu_buffers: int  # number of unwritten buffers of GPU records


class _Block(NamedTuple):
    at: int
    kind: int
    bytes: int


class _Ring(NamedTuple):
    """The unwritten events of a ring, the first of them at position `first`."""

    id: int
    thread: int
    begun: int
    first: int
    events: npt.NDArray[np.void]

    @classmethod
    def read(cls, file: int, block: _Block) -> _Ring:
        with mmap.mmap(file, block.bytes, access=mmap.ACCESS_READ, offset=block.at) as memory:

            def header() -> np.void:
                read: np.void = np.frombuffer(memory[: _RING_HEADER.itemsize], _RING_HEADER)[0]
                return read

            begun = header()["begun"]  # before the head, so that no event after it is counted
            head = int(header()["head"])
            data = memory[_RING_HEADER.itemsize :]
            # What left the ring meanwhile is in the chunk file, and its room may hold other events
            # now.
            last = header()
        written = int(last["tail"])
        held = head - written if 0 <= head - written <= _RING_CAPACITY else 0
        if last["magic"] != _BLOCK_MAGIC:
            held = 0  # its process freed it, empty
        at = np.arange(written % _RING_CAPACITY, written % _RING_CAPACITY + held) % _RING_CAPACITY
        events = np.frombuffer(data, EVENT, _RING_CAPACITY)[at]
        return cls(int(last["id"]), int(last["thread"]), int(begun[head % 2]), written, events)


@contextmanager
def share_memory(folder: Path) -> Iterator[int | None]:
    """Offer memory to the processes that write chunk files into `folder`; without it, they use
    their own.

    It is reached through a link to an open file of this process, so that nothing remains if this
    process is killed. Yields that file; None where this system has no such memory.
    """
    try:
        file = os.memfd_create("curvescope")
    except (AttributeError, OSError):  # the processes note it
        yield None
        return
    try:
        with suppress(OSError):  # e.g. a limit on the size of files
            os.ftruncate(file, _FILE_BYTES)
            os.pwrite(file, np.array([_MEMORY_MAGIC, _FILE_BYTES, _STEP], "<u8").tobytes(), 0)
            _link(folder, file)
        yield file
    finally:
        (folder / NAME).unlink(missing_ok=True)
        os.close(file)


def _link(folder: Path, file: int) -> None:
    (folder / NAME).symlink_to(f"/proc/{os.getpid()}/fd/{file}")


def restore_folder(folder: Path, file: int | None) -> bool:
    """Make a folder of chunk files again if the program deleted it, for later processes; returns
    whether it did.
    """
    try:
        folder.mkdir(parents=True)
    except OSError:  # it is there
        return False
    if file is not None:
        with suppress(OSError):
            _link(folder, file)
    return True


@contextmanager
def drain_meanwhile(folder: Path, file: int | None = None) -> Iterator[list[float]]:
    """Drain processes that end, and free their memory, while the block runs; see `drain_processes`.

    Yields the times, on the monotonic clock in seconds, at which the folder was found deleted, and
    made again.
    """
    done = threading.Event()
    deleted = list[float]()

    def watch() -> None:
        while not done.wait(_WATCH_S):
            if restore_folder(folder, file):
                deleted.append(time.monotonic())
            drain_processes(folder, only_ended=True, file=file)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield deleted
    finally:
        done.set()
        watching.join()
        if restore_folder(folder, file):
            deleted.append(time.monotonic())


def wait_for_late_ends(file: int) -> None:
    """Wait a moment for processes that end a little later than the command: their last ranges are
    recorded then.
    """
    ends_s = time.monotonic() + _LATE_S
    while _any_runs(file) and time.monotonic() < ends_s:
        time.sleep(_POLL_S)


def _any_runs(file: int) -> bool:
    for (process, _), block in _blocks(file):
        if block.kind == _PROCESS:
            counts = _counts(file, block)
            ended = counts["exited"] in _EXITS
            if not ended and _is_running(process, int(counts["pid_namespace"])):
                return True
    return False


def drain_processes(
    folder: Path, *, only_ended: bool = False, file: int | None = None
) -> list[ProcessEnd]:
    """Append to the chunk files what processes recorded and did not write, and free the memory of
    those that ended.

    With `only_ended`, those that still run are left alone; else they write no more into the folder.
    The memory is the open `file`, by default the one that the folder links to, which a program may
    have deleted. Returned are the processes that were drained, now or before, in the order of their
    begin.
    """
    try:
        file = os.open(folder / NAME, os.O_RDWR) if file is None else os.dup(file)
    except OSError:
        return []
    try:
        programs: dict[tuple[int, int], list[_Block]] = {}
        for key, block in _blocks(file):
            programs.setdefault(key, []).append(block)
        last = dict(sorted(programs))  # when the last program of each process began
        ends = [
            _drain_program(file, folder, key, blocks, last[key[0]], only_ended)
            for key, blocks in programs.items()
        ]
        return [end for end in ends if end is not None]
    finally:
        os.close(file)


def _drain_program(
    file: int,
    folder: Path,
    key: tuple[int, int],
    blocks: Sequence[_Block],
    last_started_ns: int,
    only_ended: bool,
) -> ProcessEnd | None:
    process, started_ns = key
    first, *others = blocks
    if first.kind != _PROCESS:
        return None  # the counts come first
    running = _is_running(process, int(_counts(file, first)["pid_namespace"]))
    if running and only_ended:
        return None
    counts = _counts(file, first)
    rings = [_Ring.read(file, block) for block in others if block.kind == _RING]
    begun = int(counts["begun"]) + sum(ring.begun for ring in rings)
    # On a full disk, the blocks stay for the next time; after the last one, their ranges are
    # counted as unsaved.
    with suppress(OSError):
        path = folder / f"{process}-{started_ns}.chunks"
        if running and path.exists():
            # the process cannot open it any more
            path = path.rename(path.with_suffix(".running.chunks"))
        is_whole = counts["exited"] == _WRITTEN
        if others and (not is_whole or any(len(ring.events) for ring in rings)):
            names = b"".join(_log(file, block) for block in others if block.kind == _NAMES)
            numbers = b"".join(_log(file, block) for block in others if block.kind == _NUMBERS)
            whole = len(numbers) // NUMBER.itemsize * NUMBER.itemsize
            _append_rest(
                path,
                process,
                rings,
                texts_of(memoryview(names)),
                np.frombuffer(numbers[:whole], NUMBER),
            )
        if not running:
            for block in others:
                with mmap.mmap(file, block.bytes, offset=block.at) as memory:
                    memory.madvise(mmap.MADV_REMOVE)
            os.pwrite(
                file,
                begun.to_bytes(8, "little"),
                first.at + _BLOCK.itemsize + 8 * _COUNTED.index("begun"),
            )
    if counts["exited"] in _EXITS:
        ended = _EXITS[counts["exited"]]
    elif last_started_ns > started_ns:
        ended = "exec of another program"
    elif running:
        ended = STILL_RUNS
    else:
        ended = "without exit handlers: killed, crashed, or left by os._exit or exec"
    lost = (int(counts[name]) for name in ("dropped", "unwritten", "unsaid", "gpu_buffers"))
    return ProcessEnd(process, started_ns, ended, begun, *lost)


def _blocks(file: int) -> Iterator[tuple[tuple[int, int], _Block]]:
    at = _STEP
    while True:
        try:
            at = max(at, os.lseek(file, at, os.SEEK_DATA) // _STEP * _STEP)
        except OSError:  # holes up to the end
            return
        header = np.frombuffer(os.pread(file, _BLOCK.itemsize, at), _BLOCK)[0]
        block = _Block(at, int(header["kind"]), int(header["bytes"]))
        least, most = _BYTES.get(block.kind, (1, 0))
        if header["magic"] == _BLOCK_MAGIC and least <= block.bytes <= most:
            yield (int(header["process"]), int(header["started_ns"])), block
            at += -(-block.bytes // _STEP) * _STEP
        else:
            at += _STEP


def _counts(file: int, block: _Block) -> np.void:
    counts: np.void = np.frombuffer(os.pread(file, _COUNTS.itemsize, block.at), _COUNTS)[0]
    return counts


def _log(file: int, block: _Block) -> bytes:
    data = os.pread(file, block.bytes, block.at)
    used = int(np.frombuffer(data, _LOG, 1)["used"][0])
    return data[_LOG.itemsize : _LOG.itemsize + used]


def _append_rest(
    path: Path,
    process: int,
    rings: Sequence[_Ring],
    names: Sequence[str],
    numbers: npt.NDArray[np.void],
) -> None:
    """Append the missing data to a chunk file, in place of an incomplete chunk at its end.

    After an OSError, e.g. on a full disk, complete chunks stay, and the next call goes on after
    them.
    """
    kept = read_chunks(path) if path.exists() else ProcessChunks(process)
    names = (kept.names + list(names[len(kept.names) :])) or FIRST_NAMES
    texts = [text.encode() for text in names[len(kept.names) :]]
    chunks = []
    if texts:
        data = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
        chunks.append((STRINGS, len(kept.names), data))
    for ring in rings:
        events = ring.events[max(kept.positions.get(ring.id, 0) - ring.first, 0) :]
        if len(events):
            for field in ("name", "domain"):  # an id is without text if there was no memory for it
                events[field][events[field] >= len(names)] = UNNAMED
            about = np.array([(ring.id, ring.thread)], EVENTS_HEADER).tobytes()
            first = ring.first + len(ring.events) - len(events)
            for at in range(0, len(events), _EVENTS_PER_CHUNK):
                piece = events[at : at + _EVENTS_PER_CHUNK]
                chunks.append((EVENTS, first + at, about + piece.tobytes()))
    numbers = numbers[len(kept.numbers) :]
    for field in ("what", "domain", "name"):
        numbers = numbers[numbers[field] < len(names)]
    if len(numbers):
        chunks.append((NUMBERS, len(kept.numbers), numbers.tobytes()))
    if not chunks and not kept.torn_bytes:
        return
    whole_bytes = kept.whole_bytes
    with path.open("ab", buffering=0) as file:
        try:
            for kind, first, payload in chunks:
                file.truncate(whole_bytes)
                chunk = _chunk(kind, process, first, payload)
                _write_whole(file, chunk)
                whole_bytes += len(chunk)
        finally:
            file.truncate(whole_bytes)


def _write_whole(file: RawIOBase, data: bytes) -> None:
    """Write all bytes; an unbuffered file may take some of them, and refuse the rest."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _chunk(kind: int, process: int, first: int, payload: bytes) -> bytes:
    header = np.zeros(1, HEADER)
    header[["magic", "version", "kind", "payload_bytes", "process", "first", "payload_crc"]] = (
        MAGIC, VERSION, kind, len(payload), process, first, zlib.crc32(payload)
    )  # fmt: skip
    header["header_crc"] = zlib.crc32(header.tobytes()[:-4])
    return header.tobytes() + payload


def _is_running(process: int, pid_namespace: int) -> bool:
    """Whether a process may still run; one of another namespace of process ids has
    another id here.
    """
    if os.stat("/proc/self/ns/pid").st_ino != pid_namespace:
        return True
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" or len(os.listdir(f"/proc/{process}/task")) > 1
    except OSError:
        return False
