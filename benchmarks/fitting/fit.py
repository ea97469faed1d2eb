"""Fits the constants to published operator times: robust least squares on logarithms, within physical ranges.

Constants with little data are regularised towards a starting value, and the constants of an architecture towards the
mean over architectures. Only times of single operators are used, never times of networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from curvescope.analysis.cost_model.constants import (
    MAIN_LOOPS,
    PARAMETERS,
    Constants,
    Parameter,
    starting_constants,
)
from curvescope.analysis.cost_model.problems import Floats

from .published import BY_ALGORITHM, Measured, predict

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
_SHARED = tuple(p for p in PARAMETERS if not p.by_architecture)
_OWN = tuple(p for p in PARAMETERS if p.by_architecture)
_LOOPS = np.array([p.name in MAIN_LOOPS for p in _OWN])


@dataclass(frozen=True)
class _Layout:
    """Positions of the constants in the vector of logarithms: shared ones first, then those of each architecture."""

    architectures: tuple[str, ...]

    def parameters(self) -> list[Parameter]:
        return [*_SHARED, *(_OWN * len(self.architectures))]

    def own(self, vector: Floats) -> Floats:
        return vector[len(_SHARED) :].reshape(len(self.architectures), len(_OWN))

    def unpack(self, vector: Floats) -> dict[str, Constants]:
        shared = {p.name: float(v) for p, v in zip(_SHARED, np.exp(vector[: len(_SHARED)]), strict=True)}
        return {
            architecture: Constants({**shared, **{p.name: float(v) for p, v in zip(_OWN, np.exp(row), strict=True)}})
            for architecture, row in zip(self.architectures, self.own(vector), strict=True)
        }

    def architecture_of(self, column: int) -> str | None:
        """Architecture of a column's constant; None for a shared one."""
        return None if column < len(_SHARED) else self.architectures[(column - len(_SHARED)) // len(_OWN)]


def fit_constants(measured: Sequence[Measured], most_steps: int = 25) -> dict[str, Constants]:
    """Fit the constants of every measured architecture.

    Args:
        measured: published measurements.
        most_steps: maximum number of iterations.
    """
    layout = _Layout(tuple(sorted({group.architecture for group in measured})))
    parameters = layout.parameters()
    start = np.log([p.start for p in parameters])
    low, high = np.log([p.low for p in parameters]), np.log([p.high for p in parameters])
    names = [_constants_used(group) for group in measured]

    # No clock is published for cudnn_scope's cards; where other cards give an architecture's level, only the ratios of
    # its rows are fitted.
    levels = {g.architecture for g in measured if g.kind != "streaming" and g.source != BY_ALGORITHM}

    def of_group(group: Measured, constants: dict[str, Constants]) -> Floats:
        unknown = group.source == BY_ALGORITHM and group.architecture in levels
        return _residuals(group, constants[group.architecture], scale_unknown=unknown)

    def of_prior(vector: Floats) -> Floats:
        own, shared = layout.own(vector), len(_SHARED)
        mean = own.mean(axis=0)
        departure = own - mean
        common = departure[:, _LOOPS].mean(axis=1, keepdims=True)
        return np.concatenate(
            [
                (vector[:shared] - start[:shared]) / _SHARED_SPREAD,
                (departure[:, ~_LOOPS] / _ARCHITECTURE_SPREAD).ravel(),
                ((departure[:, _LOOPS] - common) / _LOOP_SPREAD).ravel(),
                common[:, 0] / _SHARED_SPREAD,
                (mean - start[shared : shared + len(_OWN)]) / _SHARED_SPREAD,
            ]
        )

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
    """Names of the constants that a group's times depend on."""
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
