import numpy as np
import pytest

from curvescope.analysis.cost_model.constants import load_fitted
from curvescope.analysis.cost_model.uncertainty import HOST, draw_errors


def spread_of_sum(*columns, batches=1, library="cudnn5"):
    """Standard deviation of the logarithm of a sum of equal kernels: each (kind, algorithm, shape)."""
    factors = draw_errors(*zip(*columns, strict=True), batches, "maxwell", library)
    return np.log(factors[:, 0].sum(axis=1)).std()


def test_layers_of_one_algorithm_are_wrong_together():
    many = range(30)
    together = spread_of_sum(*(("backward_data", "ALGO_1", f"shape {i}") for i in many))
    apart = spread_of_sum(*(("backward_data", f"algorithm {i}", f"shape {i}") for i in many))
    shared = load_fitted().spreads["backward_data"]
    assert together > apart
    # Thirty layers do not average out what they share.
    assert together > 0.9 * np.hypot(shared.gpu, shared.algorithm)


def test_a_library_that_nobody_measured_there_widens_the_interval():
    column = ("forward", "WINOGRAD", "shape")
    assert spread_of_sum(column, library="cudnn8") > 1.2 * spread_of_sum(column, library="cudnn5")


def test_the_host_is_wrong_by_one_factor_at_every_batch_size():
    factors = draw_errors([HOST, HOST], ["", ""], ["", ""], 3, "maxwell", "cudnn5")
    assert np.ptp(factors, axis=(1, 2)).max() == 0
    assert np.log(factors).std() == pytest.approx(0.28, rel=0.1)
