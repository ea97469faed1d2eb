"""The recording in a line: step, machine and settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rich.cells import cell_len

from ...base.counted import counted
from ...profiling.recording.store import Recording
from ..ran_by import framework_of, step_threads
from .words import join_texts

# Of a device, what its name can do without.
_MAKER = re.compile(r"NVIDIA |AMD |\((?:R|TM)\)| Processor\b| CPU\b| HBM\w+\b| @ .*")


def clock_line(meta: Mapping[str, Any]) -> str | None:
    """Whether Curvescope locked the clock of a GPU; None for a CPU and where the recording does not
    say.
    """
    if (meta.get("device") or {}).get("kind") != "cuda" or "locked_sm_clock_hz" not in meta:
        return None
    locked_hz = meta["locked_sm_clock_hz"]
    if locked_hz is None:
        return "clocks not locked"
    return f"SM clock locked at {locked_hz // 1_000_000} MHz"


def recording_line(recording: Recording) -> str:
    """The step, the machine and the settings; unknown facts are omitted."""
    meta = recording.meta
    device = meta.get("device") or {}
    protocol = meta.get("protocol") or {}
    precision = meta.get("precision")
    if precision == "fp32":
        precision = None
    measured = None
    if protocol.get("name"):
        measured = f"protocol {protocol['name']}"
    facts = (
        *_work(recording),
        precision,
        *_describe_execution(meta),
        device.get("name"),
        measured,
        *_threads(recording),
        *_list_fixed(meta),
        clock_line(meta),
    )
    return join_texts(facts)


def facts_of(recording: Recording, width: int) -> str:
    """The same in fewer words, the step and its precision first, as many as there is room for."""
    meta = recording.meta
    device = meta.get("device") or {}
    model = _MAKER.sub("", device.get("name") or "")
    name, *work = filter(None, _work(recording))
    first = [name, *work[:1]]
    facts = (
        " ".join(first),
        *work[1:],
        meta.get("precision"),
        *_describe_execution(meta),
        *_list_fixed(meta),
        *_threads(recording),
        " ".join(model.split()),
        clock_line(meta),
    )
    kept = list(filter(None, facts))
    while len(kept) > 1 and cell_len(", ".join(kept)) > width:
        kept.pop()
    return ", ".join(kept)


def _work(recording: Recording) -> Iterator[str | None]:
    meta = recording.meta
    yield meta.get("network") or recording.path.name
    if meta.get("mode"):
        yield f"{meta['mode']} step"
    if meta.get("frameworks"):
        yield framework_of(recording)


def _describe_execution(meta: Mapping[str, Any]) -> Iterator[str]:
    if meta.get("compiled"):
        yield "compiled"
    if meta.get("graphed"):
        yield "replayed as a CUDA graph"


def _threads(recording: Recording) -> Iterator[str]:
    if threads := step_threads(recording):
        yield counted(threads, "thread")


def _list_fixed(meta: Mapping[str, Any]) -> Iterator[str]:
    for name, value in (meta.get("fixed") or {}).items():
        yield f"{name} {value}"
