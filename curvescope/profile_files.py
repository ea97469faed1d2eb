"""Opens recordings and profiles alike, for commands that read; a profile is first imported into a
temporary folder.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from .analysis.render.terminal import print_prose, progress_bars
from .base.counted import counted
from .base.errors import CurvescopeError
from .base.escaping import escape_controls
from .profiling.readers import ImportDocument, Options, import_profile
from .profiling.recording import store
from .profiling.recording.archive import is_archive, unpack_archive
from .profiling.recording.lost import describe_lost
from .profiling.recording.remote_store import AnyPath, RemotePath
from .profiling.recording.store import (
    NO_STEP,
    STEP,
    STEPS_KNOWN_BY,
    Recording,
    Status,
    has_chunks,
    open_recording,
)

_INPUT = Path("-")
_NO_STEP = f"{NO_STEP[0].upper()}{NO_STEP[1:]}: the recording is shown as a whole. {STEPS_KNOWN_BY}"
_USUAL = ("recording", "recorded")  # statuses of collectors that lack nothing
_NOUNS = {"memory": "memory operations", "api_calls": "API calls"}
# Rows that advice examines at the end of an import: half a second. Of more, `explain` gives it.
_ADVISED_ROWS = 500_000


@contextmanager
def open_any(path: AnyPath) -> Iterator[Recording]:
    """Open the recording in a folder, an archive or under a URL, or import a profile file, `-` for
    standard input; closed and deleted with the block.

    Raises:
        CurvescopeError: the path holds neither.
    """
    of_input = path == _INPUT
    if not (of_input or path.is_file()):
        recording = open_recording(path)
        if not has_chunks(recording.path):
            yield recording
            return
        from .profiling.collect.kept_chunks import with_tables

        with with_tables(recording, _say_whole) as whole:
            if whole.path == recording.path:
                _describe(whole)
            yield replace(whole, source=recording.path)
        return
    named = path
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        if isinstance(path, RemotePath):
            path = path.fetch(Path(folder))
        elif of_input:
            path = Path(folder, "input")
            with path.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
        # In a folder named as the file, by which views call it.
        target = Path(folder, "recording", path.name)
        if is_archive(path):
            unpack_archive(path, target)
        else:
            try:
                with progress() as report:
                    done = import_profile(path, target, Options(report=report))
            except CurvescopeError as error:
                name = "standard input" if of_input else str(named)
                raise CurvescopeError(str(error).replace(str(path), name)) from error
            for line in notes(done):
                print_prose(line, stderr=True)
        yield replace(open_recording(target), source=named)


def open_completed(path: AnyPath) -> Recording:
    """Open a recording; one that was cut is completed.

    CurvescopeError: it is still recorded, so that it has no tables.
    """
    if isinstance(path, Path) and has_chunks(path):
        from .profiling.collect.kept_chunks import complete_if_cut

        if complete_if_cut(path, _say_whole):
            _describe(open_recording(path))
    return store.open_merged(path)


def _describe(recording: Recording) -> None:
    """Describe a recording that was completed, and the data that it lacks."""
    for line in recorded_lines(recording):
        _say_whole(line)


def _say_whole(line: str) -> None:
    """Say a line on standard error without breaking it: a path in it is copied."""
    print(escape_controls(line), file=sys.stderr)


def describe_imported(done: ImportDocument) -> str:
    """Numbers of rows in words, without a step where none is known."""
    rows = dict(done.rows)
    if done.unit != STEP:
        rows.pop("steps", None)
    return describe_rows(rows, on_host="device" in done.missing)


def describe_rows(rows: Mapping[str, int], *, on_host: bool = False) -> str:
    """Numbers of recorded rows by table in words, e.g. `8772 kernels, 1 API call`; `on_host`:
    kernels are operators.
    """
    names = {**_NOUNS, "kernels": "host operators"} if on_host else _NOUNS
    parts = []
    for table, count in rows.items():
        noun = names.get(table, table)
        if count:
            parts.append(counted(count, noun.removesuffix("s"), noun))
    return ", ".join(parts) or "nothing"


def recorded_lines(recording: Recording) -> list[str]:
    """The data of a command's recording, the data that it lacks, and the next commands."""
    path, meta = recording.path, recording.meta
    tables = ("kernels", "memory", "api_calls", "ranges")
    counts = {table: recording.count_rows(table) for table in tables}
    on_host = recording.on_host
    lines = [f"{describe_rows(counts, on_host=on_host)} in {path}"]
    if (steps := recording.count_rows("steps")) and recording.unit == STEP:
        lines.append(f"{counted(steps, 'step')}, from {meta['steps_from']}")
    of_cupti = _statuses(meta, "cupti_status")
    if not of_cupti and not counts["kernels"]:
        of_cupti = ["No process started CUDA: there was no GPU work to record."]
    statuses = [*of_cupti, *_statuses(meta, "torch_status")]
    lines += dict.fromkeys(status for status in statuses if status not in _USUAL)
    lines += meta.get("warnings", [])
    lines += describe_lost(meta["lost"], on_host=on_host)
    if meta["status"] == Status.INCOMPLETE:
        lines.append("the recording is not complete: some recorded data is lost")
    elif meta.get("ended_by"):
        lines.append(
            f"the program was ended by {meta['ended_by']}: the recording has what it did before"
        )
    if counts["kernels"]:
        lines.append(f"next: curvescope explain {path}")
    return lines


def _statuses(meta: Mapping[str, Any], name: str) -> list[str]:
    return [collector[name] for collector in meta["collectors"] if name in collector]


def notes(done: ImportDocument) -> list[str]:
    """Notes to show after an import: missing and lost data, and the origin of the steps."""
    lines = [f"Missing: {sentence}." for sentence in done.missing.values()]
    lines += describe_lost(done.lost, on_host="device" in done.missing)
    if done.steps_from is not None:
        share = done.device_time_in_steps
        held = "" if share is None else f"; they hold {100 * share:.0f} % of the device time"
        lines.append(f"Steps from {done.steps_from}{held}." if done.unit == STEP else _NO_STEP)
    if done.batch_from is not None:
        lines.append(f"Batch size from {done.batch_from}.")
    return [escape_controls(line) for line in lines]


def list_advice(path: AnyPath | str) -> list[str]:
    """The first lines of `explain` on a recording of one profile, and which steps of a curve of
    profiles are set aside; none where nothing ran.

    Of a large recording they only say that `explain` gives advice, so that an import takes the time
    of reading.
    """
    recording = open_recording(path)
    count = sum(recording.count_rows(table) for table in ("kernels", "api_calls"))
    if count > _ADVISED_ROWS:
        return [f"Advice is left to `explain`: it examines {count:,} kernels and calls."]

    from .analysis.decompose.warm_up import judge_steps, name_all_set_aside
    from .analysis.diagnosis.suggested import advise, has_no_curve
    from .analysis.render.advice import first_lines
    from .experiments.factors import facts_for
    from .profiling.recording.axis import axis_of

    axis = axis_of(recording.meta)
    if not has_no_curve(recording):
        return name_all_set_aside(judge_steps(recording, recording.frame("steps")), axis)
    try:
        advice = advise(recording, facts_for(recording))
    except CurvescopeError:
        return []
    return [escape_controls(line) for line in first_lines(advice, axis)]


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar on the terminal; yields a function of description, amount done and total
    (0: unknown).
    """
    with progress_bars(22) as bars:
        task = bars.add_task("reading", total=None)

        def report(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total or None)

        yield report
