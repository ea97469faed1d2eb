"""Split the anomalies of a curve into terms and causes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from ...base.errors import CurvescopeError
from ...profiling.recording.store import STEP
from ..causes import attribute, judge, weigh_causes
from ..causes.case import Case
from ..causes.context import Examined, Recorded, cases, examine
from ..causes.work import weights_of_work
from ..decompose.curve import Curve, cost_curve
from ..decompose.findings import FindingVerdict, find, find_fixed_cost
from ..decompose.functionals import Functional
from ..decompose.marked import with_averaged
from ..decompose.terms import (
    IDLE,
    KERNELS,
    NOT_RECORDED,
    OVERHEAD,
    SLOW_STEPS,
    Terms,
    TermWork,
    estimate_terms,
    in_rounds,
    main_kernels,
)
from ..verdicts.measurement import Measurement
from ..verdicts.outcome import Outcome
from .certain import find_certain
from .explanation import Explanation
from .result import Diagnosis

_LAST = {
    IDLE: 1,
    NOT_RECORDED: 1,
    OVERHEAD: 2,
    SLOW_STEPS: 3,
}  # of the shares, after those of kernels


def explain(
    functional: Functional,
    curve: Curve,
    terms: Terms,
    kernel_times: pd.DataFrame,
    recorded: Recorded,
    examined: Examined | None = None,
) -> Explanation:
    """Split one functional over batch sizes of the curve into its terms, and those into causes.

    `examined` is of these tables and of at least the functional's batch sizes; it is made here if
    it is not given.

    Raises:
        CurvescopeError: a batch size of the functional has no profiled step.
    """
    untested = [_split(functional, curve, terms, kernel_times, recorded, examined)]
    outcomes = judge(untested, recorded.measured)
    return attributed(untested, outcomes, waits_for_time=recorded.waits_for_time)[0]


def _split(
    functional: Functional,
    curve: Curve,
    terms: Terms,
    kernel_times: pd.DataFrame,
    recorded: Recorded,
    examined: Examined | None = None,
) -> Explanation:
    """The same before experiments: with what causes claim of each term, and nothing attributed to
    them.
    """
    of_terms = _cases(functional, curve, terms, kernel_times, recorded, examined)
    return Explanation(
        functional=functional,
        value=curve.judging(functional).evaluate(functional),
        cases=tuple(weigh_causes(case) for case in of_terms),
    )


def _cases(
    functional: Functional,
    curve: Curve,
    terms: Terms,
    kernel_times: pd.DataFrame,
    recorded: Recorded,
    examined: Examined | None = None,
) -> list[Case]:
    """The terms of a functional, the largest first, with what is recorded of them."""
    behind = terms.behind(functional)
    missing = set(functional.conditions) - set(behind.conditions)
    if missing:
        raise CurvescopeError(
            f"{functional.label} cannot be split: no step of batch "
            f"{', '.join(map(str, sorted(missing)))} is profiled. Measure again, with a longer "
            "--time-limit if it has one."
        )
    if behind is not terms:
        kernel_times, steps = in_rounds(
            kernel_times, recorded.steps, behind.conditions, behind.shared, "batch"
        )
        if "averaged" in kernel_times:
            # Those of all rounds may be in none of these.
            statistic = None if terms.of_all_steps else curve.paces.statistic
            kernel_times = with_averaged(kernel_times, statistic)
        recorded, examined = replace(recorded, steps=steps), None
    examined = examined or examine(functional.conditions, kernel_times, recorded)
    judging = curve.judging(functional)
    kernels = main_kernels(kernel_times, functional.conditions)
    classes = recorded.layer_classes
    lines = recorded.lines.get(functional.last, {})
    shares = [
        replace(
            share,
            layer_class=classes.get(share.key.layer or ""),
            line=lines.get(share.key),
        )
        for share in terms.decompose(functional, judging)
    ]
    shares.sort(
        key=lambda share: (_LAST.get(share.key.kind, 0), -abs(share.value.value), share.label)
    )
    named = (_with_names(case, kernels) for case in cases(functional, shares, examined))
    return [with_work(case, terms) for case in named]


def with_work(case: Case, terms: Terms) -> Case:
    """The case of a term of kernels with the part that is more work than in proportion."""
    if case.share.key.kind != KERNELS:
        return case
    weights, known_ms = weights_of_work(case)
    value = terms.weighted(case.functional, case.share.key, weights) if weights else None
    return replace(
        case, share=replace(case.share, work=TermWork(value, known_ms, case.time_ms(case.after)))
    )


def with_measurements(
    diagnosis: Diagnosis, measured: Sequence[Measurement], *, waits_for_time: bool
) -> Diagnosis:
    """The diagnosis with the outcomes of experiments, and with the causes that they leave.

    `waits_for_time`: whether the time was up before all were made.
    """
    outcomes = judge(diagnosis.explained, measured)
    explained = attributed(diagnosis.explained, outcomes, waits_for_time=waits_for_time)
    return replace(
        diagnosis,
        explanations=explained[: len(diagnosis.explanations)],
        fixed_cost=explained[-1] if diagnosis.fixed_cost else None,
        outcomes=outcomes,
    )


def attributed(
    explanations: Iterable[Explanation], outcomes: Sequence[Outcome], *, waits_for_time: bool
) -> tuple[Explanation, ...]:
    """The explanations with the causes that these outcomes leave."""
    return tuple(
        replace(
            explanation,
            causes=attribute(
                explanation.functional,
                explanation.value,
                explanation.cases,
                outcomes,
                waits_for_time=waits_for_time,
            ),
        )
        for explanation in explanations
    )


def _with_names(
    case: Case, kernels: Mapping[tuple[str | None, str | None], Sequence[str | None]]
) -> Case:
    """The case whose term has the kernels with the most time on its two sides; `kernels` has those
    of each layer and phase at the batch sizes of the functional.
    """
    key = case.share.key
    if key.kind != KERNELS or (names := kernels.get((key.layer, key.phase))) is None:
        return case
    before, after = (names[case.functional.conditions.index(side)] for side in case.sides)
    return replace(case, share=replace(case.share, kernel_before=before, kernel_after=after))


def diagnose(
    steps: pd.DataFrame,
    kernel_times: pd.DataFrame,
    axis: str = "log2",
    statistic: str = "median",
    recorded: Recorded | None = None,
) -> Diagnosis:
    """Find and explain the anomalies of a recording; without profiled steps they are found, not
    split.

    The axis is that of the displayed curvatures: log2, linear or throughput; the statistic is one
    of `STATISTICS`.
    """
    recorded = recorded or Recorded(steps)
    terms = None
    if not kernel_times.empty:
        terms = estimate_terms(
            kernel_times,
            steps,
            statistic=statistic,
            sampled=recorded.sampled,
        )
    # If every step was profiled, e.g. in imported profiles, the curve is theirs, and the overhead
    # is unknown.
    profiled = terms is not None and steps["profiled"].astype(bool).all()
    curve = terms.curve(steps) if terms is not None and profiled else cost_curve(steps, statistic)
    # A size that a sweep found may have got no step before its time was up.
    jumps = tuple(place for place in recorded.jumps if {*place} <= {*curve.conditions})
    return diagnose_curve(
        replace(curve, unit=recorded.unit, jumps=jumps),
        terms,
        kernel_times,
        recorded,
        axis,
    )


def diagnose_curve(
    curve: Curve,
    terms: Terms | None,
    kernel_times: pd.DataFrame,
    recorded: Recorded,
    axis: str = "log2",
) -> Diagnosis:
    """Find and explain the anomalies of a curve; without terms, i.e. profiled steps, they are
    found, not split.

    Whole recordings are not compared: how many steps each of them holds is unknown.
    """
    findings = find(curve, axis) if curve.unit == STEP else ()
    diagnosis = Diagnosis(
        curve, findings, (), terms, kernel_times, axis=recorded.axis, notes=recorded.notes
    )
    if terms is None or curve.unit != STEP:
        return with_measurements(
            diagnosis, recorded.measured, waits_for_time=recorded.waits_for_time
        )
    anomalies = [f.tested for f in findings if f.verdict == FindingVerdict.ANOMALY]
    split = [functional for functional in anomalies if terms.covers(functional)]
    fixed = find_fixed_cost(curve, terms.conditions)
    batches = sorted({b for f in findings for b in f.tested.conditions} & set(terms.conditions))
    examined = examine(batches, kernel_times, recorded) if batches else None
    explanations = [
        _split(functional, curve, terms, kernel_times, recorded, examined) for functional in split
    ]
    fixed_cost = _split(fixed, curve, terms, kernel_times, recorded, examined) if fixed else None
    made = {explanation.functional: explanation.cases for explanation in explanations}
    certain = find_certain(
        curve,
        terms,
        findings,
        lambda functional: (
            made.get(functional)
            or _cases(functional, curve, terms, kernel_times, recorded, examined)
        ),
    )
    diagnosis = replace(
        diagnosis,
        explanations=tuple(_fold(explanations)),
        fixed_cost=fixed_cost,
        certain=certain,
    )
    return with_measurements(diagnosis, recorded.measured, waits_for_time=recorded.waits_for_time)


def _fold(explanations: Sequence[Explanation]) -> list[Explanation]:
    """List bends under the excess that causes them: a jump from b to 2b is also a bend at b and one
    at 2b.
    """
    kept: list[Explanation] = []
    for explanation in sorted(
        explanations, key=lambda e: (e.functional.kind != "excess", -abs(e.value.value))
    ):
        index = next((i for i, k in enumerate(kept) if _same_event(k, explanation)), None)
        if index is None:
            kept.append(explanation)
        else:
            kept[index] = replace(
                kept[index], also=(*kept[index].also, explanation.functional.label)
            )
    return kept


def _same_event(jump: Explanation, other: Explanation) -> bool:
    return (
        jump.functional.kind == "excess"
        and other.functional.kind == "bend"
        and other.functional.at in (jump.functional.at, jump.functional.to)
        and jump.shares[0].label == other.shares[0].label
    )
