"""Under which conditions frameworks ran a network: without them a comparison of their times
misleads.

What each runs by its nature stands in `framework_step.CONDITIONS`. Threads, and the time to make a
step and run it first, in which compilation lies, are of the recordings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.numbers import number
from ..profiling.recording.store import Recording
from ..profiling.workload.framework_step import CONDITIONS, TORCH, TORCH_COMPILE, UPDATES
from .ran_by import threads_of


def framework_name(meta: Mapping[str, Any]) -> str:
    """The framework of a recording as `--framework` names it."""
    return str(meta.get("runs_in") or (TORCH_COMPILE if meta.get("compiled") else TORCH))


def conditions_of(recordings: Sequence[Recording]) -> list[str]:
    """A line for each framework that ran a named network; none where PyTorch alone did, compiled or
    not.

    E.g. `jax: images channels last; …; 2 threads; first step after 3.2 s`.
    """
    by_setting: dict[str, list[Mapping[str, Any]]] = {}
    for recording in recordings:
        if is_of_a_network(recording.meta):
            by_setting.setdefault(framework_name(recording.meta), []).append(recording.meta)
    if len(by_setting) < 2 and set(by_setting) <= {TORCH, TORCH_COMPILE}:
        return []
    lines = []
    for name, metas in by_setting.items():
        if name in CONDITIONS:
            said = [f"{name}: {CONDITIONS[name]}", *_updates(name, metas)]
            said += [_threads(metas), _setup(metas)]
            lines.append(f"{'; '.join(said)}.")
    return lines


def _updates(name: str, metas: Sequence[Mapping[str, Any]]) -> list[str]:
    """How the steps write their parameters; nothing of those that only run forward."""
    trains = any(meta.get("mode") != "forward" for meta in metas)
    if trains and name in UPDATES:
        return [UPDATES[name]]
    return []


def is_of_a_network(meta: Mapping[str, Any]) -> bool:
    """Whether it was measured here of a named network, which frameworks can run."""
    others = meta.get("step") or meta.get("program") or meta.get("imported_from")
    return meta.get("recording_type") == "sweep" and bool(meta.get("network")) and not others


def _threads(metas: Sequence[Mapping[str, Any]]) -> str:
    """The threads on a CPU; on a GPU they do not compute."""
    if all((meta.get("device") or {}).get("kind") == "cuda" for meta in metas):
        return "on a GPU"
    threads = {threads_of(meta, torch=not meta.get("runs_in")) for meta in metas}
    counts = sorted(count for count in threads if count is not None)
    if not counts:
        return "threads unknown"
    noun = "thread" if counts == [1] else "threads"
    return f"{' or '.join(map(str, counts))} {noun}"


def _setup(metas: Sequence[Mapping[str, Any]]) -> str:
    """The time until a step had run first, over networks, modes and batch sizes; it is no part of
    the times.
    """
    seconds = [float(setup) for meta in metas for setup in (meta.get("setup_s") or {}).values()]
    if not seconds:
        return "time of the first step unknown"
    least, most = number(min(seconds)), number(max(seconds))
    times = least if least == most else f"{least} to {most}"
    return f"first step after {times} s"
