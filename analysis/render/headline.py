"""The main finding of a recording, in a sentence or two, the confirmed cause first, and whether
clocks were locked.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from ...base.counted import counted
from ...base.numbers import number, percent, with_sign
from ...profiling.attribution.kernel_names import short_name
from ...profiling.recording.axis import Axis
from ...profiling.recording.schema import INPUT
from ...profiling.recording.store import STEP, STEPS_KNOWN_BY, is_modelled
from ..causes.host import LOAD_FASTER, LOAD_HOW
from ..causes.memory import PAGE_FAULTS
from ..decompose.curve import UNKNOWN
from ..decompose.findings import UNDECIDED
from ..decompose.functionals import FIXED_COST, Condition
from ..decompose.input_time import WAITING_FOR_INPUT
from ..decompose.slow_steps import leading
from ..decompose.terms import IDLE, NOT_RECORDED, Key
from ..diagnosis.certain import CertainPart
from ..diagnosis.difference import Difference
from ..diagnosis.explanation import Explanation
from ..diagnosis.result import Diagnosis
from ..verdicts.words import Verdict as Tested
from .answer_words import advice, anomaly_name
from .deviations import deviation
from .names import fit
from .remedies import saving_sentence
from .words import UNITS, begin_sentence, show_ms

_MUCH = 0.2  # of a step; less idle time is normal
_NOTHING_RUNS, _HOST_WORK = "idle: nothing runs", "host work that is not recorded"
_HOST_SHARE = 0.5  # of the time without kernels, in which a core works, to be its work
_SHOWN_PARTS = 1  # of what is certain
_NAME = 48  # letters of a kernel in a sentence


def headline(meta: Mapping[str, Any], diagnosis: Diagnosis) -> str:
    """The largest confirmed cause with what to do, then the largest anomaly, or that there is none.

    Where disturbed visits prevail, it begins with what disturbed them.
    """
    sentence = finding_sentence(diagnosis)
    disturbed = diagnosis.disturbances
    if disturbed is not None and disturbed.prevail:
        sentence = f"{disturbed.sentence} {begin_sentence(sentence)}"
    if certain := certain_sentences(diagnosis):
        sentence = " ".join([*certain, begin_sentence(sentence)])
    if not meta.get("network"):
        return begin_sentence(sentence)
    modelled = " (modelled)" if is_modelled(meta) else ""
    return f"{meta['network']}{modelled}: {sentence}"


def certain_sentences(diagnosis: Diagnosis) -> list[str]:
    """What costs too much for certain, but for what experiments confirm, which is said anyway."""
    confirmed = {answer.where for answer in _list_confirmed(diagnosis)}
    parts = [part for part in diagnosis.certain if part.label not in confirmed]
    sentences = [certain_sentence(part, diagnosis.axis) for part in parts[:_SHOWN_PARTS]]
    more = len(parts) - len(sentences)
    if more:
        are = "is" if more == 1 else "are"
        sentences.append(f"{counted(more, 'more layer')} {are} as sure.")
    return sentences


def certain_sentence(part: CertainPart, axis: Axis) -> str:
    """A layer that costs too much for certain: how much, where, and by which count of work."""
    value = part.value
    where = part.label
    if part.line:
        where += f" at {part.line}"
    why = ""
    if part.from_shapes:
        work = part.from_shapes.strip("()")
        why = f" ({work}, from shapes)"
    ends = f"{number(value.low, 3)} to {number(value.high, 3)}"
    size = axis.name_size(part.batch)
    more = f"{show_ms(value.value, 3)} ({ends}) more at {size}"
    share = f"{part.step_share:.0%} of the step{why}"
    return f"{where} costs {more} than smaller ones ask for, {share}."


def finding_sentence(diagnosis: Diagnosis) -> str:
    """The same without a name, in lower case."""
    said = sorted(_sentences(diagnosis), key=lambda item: -item[0])
    first, *others = [sentence for _, sentence in said]
    others = [begin_sentence(sentence) for sentence in others]
    return " ".join([first, *others])


def _sentences(diagnosis: Diagnosis) -> Iterator[tuple[float, str]]:
    """The slow steps, what saves most, the largest confirmed cause and the largest anomaly, each
    with its share of a step; what saves at the largest batch size, where one trains, comes first.
    """
    curve, best = diagnosis.curve, diagnosis.remedies.best
    slow = leading(diagnosis.slow_steps)
    if slow is not None:
        waits = f" {LOAD_FASTER}: {LOAD_HOW}." if slow.waits_for_input else ""
        yield slow.share, f"{slow.sentence}{waits}"
    confirmed = _largest_confirmed(diagnosis)
    said: Sequence[str] = ()
    if best is not None and best.largest is not None:
        said = best.members
        batch, share = best.leading
        if max(curve.conditions, default=batch) == batch:
            share = 1.0
        yield share, saving_sentence(diagnosis.remedies, diagnosis.axis) or ""
    if confirmed is not None:
        sentence = _say_confirmed(diagnosis, confirmed, said)
        yield _share_of_step(diagnosis, confirmed), sentence
    largest = diagnosis.explanations[0] if diagnosis.explanations else None
    if confirmed is not None and confirmed is largest:
        return
    share = 0.0
    if largest is not None:
        step_ms = curve.times_ms[largest.functional.last]
        share = abs(largest.value.value) / step_ms
    if confirmed is None or diagnosis.anomalies:
        yield share, _anomaly_sentence(diagnosis)
    else:
        yield share, f"{_no_anomaly(diagnosis)}."


def _share_of_step(diagnosis: Diagnosis, answer: Explanation) -> float:
    functional = answer.functional
    size = functional.at if functional.kind == FIXED_COST else functional.last
    _, amount = _place_confirmed(answer)
    return abs(amount) / diagnosis.curve.times_ms[size]


def _largest_confirmed(diagnosis: Diagnosis) -> Explanation | None:
    """The answer whose confirmed cause makes the largest share of a step."""
    confirmed = _list_confirmed(diagnosis)
    return max(confirmed, key=lambda answer: _share_of_step(diagnosis, answer), default=None)


def _list_confirmed(diagnosis: Diagnosis) -> list[Explanation]:
    return [answer for answer in diagnosis.answers if answer.verdict == Tested.CONFIRMED]


def _place_confirmed(answer: Explanation) -> tuple[str, float]:
    """Where the cause is confirmed, in words, and its amount there: everywhere if it was measured
    on complete steps.
    """
    total = answer.leading
    assert total is not None
    if answer.where is None or total.measured is not None:
        return "", total.amount
    labels = {term.label for term in total.terms}
    others = len(labels) - 1
    more = f" and {others} more" if others else ""
    return f" in {answer.where}{more}", total.amount


def _say_confirmed(diagnosis: Diagnosis, answer: Explanation, said: Container[str] = ()) -> str:
    """The anomaly, its confirmed cause, and what to do unless a sentence says that already."""
    functional, value = answer.functional, answer.value.value
    where, amount = _place_confirmed(answer)
    lead, whole = "", anomaly_name(functional)
    if functional.kind != FIXED_COST:
        off = deviation(functional, value, diagnosis.curve, diagnosis.axis)
        lead, whole = f"{off}: ", "it"
    make = "make" if answer.cause == PAGE_FAULTS else "makes"
    share = f"{percent(amount / value)} of {whole}"
    sentence = f"{lead}{answer.cause}{where} {make} {share}, confirmed by experiment."
    if answer.remedy is not None and answer.remedy.factor in said:
        return sentence
    return f"{sentence} {advice(answer)}".rstrip()


def _no_anomaly(diagnosis: Diagnosis) -> str:
    batches = diagnosis.curve.conditions
    none = "the whole step shows no anomaly" if diagnosis.certain else "no anomaly"
    return f"{none} from {diagnosis.axis.name} {batches[0]} to {batches[-1]}"


def _anomaly_sentence(diagnosis: Diagnosis) -> str:
    axis, curve = diagnosis.axis, diagnosis.curve
    if diagnosis.difference is not None:
        return difference_sentence(diagnosis.difference, axis)
    if not diagnosis.findings:
        last = curve.points[-1]
        size = f"unknown {axis.name}"
        if last.condition != UNKNOWN:
            size = axis.name_size(last.condition)
        n = f"{last.n}, all of them profiled" if curve.profiled else str(last.n)
        time = show_ms(last.time_ms.value)
        return f"{UNITS[curve.unit]} of {size} takes {time} (n = {n})."
    if diagnosis.explanations:
        first = diagnosis.explanations[0]
        off = deviation(first.functional, first.value.value, curve, axis)
        return f"{off}."
    if diagnosis.anomalies:
        labels = ", ".join(finding.shown.label for finding in diagnosis.anomalies)
        return f"{labels} is significant; no step was profiled there, so its terms are unknown."
    none = _no_anomaly(diagnosis)
    if all(finding.verdict in UNDECIDED for finding in diagnosis.findings):
        return f"{none}; no deviation is significant."
    return f"{none}; fixed plus proportional cost explains the significant deviations."


def difference_sentence(difference: Difference, axis: Axis) -> str:
    """How far two times without an interval differ, where, and what to record."""
    before, after = difference.times_ms
    more_ms = after - before
    sizes = f"{axis.name_size(difference.at)} to {difference.to}"
    times = f"{number(before)} to {show_ms(after)} ({with_sign(more_ms)} ms)"
    sentence = f"from {sizes} {UNITS[difference.unit]} goes from {times}"
    if difference.label is not None:
        of_it = "the largest term of it"
        if abs(difference.label_ms) >= abs(more_ms) / 2:
            of_it = "most of it"
        amount = with_sign(difference.label_ms, 3)
        sentence += f", {of_it} {difference.label} ({amount} ms)"
    if difference.host is not None:
        host = f"{show_ms(difference.host_ms, 3)} of the {difference.host}"
        sentence += f"; at {difference.to} it is {host}"
    if difference.unit != STEP:
        untested = "How many steps each holds is unknown, so nothing is tested."
        return f"{sentence}. {untested} {STEPS_KNOWN_BY}"
    return (
        f"{sentence}. One step or one round of each size: whether it repeats is unknown, and "
        "nothing is tested. Record several steps of each, or measure more rounds."
    )


def largest_sentence(diagnosis: Diagnosis, classes: Mapping[str, str]) -> str:
    """The same as a sentence, after the size that its numbers are of: the largest profiled one."""
    clauses = largest_clauses(diagnosis, classes)
    if not clauses or diagnosis.terms is None:
        return ""
    axis = diagnosis.axis.name.capitalize()
    return f"{axis} {diagnosis.terms.conditions[-1]}: {clauses}."


def _name_kind(key: Key) -> str:
    """The kind of a term, of idle time with the wait for input apart."""
    if (key.kind, key.phase) == (IDLE, INPUT):
        return WAITING_FOR_INPUT
    return key.kind


def largest_clauses(diagnosis: Diagnosis, classes: Mapping[str, str]) -> str:
    """Where a step's time goes at the largest profiled size: idle, layer and kernel; empty without
    terms.
    """
    terms = diagnosis.terms
    if terms is None or not len(terms.values_ms):
        return ""
    size = terms.conditions[-1]
    last = terms.values_ms[-1].tolist()
    times = dict(zip(terms.keys, last, strict=True))
    whole = sum(times.values())
    spent = dict.fromkeys((WAITING_FOR_INPUT, IDLE, NOT_RECORDED), 0.0)
    for key, time in times.items():
        kind = _name_kind(key)
        if kind in spent:
            spent[kind] += time
    busy_ms = whole - sum(spent.values())
    works = _works_beside_kernels(diagnosis, size, busy_ms / whole)
    words = {IDLE: _HOST_WORK if works else _NOTHING_RUNS}
    parts = []
    for kind, time in spent.items():
        if time > _MUCH * whole:
            parts.append(f"{time / whole:.0%} of the profiled step is {words.get(kind, kind)}")
    layers = {key: time for key, time in times.items() if key.layer is not None}
    if layers:
        key = max(layers, key=layers.__getitem__)
        label = key.label_with(classes.get(key.layer or ""))
        longest = f"{show_ms(layers[key], 3)} ({layers[key] / whole:.0%})"
        parts.append(f"the longest layer is {label} with {longest}")
    rows = diagnosis.kernel_times
    rows = rows[(rows["batch"] == size) & (rows["name"] != IDLE)]
    if len(rows):
        kernels = rows.groupby("name")["exclusive_ms"].sum()
        of_kernels = kernels.max() / kernels.sum()
        part = of_kernels * busy_ms / whole
        longest = short_name(str(kernels.idxmax()))
        name = fit(longest, _NAME)
        parts.append(f"{name} is the longest kernel ({part:.0%})")
    return "; ".join(parts)


def _works_beside_kernels(diagnosis: Diagnosis, size: Condition, kernels: float) -> bool:
    """Whether a CPU works while no kernel runs, by the CPU time of the steps of a size; `kernels`
    is the share of a step in which one runs, on all threads.
    """
    recorded = diagnosis.recorded
    if recorded.hardware.kind != "cpu" or "cpu_time_ns" not in recorded.steps:
        return False
    steps = recorded.steps
    steps = steps[(steps["batch"] == size) & steps["cpu_time_ns"].notna()]
    # In the median step no other program took the core.
    if steps.empty:
        return False
    cores = steps["cpu_time_ns"] / steps["duration_ns"]
    threads = recorded.hardware.threads or 1
    beside = float(cores.median()) - kernels * threads
    return bool(beside >= _HOST_SHARE * (1 - kernels))
