"""First stage of a diagnosis: what the others need of a recording, read once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from ...base.errors import CurvescopeError
from ...profiling.hardware.limits import hardware_of
from ...profiling.recording.axis import Axis, axis_of
from ...profiling.recording.disturbed import disturbances
from ...profiling.recording.probes import jumps_of
from ...profiling.recording.store import Recording, is_modelled
from ..causes.context import OPERAND_COLUMNS, Recorded, count_faults, read_operands
from ..decompose.averaged_steps import list_used_steps
from ..decompose.communication import slow_downs
from ..decompose.curve import UNKNOWN
from ..decompose.kernel_times import KERNEL_IDENTITY, device_work, gpus_of, select_profiled_steps
from ..decompose.launches import find_paced_kernels
from ..decompose.marked import step_times
from ..decompose.pace import pace_of
from ..decompose.repeated_layers import classes_with, group_of, with_groups
from ..decompose.served_steps import ServedSteps, is_served, select_served
from ..decompose.slow_steps import slow_steps
from ..decompose.source_lines import lines_of, main_lines
from ..decompose.terms import COMMUNICATION
from ..decompose.waiting import waiting_of
from ..decompose.warm_up import judge_steps
from ..verdicts.outcome import measurements


def read(
    recording: Recording,
    mode: str | None = None,
    *,
    by_instance: bool = False,
    steps: pd.DataFrame | None = None,
) -> Recorded:
    """Everything that a diagnosis needs of a recording.

    Where some batch sizes are known, steps without one belong to no curve; where none is, all steps
    are one.

    Args:
        recording: any but a table of times.
        mode: of the steps of an inference server, see `explain`.
        by_instance: whether repeated layers stay apart, see `decompose.repeated_layers`.
        steps: rows that the curve is of, in place of the recording's.

    Raises:
        CurvescopeError: it is a table, or has no step of this mode.
    """
    refuse_table(recording)
    chosen = _choose_steps(recording, mode)
    disturbed = disturbances(chosen.steps)
    judged = judge_steps(recording, chosen.steps)
    curve_steps = _with_batch(judged if steps is None else steps)
    # The error of a modelled kernel depends on its own work, so those are not added up.
    modelled = is_modelled(recording.meta)
    keys = (*KERNEL_IDENTITY, "start_ns") if modelled else KERNEL_IDENTITY
    kernel_times, sampled, groups = step_times(
        recording, curve_steps, keys, by_instance=by_instance or modelled
    )
    names = group_of(groups)
    operators = recording.arrow("operators", [*OPERAND_COLUMNS, "page_faults"])
    hardware = hardware_of(recording.meta)
    paced = find_paced_kernels(recording, select_profiled_steps(curve_steps), hardware.sm_count)
    classes = recording.meta.get("layer_classes") or {}
    waiting = None
    if disturbed is not None and disturbed.prevail:
        waiting = waiting_of(chosen.steps)
    return Recorded(
        curve_steps,
        api_calls=recording.frame("api_calls"),
        clocks=recording.frame("clocks"),
        hardware=hardware,
        measured=measurements(recording),
        waits_for_time=waits_for_time(recording),
        layer_classes=classes_with(classes, groups),
        axis=chosen.axis,
        kernel_times=kernel_times,
        statistic=recording.statistic,
        slow_downs=_find_slow_downs(recording, curve_steps, kernel_times, names),
        term_faults=count_faults(operators, names),
        operands=read_operands(operators, names),
        sampled=sampled,
        groups=groups,
        disturbances=disturbed,
        lines=main_lines(lines_of(recording, names)),
        unit=recording.unit,
        jumps=jumps_of(recording.meta),
        slow=slow_steps(recording, judged),
        paced=paced.assign(layer=with_groups(paced["layer"], names)),
        served=chosen.served,
        waiting=waiting,
        pace=pace_of(chosen.steps),
        gpus=len(gpus_of(recording)),
        processes=recording.meta.get("processes"),
    )


class _Chosen(NamedTuple):
    """The steps that make the curve."""

    steps: pd.DataFrame
    axis: Axis
    served: ServedSteps | None


def _choose_steps(recording: Recording, mode: str | None) -> _Chosen:
    """The steps of a recording; for an inference server, the steps of one mode."""
    steps = recording.frame("steps")
    if is_served(steps):
        served = select_served(steps, mode)
        return _Chosen(served.steps, served.axis, served)
    if mode is not None:
        raise CurvescopeError(
            f"--mode {mode}: the steps of {recording.path} are not those of an inference server."
        )
    return _Chosen(steps, axis_of(recording.meta), None)


def _with_batch(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps of known batch sizes; where none is known, all of them, as one size."""
    has_batch = steps["batch"].notna()
    if has_batch.any() or steps.empty:
        return steps[has_batch]
    return steps.assign(batch=UNKNOWN)


def _find_slow_downs(
    recording: Recording,
    steps: pd.DataFrame,
    kernel_times: pd.DataFrame,
    names: Mapping[str, str],
) -> pd.DataFrame | None:
    """The slow-down of kernels beside communication; None without communication."""
    if not (kernel_times["kind"] == COMMUNICATION).any():
        return None
    used = []
    for _, rows in kernel_times.groupby("batch"):
        used += list_used_steps(rows)
    used_steps = steps[steps["step"].isin(used)]
    return slow_downs(device_work(recording), used_steps, names)


def waits_for_time(recording: Recording) -> bool:
    """Whether the time for experiments was up before all were made."""
    return bool(recording.meta.get("experiments_wait_for_time"))


def refuse_table(recording: Recording) -> None:
    """Raise CurvescopeError for a table of times, which has no kernels."""
    if recording.meta.get("recording_type") == "table":
        raise CurvescopeError(
            f"{recording.path} is a table of times: `curvescope explain {recording.path}` reads it."
        )
