import pytest

from curvescope.base.counted import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, ("step",), "0 steps"),
        (1, ("smaller term",), "1 smaller term"),
        (2, ("smaller term",), "2 smaller terms"),
        (1, ("anomaly", "anomalies"), "1 anomaly"),
        (2, ("anomaly", "anomalies"), "2 anomalies"),
    ],
)
def test_a_count_has_its_noun_in_the_singular_for_one_thing_only(count, noun, text):
    assert counted(count, *noun) == text
