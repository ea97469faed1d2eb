"""What makes the protocol `quick` short, here and in a pytest of its own, which loads
it by `-p`.
"""

from dataclasses import replace

from curvescope.profiling.measure.protocol import PROTOCOLS

SHORT = replace(PROTOCOLS["quick"], time_limit_s=1.0)


def pytest_configure():
    PROTOCOLS["quick"] = SHORT
