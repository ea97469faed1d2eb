"""Intervals of modelled recordings: a model has no noise, so intervals come from its prediction
errors.

The error of a kernel is drawn as a product of components, estimated on GPUs left out of the fit:
one for the GPU, which all kernels share in proportion to the variation of their kind (kernels that
only move bytes have a separate one, because they depend on other constants); one for each
algorithm; one for each kind at each batch size, all three with long tails where they are known from
few GPUs only; and the rest, drawn from the left-out residuals with their outliers and skew, part of
it the same for a shape at every batch size. Layers of one algorithm or kind have correlated errors,
so the errors of a step do not average out over its layers. In an excess or a curvature, errors that
do not depend on the batch size nearly cancel, unless an algorithm changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtr, stdtrit

from ...base.errors import CurvescopeError
from ...profiling.hardware.devices import get_device
from ..causes.context import Recorded
from ..cost_model.constants import LEVELS, Spread, load_fitted
from ..cost_model.problems import product_kinds
from ..decompose.curve import MODELLED, Curve, Point
from ..decompose.statistics import REPLICATES, estimate
from ..decompose.terms import IDLE, KERNELS, Key, Terms
from .estimate import Estimates

# Replicates are draws of the error itself, not of a mean over rounds: like a mean over very many
# rounds.
_ROUNDS = 1_000_000
_SEED = 3
# Variation of host time for a launch or a wait between hosts, in logarithms: NeuSight's two hosts
# take 46 and 61 us for the same two launches. Estimated from so few hosts, it has Student's
# distribution, like variation between few GPUs.
_HOST_SPREAD, _HOSTS = 0.28, 2
HOST = "host"
# Changes of algorithm: their number, and the least share of the step that one costs.
_SWITCHES, _WORTH_SAYING = 3, 0.005


def estimate_modelled(recorded: Recorded, meta: Mapping[str, Any]) -> Estimates:
    """Estimate T and its terms from a modelled recording; the times have a row per kernel:
    `KERNEL_IDENTITY`, `start_ns`.

    CurvescopeError: the recording does not say of which GPU and library it is.
    """
    key, library = (meta.get("device") or {}).get("key"), meta.get("library")
    if not key or not library:
        raise CurvescopeError(
            "The recording is modelled, and its recording.json does not say of which GPU and "
            "library: make it again with `curvescope diagnose --card`."
        )
    precision = meta.get("precision", "fp32")
    spreads = load_fitted().spreads_for(get_device(key).architecture, library, precision)
    terms = _terms(recorded.kernel_times, spreads)
    totals = terms.values_ms.sum(axis=1)
    replicates = terms.replicates_ms.sum(axis=2)
    points = []
    for i, (batch, total) in enumerate(zip(terms.conditions, totals, strict=True)):
        time_ms = estimate(total, replicates[:, i], _ROUNDS, total)
        points.append(Point(batch, time_ms, None, 1, 1))
    curve = Curve(
        points=tuple(points), replicates_ms=replicates, rounds=_ROUNDS, statistic=MODELLED
    )
    return Estimates(curve, terms)


class Switch(NamedTuple):
    """A convolution whose algorithm changes between two batch sizes."""

    excess_ms: float  # what the larger size costs beyond its share
    layer: str
    kind: str  # forward, backward data or backward weights
    small: int
    large: int
    before: str
    after: str


def find_switches(kernel_times: pd.DataFrame) -> list[Switch]:
    """The convolutions whose algorithm changes and costs more than its share, the costliest first.

    The model's error is larger than most of these, so they are no findings; but they say where to
    measure.
    """
    step_ms = kernel_times.groupby("batch")["exclusive_ms"].sum()
    kinds = kernel_times["name"].str.extract(r"^(forward|backward_data|backward_weights)_(\w+)$")
    named = kernel_times.assign(kind=kinds[0], algorithm=kinds[1]).dropna(subset=["kind", "layer"])
    switches = []
    for (layer, kind), rows in named.groupby(["layer", "kind"]):
        rows = rows.sort_values("batch")
        points = zip(rows["batch"], rows["algorithm"], rows["exclusive_ms"], strict=True)
        for (small, before, before_ms), (large, after, after_ms) in pairwise(points):
            excess_ms = after_ms - large / small * before_ms
            if before != after and excess_ms > _WORTH_SAYING * step_ms[large]:
                words = kind.replace("_", " ")
                switches.append(Switch(excess_ms, layer, words, small, large, before, after))
    return sorted(switches, reverse=True)[:_SWITCHES]


def draw_errors(
    kinds: Sequence[str],
    algorithms: Sequence[str],
    shapes: Sequence[str],
    batches: int,
    spreads: Mapping[str, Spread],
) -> npt.NDArray[np.float64]:
    """Draw factors between modelled and possible true times, of shape (replicates, batches,
    kernels).

    The kind of a kernel is forward, backward_data, backward_weights, product, narrow_product,
    streaming or host. Kernels with the same algorithm share its error, as do those with the same
    shape. Spreads are by kind.
    """
    generator = np.random.default_rng(_SEED)

    def draws(names: Sequence[str]) -> dict[str, npt.NDArray[np.float64]]:
        return {name: generator.normal(size=(REPLICATES, 1)) for name in dict.fromkeys(names)}

    of_gpu, of_algorithm, of_shape = (
        draws(["computing", "streaming", HOST]),
        draws(algorithms),
        draws(shapes),
    )
    of_size = {kind: generator.normal(size=(REPLICATES, batches)) for kind in dict.fromkeys(kinds)}
    tails: dict[tuple[str, str, int], npt.NDArray[np.float64]] = {}

    def draw_tails(
        level: str, name: str, normal: npt.NDArray[np.float64], cases: int
    ) -> npt.NDArray[np.float64]:
        # Student's, by way of its quantiles, as of a spread known from few cases; taken once, for
        # they are slow.
        if (level, name, cases) not in tails:
            tails[level, name, cases] = np.asarray(stdtrit(cases, ndtr(normal)))
        return tails[level, name, cases]

    factors = np.empty((REPLICATES, batches, len(kinds)))
    for index, (kind, algorithm, shape) in enumerate(zip(kinds, algorithms, shapes, strict=True)):
        if kind == HOST:
            factors[:, :, index] = _HOST_SPREAD * draw_tails("gpu", HOST, of_gpu[HOST], _HOSTS)
            continue
        spread = spreads[kind]
        gpu = "streaming" if kind == "streaming" else "computing"
        alone = generator.normal(size=(REPLICATES, batches))
        rest = np.sqrt(spread.lasting) * of_shape[shape] + np.sqrt(1 - spread.lasting) * alone
        factors[:, :, index] = (
            spread.gpu * draw_tails("gpu", gpu, of_gpu[gpu], spread.gpus)
            + spread.algorithm
            * draw_tails("algorithm", algorithm, of_algorithm[algorithm], spread.gpus)
            + spread.size * draw_tails("size", kind, of_size[kind], spread.gpus)
            + np.interp(ndtr(rest), LEVELS, spread.rest)
        )
    return np.exp(factors)


def _terms(kernel_times: pd.DataFrame, spreads: Mapping[str, Spread]) -> Terms:
    work = zip(
        kernel_times["name"], kernel_times["flops"], kernel_times["bytes_compulsory"], strict=True
    )
    kinds = [_kind(name, flops, moved) for name, flops, moved in work]
    named = kernel_times.assign(
        layer=kernel_times["layer"].astype(object).where(kernel_times["layer"].notna(), None),
        phase=kernel_times["phase"].astype(object).where(kernel_times["phase"].notna(), None),
        group=np.where(kernel_times["name"] == IDLE, IDLE, KERNELS),
        kind=kinds,
        shape=[
            f"{kind} {name}" if pd.isna(flops) else f"{kind} {flops / batch:.0f}"
            for kind, name, flops, batch in zip(
                kinds,
                kernel_times["name"],
                kernel_times["flops"],
                kernel_times["batch"],
                strict=True,
            )
        ],
    )
    keys = ["layer", "phase", "group", "kind", "name", "shape"]
    named["column"] = named.groupby(keys, dropna=False, sort=False).ngroup()
    table = named.pivot_table(
        index="batch", columns="column", values="exclusive_ms", aggfunc="sum"
    ).fillna(0.0)
    values = table.to_numpy(np.float64)
    first = named.drop_duplicates("column").set_index("column").loc[table.columns, keys]
    columns = list(first.itertuples(index=False, name=None))
    kinds, algorithms, shapes = ([column[index] for column in columns] for index in (3, 4, 5))
    factors = draw_errors(kinds, algorithms, shapes, len(values), spreads)
    # A layer's phase is one term, with all kinds of kernels.
    labels = [Key.of(layer, phase, group) for layer, phase, group, *_ in columns]
    merged = tuple(dict.fromkeys(labels))
    summed, drawn = (
        np.zeros((len(values), len(merged))),
        np.zeros((REPLICATES, len(values), len(merged))),
    )
    for column, label in enumerate(labels):
        index = merged.index(label)
        summed[:, index] += values[:, column]
        drawn[:, :, index] += values[:, column] * factors[:, :, column]
    batches = tuple(int(batch) for batch in table.index)
    rounds = dict.fromkeys(batches, _ROUNDS)
    return Terms(
        keys=merged,
        conditions=batches,
        values_ms=summed,
        replicates_ms=drawn,
        profiled=dict.fromkeys(batches, (1, 1)),
        rounds=rounds,
    )


def _kind(kernel: str, flops: float, moved_bytes: float) -> str:
    if kernel == IDLE:
        return HOST
    for kind in ("forward", "backward_data", "backward_weights"):
        if kernel.startswith(kind + "_"):
            return kind
    return "streaming" if pd.isna(flops) else str(product_kinds(flops, moved_bytes))
