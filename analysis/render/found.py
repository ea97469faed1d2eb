"""The findings of a diagnosis as a numbered list, each with its worth in a step and how
sure it is.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...base.numbers import number
from ...profiling.recording.axis import Axis
from ..causes.host import HOST_BOUND
from ..causes.work import MORE_WORK
from ..decompose.curve import UNKNOWN
from ..decompose.functionals import Condition, Functional, neighbours_of, outlier
from ..decompose.slow_steps import SlowSteps, leading
from ..decompose.statistics import MATERIAL, Estimate
from ..decompose.terms import IDLE, OVERHEAD, Key, Terms
from ..diagnosis.certain import CertainPart
from ..diagnosis.explanation import Explanation, amount_in_one_place
from ..diagnosis.result import Diagnosis
from ..diagnosis.suggested import Advice, Advised
from ..verdicts.savings import Saving
from ..verdicts.words import Verdict
from .answer_words import choose_library
from .deviations import (
    deviation,
    locate_anomaly,
    off_by,
    outlier_of,
)
from .remedies import UNKNOWN_SAVING, instruction, is_stable, worst_overtaken
from .words import SAMPLES

# How sure a finding is, from an experiment down to noise; each with what it rests on.
CONFIRMED, MEASURED, ONCE = "confirmed", "measured", "measured once"
UNTESTED, SUGGESTED, NOT_PROVEN = "untested", "suggested", "not proven"
REFUTED, NOISY = "refuted", "too noisy"
SURE = {
    CONFIRMED: "An experiment took the cause away, and the time went with it.",
    MEASURED: "The times show it, by intervals; nothing was changed to test a cause.",
    ONCE: "Each size was measured once, so its spread is unknown.",
    UNTESTED: "The difference is measured; the cause fits the recording. No experiment tested it.",
    SUGGESTED: "The profiled steps show where the time goes. No experiment tried the change.",
    NOT_PROVEN: (
        "An experiment tried it. It does not tell a saving from none, or from waits of a busy "
        "machine."
    ),
    REFUTED: "An experiment took the cause away, and the time stayed.",
    NOISY: "The spread of the times hides whether it is there.",
}
_SURE_OF = {
    Verdict.CONFIRMED: CONFIRMED,
    Verdict.FROM_SHAPES: MEASURED,  # counted work needs no test
    Verdict.UNDECIDED: NOT_PROVEN,
    Verdict.REFUTED: REFUTED,
    Verdict.UNTESTED: UNTESTED,
}
_OF_HOST = "Python or a wait"  # where the host itself runs the operators, nothing is launched
_HIDDEN = 0.9  # of the fixed cost: where the largest size has less, not every step has it
_LIBRARY_RATIO = 1.05  # of the default's time over the best one's, from which a word is worth it


@dataclass(frozen=True, kw_only=True)
class Found:
    """One finding, in a line."""

    what: str
    where: str | None = None  # layer and line, or None
    # what is one finding: the layer of counted work, else the layer and its phase, or None
    place: str | None = None
    why: str | None = None  # its cause in a few words; None if unknown
    worth: tuple[tuple[Condition, str], ...]  # share of the step by batch size, in words
    sure: str  # how sure it is, one of `SURE`
    at: Condition | None = None  # the batch size where it shows
    beside: tuple[Condition, ...] = ()  # further sizes that its words name
    answers: tuple[Explanation, ...] = ()  # the anomalies behind it, the first leads
    saving: Saving | None = None  # the change behind it
    slow: SlowSteps | None = None  # the slow steps behind it
    certain: CertainPart | None = None  # the layer behind it
    advised: Advised | None = None  # the suggestion behind it
    is_slow_size: bool = False  # whether it is about the time of one size beside that of others

    @property
    def is_lasting(self) -> bool:
        """Whether all larger sizes pay it, too."""
        return self.certain is not None and self.certain.share_at_largest is not None


def find_all(diagnosis: Diagnosis, advice: Advice | None = None) -> tuple[Found, ...]:
    """The findings in the order of the answer: slow steps, proven savings, slow sizes, the fixed
    cost, changes that may save, and what the profiled steps suggest.
    """
    remedies = diagnosis.remedies
    slow_sizes = _join_places([*_list_certain(diagnosis), *_slow_sizes(diagnosis)])
    slow_sizes += _without_answer(diagnosis)
    slow_sizes += _find_padding(diagnosis)
    slow_sizes.sort(key=_weight, reverse=True)
    listed = list(_describe_slow_steps(diagnosis))
    listed += [describe_saving(saving, diagnosis) for saving in remedies.helping]
    listed += [entry for _, entry in slow_sizes]
    listed += _describe_fixed_cost(diagnosis)
    said = {member for saving in remedies.helping for member in saving.members}
    for saving in remedies.attempts:
        if _may_save(saving) and not said.issuperset(saving.members):
            listed.append(describe_saving(saving, diagnosis))
    if advice is not None:
        listed += _list_suggestions(advice)
    return tuple(listed)


def _may_save(saving: Saving) -> bool:
    """Whether a change saved 2 % of a step at some size, by an interval that says how much."""
    return any(gain.value >= MATERIAL and _is_known(gain) for _, gain in saving.gains)


def say_share(share: float) -> str:
    """A share of a step: of small ones with a digit behind the point."""
    digits = 0 if abs(share) >= 0.0995 else 1
    return f"{100 * share:.{digits}f} %"


_Worth: TypeAlias = tuple[tuple[Condition, str], ...]


def _worth(size: Condition, share: float) -> _Worth:
    return ((size, say_share(share)),)


def _weight(item: tuple[float, Found]) -> tuple[int, float]:
    """A sure cause, confirmed or counted from shapes, comes first from 2 % of a step on. A finding
    of unknown size or cause comes last.
    """
    share, entry = item
    has_no_cause = entry.why is None and bool(entry.answers)
    unknown = entry.sure == NOISY or has_no_cause
    sure = entry.sure == CONFIRMED or _is_counted(entry)
    return (sure and share >= MATERIAL) - unknown, share


def _is_counted(entry: Found) -> bool:
    """Whether the cause is more work, which the shapes of operators tell without a test."""
    if entry.certain is not None:
        return entry.certain.from_shapes is not None
    return bool(entry.answers) and entry.answers[0].verdict == Verdict.FROM_SHAPES


def _list_suggestions(advice: Advice) -> Iterator[Found]:
    """What the profiled steps suggest and nothing tested, each with the most that it saves."""
    for advised in advice.advised:
        most = advised.suggestion.at_most_ms / advice.step.time_ms
        if most >= MATERIAL:
            size = UNKNOWN if advice.breakdown.batch is None else advice.breakdown.batch
            worth = ((size, f"at most {say_share(most)}"),)
            yield Found(what=advised.do, worth=worth, sure=SUGGESTED, advised=advised)


def _describe_slow_steps(diagnosis: Diagnosis) -> Iterator[Found]:
    slow = leading(diagnosis.slow_steps)
    if slow is None:
        return
    why = ""
    if slow.waits_for_input:
        why = ": waits for input"
    elif slow.in_common:
        why = f": more {slow.in_common[0].what.removeprefix('ms of ')}"
    ratio = number(slow.slow_ms / slow.usual_ms, 2)
    what = f"{slow.often}, {ratio} times as long{why}"
    yield Found(
        what=what,
        worth=_worth(slow.batch or UNKNOWN, slow.share),
        sure=MEASURED,
        at=slow.batch,
        slow=slow,
    )


def _list_certain(diagnosis: Diagnosis) -> Iterator[tuple[float, Found]]:
    """Layers that cost too much for certain, but for those that an anomaly names with its cause."""
    named = {_place(answer) for answer in diagnosis.answers if answer.cause is not None}
    for part in diagnosis.certain:
        if part.from_shapes is None and part.place in named:
            continue
        why = _say_certain(part, diagnosis)
        line = f", {part.line}" if part.line else ""
        label, size, worth = part.label, part.batch, _worth(part.batch, part.step_share)
        if part.share_at_largest is not None:
            worth += _worth(diagnosis.curve.conditions[-1], part.share_at_largest)
        what = f"{label} {_say_sizes(part)}: {why}{line}"
        entry = Found(
            what=what,
            where=label + line,
            place=part.place,
            why=why,
            worth=worth,
            sure=MEASURED,
            at=size,
            certain=part,
            is_slow_size=True,
        )
        yield part.step_share, entry


def _say_certain(part: CertainPart, diagnosis: Diagnosis) -> str:
    if part.from_shapes is not None:
        return _count_per(MORE_WORK, diagnosis.axis)
    if part.key.kind == IDLE:
        return _OF_HOST if _runs_on_host(diagnosis) else "longer than at smaller sizes"
    return "slower than smaller sizes"


def _runs_on_host(diagnosis: Diagnosis) -> bool:
    return diagnosis.recording is not None and diagnosis.recording.on_host


def _place(answer: Explanation) -> str | None:
    """What is one finding with others of the same place."""
    return answer.layer if answer.verdict == Verdict.FROM_SHAPES else answer.where


def _say_sizes(part: CertainPart) -> str:
    return f"at {part.batch}" if part.share_at_largest is None else f"from {part.batch} on"


def _slow_sizes(diagnosis: Diagnosis) -> list[tuple[float, Found]]:
    """The anomalies with their share of a step; one finding for one cause in one place and size.

    A layer that does more work from some size on needs no finding without a cause.
    """
    lasting = {part.place for part in diagnosis.certain if part.share_at_largest is not None}
    places: dict[object, list[Explanation]] = {}
    for explanation in diagnosis.explanations:
        if explanation.cause is None and explanation.layer in lasting:
            continue
        size, _ = _where_slow(explanation, diagnosis)
        place: object = len(places)
        if explanation.where:
            place = (explanation.where, explanation.cause, size)
        there = places.setdefault(place, [])
        there.append(explanation)
    listed = [_slow_size(together, diagnosis) for together in places.values()]
    named = {entry.at for _, entry in listed if entry.answers}
    # A deviation of the whole step says nothing more of a size whose place is named.
    told = []
    for share, entry in listed:
        if entry.answers or entry.at not in named:
            told.append((share, entry))
    return told


def _join_places(listed: Sequence[tuple[float, Found]]) -> list[tuple[float, Found]]:
    """One finding for a layer at a size: what is confirmed leads, then what has a cause, then the
    largest.
    """
    joined: dict[object, tuple[float, Found]] = {}
    for share, entry in sorted(listed, key=_lead, reverse=True):
        # Causes of the whole step stay apart.
        has_place = entry.place is not None or not entry.answers
        place = (entry.place, entry.at) if has_place else len(joined)
        worth, first = joined.get(place, (share, entry))
        if first is not entry:
            first = replace(first, answers=first.answers + entry.answers)
        joined[place] = worth, first
    return list(joined.values())


def _lead(item: tuple[float, Found]) -> tuple[bool, bool, float]:
    share, entry = item
    has_cause = _is_counted(entry) or any(answer.cause for answer in entry.answers)
    return entry.sure == CONFIRMED, has_cause, share


def _slow_size(together: Sequence[Explanation], diagnosis: Diagnosis) -> tuple[float, Found]:
    """Anomalies of one cause as one finding: at the size that is slow beside its neighbours.

    No place is named that makes less than what counts: the deviation is spread over the step.
    """
    curve = diagnosis.curve
    lead, *others = sorted(together, key=lambda answer: answer.value.value >= 0)
    size, amount_ms = _where_slow(lead, diagnosis)
    share = min(abs(amount_ms) / curve.times_ms[size], 1.0)
    least = MATERIAL if lead.verdict == Verdict.FROM_SHAPES else curve.least
    is_small = share < least and _sure(lead) in (MEASURED, UNTESTED)
    if is_small or lead.cause == OVERHEAD:
        return _describe_deviation(lead.functional, lead.value.value, diagnosis)
    worth = _worth(size, share)
    at_largest = _gain_at_largest(lead, diagnosis)
    if at_largest is not None:
        worth += _worth(curve.conditions[-1], at_largest)
    entry = Found(
        what=_what(lead, size, diagnosis),
        where=lead.where,
        place=_place(lead),
        why=_name_cause(lead, diagnosis),
        worth=worth,
        sure=_sure(lead),
        at=size,
        answers=(lead, *others),
        is_slow_size=_is_slow(size, diagnosis),
    )
    return share, entry


def _is_slow(size: Condition, diagnosis: Diagnosis) -> bool:
    """Whether a size is not below the line between its neighbours for certain."""
    off = off_by(diagnosis.curve, size)
    return off is None or off.high > 0


def _where_slow(answer: Explanation, diagnosis: Diagnosis) -> tuple[Condition, float]:
    """The size at which an anomaly is, and the ms that its cause makes there: by the line between
    the neighbours, as far as the terms behind it are slow at one of the sizes that it compares.
    """
    functional, value, total = answer.functional, answer.value.value, answer.leading
    alone = outlier_of(functional, value, diagnosis.curve)
    slow = _slowest_of(answer, diagnosis) if alone is None else (alone.size, alone.off_ms)
    if slow is None:
        place = locate_anomaly(functional, value)
        off_ms = place.scale * (value if total is None else total.amount)
        # Idle time that larger sizes hide falls, and the line through smaller ones below 0.
        return place.size, _limit_to_idle(off_ms, place.size, answer, diagnosis.terms)
    # A size may be slow for other reasons, too: an answer makes no more than it claims.
    size, off_ms = slow
    return size, off_ms if total is None else min(off_ms, abs(total.amount))


def _slowest_of(answer: Explanation, diagnosis: Diagnosis) -> tuple[Condition, float] | None:
    """The size at which the terms behind an answer are slow for certain, or else slowest, and by
    how many ms; None where they are slow at none.
    """
    for part in diagnosis.certain:
        # Counted work is a part of the time of its layer only.
        is_whole = part.from_shapes is None
        if is_whole and part.label == answer.where and part.batch in answer.functional.conditions:
            return part.batch, part.value.value
    times_ms = _times_of(_keys_behind(answer), diagnosis.terms)
    return _slowest(times_ms, answer.functional.conditions)


def _keys_behind(answer: Explanation) -> set[Key]:
    """The terms that the leading cause of an answer claims."""
    terms = () if answer.leading is None else answer.leading.terms
    labels = {term.label for term in terms}
    return {share.key for share in answer.shares if share.label in labels}


def _limit_to_idle(
    amount_ms: float, size: Condition, answer: Explanation, terms: Terms | None
) -> float:
    """An amount of idle time, which a step of a size has no more of than it is idle; other amounts
    as they are.
    """
    keys = _keys_behind(answer)
    if not keys or any(key.kind != IDLE for key in keys):
        return amount_ms
    return min(amount_ms, _times_of(keys, terms).get(size, amount_ms))


def _times_of(keys: Container[Key], terms: Terms | None) -> dict[Condition, float]:
    """The ms of some terms by size; empty where no terms are known."""
    if terms is None:
        return {}
    chosen = [key in keys for key in terms.keys]
    sums_ms = terms.values_ms[:, chosen].sum(axis=1)
    return dict(zip(terms.conditions, sums_ms.tolist(), strict=True))


def _slowest(
    times_ms: Mapping[Condition, float], among: Container[Condition]
) -> tuple[Condition, float] | None:
    """The size whose time lies farthest above the line between its neighbours, and by how many ms;
    None where none does.
    """
    slowest, most_ms = None, 0.0
    for size in times_ms:
        sizes = neighbours_of(size, list(times_ms))
        if size in among and sizes is not None:
            weights = outlier(*sizes).coefficients
            parts_ms = [weight * times_ms[other] for other, weight in weights]
            off_ms = float(sum(parts_ms))
            if off_ms > most_ms:
                slowest, most_ms = size, off_ms
    return None if slowest is None else (slowest, most_ms)


def _what(answer: Explanation, size: Condition, diagnosis: Diagnosis) -> str:
    if answer.where is None and answer.cause is None:
        return _say_deviation(answer.functional, answer.value.value, diagnosis)
    where = answer.where or "the step"
    cause = _cause(answer, diagnosis) or "cause unknown"
    line = f", {answer.line}" if answer.line else ""
    return f"{where} at {size}: {cause}{line}"


def _say_deviation(functional: Functional, value: float, diagnosis: Diagnosis) -> str:
    axis = diagnosis.axis
    return deviation(functional, value, diagnosis.curve, axis).removeprefix(f"{axis.name} ")


def _name_cause(answer: Explanation, diagnosis: Diagnosis) -> str | None:
    """The cause in a few words; None if unknown."""
    if answer.cause == HOST_BOUND and _runs_on_host(diagnosis):
        return _OF_HOST
    return _count_per(answer.cause, diagnosis.axis) if answer.cause else None


def _count_per(cause: str, axis: Axis) -> str:
    """A cause whose name counts per sample, per one of what the axis counts."""
    return cause.replace(f"per {SAMPLES.one}", f"per {axis.one}")


def _cause(answer: Explanation, diagnosis: Diagnosis) -> str | None:
    """The cause in a few words, and how much better the best library does."""
    choice, cause = choose_library(answer), _name_cause(answer, diagnosis)
    if choice is None or cause is None or choice.ratio.value < _LIBRARY_RATIO:
        return cause
    return f"{cause}, {number(choice.ratio.value, 3)}x the best"


def _sure(answer: Explanation) -> str:
    if answer.noise or answer.leading is None:
        return NOISY
    return MEASURED if answer.cause is None else _SURE_OF[answer.verdict]


def _gain_at_largest(answer: Explanation, diagnosis: Diagnosis) -> float | None:
    """The share of the largest step that the remedy of an answer saves there; None if unknown."""
    remedy, largest = answer.remedy, diagnosis.curve.conditions[-1]
    if remedy is None or remedy.batch != largest:
        return None
    if remedy.step_gain is not None:
        return remedy.step_gain.value
    terms, key = diagnosis.terms, answer.key_of(remedy.where)
    time_ms = None if terms is None else terms.time_ms(key, largest)
    if remedy.term_gain is None or time_ms is None:
        return None
    return remedy.term_gain.value * time_ms / diagnosis.curve.times_ms[largest]


def _without_answer(diagnosis: Diagnosis) -> Iterator[tuple[float, Found]]:
    """Anomalies that no profiled step explains, and a difference that nothing tests."""
    difference = diagnosis.difference
    if difference is not None:
        before, after = difference.times_ms
        place = f", most in {difference.label}" if difference.label else ""
        more_ms = after - before
        share = more_ms / after
        sizes = f"{difference.at} to {difference.to}"
        what = f"{sizes}: {number(more_ms, 3)} ms{place}"
        yield share, Found(what=what, worth=_worth(difference.to, share), sure=ONCE)
    for finding in () if diagnosis.explanations else diagnosis.anomalies:
        yield _describe_deviation(finding.tested, finding.tested_value.value, diagnosis)


def _describe_deviation(
    functional: Functional, value: float, diagnosis: Diagnosis
) -> tuple[float, Found]:
    """A deviation of the whole step, and its share of the step at its size."""
    place = locate_anomaly(functional, value)
    share = abs(value * place.scale) / diagnosis.curve.times_ms[place.size]
    entry = Found(
        what=_say_deviation(functional, value, diagnosis),
        worth=_worth(place.size, share),
        sure=MEASURED,
        at=place.size,
        beside=functional.conditions,
        is_slow_size=_is_slow(place.size, diagnosis),
    )
    return share, entry


def _find_padding(diagnosis: Diagnosis) -> Iterator[tuple[float, Found]]:
    """The size that takes longest beside a larger one that takes less time."""
    overtaken = worst_overtaken(diagnosis.curve, diagnosis.probe_times)
    if overtaken is None:
        return
    most, more = overtaken
    size, slow_ms = most.small.condition, most.small.time_ms.value
    others = f" ({more} more likewise)" if more else ""
    share = 1 - most.time_ms / slow_ms
    entry = Found(
        what=f"{size} takes longer than {most.size}: pad to it{others}",
        worth=_worth(size, share),
        sure=MEASURED,
        at=size,
        beside=(most.size,),
        is_slow_size=True,
    )
    yield share, entry


def _describe_fixed_cost(diagnosis: Diagnosis) -> Iterator[Found]:
    answer = diagnosis.fixed_cost
    if answer is None or answer.evidence is None:
        return
    total, curve = answer.leading, diagnosis.curve
    amount_ms = answer.value.value if total is None else amount_in_one_place(total)
    where = answer.where or answer.cause or "cause unknown"
    says_cause = not answer.cause or answer.cause in (where, f"{answer.where} work")
    cause = "" if says_cause else f": {_name_cause(answer, diagnosis)}"
    small, largest = answer.functional.at, curve.conditions[-1]
    paid_ms = {}
    for size in (small, largest):
        paid_ms[size] = _limit_to_idle(amount_ms, size, answer, diagnosis.terms)
    worth: _Worth = ()
    for size, time_ms in paid_ms.items():
        worth += _worth(size, time_ms / curve.times_ms[size])
    paid = f"{number(amount_ms, 3)} ms of every step"
    if paid_ms[largest] < _HIDDEN * amount_ms:
        paid = f"{number(paid_ms[small], 3)} ms of a step of {small}"
    what = f"{where}{cause}, {paid}"
    yield Found(
        what=what,
        worth=worth,
        sure=_sure(answer),
        answers=(answer,),
    )


def describe_saving(saving: Saving, diagnosis: Diagnosis) -> Found:
    """A change of complete steps, and its saving at the best size and at the largest.

    What only avoids the waits beside other work is not proven to save anything on a quiet machine.
    """
    gains = dict(saving.gains)
    best = max(gains, key=lambda at: gains[at].value)
    if saving.largest is not None:
        best, _ = saving.largest
    worth = {}
    for size in (best, diagnosis.curve.conditions[-1]):
        if size in gains:
            worth[size] = say_saved(gains[size])
    what, sure = instruction(saving), NOT_PROVEN
    if saving.beside_work:
        what = f"while other work runs: {what}"
    elif saving.verdict == Verdict.CONFIRMED:
        sure = CONFIRMED
    return Found(what=what, worth=tuple(worth.items()), sure=sure, saving=saving)


def say_saved(gain: Estimate) -> str:
    """A share saved; unknown where its interval spans everything."""
    return say_share(gain.value) if _is_known(gain) else UNKNOWN_SAVING


def _is_known(gain: Estimate) -> bool:
    """Whether the interval of a share saved, if it has one, does not span everything."""
    return not math.isfinite(gain.low) or is_stable(gain)
