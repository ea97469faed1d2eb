"""The steps of a recorded program, each as the rows of one profiled step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..attribution.events import StepRows
from ..attribution.range_names import INPUT_PHASE, RangeNames
from ..recording.store import Recording

_LOADING = "enumerate(DataLoader)"  # how torch names the wait for a batch


def steps_of(recording: Recording) -> list[StepRows]:
    """The steps of a recorded program, each as the rows of one profiled step: copies of a device
    are among its kernels.
    """
    steps = [row for row in recording.arrow("steps").to_pylist() if row["start_ns"] is not None]
    rows: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for table in ("kernels", "memory", "api_calls"):
        of_step: dict[int, list[dict[str, Any]]] = {}
        for row in recording.arrow(table).to_pylist():
            number = row.pop("step")
            if number is not None:
                values = {name: value for name, value in row.items() if value is not None}
                if table == "memory":
                    values["name"] = _copy_name(values)
                if str(values.get("layer")).startswith(_LOADING):
                    values = {**values, "layer": None, "phase": INPUT_PHASE}
                of_step.setdefault(number, []).append(values)
        rows[table] = of_step
    inputs = _inputs(recording)
    result = []
    for step in steps:
        number = step["step"]
        start_ns = step["start_ns"]
        duration_ns = step["duration_ns"]
        work = rows["kernels"].get(number, []) + rows["memory"].get(number, [])
        inside = [(at, length) for at, length in inputs if 0 <= at - start_ns < duration_ns]
        calls = rows["api_calls"].get(number, [])
        window = [(start_ns, duration_ns)]
        result.append(StepRows(work, window, {}, inputs=inside, api_calls=calls))
    return result


def _copy_name(row: Mapping[str, Any]) -> str:
    """The name of a copy among kernels, which `split_copies` reads."""
    return " ".join(filter(None, (str(row["kind"]).capitalize(), row.get("memcpy_kind"))))


def _inputs(recording: Recording) -> list[tuple[int, int]]:
    """Start and duration of the ranges in which the program waited for its next batch."""
    names = RangeNames()
    return [
        (row["start_ns"], row["duration_ns"])
        for row in recording.arrow("ranges", ["name", "start_ns", "duration_ns"]).to_pylist()
        if row["duration_ns"] is not None and _is_input(names, row["name"])
    ]


def _is_input(names: RangeNames, name: str) -> bool:
    return name.startswith(_LOADING) or names.read(name).phase == INPUT_PHASE
