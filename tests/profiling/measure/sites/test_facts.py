"""What each site does around timed steps, as one table, and that it does so."""

import sys
from dataclasses import astuple, fields, replace
from types import SimpleNamespace

import pytest

from curvescope.experiments.replay.site import TermCalls
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.method import Method
from curvescope.kernels.runner import ProblemSite
from curvescope.kernels.sweeps import single
from curvescope.profiling.hardware.limits import Hardware
from curvescope.profiling.measure.protocol import PROTOCOLS
from curvescope.profiling.measure.sites import here
from curvescope.profiling.measure.sites.command import IN_TURN, Command
from curvescope.profiling.measure.sites.here import Here, LocalSteps
from curvescope.profiling.measure.sites.machines import IN_VISIT
from curvescope.profiling.measure.sites.process import IN_ROUND
from curvescope.profiling.measure.sites.ranks import RankSteps
from curvescope.profiling.measure.sites.site import RUN, STAYS, Facts
from curvescope.profiling.measure.visits import VisitPlan
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.workload.program import Program

from ....kernels.fakes import FakeBackend, exact
from ..fake_clock import FakeWorkload, clock

__all__ = ["clock"]  # a fixture

TABLE = """
| site | kept | discards | warm_up_s | runs_reference | samples_clocks | waits | compiles | caches |
| here, on a CPU | run | 0 | 0.0 | True | True | False | False | as left |
| here, as published | run | 0 | 0.0 | False | True | False | False | as left |
| here, on a GPU | run | 0 | 0.1 | False | True | False | False | as left |
| process of a round | round | 0 | 0.0 | True | False | True | False | as left |
| process of a visit | visit | 1 | 0.0 | False | True | False | False | as left |
| process of a version or a variant | run | 0 | 0.0 | False | False | True | False | as left |
| command | visit | 1 | 0.0 | False | True | False | False | as left |
| command of a version or a variant | visit | 1 | 0.0 | False | False | False | False | as left |
| ranks, whose number changed | run | 2 | 0.0 | False | True | False | False | as left |
| ranks | run | 0 | 0.0 | False | True | False | False | as left |
| kernel of bench, --cache cold | run | 1 | 0.0 | False | True | False | False | cold |
| kernel of bench, --cache hot | run | 1 | 0.0 | False | True | False | False | as left |
| term alone | run | 1 | 0.0 | False | False | False | False | as in step |
| term alone, of a step that fits caches | run | 1 | 0.0 | False | False | False | False | as left |
"""


def kernel(cache):
    sweep = single(Gemm(2, 1, 3))
    hardware = Hardware(None, "cpu")
    return ProblemSite(sweep, 2, FakeBackend(exact), Method(cache=cache), hardware)


def term(cache_bytes):
    recorded = SimpleNamespace(step_bytes_near=lambda _: 1_000)
    return TermCalls(recorded, None, (1,), SimpleNamespace(cache_bytes=cache_bytes))


def begun(workload, protocol="default"):
    site = Here(workload)
    site.begin((1, 2), PROTOCOLS[protocol], "unused")
    return site


def on_gpu(clock):
    workload = FakeWorkload(clock, lambda _: 1_000)
    workload.try_step = lambda _: setattr(workload, "device", "cuda:0")
    return workload


def test_what_each_site_does_around_timed_steps(clock):
    on_cpu = FakeWorkload(clock, lambda _: 1_000)
    program = Program((sys.executable, "train.py", "{batch}"))
    ranks = RankSteps(on_cpu, 2, {1: 1_000})
    ranks.visit(1, VisitPlan(PROTOCOLS["dell"], profile=False))
    sites = {
        "here, on a CPU": begun(on_cpu),
        "here, as published": begun(on_cpu, "dell"),
        "here, on a GPU": begun(on_gpu(clock)),
        "process of a round": LocalSteps(on_cpu, IN_ROUND),
        "process of a visit": LocalSteps(on_cpu, IN_VISIT),
        "process of a version or a variant": LocalSteps(on_cpu, STAYS),
        "command": Command(program, Axis()),
        "command of a version or a variant": Command(program, Axis(), facts=IN_TURN),
        "ranks, whose number changed": RankSteps(on_cpu, 2, {1: 1_000}),
        "ranks": ranks,
        "kernel of bench, --cache cold": kernel("cold"),
        "kernel of bench, --cache hot": kernel("hot"),
        "term alone": term(cache_bytes=999),
        "term alone, of a step that fits caches": term(cache_bytes=1_000),
    }
    rows = [("site", *(field.name for field in fields(Facts)))]
    rows += [(name, *astuple(site.facts())) for name, site in sites.items()]
    table = "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)
    assert table == TABLE.strip()


@pytest.fixture
def visit(clock, monkeypatch):
    """Makes a visit in this process with some facts; returns it, and what ran beside its steps."""
    beside = []
    monkeypatch.setattr(here, "wait_until_quiet", lambda: beside.append("waits"))
    monkeypatch.setattr(here, "Reference", lambda _: beside.append("runs_reference"))
    workload = FakeWorkload(clock, lambda _: 1_000_000)

    def run(**facts):
        steps = LocalSteps(workload, replace(Facts(RUN), **facts))
        return steps.visit(2, VisitPlan(PROTOCOLS["dell"], profile=False)), beside

    return run


def test_a_site_without_facts_does_nothing_beside_the_steps_of_the_protocol(visit):
    made, beside = visit()
    assert made.discarded_steps == PROTOCOLS["dell"].discarded_steps
    assert (made.clocks, beside) == ([], [])


def test_a_site_discards_what_it_says_beside_the_protocol(visit):
    assert visit(discards=2)[0].discarded_steps == 2 + PROTOCOLS["dell"].discarded_steps


@pytest.mark.parametrize("fact", ["waits", "runs_reference"])
def test_a_site_waits_and_runs_the_reference_where_it_says_so(visit, fact):
    assert visit(**{fact: True})[1] == [fact]


def test_a_site_samples_clocks_where_it_says_so(visit):
    assert visit(samples_clocks=True)[0].clocks
