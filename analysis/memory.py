"""Peak memory over batch sizes: the same curve, functionals and tests as for time, over bytes,
split over layers.

M(b) is what the allocator had given out at the peak of one step, without tensors that the step does
not use: a sum of blocks, each with a layer and a kind. Where the peak moves, M is the larger of two
lines, and bends upwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log2

import numpy as np
import pandas as pd

from ..base.errors import CurvescopeError
from ..profiling.attribution.memory_peak import CACHED, KINDS, LASTING, UNUSED, WORKSPACE
from ..profiling.recording.axis import Axis, axis_of
from ..profiling.recording.schema import PEAKS
from ..profiling.recording.store import Recording
from .decompose.curve import UNKNOWN, Curve, Point, coefficients, cost_curve, known_batch
from .decompose.findings import Finding, FindingVerdict, find, find_fixed_cost
from .decompose.repeated_layers import (
    OPERATOR_COLUMNS,
    classes_with,
    find_repeated_layers,
    group_of,
)
from .decompose.statistics import Estimate, Floats, normal_estimate
from .decompose.terms import work_label

# Relative standard error of a peak. On a CPU equal steps of two processes have equal peaks, to the
# byte; on a GPU a library may choose another workspace.
ERROR = 0.0005
_LEAST_MARGIN = 0.01  # of a predicted peak
_ERRORS = 2.0  # in a margin: one error was seen, and the next one may be larger
_OUT_OF_MEMORY = "out of memory"
_FAR = 1 << 40
_ROUNDED = 1 + 1e-9  # a limit that is a measured peak holds it
_NO_PEAKS = (
    "has no allocations of a step: it was recorded before they were, as a CUDA graph, or by a "
    "profiler without them (torch.profiler: profile_memory=True). Record it with "
    "`curvescope diagnose --of memory`"
)


@dataclass(frozen=True)
class MemoryTerm:
    """Memory of one kind in one layer, or its contribution to a functional."""

    layer: str | None  # path of the layer; None outside layers
    kind: str  # what the memory is, e.g. activations; of workspace with the phase.
    label: str  # both, with the class of the layer
    line: str | None  # line of the program whose operator allocated most of it; None if unknown
    value: Estimate  # MB, or the functional's unit


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The peak of one batch size, MB."""

    batch: int | None  # the batch size; None if no one knows it
    memory_mb: Estimate  # all that the step uses
    kinds: dict[str, float]  # memory of each kind; without what the step does not use
    # label of the last allocation before the peak; None if the peak is where the step begins
    made_by: str | None
    unused_mb: float  # memory of tensors that the step does not use
    cached_mb: float | None  # memory that the allocator keeps beside it; None if it keeps none
    terms: tuple[MemoryTerm, ...]  # all of it by layer and kind, the largest first


@dataclass(frozen=True)
class SplitFinding:
    """A functional of the curve, and its exact split."""

    finding: Finding  # the functional with its verdict; its values in ms are of MB
    # shares of what is tested in it, the largest first; they add up to that
    shares: tuple[MemoryTerm, ...]

    @property
    def is_anomaly(self) -> bool:
        """Whether it is an anomaly."""
        return self.finding.verdict == FindingVerdict.ANOMALY


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch size that fits, predicted."""

    limit_mb: float  # memory that there is
    batch: int  # the prediction
    low: int  # the least that the margin allows for
    high: int  # the most
    # margin of a predicted peak one doubling beyond the largest measured one, a share of it
    margin: float
    # relative error of the peak of the largest measured size as predicted from the others; None if
    # there are too few
    checked: float | None
    failed: tuple[int, ...] = ()  # batch sizes that ran out of memory when they were measured


@dataclass(frozen=True, kw_only=True)
class MemoryDiagnosis:
    """What `explain --of memory` shows."""

    curve: Curve  # curve of memory; its fields in ms hold MB
    peaks: tuple[Peak, ...]  # the peak of each batch size
    findings: tuple[SplitFinding, ...]  # every excess, then every curvature
    # memory that does not grow with the batch size; None if it is not significant
    fixed_mb: Estimate | None
    # growth from the last batch size but one to the largest; None for a single one
    per_sample_mb: float | None
    # the largest batch size that fits; None if the limit or the growth is unknown
    largest_batch: LargestBatch | None
    axis: Axis = field(default_factory=Axis)  # axis of batch sizes, for words


def explain_memory(
    recording: Recording,
    axis: str = "log2",
    *,
    by_instance: bool = False,
    limit_bytes: int | None = None,
) -> MemoryDiagnosis:
    """Test the curve of peak memory of a recording, and split it over layers; CurvescopeError says
    why it cannot.

    The limit is by default what there was when the largest size was measured; the axis is log2 or
    linear.
    """
    if axis == "throughput":
        raise CurvescopeError(
            "--curvature throughput is of times: of memory choose log2 or linear."
        )
    rows = _with_terms(_read_peaks(recording), recording, by_instance)
    used = rows[~rows["kind"].isin([UNUSED, CACHED])]
    table = used.pivot_table(
        index="batch", columns="term", values="bytes", aggfunc="sum", fill_value=0, sort=False
    )
    table = table.sort_index() / 1e6
    sizes = table.sum(axis=1).to_dict()
    # a curve is of ns, or B
    size_bytes = [size_mb * 1e6 for size_mb in sizes.values()]
    steps = pd.DataFrame({"batch": list(sizes), "duration_ns": size_bytes})
    curve = cost_curve(steps.assign(round=0, profiled=False), noise=ERROR)
    split = _Split(table, used)
    peaks = []
    for point, alone in zip(curve.points, np.eye(len(table)), strict=True):
        of_size = rows[rows["batch"] == point.condition]
        peaks.append(_peak(point, of_size, split.terms(alone)))
    findings = []
    for finding in find(curve, axis):
        weights = coefficients(finding.tested, curve.conditions)
        findings.append(SplitFinding(finding, split.terms(weights)))
    fixed = find_fixed_cost(curve, curve.conditions)
    growth = None
    for small, large in list(pairwise(sizes))[-1:]:
        growth = (sizes[large] - sizes[small]) / (large - small)
    fixed_mb = None if fixed is None else curve.evaluate(fixed)
    largest = _largest_batch(rows, sizes, recording, limit_bytes)
    return MemoryDiagnosis(
        curve=curve,
        peaks=tuple(peaks),
        findings=tuple(findings),
        fixed_mb=fixed_mb,
        per_sample_mb=growth,
        largest_batch=largest,
        axis=axis_of(recording.meta),
    )


def _read_peaks(recording: Recording) -> pd.DataFrame:
    """The peaks of a recording; CurvescopeError without any, or with some of unknown size."""
    rows = recording.frame(PEAKS.name)
    if rows.empty:
        raise CurvescopeError(f"{recording.path} {_NO_PEAKS}.")
    unknown = rows["batch"].isna()
    if unknown.all():
        return rows.assign(batch=UNKNOWN)
    if unknown.any():
        raise CurvescopeError(
            f"{recording.path} does not say the batch size; give it with --batch when importing."
        )
    return rows


class _Split:
    """The memory by batch size and term, MB, and what each term is."""

    def __init__(self, table: pd.DataFrame, used: pd.DataFrame) -> None:
        self._labels = list(table.columns)
        self._sizes_mb = table.to_numpy(np.float64)
        self._lines = _main_lines(used)
        self._names = used.drop_duplicates("term").set_index("term")

    def terms(self, weights: Floats) -> tuple[MemoryTerm, ...]:
        """The terms of a sum over batch sizes, the largest first."""
        values = weights @ self._sizes_mb
        errors = ERROR * np.hypot.reduce(weights[:, None] * self._sizes_mb, axis=0)
        terms = []
        for label, value, error in zip(self._labels, values, errors, strict=True):
            row = self._names.loc[label]
            amount = normal_estimate(float(value), float(error))
            terms.append(MemoryTerm(row.layer, row.named, label, self._lines.get(label), amount))
        return tuple(sorted(terms, key=lambda term: -abs(term.value.value)))


def _with_terms(rows: pd.DataFrame, recording: Recording, by_instance: bool) -> pd.DataFrame:
    """The rows with the name of their kind and the label of their term; repeated layers have one
    name.
    """
    classes = recording.meta.get("layer_classes") or {}
    names: dict[str, str] = {}
    if not by_instance:
        groups = _find_repeated(rows, recording, classes)
        names, classes = group_of(groups), classes_with(classes, groups)
    # Outside layers the operator says where, or the line; what is older than the step has neither.
    number = rows["line"].astype("Int64").astype(str)
    lines = rows["file"] + ":" + number
    is_unknown = rows["op"].isna() & rows["file"].isna()
    has_no_place = rows["kind"].isin(LASTING) | is_unknown
    places = rows["op"].fillna(lines).mask(has_no_place)
    layers, kinds, labels = [], [], []
    for layer, phase, kind, place in zip(
        rows["layer"], rows["phase"], rows["kind"], places, strict=True
    ):
        if kind == WORKSPACE and pd.notna(phase):
            kind = f"{phase} {kind}"
        layer = None if pd.isna(layer) else names.get(layer, layer)
        if layer:
            labels.append(work_label(layer, kind, classes.get(layer)))
        else:
            labels.append(kind if pd.isna(place) else f"{place} {kind}")
        layers.append(layer)
        kinds.append(kind)
    layer_column = pd.Series(layers, rows.index, dtype=object)
    return rows.assign(layer=layer_column, named=kinds, term=labels)


def _find_repeated(
    rows: pd.DataFrame, recording: Recording, classes: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """The groups of layers that do the same work with the same memory."""
    operators = recording.arrow("operators", OPERATOR_COLUMNS)
    by_layer = rows.dropna(subset="layer").groupby(["batch", "layer"])
    sums = by_layer["bytes"].sum()
    steps = {}
    for batch, of_batch in sums.unstack("layer").groupby("batch"):
        steps[batch] = of_batch.astype(float).fillna(0.0)
    kernels = rows[["layer", "batch", "phase"]].assign(name="", calls=0)
    return find_repeated_layers(kernels, operators, classes, steps)


def _main_lines(rows: pd.DataFrame) -> dict[str, str]:
    located = rows.dropna(subset="file")
    by_line = located.groupby(["term", "file", "line"])
    sums = by_line["bytes"].sum().sort_values()
    return {term: f"{file}:{line}" for term, file, line in sums.index}


def _peak(point: Point, rows: pd.DataFrame, terms: tuple[MemoryTerm, ...]) -> Peak:
    sums = (rows.groupby("kind")["bytes"].sum() / 1e6).to_dict()
    kinds = {}
    for kind in KINDS:
        if kind in sums and kind not in (UNUSED, CACHED):
            kinds[kind] = float(sums[kind])
    makers = rows.loc[rows["makes_peak"].astype(bool), "term"]
    made_by = None if makers.empty else makers.iloc[0]
    held = [term for term in terms if term.value.value]
    return Peak(
        batch=known_batch(point.condition),
        memory_mb=point.time_ms,
        kinds=kinds,
        made_by=made_by,
        unused_mb=float(sums.get(UNUSED, 0.0)),
        cached_mb=sums.get(CACHED),
        terms=tuple(held),
    )


def _largest_batch(
    rows: pd.DataFrame, sizes: dict[int, float], recording: Recording, limit_bytes: int | None
) -> LargestBatch | None:
    meta = recording.meta
    last = rows[rows["batch"] == max(sizes)]
    limits = [limit_bytes, meta.get("memory_limit_bytes"), *last["available_bytes"].dropna()[:1]]
    limits.append((meta.get("device") or {}).get("memory_bytes"))
    limit = next(filter(None, limits), None)
    if limit is None:
        return None
    failed = set()
    for cell in meta.get("unmeasured", ()):
        if cell["why"] == _OUT_OF_MEMORY:
            failed.add(cell["batch"])
    cached_mb = last.loc[last["kind"] == CACHED, "bytes"].sum() / 1e6
    return largest_batch(sizes, limit / 1e6, cached_mb, sorted(failed))


def largest_batch(
    sizes: dict[int, float], limit_mb: float, cached_mb: float = 0.0, failed: Sequence[int] = ()
) -> LargestBatch | None:
    """Predict the largest batch size whose peak is within a limit; None if the memory is not seen
    to grow.

    The margin is twice the error of the largest measured peak as predicted from the others, for
    each doubling. What the allocator kept beside the largest peak (`cached_mb`) are pieces that may
    not serve again; `failed` ran out of memory.
    """
    batches = sorted(sizes)
    if len(batches) < 2 or sizes[batches[-1]] <= sizes[batches[-2]]:
        return None
    predict, error = _predictor(sizes)
    last = batches[-1]
    sizes_mb = [sizes[batch] for batch in batches]
    margin = max(_LEAST_MARGIN, _ERRORS * abs(error or 0.0))

    def most(growth: float, cached: float = 0.0) -> int:
        share_cached = cached / sizes[last]

        def fits(batch: int) -> bool:
            if batch > last:
                size = predict(batch) * growth ** log2(batch / last)
            else:
                size = float(np.interp(batch, batches, sizes_mb))
            return bool(size * (1 + share_cached) <= limit_mb * _ROUNDED)

        low, high = 0, 1
        while fits(high) and high < _FAR:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    return LargestBatch(
        limit_mb=limit_mb,
        batch=most(1.0),
        low=most(1 + margin, cached_mb),
        high=most(1 / (1 + margin)),
        margin=margin,
        checked=error,
        failed=tuple(failed),
    )


def _predictor(sizes: dict[int, float]) -> tuple[Callable[[float], float], float | None]:
    """What predicts the memory of a larger batch size, and its relative error at the largest one,
    left out.

    A straight line through the two largest sizes. Where that does not predict the largest one, a
    parabola through three, unless that predicts it worse.
    """
    batches = sorted(sizes)
    values = [sizes[batch] for batch in batches]
    errors: dict[int, float] = {}
    for points in (2, 3):
        if len(batches) > points:
            predicted = _through(batches[:-1], values[:-1], points)(batches[-1])
            errors[points] = predicted / values[-1] - 1
    straight = errors.get(2)
    line = _through(batches, values, 2)
    if straight is None or abs(straight) <= _LEAST_MARGIN:
        return line, straight
    # A parabola that bends down would end: then the straight line is on the safe side.
    rises = np.diff(values[-3:])
    before, slope = rises / np.diff(batches[-3:])
    if slope <= before or abs(errors.get(3, 0.0)) >= abs(straight):
        return line, straight
    return _through(batches, values, 3), errors.get(3, straight)


def _through(
    batches: Sequence[int], values: Sequence[float], points: int
) -> Callable[[float], float]:
    fitted = np.polynomial.Polynomial.fit(batches[-points:], values[-points:], points - 1)
    return lambda batch: float(fitted(batch))
