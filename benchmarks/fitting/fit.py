"""Fits the constants to published operator times: robust least squares on logarithms, within physical ranges.

Constants with little data are regularised towards a starting value, and the constants of an architecture towards the
mean over architectures. Only times of single operators are used, never times of networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from curvescope.analysis.cost_model.constants import MAIN_LOOPS, PARAMETERS, Constants, Parameter
from curvescope.analysis.cost_model.problems import Floats

from .published import Measured, predict

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
    groups = {a: [group for group in measured if group.architecture == a] for a in layout.architectures}

    def of_data(vector: Floats, only: str | None = None) -> dict[str, Floats]:
        constants = layout.unpack(vector)
        return {
            a: np.concatenate([_residuals(group, constants[a]) for group in groups[a]])
            for a in (layout.architectures if only is None else (only,))
        }

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
        data = of_data(vector)
        return np.concatenate([*(data[a] for a in layout.architectures), of_prior(vector)])

    def jacobian(vector: Floats) -> Floats:
        # Finite differences; an architecture's own constant affects only its own rows.
        data, prior = of_data(vector), of_prior(vector)
        ends = np.cumsum([len(data[a]) for a in layout.architectures])
        begins = dict(zip(layout.architectures, [0, *ends[:-1]], strict=True))
        matrix = np.zeros((ends[-1] + len(prior), len(vector)))
        for column in range(len(vector)):
            moved = vector.copy()
            moved[column] += _STEP if moved[column] + _STEP < high[column] else -_STEP
            step = moved[column] - vector[column]
            for a, values in of_data(moved, layout.architecture_of(column)).items():
                matrix[begins[a] : begins[a] + len(values), column] = (values - data[a]) / step
            matrix[ends[-1] :, column] = (of_prior(moved) - prior) / step
        return matrix

    inside = np.clip(start, low + 1e-6, high - 1e-6)
    fitted = least_squares(residuals, inside, jacobian, bounds=(low, high), max_nfev=most_steps, x_scale=0.3)
    return layout.unpack(fitted.x)


def _residuals(group: Measured, constants: Constants) -> Floats:
    # Measurements have equal weight up to DeepBench's size; a larger group has the weight of 400 measurements.
    weight = min(1.0, np.sqrt(400 / len(group.time_s)))
    time_s, _ = predict(group, constants, know_algorithm=True)
    error = np.log(time_s / group.time_s)
    soft = np.sign(error) * _OUTLIER * np.sqrt(2 * (np.sqrt(1 + (error / _OUTLIER) ** 2) - 1))
    return np.asarray(soft / (_STREAM_UNIT if group.source == "stream" else _UNIT) * weight)
