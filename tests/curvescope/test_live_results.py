"""The view of microbenchmarks that are being measured, on a terminal that only takes notes, with a
clock of its own.
"""

import io
from types import SimpleNamespace

from rich.console import Console

from curvescope.commands.bench.live_results import LiveResults


def result(problem, visits, median_ns):
    return SimpleNamespace(
        problem=problem, visits=visits, median_ns=median_ns, parts=None, uncertainty=0.02, n=12, outcome="ok",  # noqa: E501
        gflop_per_s=1.5, gb_per_s=None, of_peak=None,
    )  # fmt: skip


def test_results_so_far_stand_under_what_runs():
    shown = Console(
        file=io.StringIO(), force_terminal=True, width=80, color_system=None, legacy_windows=False
    )
    now_s = [0.0]
    with LiveResults(2, 10.0, shown, lambda: now_s[0]) as live:
        live.begin()
        live.report(result("gemm n=1", 1, 2e6))
        now_s[0] = 5.0
        live.report(result("gemm n=2", 1, 4e6))
    out = shown.file.getvalue()
    assert "Gemm n=2, visit 1: 5 s so far, at most about 15 s left" in out
    assert "25%" in out
    last = out[out.rindex("so far, at most") :]
    assert [line.split()[:5] for line in last.splitlines() if "12" in line] == [
        ["gemm", "n=1", "2", "ms", "2.0%"],
        ["gemm", "n=2", "4", "ms", "2.0%"],
    ]


def test_past_the_time_limit_no_time_left_is_promised():
    shown, now_s = Console(file=io.StringIO(), width=400), [0.0]
    with LiveResults(1, 10.0, shown, lambda: now_s[0]) as live:
        live.begin()
        now_s[0] = 15.0
        live.report(result("gemm n=1", 2, 2e6))
    assert shown.file.getvalue() == "gemm n=1, visit 2: 15 s so far; median 2 ms.\n"
