"""What a recording shows, in one sentence, before anything is tested by experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..cost_model.recording import is_modelled
from ..decompose.anomalies import Diagnosis, Explanation, Verdict
from ..experiments.answer import Answer
from .numbers import number, signed


def headline(meta: Mapping[str, Any], found: Diagnosis) -> str:
    """The largest anomaly in a sentence, or that there is none.

    Args:
        meta: contents of `recording.json`.
        found: diagnosis of the recording.
    """
    sentence = finding_sentence(found)
    modelled = " (modelled)" if is_modelled(meta) else ""
    name = f"{meta['network']}{modelled}" if meta.get("network") else None
    return f"{name}: {sentence}" if name else sentence[0].upper() + sentence[1:]


def finding_sentence(found: Diagnosis) -> str:
    """The same without a name, in lower case."""
    axis = found.axis
    batches = found.curve.conditions
    if not found.findings:
        time = found.curve.points[-1].time_ms.value
        batch = f"{axis.name} {batches[-1]}" if batches[-1] else f"unknown {axis.name}"
        profiled = ", all of them profiled" if found.curve.profiled else ""
        return f"a step of {batch} takes {number(time)} ms (n = {found.curve.points[-1].n}{profiled})."
    if found.explanations:
        first = found.explanations[0]
        size = found.curve.at(first.functional.last).time_ms.value
        amount = f"{signed(first.value.value)} ms ({first.value.value / size:+.0%} of the step)"
        at, to = first.functional.at, first.functional.to
        if to is not None:
            return f"{axis.name} {to} costs {amount.replace('+', '')} more than {to / at:g} times {axis.name} {at}."
        return f"after {axis.name} {at} the step time deviates from its straight line by {amount}."
    if found.anomalies:
        labels = ", ".join(f.shown.label for f in found.anomalies)
        return f"{labels} is significant; no step was profiled there, so its terms are unknown."
    span = f"from {axis.name} {batches[0]} to {batches[-1]}"
    if all(f.verdict in (Verdict.NOISE, Verdict.NOT_SIGNIFICANT) for f in found.findings):
        return f"no anomaly {span}; no deviation is significant."
    return f"no anomaly {span}; fixed plus proportional cost explains the significant deviations."


def answer_on(explanation: Explanation, answers: Sequence[Answer]) -> Answer | None:
    """The answer on a functional; None if there is none."""
    return next((answer for answer in answers if answer.functional == explanation.functional), None)
