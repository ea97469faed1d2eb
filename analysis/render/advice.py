"""Advice from one profile, as text and as a document: what the step waits for, what to do, and what
that saves.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.masking import without_secrets
from ...base.numbers import number
from ...profiling.recording.axis import Axis, axis_of
from ...profiling.recording.store import RECORDING, STEP, Recording
from ..causes.evidence import Evidence
from ..decompose.idle import FOLLOWS, WAITS
from ..diagnosis.suggested import Advice, Advised, LongGap, is_tried
from ..measured_bounds import USES, MeasuredBound
from ..verdicts.words import Verdict
from .breakdown import breakdown_verdict
from .tables import Indented, table
from .words import SAMPLES, UNITS, begin_sentence, join_texts, share, shorten, show_ms

_TITLE = "What to do: suggested by this profile; nothing was tried"
_NOTHING = (
    "Nothing is suggested: no wait of the host, copy, allocation, conversion or exposed "
    "communication makes 2 % of the time or more."
)
_NO_TIMELINE = (
    "Nothing can be suggested: the profile has no timeline, so what the program waits for is "
    "unknown; `curvescope roofline` compares its kernels with the device."
)
_UNRECORDED = (
    "Nothing can be suggested: {share} of the time launched work waits for an event, or for work "
    "that is not recorded{where}, and the profile does not tell for which."
)
_NO_GAPS = (
    "Nothing can be suggested: the profile does not tell what the program did between its "
    "operators."
)
_NO_REASONS = (
    "Nothing can be suggested: calls of the host were not recorded, so nobody knows why the device "
    "is idle."
)
_UNSEEN_CODE = (
    "Nothing can be suggested: in {share} of the time no kernel runs, most of it {reason} ({most})."
)
_SUM = "Savings are upper bounds, and do not add up: two may be of the same time."
_LEAST_GAP = 0.005  # share of the time of a gap that is listed
_FIRST_LINES = 3  # of advice after a recording or an import


@dataclass(frozen=True, kw_only=True)
class SuggestedChange:
    """What one cause suggests of a profile; nothing was tried."""

    cause: str  # name of the cause
    verdict: str  # untested
    what: str  # what the step does or waits for, as a clause
    do: str  # what to do, as an instruction
    how: str | None  # how to do it; null if `do` says it
    at_most_ms: float  # what it saves at most, per step
    at_most_share: float | None  # the same as a share of the step; null for a step without time
    where: str | None  # layer, operator, range or call with most of it; null if unknown
    stack: Sequence[str]  # functions of the program, the outermost first; empty if unknown
    factors: Sequence[str]  # factors of complete steps that `diagnose` tests it with
    evidence: Sequence[Evidence]  # facts of the profile: each value is `after`


@dataclass(frozen=True, kw_only=True)
class AdviceDocument:
    """What one profile, or one batch size, suggests: `explain` without a curve."""

    recording: str  # folder or URL of the recording
    headline: str  # how long a step takes, and where that goes, in a sentence
    unit: str  # what the times are of: step, or recording where no step is known
    batch: int | None  # samples in a step; null if unknown
    time_ms: float  # mean time of the steps used
    steps: int  # number of these steps
    suggested: Sequence[SuggestedChange]  # the largest bound first; bounds do not add up
    gaps: Sequence[LongGap]  # the longest gaps in the device work, one by one
    bounds: Sequence[MeasuredBound]  # of kernels whose throughputs Nsight Compute measured
    families: Sequence[tuple[str, float, float]]  # kernel family, ms and calls per step
    commands: Sequence[str]  # what to run next

    @classmethod
    def of(cls, path: object, recording: Recording, advice: Advice) -> AdviceDocument:
        """The document of advice on the recording or profile that a user named by a path."""
        step, breakdown = advice.step, advice.breakdown
        return cls(
            recording=str(path),
            headline=breakdown_verdict(breakdown, axis_of(recording.meta), step.idle),
            unit=breakdown.unit,
            batch=breakdown.batch,
            time_ms=step.time_ms,
            steps=step.steps,
            suggested=[_change_of(advised, step.time_ms) for advised in advice.advised],
            gaps=advice.gaps,
            bounds=advice.bounds,
            families=advice.families,
            commands=[command for _, command in next_commands(path, advice)],
        )


def _change_of(advised: Advised, whole_ms: float) -> SuggestedChange:
    """A suggestion for the document; its share is unknown for a step without time."""
    suggestion = advised.suggestion
    return SuggestedChange(
        cause=suggestion.cause,
        verdict=Verdict.UNTESTED,
        what=suggestion.what,
        do=advised.do,
        how=advised.how,
        at_most_ms=suggestion.at_most_ms,
        at_most_share=suggestion.at_most_ms / whole_ms if whole_ms else None,
        where=suggestion.where,
        stack=suggestion.stack,
        factors=suggestion.factors,
        evidence=suggestion.evidence,
    )


def first_lines(advice: Advice, axis: Axis = SAMPLES) -> list[str]:
    """The verdict and the largest suggestions, for the end of another command."""
    lines = [breakdown_verdict(advice.breakdown, axis, advice.step.idle)]
    for advised in advice.advised[: _FIRST_LINES - 1]:
        lines.append(f"Suggested: {_say_suggestion(advised, advice)}")
    if advice.breakdown.set_aside is not None:
        lines.append(advice.breakdown.set_aside)
    return lines


def suggestion_lines(advice: Advice, axis: Axis) -> list[str]:
    """The largest suggestions beside an answer, each on a line; nothing was tried."""
    where = f"at {axis.name_size(advice.breakdown.batch)}, not tested"
    lead = f"Suggested by the profiled steps {where}"
    listed = advice.advised[:_FIRST_LINES]
    return [f"{lead}: {_say_suggestion(advised, advice)}" for advised in listed]


def _say_suggestion(advised: Advised, advice: Advice) -> str:
    """What to do, and the most that it saves."""
    return f"{say_do(advised)}: {_saves(advised, advice)}."


def render_advice(advice: Advice, axis: Axis = SAMPLES) -> RenderableType:
    """The verdict, what to do, each suggestion with its evidence, the longest gaps, and the sum by
    kernel family.
    """
    breakdown, step = advice.breakdown, advice.step
    blocks: list[RenderableType] = [Text(breakdown_verdict(breakdown, axis, step.idle), "bold")]
    if breakdown.set_aside is not None:
        blocks.append(Text(breakdown.set_aside))
    blocks.append(Text())
    if advice.bounds:
        blocks.append(_bounds(advice.bounds))
    elif not advice.advised:
        blocks.append(Text(say_nothing(advice)))
    if advice.advised:
        rows = table("do", "saves at most", "of it")
        details = []
        for at, advised in enumerate(advice.advised, 1):
            most_ms = advised.suggestion.at_most_ms
            part = share(most_ms, step.time_ms)
            rows.add_row(f"{at}. {say_do(advised)}", show_ms(most_ms), part)
            details.append(render_suggestion(at, advised, advice))
        blocks += [Text(_TITLE, "bold"), rows, Text(), *details]
        if len(advice.advised) > 1:
            blocks.append(Text(_SUM, "dim"))
    gaps = [gap for gap in advice.gaps if gap.time_ms >= _LEAST_GAP * step.time_ms]
    if gaps:
        blocks += [Text(), _gaps(gaps, breakdown.unit, step.is_torch)]
    if len(advice.families) > 1:
        blocks += [Text(), _families(advice)]
    return Group(*blocks)


def _bounds(bounds: Sequence[MeasuredBound]) -> RenderableType:
    """What bounds each kernel, and what to try."""
    heads = ("ms", "calls", "SM", "memory", "DRAM", "L2", "occupancy", "bound by", "waits", "try")
    optional = ("calls", "DRAM", "L2", "occupancy", "waits")
    left = ("bound by", "waits", "try")
    rows = table("kernel", *heads, optional=optional, left=left, words=("waits", "try"))
    for bound in bounds:
        uses = [getattr(bound, name) for name in USES]
        shares = ["" if use is None else share(use, 1) for use in uses]
        kernel = (shorten(bound.kernel), number(bound.time_ms), str(bound.calls))
        rows.add_row(*kernel, *shares, bound.bound, say_waits(bound), bound.do)
    note = (
        "Measured by Nsight Compute, each over the most that the device sustains; a unit bounds a "
        "kernel from 60 % on."
    )
    return Group(rows, Text(note, "dim"))


_USE_NAMES = ("SMs", "memory", "DRAM", "L2", "active warps")


def render_bound(at: int, bound: MeasuredBound) -> RenderableType:
    """The bound of one kernel in full: measured use, waits of its warps, and the change to try."""
    uses = []
    for name, column in zip(_USE_NAMES, USES, strict=True):
        use = getattr(bound, column)
        if use is not None:
            uses.append(f"{name} {share(use, 1)}")
    measured = f"{', '.join(uses)} of the most that the device sustains."
    lines: list[RenderableType] = [
        Text(f"{bound.kernel} takes {show_ms(bound.time_ms)}: bound by {bound.bound}."),
        Indented(Text(measured), label="Seen:  "),
    ]
    waits = say_waits(bound)
    if waits:
        lines.append(Indented(Text(f"{waits}."), label="Waits: "))
    lines.append(Indented(Text(f"{bound.do}."), label="Try:   "))
    return Indented(*lines, label=Text(f"{at}. ", "bold"))


def say_waits(bound: MeasuredBound) -> str:
    """The limits of the warps of an SM, and their waits; empty where neither is known."""
    said = []
    if bound.stall is not None and bound.stall_share is not None:
        said.append(f"{share(bound.stall_share, 1)} for {bound.stall}")
    if bound.occupancy is not None and bound.occupancy < 1:
        limits = " and ".join(bound.limited_by)
        said.append(f"{limits} limit occupancy to {share(bound.occupancy, 1)}")
    return "; ".join(said)


def say_nothing(advice: Advice) -> str:
    """Why nothing is suggested: nothing is there, or the profile cannot tell."""
    step = advice.step
    waits_ms = sum(time.time_ms for time in step.idle if time.reason in (WAITS, FOLLOWS))
    if not advice.breakdown.n_profiled and not step.idle:
        return _NO_TIMELINE
    if step.enough(waits_ms):
        return _UNRECORDED.format(share=share(waits_ms, step.time_ms), where=_where(advice.gaps))
    if not step.enough(step.idle_ms):
        return _NOTHING
    if step.on_host:
        return _NO_GAPS
    if not step.knows_reasons:
        return _NO_REASONS
    longest = next(time for time in step.idle if time.reason not in (WAITS, FOLLOWS))
    return _UNSEEN_CODE.format(
        share=share(step.idle_ms, step.time_ms),
        reason=longest.reason or "with no call or range in the profile",
        most=share(longest.time_ms, step.time_ms),
    )


def _where(gaps: Sequence[LongGap]) -> str:
    """After which launch the longest of them is, and what the host does then."""
    longest = next((gap for gap in gaps if gap.launch), None)
    if longest is None:
        return ""
    host = f", with the {longest.meanwhile}" if longest.meanwhile else ""
    return f", the longest after a {longest.launch}{host}"


def say_do(advised: Advised) -> str:
    """What to do, as the beginning of a sentence."""
    return begin_sentence(advised.do)


def _saves(advised: Advised, advice: Advice) -> str:
    most_ms = advised.suggestion.at_most_ms
    return f"saves at most {show_ms(most_ms)} ({share(most_ms, advice.step.time_ms)})"


def render_suggestion(at: int, advised: Advised, advice: Advice) -> RenderableType:
    """A suggestion in full: evidence, place, instruction, and the most that it saves."""
    suggestion, unit = advised.suggestion, advice.breakdown.unit
    what = UNITS[STEP if unit == STEP else RECORDING].capitalize()
    facts = "; ".join(_fact(fact, unit) for fact in suggestion.evidence)
    lines: list[RenderableType] = [
        Text(f"{what} {suggestion.what} ({suggestion.cause}: suggested, not tested)."),
        Indented(Text(f"{facts}."), label="Seen:  "),
    ]
    where = join_texts([suggestion.where, *suggestion.stack], " > ")
    if where:
        lines.append(Indented(Text(where), label="Where: "))
    lines.append(Indented(Text(_say_suggestion(advised, advice)), label="Do:    "))
    if advised.how:
        lines.append(Indented(Text(advised.how), label="How:   "))
    return Indented(*lines, label=Text(f"{at}. ", "bold"))


def _fact(fact: Evidence, unit: str) -> str:
    what, value = fact.what, fact.after
    if unit != STEP:
        what = what.replace(", per step", "").replace(" per step", "")
    if value is None:
        return f"{what}: unknown"
    if isinstance(value, str):
        return f"{what}: {value if unit == STEP else value.replace(' per step', '')}"
    if fact.unit == "1":
        return f"{what}: {share(value, 1)}"
    amount = f"{what}: {_count(value, 4)}"
    return f"{amount} {fact.unit}" if fact.unit else amount


def _gaps(gaps: Sequence[LongGap], unit: str, torch: bool) -> RenderableType:
    """The longest gaps, one by one."""
    functions = "functions of the program"
    heads = ("longest gaps", "ms", "in step", "before", functions)
    rows = table(*heads, left=("before",), words=(functions,))
    for gap in gaps:
        step = str(gap.step) if unit == STEP else ""
        reason = gap.reason or "unknown"
        waited = join_texts((gap.launch, gap.meanwhile))
        if waited:
            reason += f" ({waited})"
        rows.add_row(reason, number(gap.time_ms), step, gap.before or "", _name_functions(gap))
    note = "The profile has no call stacks."
    if any(gap.code is not None for gap in gaps):
        note = "Functions: own time in the gap, with that of calls under 0.1 ms inside."
    elif torch:
        note = (
            "The profile has no call stacks; torch.profiler.profile(with_stack=True) records them."
        )
    return Group(rows, Text(note, "dim"))


def _name_functions(gap: LongGap) -> str:
    """The functions of the program that ran in a gap, with their times if they are known."""
    if gap.code is None:
        return ""
    timed = ", ".join(f"{name} {show_ms(ms)}" for name, ms in gap.code.own_ms)
    return timed or " > ".join(gap.code.path[-2:])


def _families(advice: Advice) -> RenderableType:
    whole_ms = sum(time_ms for _, time_ms, _ in advice.families)
    rows = table("operator" if advice.step.on_host else "kernel family", "ms", "of busy", "calls")
    for name, time_ms, calls in advice.families:
        rows.add_row(name, number(time_ms), share(time_ms, whole_ms), _count(calls, 3))
    return rows


def _count(value: float, digits: int) -> str:
    """A number; a whole one without digits behind the point."""
    is_whole = abs(value - round(value)) < 1e-6
    return f"{value:.0f}" if is_whole else number(value, digits)


def next_commands(path: object, advice: Advice) -> list[tuple[str, str]]:
    """What to run next, each with a sentence before it: how to try a suggestion, and where to look
    further.

    `path` names the recording or profile, as the user wrote it.
    """
    commands: list[tuple[str, str]] = []
    tried = [advised for advised in advice.advised if is_tried(advised.suggestion, advice.step)]
    if tried or (advice.step.is_jax and _on_program(advice) is not None):
        commands.append(say_test(advice))
    if len(tried) < len(advice.advised):
        commands.append(
            (
                "For the others: change the program, record it again, and compare:",
                f"curvescope compare {path} NEW",
            )
        )
    commands.append(
        ("Where the time goes:", f"curvescope breakdown {path} --by {_choose_grouping(advice)}")
    )
    if has_replays(advice):
        commands.append(
            (
                "Kernels of replayed graphs have no operator; a trace of the capture gives them "
                "theirs:",
                "curvescope import PROFILE --capture TRACE_OF_THE_CAPTURE",
            )
        )
    return commands


def say_test(advice: Advice) -> tuple[str, str]:
    """How to test the suggestions, in a sentence, and the command: of the recorded program, else
    of a step that has to be written.
    """
    tried = any(is_tried(advised.suggestion, advice.step) for advised in advice.advised)
    if (said := _on_program(advice)) is None:
        batch = advice.breakdown.batch
        sizes = "" if batch is None else f" --batch {batch}"
        sentence = "Diagnose tries such changes on a step of your own (docs/step.md):"
        return sentence, f"curvescope diagnose --step FILE.py:make_step{sizes}"
    sentence = "Diagnose tries such changes on the program"
    if advice.step.is_jax and advice.command and not tried:
        sentence = "Diagnose measures the program and tries changes on it"
    return f"{sentence} (docs/program.md); {said[0]}:", said[1]


# An argument that is the batch size of training, and a value behind `=`.
_BATCH = re.compile(
    r"""
    (?:--?)? (?:[\w.-]*[._-])?                    # dashes, and what stands before the name
    (?: (?:batch|mini-?batch) (?:[-_]?size)? | bs | b )
    (?: = (?P<value>\d+) )?
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NOT_TRAINING = re.compile(r"test|eval|val|predict|infer", re.IGNORECASE)


def _on_program(advice: Advice) -> tuple[str, str] | None:
    """How to measure the recorded command, with what changes its batch size; None if it is unknown
    which it has, or which command was recorded.
    """
    words, batch = without_secrets(advice.command), advice.breakdown.batch
    if not words:
        return None
    for at, word in enumerate(words):
        match = _BATCH.fullmatch(word)
        if match is None or _NOT_TRAINING.search(word):
            continue
        follows = words[at + 1] if at + 1 < len(words) else ""
        if match["value"] is not None:
            changed = [*words[:at], word.removesuffix(match["value"]) + "{batch}", *words[at + 1 :]]
            batch = int(match["value"])
        elif word.startswith("-") and follows.isdecimal():
            changed = [*words[: at + 1], "{batch}", *words[at + 2 :]]
            batch = int(follows)
        else:
            continue
        option = word.partition("=")[0]
        command = f"curvescope diagnose --batch {batch} -- {shlex.join(changed)}"
        return f"{{batch}} is the value of {option}", command
    if batch is None:
        return None
    command = f"curvescope diagnose --batch {batch} --assign 'batch_size={{batch}}' -- "
    return "batch_size is its constant", command + shlex.join(words)


def has_replays(advice: Advice) -> bool:
    """Whether most kernels come from graph launches and have no operator."""
    calls = advice.step.calls
    launches = len(calls) and calls["name"].str.contains("GraphLaunch").any()
    groups = advice.step.groups
    without = groups.loc[groups["op"].isna(), "calls"].sum()
    return bool(launches and without > groups["calls"].sum() / 2)


def _choose_grouping(advice: Advice) -> str:
    """Layers if some are known, else operators, else kernels."""
    groups = advice.step.groups
    if groups["layer"].notna().any():
        return "layer"
    return "op" if groups["op"].notna().any() else "kernel"
