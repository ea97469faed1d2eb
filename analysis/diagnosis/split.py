"""Fourth stage of a diagnosis: split the anomalies of a curve, and its fixed cost, into terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from ...base.errors import CurvescopeError
from ...profiling.recording.store import STEP
from ..causes import attribute, judge
from ..causes.case import Anomaly, Case, TermUses
from ..causes.catalogue import weigh_term
from ..causes.context import Examined, Recorded, examine, find_uses
from ..causes.work import weights_of_work
from ..decompose.curve import MODELLED
from ..decompose.findings import Finding, FindingVerdict, find_fixed_cost
from ..decompose.functionals import Condition, Functional
from ..decompose.marked import with_averaged
from ..decompose.statistics import Estimate
from ..decompose.terms import (
    IDLE,
    KERNELS,
    NOT_RECORDED,
    OVERHEAD,
    SLOW_STEPS,
    Key,
    Share,
    Terms,
    TermWork,
    in_rounds,
    main_kernels,
)
from .estimate import Estimates
from .explanation import Explanation

# Places of terms after those of kernels.
_LAST = {IDLE: 1, NOT_RECORDED: 1, OVERHEAD: 2, SLOW_STEPS: 3}


@dataclass(frozen=True)
class Split:
    """A functional of the curve, split into its terms."""

    functional: Functional
    value: Estimate
    cases: tuple[Case, ...]  # its terms, the largest first, idle and profiling overhead last
    also: tuple[str, ...] = ()  # labels of other findings from the same term at the same batch size


@dataclass(frozen=True)
class Splits:
    """The functionals of a curve that were split."""

    anomalies: tuple[Split, ...] = ()  # the largest first, then the fixed cost
    # the terms of every functional that was tested and that profiled steps cover
    tested: Mapping[Functional, Sequence[Case]] = field(default_factory=dict)


def split_anomalies(
    estimates: Estimates, findings: Sequence[Finding], recorded: Recorded
) -> Splits:
    """Split the anomalies and the fixed cost; nothing without profiled steps.

    Whole recordings are not compared: how many steps each of them holds is unknown.
    """
    curve, terms = estimates
    if terms is None or curve.unit != STEP:
        return Splits()
    fixed = find_fixed_cost(curve, terms.conditions)
    functionals = [finding.tested for finding in findings]
    if fixed is not None:
        functionals.append(fixed)
    gathered = _Gathered(functionals, estimates, recorded)
    tested: dict[Functional, tuple[Case, ...]] = {}
    anomalies = []
    for finding in findings:
        functional = finding.tested
        is_anomaly = finding.verdict == FindingVerdict.ANOMALY
        # Nothing that a model predicts is certain beside its anomalies.
        if not terms.covers(functional) or (curve.statistic == MODELLED and not is_anomaly):
            continue
        tested[functional] = split_terms(functional, estimates, recorded, gathered)
        if is_anomaly:
            value = curve.judging(functional).evaluate(functional)
            anomalies.append(Split(functional, value, tested[functional]))
    listed = _fold(anomalies)
    if fixed is not None:
        cases = split_terms(fixed, estimates, recorded, gathered)
        value = curve.judging(fixed).evaluate(fixed)
        listed.append(Split(fixed, value, cases))
    return Splits(tuple(listed), tested)


# Of a layer and phase, by batch size.
_Names: TypeAlias = Mapping[tuple[str | None, str | None], Mapping[int, str | None]]


class _Gathered:
    """What causes examine of a recording in the rounds of some terms, once for all functionals that
    are split into these.
    """

    def __init__(
        self, functionals: Iterable[Functional], estimates: Estimates, recorded: Recorded
    ) -> None:
        """Prepare for functionals."""
        self._estimates, self._recorded = estimates, recorded
        self._sizes: set[Condition] = set()
        for functional in functionals:
            self._sizes.update(functional.conditions)
        self._known: dict[int, tuple[Examined, _Names]] = {}

    def behind(self, terms: Terms) -> tuple[Examined, _Names]:
        """The facts for causes in the rounds of these terms, and the kernels with the most time."""
        if id(terms) not in self._known:
            own = self._recorded
            if terms is not self._estimates.terms:
                own = _take_rounds(own, self._estimates, terms)
            sizes = sorted(self._sizes & {*terms.conditions})
            names = {}
            for term, by_size in main_kernels(own.kernel_times, sizes).items():
                names[term] = dict(zip(sizes, by_size, strict=True))
            self._known[id(terms)] = examine(sizes, own), names
        return self._known[id(terms)]


def split_terms(
    functional: Functional, estimates: Estimates, recorded: Recorded, gathered: _Gathered
) -> tuple[Case, ...]:
    """The terms of a functional, the largest first, with their records.

    Raises:
        CurvescopeError: a batch size of the functional has no profiled step.
    """
    curve, terms = estimates
    assert terms is not None
    examined, kernels = gathered.behind(_terms_behind(functional, terms))
    cases = []
    for share in terms.decompose(functional, curve.judging(functional)):
        uses = find_uses(functional, share.key, examined)
        case = Case(
            functional=functional,
            before=uses.before,
            after=uses.after,
            uses=uses.uses,
            share=_describe(share, uses, terms, recorded, kernels),
            facts={size: examined.facts[size] for size in functional.conditions},
            hardware=examined.hardware,
            slow_downs=examined.slow_downs.get(share.key, {}),
            block=examined.blocks.get(share.key),
        )
        cases.append(case)
    return tuple(sorted(cases, key=_place))


def _terms_behind(functional: Functional, terms: Terms) -> Terms:
    """The terms that a functional is split into, each batch size with a profiled step."""
    behind = terms.behind(functional)
    missing = set(functional.conditions) - set(behind.conditions)
    if missing:
        sizes = ", ".join(map(str, sorted(missing)))
        raise CurvescopeError(
            f"{functional.label} cannot be split: no step of batch {sizes} is profiled. Measure "
            "again, with a longer --time-limit if it has one."
        )
    return behind


def _take_rounds(recorded: Recorded, estimates: Estimates, behind: Terms) -> Recorded:
    """The recording in the rounds of some terms."""
    curve, terms = estimates
    assert terms is not None
    kernel_times, steps = in_rounds(
        recorded.kernel_times, recorded.steps, behind.conditions, behind.shared, "batch"
    )
    if "averaged" in kernel_times:
        # Those of all rounds may be in none of these.
        statistic = None if terms.of_all_steps else curve.paces.statistic
        kernel_times = with_averaged(kernel_times, statistic)
    return replace(recorded, steps=steps, kernel_times=kernel_times)


class _Kernels(NamedTuple):
    """The kernel with the most time in a term on both sides."""

    before: str | None = None
    after: str | None = None


def _describe(
    share: Share,
    uses: TermUses,
    terms: Terms,
    recorded: Recorded,
    kernels: _Names,
) -> Share:
    """The contribution of a term with its names in the program, and its kernels and their work."""
    key, work, named = share.key, None, _Kernels()
    if key.kind == KERNELS:
        work = _find_work(uses, key, terms)
        names = kernels.get((key.layer, key.phase), {})
        named = _Kernels(*map(names.get, uses.sides))
    lines = recorded.lines.get(uses.functional.last, {})
    return Share(
        key,
        share.value,
        share.real,
        kernel_before=named.before,
        kernel_after=named.after,
        layer_class=recorded.layer_classes.get(key.layer or ""),
        line=lines.get(key),
        work=work,
    )


def _find_work(uses: TermUses, key: Key, terms: Terms) -> TermWork:
    """The part of a term of kernels that is more work per sample."""
    weights, known_ms = weights_of_work(uses)
    value = None
    if weights:
        value = terms.sum_weighted(uses.functional, key, weights)
    return TermWork(value, known_ms, uses.time_ms(uses.after))


def _place(case: Case) -> tuple[int, float, str]:
    """The place of a term among the terms of a functional."""
    share = case.share
    return _LAST.get(share.key.kind, 0), -abs(share.value.value), share.label


def _fold(splits: Sequence[Split]) -> list[Split]:
    """List bends under the excess that causes them: a jump from b to 2b is also a bend at b and one
    at 2b.
    """
    kept: list[Split] = []
    also: dict[Functional, list[str]] = {}
    for split in sorted(splits, key=_size):
        jump = next((before for before in kept if _same_event(before, split)), None)
        if jump is None:
            kept.append(split)
        else:
            also.setdefault(jump.functional, []).append(split.functional.label)
    folded = []
    for split in kept:
        labels = tuple(also.get(split.functional, ()))
        folded.append(Split(split.functional, split.value, split.cases, labels))
    return folded


def _size(split: Split) -> tuple[bool, float]:
    return split.functional.kind != "excess", -abs(split.value.value)


def _same_event(jump: Split, other: Split) -> bool:
    """Whether a jump is a bend too, of the same leading term."""
    if jump.functional.kind != "excess" or other.functional.kind != "bend":
        return False
    if other.functional.at not in (jump.functional.at, jump.functional.to):
        return False
    return jump.cases[0].share.label == other.cases[0].share.label


def weigh(splits: Splits) -> tuple[Anomaly, ...]:
    """Ask every cause for its claim on each term of the anomalies and of the fixed cost."""
    return tuple(_weigh_split(split) for split in splits.anomalies)


def _weigh_split(split: Split) -> Anomaly:
    terms = tuple(weigh_term(case) for case in split.cases)
    return Anomaly(functional=split.functional, value=split.value, terms=terms, also=split.also)


def explain_functional(
    functional: Functional, estimates: Estimates, recorded: Recorded
) -> Explanation:
    """Split one functional over batch sizes of the curve into its terms, and those into causes; no
    answer is about it.

    Raises:
        CurvescopeError: a batch size of the functional has no profiled step.
    """
    value = estimates.curve.judging(functional).evaluate(functional)
    gathered = _Gathered([functional], estimates, recorded)
    cases = split_terms(functional, estimates, recorded, gathered)
    anomaly = _weigh_split(Split(functional, value, cases))
    judged = judge([anomaly], recorded.measured)
    causes = attribute(anomaly, judged, waits_for_time=recorded.waits_for_time)
    return Explanation(functional=functional, value=value, terms=anomaly.terms, causes=causes)
