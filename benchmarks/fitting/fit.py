"""Fits the constants to published operator times: robust least squares on logarithms, within physical ranges.

Constants with little data are regularised towards a starting value, and the constants of an architecture towards the
mean over architectures. Only times of single operators are used, never times of networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from curvescope.analysis.cost_model.constants import (
    MAIN_LOOPS,
    PARAMETERS,
    Constants,
    Parameter,
    constants_for,
    starting_constants,
)
from curvescope.analysis.cost_model.problems import Floats

from .published import BY_ALGORITHM, K40_TRAINING, PRODUCTS_ALONE, Measured, predict

# Residuals are divided by this size; beyond _OUTLIER the loss grows linearly, so that single outliers have little
# weight.
_UNIT, _OUTLIER = 0.1, 0.25
# STREAM publishes the best of ten runs or more, and depends on one constant: its error is taken as a fiftieth.
_STREAM_UNIT = 0.02
# Standard deviations, in logarithms, of a constant about its starting value, of an architecture's constant about the
# mean over architectures, and of one main loop's share of the peak about what the architecture's others depart from
# their means by: an architecture that is slow in one main loop is slow in those that nobody measured.
_SHARED_SPREAD, _ARCHITECTURE_SPREAD, _LOOP_SPREAD = 1.0, 0.3, 0.15
_STEP = 1e-3
# Constants that only forward algorithms depend on: fitted last, to times by algorithm.
_OF_ALGORITHMS = frozenset({"plain_cycles", "precomputed_cycles", "winograd_cycles", "indices_us"})
# Of an architecture of which only these are known alone: products of one library, and gradients in steps of one layer.
_ALONE = {PRODUCTS_ALONE: frozenset({"product"}), K40_TRAINING: frozenset({"data", "weights"})}


@dataclass(frozen=True)
class _Layout:
    """Positions of the constants in the vector of logarithms: shared ones first, then those of each architecture."""

    architectures: tuple[str, ...]
    shared: tuple[Parameter, ...]  # constants that all architectures share
    own: tuple[Parameter, ...]  # constants of each architecture
    known: Mapping[str, Constants]  # before the fit, which replaces some

    def parameters(self) -> list[Parameter]:
        return [*self.shared, *(self.own * len(self.architectures))]

    def start(self) -> Floats:
        shared = [self.known[self.architectures[0]][p.name] for p in self.shared]
        return np.log([*shared, *(self.known[a][p.name] for a in self.architectures for p in self.own)])

    def rows(self, vector: Floats) -> Floats:
        """Constants of each architecture, shape (architectures, constants)."""
        return vector[len(self.shared) :].reshape(len(self.architectures), len(self.own))

    def unpack(self, vector: Floats) -> dict[str, Constants]:
        shared = {p.name: float(v) for p, v in zip(self.shared, np.exp(vector[: len(self.shared)]), strict=True)}
        own = ({p.name: float(v) for p, v in zip(self.own, np.exp(row), strict=True)} for row in self.rows(vector))
        return {
            architecture: Constants({**self.known[architecture].values, **shared, **values})
            for architecture, values in zip(self.architectures, own, strict=True)
        }

    def architecture_of(self, column: int) -> str | None:
        """Architecture of a column's constant; None for a shared one."""
        index = (column - len(self.shared)) // len(self.own)
        return None if column < len(self.shared) else self.architectures[index]


def fit_constants(measured: Sequence[Measured]) -> dict[str, Constants]:
    """Fit the constants of every measured architecture.

    First all constants to times with a known card and clock, then those of single forward algorithms to the times by
    algorithm, whose clocks are not published: only the ratios of a card's rows count there, and nothing that gradients
    or products depend on. Last, what one source alone tells of an architecture.
    """
    levelled = [group for group in measured if group.source not in (BY_ALGORITHM, *_ALONE)]
    architectures = tuple(sorted({group.architecture for group in levelled}))
    shared = tuple(p for p in PARAMETERS if not p.by_architecture)
    own = tuple(p for p in PARAMETERS if p.by_architecture)
    start = dict.fromkeys(architectures, starting_constants())
    fitted = _fit(levelled, _Layout(architectures, shared, own, start), most_steps=8)
    by_algorithm = tuple(sorted({group.architecture for group in measured if group.source == BY_ALGORITHM}))
    if by_algorithm:
        known = {architecture: constants_for(architecture, fitted) for architecture in by_algorithm}
        last = tuple(p for p in own if p.name in _OF_ALGORITHMS)
        groups = [g for g in measured if g.architecture in by_algorithm and g.kind == "forward" and g.source != "k40"]
        fitted |= _fit(groups, _Layout(by_algorithm, (), last, known), most_steps=8)
    return fit_alone(measured, fitted)


def fit_alone(measured: Sequence[Measured], fitted: Mapping[str, Constants]) -> dict[str, Constants]:
    """Fit what is known of an architecture from one source alone: its products, its gradients; the rest stays."""
    fitted = dict(fitted)
    for source, names in _ALONE.items():
        alone = [group for group in measured if group.source == source and group.architecture in fitted]
        if alone:
            architectures = tuple(sorted({group.architecture for group in alone}))
            own = tuple(p for p in PARAMETERS if p.name in names)
            fitted |= _fit(alone, _Layout(architectures, (), own, fitted), most_steps=25)
    return fitted


def _fit(measured: Sequence[Measured], layout: _Layout, most_steps: int) -> dict[str, Constants]:
    parameters, start = layout.parameters(), layout.start()
    low, high = np.log([p.low for p in parameters]), np.log([p.high for p in parameters])
    names = [_constants_used(group) for group in measured]
    loops = np.array([p.name in MAIN_LOOPS for p in layout.own])

    def of_group(group: Measured, constants: dict[str, Constants]) -> Floats:
        return _residuals(group, constants[group.architecture], scale_unknown=group.source == BY_ALGORITHM)

    def of_prior(vector: Floats) -> Floats:
        own, shared = layout.rows(vector), len(layout.shared)
        mean, before = own.mean(axis=0), layout.rows(start).mean(axis=0)
        departure = own - mean
        parts = [
            (vector[:shared] - start[:shared]) / _SHARED_SPREAD,
            (departure[:, ~loops] / _ARCHITECTURE_SPREAD).ravel(),
            (mean - before) / _SHARED_SPREAD,
        ]
        if loops.any():
            common = departure[:, loops].mean(axis=1, keepdims=True)
            parts += [((departure[:, loops] - common) / _LOOP_SPREAD).ravel(), common[:, 0] / _SHARED_SPREAD]
        return np.concatenate(parts)

    def residuals(vector: Floats) -> Floats:
        constants = layout.unpack(vector)
        return np.concatenate([*(of_group(group, constants) for group in measured), of_prior(vector)])

    ends = np.cumsum([len(group.time_s) for group in measured])
    begins = [0, *ends[:-1]]

    def jacobian(vector: Floats) -> Floats:
        # Finite differences, over the groups that a constant affects.
        here, prior = layout.unpack(vector), of_prior(vector)
        values = [of_group(group, here) for group in measured]
        matrix = np.zeros((ends[-1] + len(prior), len(vector)))
        for column, parameter in enumerate(parameters):
            moved = vector.copy()
            moved[column] += _STEP if moved[column] + _STEP < high[column] else -_STEP
            step = moved[column] - vector[column]
            constants, only = layout.unpack(moved), layout.architecture_of(column)
            for group, used, before, begin, end in zip(measured, names, values, begins, ends, strict=True):
                if parameter.name in used and only in (None, group.architecture):
                    matrix[begin:end, column] = (of_group(group, constants) - before) / step
            matrix[ends[-1] :, column] = (of_prior(moved) - prior) / step
        return matrix

    inside = np.clip(start, low + 1e-6, high - 1e-6)
    fitted = least_squares(residuals, inside, jacobian, bounds=(low, high), max_nfev=most_steps, x_scale=0.3)
    return layout.unpack(fitted.x)


def _constants_used(group: Measured) -> set[str]:
    used: set[str] = set()

    class Noting(dict[str, float]):
        def __getitem__(self, name: str) -> float:
            used.add(name)
            return super().__getitem__(name)

    _residuals(group, Constants(Noting(starting_constants().values)))
    return used


def _residuals(group: Measured, constants: Constants, *, scale_unknown: bool = False) -> Floats:
    # Measurements have equal weight up to DeepBench's size; a larger group has the weight of 400 measurements.
    weight = min(1.0, np.sqrt(400 / len(group.time_s)))
    time_s, _ = predict(group, constants, know_algorithm=True)
    error = np.log(time_s / group.time_s)
    if scale_unknown:
        error = error - np.median(error)
    soft = np.sign(error) * _OUTLIER * np.sqrt(2 * (np.sqrt(1 + (error / _OUTLIER) ** 2) - 1))
    return np.asarray(soft / (_STREAM_UNIT if group.source == "stream" else _UNIT) * weight)
