"""Sentences on the steps behind a diagnosis: their choice, their disturbances, and gaps in the
knowledge of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...base.counted import counted
from ...profiling.recording.axis import Axis, axis_of
from ...profiling.recording.probes import Jumps, probes_sentence
from ...profiling.recording.store import is_modelled
from ..causes.context import Recorded
from ..causes.kernel_choice import find_lasting_changes
from ..decompose.findings import find_falls, find_jumps, list_open_jumps
from ..decompose.served_steps import LEAST_STEPS, Context, ServedSteps
from ..decompose.slow_steps import leading
from ..decompose.terms import NOT_RECORDED
from ..decompose.warm_up import name_all_set_aside
from ..diagnosis.modelled import find_switches
from ..diagnosis.result import Diagnosis

_MAY_DIFFER = "another one of the same program may differ by some percent at any batch size."
ONE_PROCESS = f"All this is so in this process: {_MAY_DIFFER}"
# A further process started so slowly that no other followed.
TWO_PROCESSES = f"All rounds but one ran in one process: {_MAY_DIFFER}"

NOTHING_RECORDED = (
    "What a step does inside is not recorded{why}: its times are measured, and its layers and "
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


def list_notes(diagnosis: Diagnosis) -> list[str]:
    """Notes on the steps of a diagnosis."""
    notes = list_caveats(diagnosis)
    if diagnosis.recording is not None:
        meta = diagnosis.recording.meta
        if is_modelled(meta):
            notes += _describe_switches(diagnosis)
        notes += _describe_probes(diagnosis, meta)
    return notes


def list_caveats(diagnosis: Diagnosis) -> list[str]:
    """The same without what stands beside the curve: probed sizes, and predicted switches."""
    recorded = diagnosis.recorded
    meta = {} if diagnosis.recording is None else diagnosis.recording.meta
    notes = [] if recorded.served is None else list(_describe_served(recorded.served))
    notes += _describe_disturbances(recorded)
    if recorded.in_one_process:
        notes.append(ONE_PROCESS if recorded.processes == 1 else TWO_PROCESSES)
    if recorded.pace is not None:
        notes.append(recorded.pace.sentence)
    said = leading(recorded.slow)  # by the headline
    notes += [slow.sentence for slow in recorded.slow if slow is not said]
    if recorded.gpus > 1:
        notes.append(f"Terms are of {recorded.gpus} GPUs together; `breakdown --gpu` shows one.")
    notes += name_all_set_aside(recorded.steps, recorded.axis)
    notes += _describe_program(recorded, meta)
    notes += _describe_own_step(recorded, meta)
    if recorded.hardware.kind != "cpu":
        notes += _describe_changes(recorded)
    return notes


def _describe_served(served: ServedSteps) -> Iterator[str]:
    """Which steps of an inference server the curve has, and what else changes over it."""
    others = []
    for name, number in served.numbers.items():
        if name != served.mode:
            others.append(counted(number, f"{name} step"))
    left_out = f"; left out: {' and '.join(others)} (`--mode` chooses)" if others else ""
    number = served.numbers[served.mode]
    yield f"{served.mode.capitalize()} steps only: {number} of {served.total}{left_out}."
    sizes, steps = served.rare
    if sizes:
        yield (
            f"Left out: {counted(sizes, 'size')} with fewer than {LEAST_STEPS} steps each "
            f"({counted(steps, 'step')})."
        )
    if served.context is None:
        yield "The marks do not tell the context, which changes the work of attention, too."
    elif served.context.moves:
        yield _context_sentence(served.context, served.axis)


def _context_sentence(context: Context, axis: Axis) -> str:
    first, median = context.first
    last, median_there = context.last
    return (
        f"The context per request moves with the {axis.name}: median {median:.0f} tokens at "
        f"{first}, {median_there:.0f} at {last} (from {context.least:.0f} to {context.most:.0f}). "
        "Attention costs more with a longer context, so a deviation in attention may come from it."
    )


def _describe_disturbances(recorded: Recorded) -> list[str]:
    disturbed = recorded.disturbances
    if disturbed is not None and not disturbed.prevail:  # else the headline says it
        return [disturbed.sentence]
    return [] if recorded.waiting is None else [recorded.waiting.sentence]


def _describe_program(recorded: Recorded, meta: Mapping[str, Any]) -> Iterator[str]:
    """How the steps of a program were found, and what its starts take, which no time contains."""
    startup_s = (meta.get("startup_s") or {}).values()
    if not meta.get("steps_by") or not startup_s:
        return
    least, most = (f"{seconds:.1f}" for seconds in (min(startup_s), max(startup_s)))
    takes = least if least == most else f"{least} to {most}"
    yield (
        f"Steps are {meta['steps_by']}. A run takes {takes} s until its first step has ended, "
        "which no time contains."
    )
    ended_after = meta.get("ended_after_steps")
    if ended_after is not None:
        yield ENDED_EARLY.format(steps=counted(int(ended_after), "timed step"))
    if meta.get("same_shapes"):
        yield _same_shapes(meta)
    if recorded.kernel_times.empty:
        yield _say_nothing_recorded(_frameworks(meta))


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


def _describe_own_step(recorded: Recorded, meta: Mapping[str, Any]) -> Iterator[str]:
    """The unknown side of a user's own step, and how to name its layers."""
    times, frameworks = recorded.kernel_times, _frameworks(meta)
    if meta.get("mode") != "own":
        return
    if (times["kind"] == NOT_RECORDED).any() or (frameworks and times.empty):
        yield _say_nothing_recorded(frameworks)
    elif not times.empty and not meta.get("graphed") and times["layer"].isna().all():
        yield NO_LAYERS_OF.format(frameworks=frameworks) if frameworks else NO_LAYERS


def _describe_changes(recorded: Recorded) -> Iterator[str]:
    """The sizes whose times are of two algorithms."""
    for change in find_lasting_changes(recorded.kernel_times, recorded.steps):
        yield (
            f"{recorded.axis.name.capitalize()} {change.batch}: from round {change.round + 1} on "
            f"{change.new} runs in place of {change.old}, so its times are of two algorithms. "
            "A library that chose one when memory was short keeps it; `sweep` measures each visit "
            "in a process of its own."
        )


def _frameworks(meta: Mapping[str, Any]) -> str:
    return " and ".join(meta.get("frameworks") or ())


def _say_nothing_recorded(frameworks: str) -> str:
    return NOTHING_RECORDED.format(why=f", as {frameworks} runs it" if frameworks else "")


def _describe_switches(diagnosis: Diagnosis) -> Iterator[str]:
    """The changes of algorithm that a cost model predicts."""
    for switch in find_switches(diagnosis.kernel_times):
        yield (
            f"Modelled from batch {switch.small} to {switch.large}: {switch.layer} {switch.kind} "
            f"changes from {switch.before} to {switch.after}, {switch.excess_ms:+.0f} ms over its "
            "share. To test it on a card, measure both batch sizes there."
        )


def _describe_probes(diagnosis: Diagnosis, meta: Mapping[str, Any]) -> list[str]:
    """The probes of a sweep between its sizes, and what further rounds say of it."""
    curve, findings = diagnosis.curve, diagnosis.findings
    places = Jumps(find_jumps(curve, findings), find_falls(curve), list_open_jumps(curve, findings))
    times_ms = {point.condition: point.time_ms.value for point in curve.points}
    probed = probes_sentence(meta, diagnosis.axis, places, times_ms)
    return [probed] if probed else []
