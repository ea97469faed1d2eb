"""Causes of an anomaly as text for a terminal: the amount of each, its evidence, and what would
refute it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.numbers import number, quantity, with_sign
from ..causes import NOT_SIGNIFICANT, UNEXPLAINED, CauseTotal, Evidence
from ..decompose.functionals import CANCELS
from ..diagnosis.explanation import Explanation
from ..verdicts.words import Verdict
from .answers import VERDICT_STYLES
from .tables import Indented, table
from .words import dim, interval, share, shorten

_SHOWN_TERMS = 3
_LEAST_OF_LARGEST = 0.05  # of the largest term of a cause; smaller terms are only counted
_SHOWN_CLAIMS = 2


def render_causes(explanation: Explanation, everything: bool = False) -> RenderableType:
    """The causes with their amounts, which add up, then the evidence of the largest."""
    unit, value = explanation.functional.unit, explanation.value.value
    heads = ("cause", unit, "share", "verdict", "terms")
    rows = table(*heads, left=("verdict",), words=("cause", "terms"))
    causes, apart = [], []
    for total in explanation.causes:
        if total.cause == NOT_SIGNIFICANT:
            apart.append(total)
        elif total.amount:
            causes.append(total)
    for total in causes:
        style = VERDICT_STYLES.get(total.verdict, "dim")
        verdict = Text(verdict_of(total), style)
        rows.add_row(*_cause(total, value), verdict, _terms(total, everything))
    rows.add_section()
    for total in apart:
        terms = _terms(total, everything)
        rows.add_row(*_cause(total, value), verdict_of(total), terms, style="dim")
    whole = sum(total.amount for total in explanation.causes)
    rows.add_row("total", with_sign(whole), share(whole, value), "", "")
    blocks: list[RenderableType] = [rows]
    for total in causes:
        at = total.measured
        if at is not None:
            amount = f"{with_sign(at.value)} {unit}"
            said = f"{amount} measured on the complete step ({interval(at)})"
            blocks.append(Text(f"{total.cause}: {said}."))
    blocks += dim(_reasons(causes))
    named = [total for total in causes if total.cause != UNEXPLAINED or total.terms[0].claim]
    if not everything:
        named = named[:_SHOWN_CLAIMS]
    for total in named:
        blocks.append(_claims(total, everything))
    return Indented(*blocks)


def verdict_of(total: CauseTotal) -> str:
    """The verdict of experiments on a cause; an insignificant term has none."""
    if total.cause == NOT_SIGNIFICANT:
        return "no cause"
    return "" if total.cause == UNEXPLAINED else total.verdict


def _cause(total: CauseTotal, value: float) -> tuple[str, str, str]:
    return total.cause, with_sign(total.amount), share(total.amount, value)


def _terms(total: CauseTotal, everything: bool) -> Text:
    terms = total.terms
    if terms and not everything:
        least = _LEAST_OF_LARGEST * abs(terms[0].amount)
        large = [term for term in terms if abs(term.amount) >= least]
        terms = tuple(large[:_SHOWN_TERMS])
    labels = ", ".join(term.label for term in terms)
    more = len(total.terms) - len(terms)
    if more:
        labels += f" and {more} more"
    return Text(labels)


def _reasons(causes: Sequence[CauseTotal]) -> Iterable[str]:
    """Why causes are undecided or untested, a sentence per reason."""
    confirmed = {cause.cause for cause in causes if cause.verdict == Verdict.CONFIRMED}
    names_by: dict[tuple[str, str], list[str]] = {}
    for cause in causes:
        if cause.reason:
            name = cause.cause
            if name in confirmed:
                name = f"the rest of {name}"
            names = names_by.setdefault((cause.verdict, cause.reason), [])
            names.append(name)
    for (verdict, reason), names in names_by.items():
        *others, last = names
        said = f"{last} is"
        if others:
            said = f"{', '.join(others)} and {last} are"
        if names != [UNEXPLAINED]:
            said += f" {verdict}"
        yield f"{said}: {reason}."


def verdict_sentence(explanation: Explanation) -> str:
    """The largest cause in one sentence; its share is of the terms with the sign of the anomaly."""
    largest, value = explanation.largest_cause, explanation.value.value
    if largest is None:
        return "There is no deviation to explain."
    if explanation.noise:
        return "It is not significant: its interval holds 0."
    most = max(abs(total.amount) for total in explanation.causes)
    if most > CANCELS * abs(value):
        return (
            f"Its parts cancel: {largest.cause} alone is more than twice as large. Its split is "
            "not known."
        )
    agreeing = sum(total.amount for total in explanation.causes if total.amount * value > 0)
    portion, percent = 1.0, "all"
    if agreeing:
        portion = largest.amount / agreeing
        percent = f"{portion:.0%}"
    where = largest.terms[0].label
    if largest.cause == UNEXPLAINED:
        lead = "Most of it" if portion > 0.5 else "The largest part"
        return f"{lead} ({percent}) has no known cause, largest in {where}."
    if largest.cause == NOT_SIGNIFICANT:
        return f"None of its terms is significant alone; the largest is {where}."
    lead = "Mostly" if portion > 0.5 else "Several causes, the largest"
    return f"{lead} {largest.cause} ({percent}), largest in {where}."


def _claims(total: CauseTotal, everything: bool) -> RenderableType:
    lines: list[RenderableType] = []
    terms = total.terms if everything else total.terms[:1]
    for term in terms:
        claim = term.claim
        if claim is None:
            continue
        what = "" if total.cause == claim.cause else f": {claim.cause} suspected"
        where = f"{what} in {term.label} ({with_sign(term.amount)})"
        lines.append(Text.assemble((total.cause, "bold"), where))
        for evidence in claim.evidence:
            fact = Text(_evidence_text(evidence))
            lines.append(Indented(fact, label="  - "))
        if total.verdict not in (Verdict.CONFIRMED, Verdict.REFUTED):
            refuted = f"{claim.refuted_by[0].lower()}{claim.refuted_by[1:]}"
            lines.append(Indented(Text(f"Refuted if: {refuted}", "dim")))
    return Group(*lines)


def _evidence_text(evidence: Evidence) -> str:
    unit = evidence.unit
    both = _value(evidence.before, unit)
    after = _value(evidence.after, unit)
    if after != both:
        both += f" → {after}"
    if unit not in ("", "1", "B"):
        both += f" {unit}"
    return f"{evidence.what}: {both} [{evidence.table}]"


def _value(value: float | str | None, unit: str) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return shorten(value)
    return quantity(value, unit) if unit == "B" else number(value, 3)
