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
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, stdtrit

from ...base.errors import CurvescopeError
from ...profiling.hardware.devices import get_device
from ..decompose.curve import MODELLED, Curve, Point
from ..decompose.statistics import REPLICATES, Floats, estimate
from ..decompose.terms import IDLE, KERNELS, Key, Terms
from .constants import LEVELS, Spread, load_fitted
from .problems import product_kinds

# Replicates are draws of the error itself, not of a mean over rounds: like a mean over very many
# rounds.
ROUNDS = 1_000_000
_SEED = 3
# Variation of host time for a launch or a wait between hosts, in logarithms: NeuSight's two hosts
# take 46 and 61 us for the same two launches. Estimated from so few hosts, it has Student's
# distribution, like variation between few GPUs.
_HOST_SPREAD, _HOSTS = 0.28, 2
HOST = "host"


class Model(NamedTuple):
    """What predicted a recording: recordings of one model have errors in common."""

    device: str  # key of the GPU
    library: str
    precision: str

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Model:
        """The model of a recording; CurvescopeError if its `recording.json` does not say of which
        GPU and library it is.
        """
        device = meta.get("device") or {}
        key, library = device.get("key"), meta.get("library")
        if not key or not library:
            raise CurvescopeError(
                "The recording is modelled, and its recording.json does not say of which GPU and "
                "library: make it again with `curvescope diagnose --card`."
            )
        return cls(key, library, meta.get("precision", "fp32"))

    @property
    def spreads(self) -> Mapping[str, Spread]:
        """The spreads of its errors, by kind of kernel."""
        architecture = get_device(self.device).architecture
        return load_fitted().spreads_for(architecture, self.library, self.precision)


def draw_errors(
    kinds: Sequence[str],
    algorithms: Sequence[str],
    shapes: Sequence[str],
    batches: int,
    spreads: Mapping[str, Spread],
) -> Floats:
    """Draw factors between modelled and possible true times, of shape (replicates, batches,
    kernels).

    The kind of a kernel is forward, backward_data, backward_weights, product, narrow_product,
    streaming or host. Kernels with the same algorithm share its error, as do those with the same
    shape. Spreads are by kind.
    """
    generator = np.random.default_rng(_SEED)
    of_gpu = _draw_each(generator, ["computing", "streaming", HOST], 1)
    of_algorithm = _draw_each(generator, algorithms, 1)
    of_shape = _draw_each(generator, shapes, 1)
    of_size = _draw_each(generator, kinds, batches)
    tails: dict[tuple[str, str, int], Floats] = {}

    def draw_tails(level: str, name: str, normal: Floats, cases: int) -> Floats:
        # Student's, by way of its quantiles, as of a spread known from few cases; taken once, for
        # they are slow.
        key = level, name, cases
        if key not in tails:
            tails[key] = np.asarray(stdtrit(cases, ndtr(normal)))
        return tails[key]

    factors = np.empty((REPLICATES, batches, len(kinds)))
    for index, (kind, algorithm, shape) in enumerate(zip(kinds, algorithms, shapes, strict=True)):
        if kind == HOST:
            by_host = draw_tails("gpu", HOST, of_gpu[HOST], _HOSTS)
            factors[:, :, index] = _HOST_SPREAD * by_host
            continue
        spread = spreads[kind]
        gpu = "streaming" if kind == "streaming" else "computing"
        by_gpu = draw_tails("gpu", gpu, of_gpu[gpu], spread.gpus)
        by_algorithm = draw_tails("algorithm", algorithm, of_algorithm[algorithm], spread.gpus)
        by_size = draw_tails("size", kind, of_size[kind], spread.gpus)
        alone = generator.normal(size=(REPLICATES, batches))
        lasting = np.sqrt(spread.lasting) * of_shape[shape]
        passing = np.sqrt(1 - spread.lasting) * alone
        rest = np.interp(ndtr(lasting + passing), LEVELS, spread.rest)
        common = spread.gpu * by_gpu + spread.algorithm * by_algorithm + spread.size * by_size
        factors[:, :, index] = common + rest
    return np.exp(factors)


def _draw_each(
    generator: np.random.Generator, names: Sequence[str], columns: int
) -> dict[str, Floats]:
    """Standard normal draws for every distinct name, each of shape (replicates, columns)."""
    draws = {}
    for name in dict.fromkeys(names):
        draws[name] = generator.normal(size=(REPLICATES, columns))
    return draws


def draw_errors_of_rows(tables: Sequence[pd.DataFrame], model: Model) -> list[Floats]:
    """Draw factors between modelled and possible true times for each row of tables that one model
    predicted, each of shape (replicates, rows).

    A kernel has the same factors in every table with its batch size, so that what recordings have
    in common cancels in their ratio. A table has a row per kernel, with its FLOPs and bytes.
    """
    rows = pd.concat(tables, ignore_index=True)
    name, flops, batch = rows["name"], rows["flops"], rows["batch"]
    kinds = list(map(_kind, name, flops, rows["bytes_compulsory"]))
    shapes = list(map(_shape, kinds, name, flops, batch))
    named = rows.assign(kind=kinds, shape=shapes)
    keys = ["layer", "phase", "kind", "name", "shape"]
    columns = named.groupby(keys, dropna=False, sort=False).ngroup()
    distinct = named[~columns.duplicated()]
    kinds, names, shapes = (distinct[key].tolist() for key in ("kind", "name", "shape"))
    batches = sorted(batch.unique())
    factors = draw_errors(kinds, names, shapes, len(batches), model.spreads)
    places = np.searchsorted(batches, batch)
    drawn = factors[:, places, columns]
    ends = np.cumsum([len(table) for table in tables])
    return np.split(drawn, ends[:-1], axis=1)


def model_terms(kernel_times: pd.DataFrame, errors: Floats) -> Terms:
    """The terms of modelled steps, with the errors of their rows; a layer's phase is one term, with
    all kinds of kernels.
    """
    places = zip(kernel_times["layer"], kernel_times["phase"], kernel_times["name"], strict=True)
    labels = []
    for layer, phase, name in places:
        part = IDLE if name == IDLE else KERNELS
        labels.append(Key.of(layer, phase, part))
    keys = tuple(dict.fromkeys(labels))
    sizes = kernel_times["batch"].astype(int)
    batches = tuple(sorted(sizes.unique().tolist()))
    values = np.zeros((len(batches), len(keys)))
    drawn = np.zeros((REPLICATES, *values.shape))
    times = zip(sizes, labels, kernel_times["exclusive_ms"], strict=True)
    for row, (size, label, time_ms) in enumerate(times):
        at = batches.index(size)
        column = keys.index(label)
        values[at, column] += time_ms
        drawn[:, at, column] += time_ms * errors[:, row]
    return Terms(
        keys=keys,
        conditions=batches,
        values_ms=values,
        replicates_ms=drawn,
        profiled=dict.fromkeys(batches, (1, 1)),
        rounds=dict.fromkeys(batches, ROUNDS),
    )


def model_curve(terms: Terms) -> Curve:
    """The times of modelled steps, the sums of their terms."""
    totals = terms.values_ms.sum(axis=1)
    replicates = terms.replicates_ms.sum(axis=2)
    points = []
    for index, (batch, total) in enumerate(zip(terms.conditions, totals, strict=True)):
        time_ms = estimate(total, replicates[:, index], ROUNDS, total)
        points.append(Point(batch, time_ms, None, 1, 1))
    return Curve(points=tuple(points), replicates_ms=replicates, rounds=ROUNDS, statistic=MODELLED)


def _shape(kind: str, name: str, flops: float, batch: float) -> str:
    """What two kernels of one shape have in common at every batch size."""
    if pd.isna(flops):
        return f"{kind} {name}"
    return f"{kind} {flops / batch:.0f}"


def _kind(kernel: str, flops: float, moved_bytes: float) -> str:
    if kernel == IDLE:
        return HOST
    for kind in ("forward", "backward_data", "backward_weights"):
        if kernel.startswith(kind + "_"):
            return kind
    if pd.isna(flops):
        return "streaming"
    return str(product_kinds(flops, moved_bytes))
