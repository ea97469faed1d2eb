"""`curvescope bench gemm --candidates`: the answer, from planted times."""

import io
import json
import math
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from curvescope.analysis.candidates import (
    CandidatesSweep,
    CandidateTime,
    Checked,
    ProductCandidates,
    answer,
)
from curvescope.analysis.change import Change
from curvescope.commands.bench.candidates import render
from curvescope.experiments import candidates
from curvescope.profiling.measure import versions
from curvescope.profiling.measure.versions import PROTOCOL, measure_versions
from curvescope.profiling.measure.visits import Visit

from ..profiling.measure.fake_measurers import machine
from ..tables import ask_each

COMMAND = ("bench", "gemm", "--candidates", "--device", "cpu", "--time-limit", "0.001")
AXES = ("--axis", "n=8", "--axis", "m=8", "--axis", "k=8")


class Planted:
    """Processes whose products take planted times, ms by candidate; each process is faster or
    slower by up to 1 %.
    """

    def __init__(self, times_ms):
        self.times_ms, self.random = times_ms, random.Random(1)

    def __call__(self, python, folder, variables, make, configuration):
        return Process(self, configuration.candidate)


class Process:
    def __init__(self, planted, candidate):
        self._planted = planted
        about = planted.random.uniform(0.99, 1.01)
        self._ns = planted.times_ms[candidate] * 1e6 * about

    def call(self, method, *arguments):
        if method == "describe":
            return machine()
        if method in ("files", "losses"):
            return []
        if method == "prepare":
            return 1
        about = self._planted.random.uniform(0.999, 1.001)
        return Visit([{"start_ns": 0, "duration_ns": round(self._ns * about)}])

    def end(self):
        pass


@pytest.fixture
def planted(monkeypatch, tmp_path):
    """Plants times, and outcomes of the checks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(candidates, "cpu_features", lambda: frozenset({"avx512f"}))
    monkeypatch.setattr(versions, "ROUNDS_OF_PROCESS", 1)
    monkeypatch.setattr(candidates, "PROTOCOL", replace(PROTOCOL, rounds=(6, 6)))

    def plant(times_ms, outcomes=None):
        started = partial(measure_versions, start=Planted(times_ms))
        monkeypatch.setattr(candidates, "measure_versions", started)

        def checked(sweep, device, chosen, verify=True):
            names = [candidates.DEFAULT, *(one.name for one in chosen)]
            found = {name: (outcomes or {}).get(name, ("ok", "")) for name in names}
            return [Checked(name, *of, timed=of[0] == "ok") for name, of in found.items()]

        monkeypatch.setattr(candidates, "check_candidates", checked)

    return plant


@pytest.mark.slow
def test_a_faster_candidate_is_timed_in_processes_and_a_wrong_one_is_not_timed(
    planted, document_of
):
    planted(
        {"default": 1.19, "mkl-avx2": 1.0, "stored-otherwise": 1.2, "swapped": 1.2},
        {"onednn": ("incorrect", "the result is off by 3")},
    )
    (sweep,) = document_of(*COMMAND, *AXES, code=1)["sweeps"]
    assert [(one["name"], one["outcome"]) for one in sweep["checked"]] == [
        ("default", "ok"),
        ("mkl-avx2", "ok"),
        ("onednn", "incorrect"),
        ("stored-otherwise", "ok"),
        ("swapped", "ok"),
    ]
    (product,) = sweep["products"]
    default, best, *_ = product["times"]
    assert default["change"] is None
    assert best["change"]["speedup"] == pytest.approx(1.19, rel=0.02)
    assert best["change"]["low"] < best["change"]["speedup"] < best["change"]["high"]
    assert product["processes"] == 6
    assert product["answer"].startswith("At n = 8 the default takes 1.")


def timed(name, speedup=None, low=None, high=None, p=0.001):
    change = None if speedup is None else Change(speedup, low, high, p)
    how = None if change is None else f"{name.upper()}=1 in the environment"
    return CandidateTime(
        name=name, how=how, kernel="k", time_ms=1.0, low_ms=0.9, high_ms=1.1, n=20, change=change
    )


DEFAULT, SLOWER = timed("default"), timed("slower", 0.5, 0.4, 0.6)


@ask_each(
    ("others", "expected"),
    [
        (
            (SLOWER, timed("fast", 1.19, 1.15, 1.23)),
            "At n = 64 the default takes 1.19 (1.15 … 1.23) times as long as the best of 3, "
            "FAST=1 in the environment (6 processes each).",
        ),
        (
            (SLOWER, timed("next", 0.8, 0.75, 0.9)),
            "At n = 64 the default is the best of 3; next is NEXT=1 in the environment, which "
            "takes 1.25 times as long (1.11 … 1.33; 6 processes each).",
        ),
        (
            (SLOWER, timed("same", 1.02, 0.97, 1.07, p=0.4)),
            "At n = 64 no candidate is significantly faster than the default (2 timed): it takes "
            "1.02 (0.970 … 1.07) times as long as SAME=1 in the environment (6 processes each).",
        ),
        (
            (timed("once", 1.5, -math.inf, math.inf, p=1.0),),
            "At n = 64 no candidate is significantly faster than the default (1 timed): it takes "
            "1.50 (no interval is known) times as long as ONCE=1 in the environment (6 processes "
            "each).",
        ),
    ],
)
def test_the_answer_is_a_ratio_with_its_interval_or_that_there_is_no_gain(others, expected):
    assert answer("n = 64", [DEFAULT, *others], 6) == expected


def test_the_table_has_every_candidate_with_its_interval():
    product = ProductCandidates(
        value=64, processes=6, times=[DEFAULT, SLOWER], answer="The answer."
    )
    sweep = CandidatesSweep(
        recordings="r",
        label="gemm 4x*x3",
        axis="n",
        checked=[Checked("wrong", "incorrect", "off by 3", timed=False)],
        products=[product],
    )
    *lines, rows = render(sweep)
    assert lines == ["gemm 4x*x3", "The answer.", "Not timed: wrong, incorrect: off by 3"]
    console = Console(width=100, file=io.StringIO())
    console.print(rows)
    text = console.file.getvalue()
    assert "0.500 (0.400 … 0.600)" in text
    assert "10.0%" in text


RECORDED = Path(__file__).resolve().parents[2] / "benchmarks/results/candidates_cpu.jsonl"


def test_a_library_whose_choice_is_not_its_best_on_a_cpu():
    """What CUDALibrarySamples 309 and rocm-libraries 9985 report of GPUs, recorded on a CPU.

    The answers are made anew from the recorded times.
    """
    sweeps = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    (sweep,) = [one for one in sweeps if one["label"] == "gemm 768x*x4096 TN fp32"]
    said = {}
    for product in sweep["products"]:
        times = [from_json(one) for one in product["times"]]
        made = answer(f"{sweep['axis']} = {product['value']}", times, product["processes"])
        assert made == product["answer"]
        said[product["value"]] = made
    assert (
        "At n = 15 the default takes 1.98 (1.92 … 2.04) times as long as the best of 3" in said[15]
    )
    assert "the default is the best of 3" in said[3]


def from_json(one):
    change = one["change"]
    if change is not None:
        change = Change(change["speedup"], change["low"], change["high"], change["p_adjusted"])
    return CandidateTime(**{**one, "change": change})


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backend", "numba"), "settings of torch's libraries"),
        (("--precision", "fp8"), "no setting is known that changes products of fp8"),
    ],
)
def test_what_has_no_candidates_is_refused(tmp_path, command, arguments, message):
    pytest.importorskip("numba")
    done = command(*COMMAND, *arguments, cwd=tmp_path, code=2)
    assert message in " ".join(done.stderr.split())
