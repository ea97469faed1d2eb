"""Causes of an anomaly as text for a terminal: the amount of each, its evidence, and what would
refute it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.numbers import number, quantity, signed
from ..causes import NOT_SIGNIFICANT, UNEXPLAINED, CauseTotal, Evidence
from ..decompose.functionals import CANCELS
from ..diagnosis.explanation import Explanation
from ..verdicts.words import Verdict
from .answers import VERDICT_STYLES
from .tables import Indented, table
from .words import interval, share, shorten

_SHOWN_TERMS = 3
_LEAST_SHARE = 0.05  # of the largest term of a cause; smaller terms are only counted
_SHOWN_CLAIMS = 2


def render_causes(explanation: Explanation, everything: bool = False) -> RenderableType:
    """The causes with their amounts, which add up, then the evidence of the largest."""
    unit, value = explanation.functional.unit, explanation.value.value
    rows = table(
        "cause", unit, "share", "verdict", "terms", left=("verdict",), words=("cause", "terms")
    )
    apart = [total for total in explanation.causes if total.cause == NOT_SIGNIFICANT]
    causes = [
        total for total in explanation.causes if total.cause != NOT_SIGNIFICANT and total.amount
    ]
    for total in causes:
        verdict = Text(verdict_of(total), VERDICT_STYLES.get(total.verdict, "dim"))
        rows.add_row(*_cause(total, value), verdict, _terms(total, everything))
    rows.add_section()
    for total in apart:
        rows.add_row(
            *_cause(total, value),
            verdict_of(total),
            _terms(total, everything),
            style="dim",
        )
    whole = sum(total.amount for total in explanation.causes)
    rows.add_row("total", signed(whole), share(whole, value), "", "")
    blocks: list[RenderableType] = [rows]
    blocks += [
        Text(
            f"{cause.cause}: {signed(at.value)} {unit} measured on the complete step "
            f"({interval(at)})."
        )
        for cause in causes
        if (at := cause.measured) is not None
    ]
    blocks += [Text(line, "dim") for line in _reasons(causes)]
    named = [total for total in causes if total.cause != UNEXPLAINED or total.terms[0].claim]
    blocks += [
        _claims(total, everything) for total in named[: None if everything else _SHOWN_CLAIMS]
    ]
    return Indented(*blocks)


def verdict_of(total: CauseTotal) -> str:
    """What experiments say of a cause; what is not significant is none."""
    if total.cause == NOT_SIGNIFICANT:
        return "no cause"
    return "" if total.cause == UNEXPLAINED else total.verdict


def _cause(total: CauseTotal, value: float) -> tuple[str, str, str]:
    return total.cause, signed(total.amount), share(total.amount, value)


def _terms(total: CauseTotal, everything: bool) -> Text:
    large = [
        term
        for term in total.terms
        if abs(term.amount) >= _LEAST_SHARE * abs(total.terms[0].amount)
    ]
    terms = total.terms if everything else large[:_SHOWN_TERMS]
    more = len(total.terms) - len(terms)
    return Text(", ".join(term.label for term in terms) + (f" and {more} more" if more else ""))


def _reasons(causes: Sequence[CauseTotal]) -> Iterable[str]:
    """Why causes are undecided or untested, a sentence per reason."""
    confirmed = {cause.cause for cause in causes if cause.verdict == Verdict.CONFIRMED}
    for verdict, reason in dict.fromkeys(
        (cause.verdict, cause.reason) for cause in causes if cause.reason
    ):
        names = [
            f"the rest of {cause.cause}" if cause.cause in confirmed else cause.cause
            for cause in causes
            if (cause.verdict, cause.reason) == (verdict, reason)
        ]
        listed = (
            f"{', '.join(names[:-1])} and {names[-1]} are" if len(names) > 1 else f"{names[0]} is"
        )
        yield f"{listed}{'' if names == [UNEXPLAINED] else f' {verdict}'}: {reason}."


def verdict_sentence(explanation: Explanation) -> str:
    """The largest cause in one sentence; its share is of the terms with the sign of the anomaly."""
    largest, value = explanation.largest_cause, explanation.value.value
    if largest is None:
        return "There is no deviation to explain."
    if explanation.noise:
        return "It is not significant: its interval holds 0."
    if max(abs(total.amount) for total in explanation.causes) > CANCELS * abs(value):
        return (
            f"Its parts cancel: {largest.cause} alone is more than twice as large. Its split is "
            "not known."
        )
    agreeing = sum(total.amount for total in explanation.causes if total.amount * value > 0)
    portion = largest.amount / agreeing if agreeing else 1.0
    percent = f"{portion:.0%}" if agreeing else "all"
    where = largest.terms[0].label
    if largest.cause == UNEXPLAINED:
        most = "Most of it" if portion > 0.5 else "The largest part"
        return f"{most} ({percent}) has no known cause, largest in {where}."
    if largest.cause == NOT_SIGNIFICANT:
        return f"None of its terms is significant alone; the largest is {where}."
    most = "Mostly" if portion > 0.5 else "Several causes, the largest"
    return f"{most} {largest.cause} ({percent}), largest in {where}."


def _claims(total: CauseTotal, everything: bool) -> RenderableType:
    lines: list[RenderableType] = []
    for term in total.terms[: None if everything else 1]:
        if term.claim is not None:
            what = "" if total.cause == term.claim.cause else f": {term.claim.cause} suspected"
            lines.append(
                Text.assemble(
                    (total.cause, "bold"), f"{what} in {term.label} ({signed(term.amount)})"
                )
            )
            lines += [Indented(Text(_evidence_text(e)), label="  - ") for e in term.claim.evidence]
            if total.verdict not in (Verdict.CONFIRMED, Verdict.REFUTED):
                refuted_by = term.claim.refuted_by
                lines.append(
                    Indented(Text(f"Refuted if: {refuted_by[0].lower()}{refuted_by[1:]}", "dim"))
                )
    return Group(*lines)


def _evidence_text(evidence: Evidence) -> str:
    before, after = (_value(v, evidence.unit) for v in (evidence.before, evidence.after))
    both = before if before == after else f"{before} → {after}"
    unit = "" if evidence.unit in ("", "1", "B") else f" {evidence.unit}"
    return f"{evidence.what}: {both}{unit} [{evidence.table}]"


def _value(value: float | str | None, unit: str) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return shorten(value)
    return quantity(value, unit) if unit == "B" else number(value, 3)
