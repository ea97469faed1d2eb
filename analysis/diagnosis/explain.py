"""Diagnosis of one recording: the stages, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...base.errors import CurvescopeError
from ...profiling.recording.store import STEP, Recording, is_modelled
from ..causes import Anomaly, attribute, judge
from ..causes.context import Recorded
from ..cost_model.errors import Model, draw_errors_of_rows, model_curve, model_terms
from ..decompose.curve import NO_CURVE, UNKNOWN
from ..decompose.findings import find
from ..decompose.functionals import FIXED_COST, Functional
from ..verdicts.measurement import Measurement
from ..verdicts.outcome import measurements
from .answer import Grounds, answer
from .certain import find_certain
from .difference import find_difference
from .estimate import Estimates, estimate
from .explanation import Explanation
from .read import read, waits_for_time
from .result import Conclusion, Diagnosis
from .split import explain_functional, split_anomalies, weigh


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
    recorded = read(recording, mode, by_instance=by_instance)
    if len(recorded.steps) and (recorded.steps["batch"] == UNKNOWN).all():
        raise CurvescopeError(
            f"{recording.path.name} names no batch size, so there is no curve to explain. Import "
            "the profiles of several batch sizes together: `curvescope import --as sweep --batch "
            "8,16 FILE FILE`."
        )
    diagnosis = diagnose(recorded, axis, recording)
    if diagnosis.curve.profiled and len(diagnosis.curve.points) == 1:
        raise CurvescopeError(NO_CURVE)
    return diagnosis


def diagnose(
    recorded: Recorded, axis: str = "log2", recording: Recording | None = None
) -> Diagnosis:
    """Find and explain the anomalies of the recording; without profiled steps they are found, not
    split.

    `axis` is the axis of the displayed curvatures: log2, linear or throughput.
    """
    estimates = _estimate(recorded, recording)
    curve, terms = estimates
    findings = find(curve, axis) if curve.unit == STEP else ()
    splits = split_anomalies(estimates, findings, recorded)
    anomalies = weigh(splits)
    conclusion = _conclude(
        anomalies, recorded.measured, recorded, estimates, recording, recorded.waits_for_time
    )
    return Diagnosis(
        curve=curve,
        findings=findings,
        terms=terms,
        recorded=recorded,
        certain=find_certain(curve, terms, splits.tested),
        difference=find_difference(recording, curve, terms, findings),
        recording=recording,
        **vars(conclusion),
    )


def explain_again(diagnosis: Diagnosis, recording: Recording) -> Diagnosis:
    """The diagnosis after further experiments, which are all that may have changed: far quicker
    than `explain`.
    """
    conclusion = _conclude(
        diagnosis.all_explanations,
        measurements(recording, diagnosis.outcomes),
        diagnosis.recorded,
        Estimates(diagnosis.curve, diagnosis.terms),
        recording,
        waits_for_time(recording),
    )
    return replace(diagnosis, recording=recording, **vars(conclusion))


def explain_one(diagnosis: Diagnosis, functional: Functional) -> Explanation:
    """The answer on one functional, where the diagnosis has one; else the functional split into its
    terms and causes.

    Raises:
        CurvescopeError: a batch size of the functional has no profiled step.
    """
    for answered in diagnosis.answers:
        if answered.functional == functional:
            return answered
    estimates = Estimates(diagnosis.curve, diagnosis.terms)
    return explain_functional(functional, estimates, diagnosis.recorded)


def _estimate(recorded: Recorded, recording: Recording | None) -> Estimates:
    """The curve and its terms, of measured steps or of a cost model."""
    if recording is not None and is_modelled(recording.meta):
        model = Model.of(recording.meta)
        (errors,) = draw_errors_of_rows([recorded.kernel_times], model)
        terms = model_terms(recorded.kernel_times, errors)
        return Estimates(model_curve(terms), terms)
    return estimate(recorded)


def _conclude(
    anomalies: Sequence[Anomaly],
    measured: Sequence[Measurement],
    recorded: Recorded,
    estimates: Estimates,
    recording: Recording | None,
    waits: bool,
) -> Conclusion:
    """The stages after which experiments count: judge, attribute, answer."""
    judged = judge(anomalies, measured)
    grounds = Grounds.of(judged.outcomes, recorded, estimates, recording)
    answers = []
    for anomaly in anomalies:
        causes = attribute(anomaly, judged, waits_for_time=waits)
        answers.append(answer(anomaly, causes, grounds))
    fixed = None
    if answers and answers[-1].functional.kind == FIXED_COST:
        fixed = answers.pop()
    return Conclusion(
        explanations=tuple(answers),
        fixed_cost=fixed,
        outcomes=judged.outcomes,
        claims=judged.claims,
        remedies=grounds.remedies,
    )
