"""What the host did in the idle time of a step: reasons against a plain search, and the time of a
breakdown.
"""

from collections import Counter
from operator import itemgetter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvescope.analysis.decompose import idle
from curvescope.analysis.decompose.idle import Gaps, StepHostSpans, find_gaps, idle_times, reasons

from ..synthetic import work_of


def host(*rows, process=7):
    """Calls or ranges; each row is name, start and end in ns."""
    table = pd.DataFrame(rows, columns=["name", "start_ns", "end"]).assign(process=process)
    return StepHostSpans(table.assign(duration_ns=table["end"] - table["start_ns"]))


@pytest.mark.parametrize("at_once", [1 << 17, 0])
def test_idle_time_has_the_reason_of_its_gap_and_the_layer_that_follows(monkeypatch, at_once):
    # 0: each step is summed up with those before it
    monkeypatch.setattr(idle, "_GAPS_AT_ONCE", at_once)
    steps = pd.DataFrame({"step": [3, 4], "start_ns": [0, 1000], "duration_ns": [400, 400]})
    work = pd.DataFrame(
        {"step": [3, 3, 4], "start_ns": [100, 300, 1200], "duration_ns": [100, 100, 100]}
    )
    work = work.assign(process=7, layer=["conv", None, "conv"])
    calls = host(("cudaFree", 30, 95), ("cudaLaunchKernel", 1310, 1330))
    ranges = host(("ProfilerStep#3", 0, 400), ("ProfilerStep#4", 1000, 1290), ("load", 1010, 1190))
    found = idle_times(work_of(work), steps, calls, lambda: ranges)
    assert [(one.reason, one.time_ms, one.gaps, one.before) for one in found] == [
        ("host in range load", pytest.approx(100e-6), 0.5, "conv"),
        ("host in range ProfilerStep", pytest.approx(67.5e-6), 0.5, None),
        ("host outside API calls", pytest.approx(40e-6), 0.5, None),
        ("host in cudaFree", pytest.approx(32.5e-6), 0.5, "conv"),
        ("host in cudaLaunchKernel", pytest.approx(10e-6), 0.0, None),
    ]


spans = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.integers(0, 30)), max_size=12
)


@pytest.mark.slow
@given(spans, spans, spans)
def test_reasons_are_those_of_a_plain_search(busy, called, around):
    begin = np.array(sorted(start for _, start, _ in busy), np.int64)
    end = begin + np.array([length for _, _, length in busy], np.int64)
    gaps = find_gaps(begin, end, 5, 70)
    idle = [t for t in range(5, 70) if not any(b <= t < e for b, e in zip(begin, end, strict=True))]
    inside = [
        t
        for a, b in zip(gaps.begin_ns.tolist(), gaps.end_ns.tolist(), strict=True)
        for t in range(a, b)
    ]
    assert inside == idle
    calls, ranges = (
        [(name, start, start + length) for name, start, length in one] for one in (called, around)
    )
    found = reasons(gaps, [7], host(*calls), lambda: host(*ranges))
    if not idle:
        return
    first, last = gaps.begin_ns[0], gaps.end_ns[-1]
    any_call = any(start < last and end > first for _, start, end in calls)
    for reason, a, b in zip(found, gaps.begin_ns.tolist(), gaps.end_ns.tolist(), strict=True):
        at = [
            next((name for name, s, e in sorted(calls, key=itemgetter(1)) if s <= t < e), None)
            for t in range(a, b)
        ]
        taken = Counter(name for name in at if name is not None)
        near = [(e - s, name) for name, s, e in ranges if 2 * (min(e, b) - max(s, a)) >= b - a]
        if 2 * at.count(None) < b - a:
            assert reason in {
                f"host in {name}" for name, time in taken.items() if time == max(taken.values())
            }
        elif taken and 2 * max(taken.values()) == b - a:
            assert reason == f"host in {max(taken, key=taken.__getitem__)}"
        elif near:
            assert reason in {
                f"host in range {name}" for length, name in near if length == min(near)[0]
            }
        else:
            assert reason == ("host outside API calls" if any_call else None)


def test_calls_of_other_processes_and_outside_the_gap_do_not_count():
    gap = Gaps(np.array([10]), np.array([20]), np.array([0]))
    assert reasons(gap, [8], host(("cudaFree", 10, 20)), None) == [None]
    assert reasons(gap, [], host(("cudaFree", 10, 20)), None) == ["host in cudaFree"]
    assert reasons(gap, [8], host(("cudaFree", 10, 20), process=None), None) == ["host in cudaFree"]
    assert reasons(gap, [7], host(("cudaFree", 0, 10), ("cudaFree", 20, 30)), None) == [None]
