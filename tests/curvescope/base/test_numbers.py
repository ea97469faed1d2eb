from curvescope.base.counted import counted
from curvescope.base.numbers import quantity, with_minus_signs

from ...tables import ask_each


@ask_each(
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


def test_minus_signs_stand_before_numbers_only():
    text = "-4.4 ms (-7 … -1.4) at log-2 of runs/2026-11-22, x = 1e-9"
    assert with_minus_signs(text) == "−4.4 ms (−7 … −1.4) at log-2 of runs/2026-11-22, x = 1e-9"


@ask_each(
    ("count", "noun", "text"),
    [
        (0, ("step",), "0 steps"),
        (1, ("smaller term",), "1 smaller term"),
        (2, ("anomaly", "anomalies"), "2 anomalies"),
    ],
)
def test_a_count_has_its_noun_in_the_singular_for_one_thing_only(count, noun, text):
    assert counted(count, *noun) == text
