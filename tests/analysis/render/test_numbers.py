import pytest

from curvescope.analysis.render.numbers import quantity


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0, "B", "0 B"),
        (512, "B", "512 B"),
        (2**30, "B", "1.07 GB"),  # GB is 10⁹ bytes
        (8.8733e12, "FLOP/s", "8.87 TFLOP/s"),
        (320.3e9, "B/s", "320 GB/s"),
        (1733e6, "Hz", "1733 MHz"),
    ],
)
def test_a_quantity_has_the_decimal_prefix_that_fits_it(value, unit, expected):
    assert quantity(value, unit) == expected
