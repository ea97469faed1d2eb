"""What varies on the virtual card is what varied on the H100, by its recordings."""

from tests.virtual_card.measured import spread_lines, table
from tests.virtual_card.spreads import SHARES, spreads


def test_the_kept_spreads_are_those_of_the_recordings():
    kept = table()["h100"]["spreads"]
    assert {name: (one["n"], one["factors"]) for name, one in kept.items()} == spreads()


def test_a_spread_is_a_line_of_quantiles_around_the_median():
    lines = spread_lines()
    assert [line.split()[1] for line in lines] == list(table()["h100"]["spreads"])
    for line in lines:
        numbers = list(map(float, line.split()[2:]))
        shares, factors = numbers[::2], numbers[1::2]
        assert shares == list(SHARES)
        assert factors == sorted(factors)
        assert factors[SHARES.index(0.5)] == 1
