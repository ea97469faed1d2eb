"""Diagnosis of one recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...profiling.hardware.limits import hardware_of
from ...profiling.recording.axis import axis_of
from ...profiling.recording.disturbed import disturbances
from ...profiling.recording.probes import Jumps, jumps_of, probes_sentence
from ...profiling.recording.store import Recording, is_modelled
from ..causes.context import OPERAND_COLUMNS, Recorded, count_faults, read_operands
from ..causes.kernel_choice import changed_for_good
from ..decompose.averaged_steps import list_used_steps
from ..decompose.communication import slow_downs
from ..decompose.curve import NO_CURVE
from ..decompose.findings import FindingVerdict, found_falls, found_jumps, open_jumps
from ..decompose.kernel_times import KERNEL_IDENTITY, device_work, gpus_of, profiled_steps
from ..decompose.launches import paced_kernels
from ..decompose.marked import step_times
from ..decompose.pace import pace_of
from ..decompose.repeated_layers import classes_with, group_of, with_groups
from ..decompose.slow_steps import leading, slow_steps
from ..decompose.source_lines import lines_of, main_lines
from ..decompose.terms import COMMUNICATION, NOT_RECORDED
from ..decompose.waiting import waiting_of
from ..decompose.warm_up import judge_steps, name_all_set_aside
from ..served_steps import is_served, select_served
from ..verdicts.outcome import measurements
from . import split
from .answer import answered
from .difference import largest_difference
from .modelled import diagnose_modelled
from .result import Diagnosis

_MAY_DIFFER = "another one of the same program may differ by some percent at any batch size."
ONE_PROCESS = f"All this is so in this process: {_MAY_DIFFER}"
# A further process started so slowly that no other followed.
TWO_PROCESSES = f"All rounds but one ran in one process: {_MAY_DIFFER}"

NOTHING_RECORDED = (
    "What a step does inside is not recorded{of}: its times are measured, and its layers and "
    "kernels are not known."
)
ENDED_EARLY = (
    "Runs ended by themselves, one after {steps}: give the program more data or steps, as its "
    "first ones differ most."
)
NO_LAYERS_OF = (
    "No layers are known: no scope of {frameworks} names one, e.g. jax.named_scope, or a layer of "
    "Keras in a compiled function."
)
NO_LAYERS = (
    "No layers are known, as no module is given: set `step.module = model` in `make_step`, or pass "
    "`module=model` to `curvescope.diagnose`."
)


def explain(
    recording: Recording, axis: str = "log2", mode: str | None = None, *, by_instance: bool = False
) -> Diagnosis:
    """Diagnose a recording: its curve, significant deviations, and each anomaly with its terms and
    causes.

    The result renders itself in a notebook.

    Args:
        recording: recording from `open_recording`.
        axis: axis of the curvatures: log2, linear or throughput.
        mode: mode of the steps of an inference server: decode, prefill or mixed; default: the one
            with most sizes.
        by_instance: whether repeated layers stay apart, see `decompose.repeated_layers`.

    Raises:
        CurvescopeError: the recording has no step, its steps have no batch size, or it is a table
            of times.
    """
    refuse_table(recording)
    evidence = recorded(recording, mode)
    has_batch = evidence.steps["batch"].notna()
    if len(has_batch) and not has_batch.any():
        raise CurvescopeError(
            f"{recording.path.name} names no batch size, so there is no curve to explain. Import "
            "the profiles of several batch sizes together: `curvescope import --as sweep --batch "
            "8,16 FILE FILE`."
        )
    times, evidence = with_times(
        replace(evidence, steps=evidence.steps[has_batch]), recording, by_instance=by_instance
    )
    diagnosis = diagnosed(recording, times, evidence, axis)
    if diagnosis.curve.profiled and len(diagnosis.curve.points) == 1:
        raise CurvescopeError(NO_CURVE)
    return diagnosis


def diagnosed(
    recording: Recording, times: pd.DataFrame, evidence: Recorded, axis: str = "log2"
) -> Diagnosis:
    """The diagnosis, with answers, of what `with_times` gives; a single profiled batch size has
    terms only.
    """
    if is_modelled(recording.meta):
        diagnosis = diagnose_modelled(times, evidence, recording.meta, axis)
    else:
        diagnosis = split.diagnose(evidence.steps, times, axis, recording.statistic, evidence)
    curve = diagnosis.curve
    times_ms = {point.condition: point.time_ms.value for point in curve.points}
    places = Jumps(
        found_jumps(curve, diagnosis.findings),
        found_falls(curve),
        open_jumps(curve, diagnosis.findings),
    )
    if probed := probes_sentence(recording.meta, evidence.axis, places, times_ms):
        diagnosis = replace(diagnosis, notes=(*diagnosis.notes, probed))
    difference = None
    untested = all(finding.verdict == FindingVerdict.UNKNOWN for finding in diagnosis.findings)
    if untested and len(times_ms) > 1:
        difference = largest_difference(recording, times_ms, diagnosis.terms)
    diagnosis = replace(diagnosis, recorded=evidence, difference=difference)
    return answered(diagnosis, recording)


def explain_again(diagnosis: Diagnosis, recording: Recording) -> Diagnosis:
    """The diagnosis after further experiments, which are all that may have changed: far quicker
    than `explain`.
    """
    now = measurements(recording, diagnosis.outcomes)
    waits = bool(recording.meta.get("experiments_wait_for_time"))
    return answered(split.with_measurements(diagnosis, now, waits_for_time=waits), recording)


def recorded(recording: Recording, mode: str | None = None) -> Recorded:
    """The data of a recording that causes examine; of an inference server the steps of one mode,
    see `explain`.

    Raises:
        CurvescopeError: a mode is given, but the steps are not those of an inference server.
    """
    steps, axis = recording.frame("steps"), axis_of(recording.meta)
    notes: tuple[str, ...] = ()
    if is_served(steps):
        served = select_served(steps, mode)
        steps, axis, notes = served.steps, served.axis, served.notes
    elif mode is not None:
        raise CurvescopeError(
            f"--mode {mode}: the steps of {recording.path} are not those of an inference server."
        )
    disturbed = disturbances(steps)
    if disturbed is not None and not disturbed.prevail:  # else the headline says it
        notes = (*notes, disturbed.sentence)
    elif disturbed is not None and (waiting := waiting_of(steps)) is not None:
        notes = (*notes, waiting.sentence)
    few = {1: ONE_PROCESS, 2: TWO_PROCESSES}.get(recording.meta.get("processes", 0))
    notes = (*notes, few) if few else notes
    if (pace := pace_of(steps)) is not None:
        notes = (*notes, pace.sentence)
    steps = judge_steps(recording, steps)
    slow = slow_steps(recording, steps)
    said = leading(slow)  # by the headline
    notes = (*notes, *(found.sentence for found in slow if found is not said))
    return Recorded(
        steps,
        recording.frame("api_calls"),
        recording.frame("clocks"),
        hardware_of(recording.meta),
        measurements(recording),
        bool(recording.meta.get("experiments_wait_for_time")),
        recording.meta.get("layer_classes") or {},
        axis,
        notes,
        disturbances=disturbed,
        unit=recording.unit,
        slow=slow,
        jumps=jumps_of(recording.meta),
    )


def with_times(
    evidence: Recorded, recording: Recording, *, by_instance: bool = False
) -> tuple[pd.DataFrame, Recorded]:
    """Exclusive times in the steps, and the same data with what these times tell."""
    # The error of a modelled kernel depends on its own work, so those are not added up.
    modelled = is_modelled(recording.meta)
    keys = (*KERNEL_IDENTITY, "start_ns") if modelled else KERNEL_IDENTITY
    times, sampled, groups = step_times(
        recording, evidence.steps, keys, by_instance=by_instance or modelled
    )
    names = group_of(groups)
    operators = recording.arrow("operators", [*OPERAND_COLUMNS, "page_faults"])
    paced = paced_kernels(recording, profiled_steps(evidence.steps), evidence.hardware.sm_count)
    evidence = replace(
        evidence,
        sampled=sampled,
        groups=groups,
        layer_classes=classes_with(evidence.layer_classes, groups),
        lines=main_lines(lines_of(recording, names)),
        term_faults=count_faults(operators, names),
        operands=read_operands(operators, names),
        paced=paced.assign(layer=with_groups(paced["layer"], names)),
    )
    return times, _with_slow_downs(_with_notes(evidence, recording, times), recording, times)


def _with_notes(evidence: Recorded, recording: Recording, times: pd.DataFrame) -> Recorded:
    """The same data with notes on profiled steps set aside, and on how to name layers if a user's
    own step could.
    """
    meta, notes = recording.meta, list(evidence.notes)
    if len(gpus := gpus_of(recording)) > 1:
        notes.append(f"Terms are of {len(gpus)} GPUs together; `breakdown --gpu` shows one.")
    notes += name_all_set_aside(evidence.steps, evidence.axis)
    notes += _of_program(recording, times)
    frameworks = " and ".join(meta.get("frameworks") or ())
    of_user, unrecorded = meta.get("mode") == "own", (times["kind"] == NOT_RECORDED).any()
    if of_user and (unrecorded or (frameworks and times.empty)):
        notes.append(_nothing_recorded(frameworks))
    elif of_user and not times.empty and not meta.get("graphed") and times["layer"].isna().all():
        why_no_layers = NO_LAYERS_OF.format(frameworks=frameworks) if frameworks else NO_LAYERS
        notes.append(why_no_layers)
    if evidence.hardware.kind != "cpu":
        notes += changed_for_good(times, evidence.steps, evidence.axis)
    return replace(evidence, notes=tuple(notes))


def _nothing_recorded(frameworks: str) -> str:
    return NOTHING_RECORDED.format(of=f", as {frameworks} runs it" if frameworks else "")


def _of_program(recording: Recording, times: pd.DataFrame) -> list[str]:
    """How the steps of a program were found, and what its starts take, which no time contains."""
    meta, startup_s = recording.meta, (recording.meta.get("startup_s") or {}).values()
    if not meta.get("steps_by") or not startup_s:
        return []
    least, most = (f"{seconds:.1f}" for seconds in (min(startup_s), max(startup_s)))
    takes = least if least == most else f"{least} to {most}"
    steps = f"Steps are {meta['steps_by']}."
    said = [
        f"{steps} A run takes {takes} s until its first step has ended, which no time contains."
    ]
    if (count := meta.get("ended_after_steps")) is not None:
        said.append(ENDED_EARLY.format(steps=counted(int(count), "timed step")))
    if meta.get("same_shapes"):
        said.append(_same_shapes(meta))
    frameworks = " and ".join(meta.get("frameworks") or ())
    if times.empty:
        said.append(_nothing_recorded(frameworks))
    return said


def _same_shapes(meta: Mapping[str, Any]) -> str:
    """That the sizes do not reach the function that marks steps, and which may mark them."""
    axis = axis_of(meta).name
    others = meta.get("may_be_steps") or ()
    name = others[0] if others else "NAME"
    steps = f": its steps may be those of {' or '.join(others)}" if others else ""
    return (
        f"The arguments of that function have the same shapes at every {axis}, so it may not be "
        f"the step of the program, and no samples per second are given{steps}. --step-function "
        f"{name} times the calls of another function."
    )


def _with_slow_downs(evidence: Recorded, recording: Recording, times: pd.DataFrame) -> Recorded:
    """The same data with the slow-down of kernels beside communication, if there is
    communication.
    """
    if not (times["kind"] == COMMUNICATION).any():
        return evidence
    used = [step for _, rows in times.groupby("batch") for step in list_used_steps(rows)]
    steps = evidence.steps[evidence.steps["step"].isin(used)]
    return replace(
        evidence, slow_downs=slow_downs(device_work(recording), steps, group_of(evidence.groups))
    )


def refuse_table(recording: Recording) -> None:
    """Raise CurvescopeError for a table of times, which has no kernels."""
    if recording.meta.get("recording_type") == "table":
        raise CurvescopeError(
            f"{recording.path} is a table of times: `curvescope explain {recording.path}` reads it."
        )
