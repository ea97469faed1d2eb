import numpy as np
import pytest

from curvescope.analysis.cost_model.constants import LEVELS, Spread, load_fitted
from curvescope.analysis.cost_model.errors import HOST, draw_errors
from curvescope.analysis.cost_model.problems import product_kinds


def spread_of_sum(*columns, batches=1, library="cudnn5"):
    """Half the width of the central 68 % of the logarithm of a sum of equal kernels: each (kind,
    algorithm, shape).
    """
    factors = draw_errors(
        *zip(*columns, strict=True), batches, load_fitted().spreads_for("maxwell", library)
    )
    low, high = np.percentile(np.log(factors[:, 0].sum(axis=1)), [15.87, 84.13])
    return (high - low) / 2


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
    factors = draw_errors([HOST, HOST], ["", ""], ["", ""], 3, {})
    assert np.ptp(factors, axis=(1, 2)).max() == 0
    # Student's t with two degrees of freedom: 2.920 for 5 %.
    assert np.percentile(np.log(factors), [5, 95]) == pytest.approx(
        [-0.28 * 2.920, 0.28 * 2.920], rel=0.1
    )


def test_a_spread_known_from_few_gpus_has_long_tails():
    spread = Spread(
        gpu=0.1, gpus=4, algorithm=0.0, size=0.0, rest=(0.0,) * len(LEVELS), lasting=1.0
    )
    low, high = np.percentile(
        np.log(draw_errors(["product"], [""], [""], 1, {"product": spread})), [5, 95]
    )
    # Student's t with four degrees of freedom: 2.132 for 5 %.
    assert high == pytest.approx(0.2132, rel=0.1)
    assert low == pytest.approx(-0.2132, rel=0.1)


def test_the_rest_is_as_skew_as_the_residuals_and_the_same_for_a_shape_at_every_batch_size():
    rest = tuple(np.where(np.array(LEVELS) < 0.85, 0.0, 0.5))
    spread = Spread(gpu=0.0, gpus=4, algorithm=0.0, size=0.0, rest=rest, lasting=1.0)
    factors = draw_errors(["product"] * 2, ["", ""], ["a", "b"], 2, {"product": spread})
    assert (factors >= 1).all()
    assert (np.log(factors) == 0.5).mean() == pytest.approx(0.15, abs=0.03)
    assert (factors[:, 0] == factors[:, 1]).all()
    assert not (factors[:, :, 0] == factors[:, :, 1]).all()


def test_a_product_with_a_narrow_side_is_told_by_its_work_per_byte():
    m, n, k = 4096.0, np.array([64.0, 512.0]), 4096.0
    assert product_kinds(2 * m * n * k, 4 * (m * k + k * n + m * n)).tolist() == [
        "narrow_product",
        "product",
    ]
