"""The order in which causes take their amounts of a term."""

from curvescope.analysis.causes import Claim, Strength
from curvescope.analysis.causes.catalogue import rank


def test_facts_come_before_signs_and_signs_before_hints_and_equals_in_the_order_of_the_list():
    def claim(cause, strength):
        return Claim(cause, 1.0, strength, (), "")

    expected = [
        claim("not significant", Strength.FACT),
        claim("algorithm switch", Strength.FACT),
        claim("more calls", Strength.FACT),
        claim("a plugin", Strength.FACT),
        claim("wave and tile quantisation", Strength.SIGN),
        claim("cache capacity", Strength.SIGN),
        claim("algorithm switch", Strength.HINT),
        claim("slow library call", Strength.HINT),
        claim("fixed cost amortised", Strength.HINT),
    ]
    assert sorted(set(expected), key=rank) == expected
