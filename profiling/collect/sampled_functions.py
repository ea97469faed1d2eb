"""Functions of a running Python program, sampled from beside it: by `profiling.sampling` where this
Python is 3.15 or newer, else by py-spy.

Both read the memory of the program, which needs no change and no library. `profiling.sampling`
writes a profile of Firefox's format on the clock of recordings. py-spy writes a trace whose last
events have the moment at which it creates the file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import pyarrow as pa

from ...base.errors import BackendMissingError, CurvescopeError
from ...base.limits import read_small
from ...base.programs import find_program
from ..attribution.sampled_stacks import (
    Call,
    Changes,
    Stack,
    find_busiest,
    list_calls,
    name_function,
    tabulate,
)
from ..recording.inside import is_own_file, open_folder
from .chunks import ProcessId

_SUFFIX = ".functions"  # of files in the folder of chunk files
_SAMPLING = ".sampling"  # of others there, which are named by the ids of those that sample
_LATE_S = 10.0  # in which a sampler writes what it saw after its program has ended
_POLL_S = 0.02
_LOOK_S = 0.001  # between two looks at whether the sampler's file is there
_OWN_SAMPLER = (3, 15)  # the first Python that brings one
_MOST_BYTES = 1 << 28
_Moment = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]  # in ns


class Sampler(NamedTuple):
    """A program that samples the functions of another one."""

    name: str
    command: Callable[[int, int, int, Path], list[str]]  # of a process, seconds, samples/s, file
    read: Callable[[bytes, int], list[Changes]]  # of the file and the moment of its creation


class _File(msgspec.Struct):
    """What a file of sampled calls holds."""

    process: ProcessId
    calls: Annotated[Sequence[tuple[str, _Moment, _Moment]], msgspec.Meta(min_length=1)]


class _Arguments(msgspec.Struct):
    filename: str = ""
    line: int | None = None


class _Event(msgspec.Struct):
    """An event of py-spy's trace; times in µs."""

    name: str
    ph: str
    tid: int
    ts: int
    args: _Arguments


class _Samples(msgspec.Struct):
    stack: list[int | None]
    time: list[float]  # ms


class _Stacks(msgspec.Struct):
    frame: list[int]
    prefix: list[int | None]


class _Frames(msgspec.Struct):
    func: list[int]


class _Functions(msgspec.Struct, rename="camel"):
    name: list[int]
    file_name: list[int | None]
    line_number: list[int | None]


class _Thread(msgspec.Struct, rename="camel"):
    samples: _Samples
    stack_table: _Stacks
    frame_table: _Frames
    func_table: _Functions


class _Meta(msgspec.Struct, rename="camel"):
    start_time: float  # ms on the monotonic clock


class _Shared(msgspec.Struct, rename="camel"):
    string_array: list[str]


class _Profile(msgspec.Struct):
    """The parts of a profile of Firefox's format that are read."""

    meta: _Meta
    threads: list[_Thread]
    shared: _Shared


def sample_functions(process: int, seconds: int, per_s: int) -> list[Call]:
    """Sample the calls of functions of the busiest thread of a process.

    A change of the stack is seen at the next sample, so each moment is put half an interval before.

    Raises:
        BackendMissingError: no sampler is installed.
        CurvescopeError: the sampler cannot read the process, or saw no function of it.
    """
    sampler = choose_sampler()
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        written = Path(folder, "samples")
        command = sampler.command(process, seconds, per_s, written)
        created_ns = _run(command, written, f"{sampler.name} cannot sample process {process}")
        data = written.read_bytes()
    try:
        threads = sampler.read(data, created_ns)
    except (msgspec.MsgspecError, LookupError) as error:
        raise CurvescopeError(
            f"{sampler.name} wrote what this version does not read ({error})."
        ) from error
    late_ns = 500_000_000 // per_s
    calls = []
    for name, start_ns, end_ns in list_calls(find_busiest(threads)):
        calls.append((name, start_ns - late_ns, end_ns - late_ns))
    if not calls:
        raise CurvescopeError(
            f"{sampler.name} saw no function of process {process}: it ended, or runs no Python."
        )
    return calls


def choose_sampler() -> Sampler:
    """The sampler of this Python, else py-spy. BackendMissingError: there is none."""
    if sys.version_info >= _OWN_SAMPLER:
        return Sampler("profiling.sampling", _command_of_python, read_firefox)
    beside = Path(sysconfig.get_path("scripts"), "py-spy")
    program = find_program("py-spy") or find_program(str(beside))
    if program is None:
        raise BackendMissingError(
            "No sampler of running Python programs is here: `pip install 'curvescope[attach]'` "
            "brings py-spy, and Python 3.15 has one of its own."
        )

    def command(process: int, seconds: int, per_s: int, written: Path) -> list[str]:
        words = ["record", "--nonblocking", "--idle", "--function", "--format", "chrometrace"]
        numbers = {"--pid": process, "--duration": seconds, "--rate": per_s, "--output": written}
        for option, value in numbers.items():
            words += [option, str(value)]
        return [program, *words]

    return Sampler("py-spy", command, read_py_spy)


def _command_of_python(process: int, seconds: int, per_s: int, written: Path) -> list[str]:
    # isolated: the working folder may have a folder `profiling`
    sampling = [sys.executable, "-I", "-m", "profiling.sampling", "attach", "--gecko"]
    return [*sampling, "-d", str(seconds), "-r", str(per_s), "-o", str(written), str(process)]


def _run(command: Sequence[str], written: Path, failure: str) -> int:
    """Run a sampler until it ends, by itself or by Ctrl-C; returns the moment at which its file was
    there.
    """
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    created_ns = None
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=pipe, text=True) as sampler:  # noqa: S603
        while sampler.poll() is None:
            if created_ns is None and written.exists():
                created_ns = time.monotonic_ns()
            with suppress(KeyboardInterrupt):  # the sampler gets it too, and writes what it has
                time.sleep(_LOOK_S)
        said = sampler.stderr.read() if sampler.stderr is not None else ""
    if sampler.returncode or not written.exists():
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        why = " ".join(lines[:2]) or f"exit code {sampler.returncode}"
        raise CurvescopeError(
            f"{failure}: {why}. Samplers read the memory of a program: this takes root, or the "
            "capability SYS_PTRACE in a container."
        )
    return created_ns or time.monotonic_ns()


def read_py_spy(data: bytes, created_ns: int) -> list[Changes]:
    """The stacks of each thread in a trace of py-spy.

    Args:
        data: JSON of `--format chrometrace`.
        created_ns: moment at which py-spy created its file, which ends the last spans.
    """
    events = msgspec.json.decode(data, type=list[_Event])
    spans = [event for event in events if event.ph in "BE"]
    origin_ns = created_ns - 1000 * max((event.ts for event in spans), default=0)
    stacks: dict[int, list[str]] = defaultdict(list)
    threads: dict[int, Changes] = defaultdict(list)
    for event in spans:
        stack, changes = stacks[event.tid], threads[event.tid]
        if event.ph == "B":
            stack.append(name_function(event.args.filename, event.args.line, event.name))
        elif stack:
            stack.pop()
        moment_ns = origin_ns + 1000 * event.ts
        if changes and changes[-1][0] == moment_ns:
            changes.pop()
        changes.append((moment_ns, tuple(stack)))
    return list(threads.values())


def read_firefox(data: bytes, created_ns: int) -> list[Changes]:  # noqa: ARG001 - it has a clock
    """The stacks of each thread in a profile of `profiling.sampling --gecko`."""
    profile = msgspec.json.decode(data, type=_Profile)
    texts = profile.shared.string_array
    threads = []
    for thread in profile.threads:
        functions = thread.func_table
        names = []
        for name, file, line in zip(
            functions.name, functions.file_name, functions.line_number, strict=True
        ):
            names.append(name_function("" if file is None else texts[file], line, texts[name]))
        stacks: list[Stack] = []
        for frame, prefix in zip(thread.stack_table.frame, thread.stack_table.prefix, strict=True):
            around = () if prefix is None else stacks[prefix]
            stacks.append((*around, names[thread.frame_table.func[frame]]))
        changes: Changes = []
        for stack, time_ms in zip(thread.samples.stack, thread.samples.time, strict=True):
            moment_ns = round(1e6 * (profile.meta.start_time + time_ms))
            changes.append((moment_ns, () if stack is None else stacks[stack]))
        changes += [(moment, ()) for moment, _ in changes[-1:]]
        threads.append(changes)
    return threads


def wait_for_samplers(folder: Path) -> None:
    """Wait until those that sample the program of a folder have written what they saw."""
    ends_s = time.monotonic() + _LATE_S
    while _any_samples(folder) and time.monotonic() < ends_s:
        time.sleep(_POLL_S)


def _any_samples(folder: Path) -> bool:
    for path in folder.glob(f"*{_SAMPLING}"):
        with suppress(ValueError, OSError):  # of one that was killed
            os.kill(int(path.stem), 0)
            return True
    return False


@contextmanager
def announce(folder: Path) -> Iterator[None]:
    """Let the recording of a program wait for what this process samples in the block."""
    name = f"{os.getpid()}{_SAMPLING}"
    with open_folder(folder.parent, folder.name) as chunks:
        chunks.write(name, b"")
        try:
            yield
        finally:
            chunks.remove(name, missing_ok=True)


def write_samples(folder: Path, process: int, calls: Sequence[Call]) -> None:
    """Write sampled calls of a process as a file in the folder of chunk files."""
    content = msgspec.json.encode(_File(process, calls))
    with open_folder(folder.parent, folder.name) as chunks:
        chunks.write(f"{process}-{calls[0][1]}{_SUFFIX}", content)


def read_samples(folder: Path) -> tuple[list[pa.Table], int]:
    """The sampled functions of each file of a folder, and how many files could not be read."""
    tables = []
    unreadable = 0
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            tables.append(_read(path))
        except (OSError, ValueError):
            unreadable += 1
    return tables, unreadable


def _read(path: Path) -> pa.Table:
    if not is_own_file(path):
        raise ValueError(f"{path} is no file of samples")
    content = read_small(path, _MOST_BYTES, f"bytes in {path}")
    file = msgspec.json.decode(content, type=_File)
    return tabulate(file.calls, file.process)
