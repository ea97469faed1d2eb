"""Stacks of a step's time, for flame graphs: a file of speedscope, or collapsed stacks.

A stack is the phase, the layers from the outermost on, the operator and the kernel. Its value is
its mean exclusive time in a profiled step, so the stacks of a batch size add up to that step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import pandas as pd

from ...base.errors import CurvescopeError
from ...profiling.recording.store import Recording
from ..decompose.kernel_times import device_work, kernel_times, select_profiled_steps
from ..decompose.terms import IDLE

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_KEYS = ("phase", "layer", "op", "name")
Stack = tuple[str, ...]


@dataclass(frozen=True)
class StepStacks:
    """The stacks of the profiled steps of one batch size."""

    title: str
    steps: int  # profiled steps that the means are over
    time_ns: dict[Stack, int]  # mean exclusive time in a step, longest first


def read_stacks(recording: Recording) -> list[StepStacks]:
    """Read the stacks of each batch size, smallest first.

    CurvescopeError: no step was profiled.
    """
    steps = select_profiled_steps(recording.frame("steps"))
    if steps.empty:
        raise CurvescopeError(
            f"{recording.named} has no profiled step, so there is nothing to stack. "
            "`curvescope diagnose` and `curvescope record` profile steps."
        )
    times = kernel_times(device_work(recording), steps, _KEYS, ())
    is_one_group = steps["batch"].isna().all()
    batches = [None] if is_one_group else sorted(steps["batch"].dropna().unique())
    stacks = []
    for batch in batches:
        chosen = times if batch is None else times[times["batch"] == batch]
        count = int(chosen["step"].nunique())
        title = "step" if batch is None else f"batch {batch}"
        stacks.append(StepStacks(title, count, _add_up(chosen, count)))
    return stacks


def render_speedscope(stacks: list[StepStacks], exporter: str) -> str:
    """Write the stacks as a JSON document of speedscope, a profile for each batch size."""
    frames: dict[str, int] = {}
    profiles = []
    for step in stacks:
        samples = [
            [frames.setdefault(name, len(frames)) for name in stack] for stack in step.time_ns
        ]
        weights = list(step.time_ns.values())
        profiles.append(
            {
                "type": "sampled",
                "name": f"{step.title}, mean of {step.steps}",
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        )
    document = {
        "$schema": _SCHEMA,
        "exporter": exporter,
        "activeProfileIndex": len(profiles) - 1,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
    }
    return json.dumps(document, ensure_ascii=False)


def render_collapsed(stacks: list[StepStacks]) -> str:
    """Write a line a stack, its names between semicolons, with its time in ns."""
    lines = []
    for step in stacks:
        for stack, time_ns in step.time_ns.items():
            names = (" ".join(name.replace(";", ":").split()) for name in (step.title, *stack))
            lines.append(f"{';'.join(names)} {time_ns}\n")
    return "".join(lines)


def _add_up(times: pd.DataFrame, steps: int) -> dict[Stack, int]:
    sums: dict[Stack, int] = {}
    columns = (times[key] for key in (*_KEYS, "exclusive_ns"))
    for phase, layer, op, name, time_ns in zip(*columns, strict=True):
        stack = tuple(_name_frames(phase, layer, op, name))
        sums[stack] = sums.get(stack, 0) + int(time_ns)
    means = {stack: round(time_ns / steps) for stack, time_ns in sums.items()}
    longest_first = sorted(means.items(), key=lambda item: -item[1])
    return {stack: time_ns for stack, time_ns in longest_first if time_ns}


def _name_frames(phase: object, layer: object, op: object, name: str) -> Iterator[str]:
    """The frames of a kernel; an operator that is its own kernel is one frame."""
    if name == IDLE:
        yield IDLE
        return
    yield phase if isinstance(phase, str) else "no phase"
    layers = layer.split(".") if isinstance(layer, str) else ["outside layers"]
    inner = [*layers, op, name] if isinstance(op, str) else [*layers, name]
    yield from (frame for frame, _ in groupby(inner))
