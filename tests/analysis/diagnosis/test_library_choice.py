"""Whether a library could do better: what experiments on a term say, and the command to run."""

from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from curvescope.analysis.causes import UNEXPLAINED, CauseTotal, Claim, Evidence, Strength, TermCause
from curvescope.analysis.decompose.statistics import Estimate
from curvescope.analysis.diagnosis.explanation import TermEvidence
from curvescope.analysis.diagnosis.library_choice import candidates_command, library_choice
from curvescope.analysis.render.answer_words import library, sentence
from curvescope.analysis.verdicts.words import Reproduction, Verdict
from curvescope.profiling.recording.operators import TensorArgument, encode_arguments

from ...experiments.planted_experiments import experiment
from ...tables import ask_each
from ..verdicts.test_outcome import FC6_MS, outcomes
from .test_answer import TEN_MS, explained


def test_the_default_is_so_many_times_the_best_at_the_size_where_it_loses_most():
    """15.1 ms by MKL and 8.6 by oneDNN at the largest size."""
    measured = outcomes(experiment())
    found = library_choice(measured)
    largest = max(FC6_MS[None])
    assert (found.batch, found.ways) == (largest, 2)
    assert found.ratio.value == pytest.approx(15.1 / 8.6, rel=0.03)
    assert found.ratio.low < found.ratio.value < found.ratio.high
    tested = TermEvidence("fc6", TEN_MS, None, Reproduction.REPRODUCES, None, measured[1:])
    total = slow_call(Verdict.CONFIRMED)
    answer = explained({"fc6": 10.0}, total, evidence=(tested,))
    said = library(answer)
    assert said in sentence(answer)
    assert f"Alone, at batch {largest} the library's default takes 1.7" in said
    assert "times as long as the best of 2: matrix products run through oneDNN" in said


def test_no_way_that_is_slower_or_changes_the_results_counts():
    as_is, changed = outcomes(experiment())
    assert library_choice([as_is, replace(changed, changed_results="other results")]) is None
    slower = tuple(Estimate(-0.1, -0.2, -0.05, 0.0) for _ in changed.gains)
    assert library_choice([replace(changed, gains=slower)]) is None
    assert library_choice([replace(changed, factor="one_thread")]) is None


def slow_call(verdict, cause="slow library call"):
    evidence = Evidence("rate", 1.0, 0.5, "1", "kernels.flops")
    claim = Claim(
        "slow library call", 10.0, Strength.HINT, (evidence,), "Through another library it stays."
    )
    term = TermCause("fc6", 10.0, claim, (), verdict)
    return CauseTotal(cause, 10.0, (term,), verdict)


def product(op, *tensors, batch, duration_ns=9, layer="fc6"):
    arguments = encode_arguments([TensorArgument(*one) for one in tensors])
    row = {"layer": layer, "phase": None, "op": op, "batch": batch}
    return {**row, "arguments": arguments, "duration_ns": duration_ns}


LINEAR = [
    product("aten::linear", ((rows, 4096), "float"), ((768, 4096), "float"), batch=rows)
    for rows in (4, 8)
]
MM = product("aten::mm", ((4, 64), "c10::BFloat16"), ((64, 32), "c10::BFloat16"), batch=4)
ADDMM = product(
    "aten::addmm",
    ((768,), "float"),
    ((8, 4096), "float"),
    ((4096, 768), "float", (1, 4096)),
    batch=8,
)


@ask_each(
    ("rows", "expected"),
    [
        (LINEAR, "--precision fp32 --axis m=768 --axis n=4,8 --axis k=4096 --axis transpose=TN"),
        ([MM], "--precision bf16 --axis m=32 --axis n=4 --axis k=64 --axis transpose=NN"),
        ([ADDMM], "--precision fp32 --axis m=768 --axis n=8 --axis k=4096 --axis transpose=TN"),
    ],
)
def test_the_command_times_the_longest_product_at_the_sizes_of_the_anomaly(rows, expected):
    assert commanded(rows) == f"curvescope bench gemm --candidates --device cpu {expected}"


def test_no_command_without_a_product_or_where_another_cause_is_known():
    assert commanded([{**MM, "op": "aten::relu"}]) is None
    assert (
        commanded([product("aten::mm", ((4, 8), "long int"), ((8, 2), "long int"), batch=4)])
        is None
    )
    other = CauseTotal("page faults", 10.0, slow_call(Verdict.UNTESTED).terms, Verdict.CONFIRMED)
    assert commanded(LINEAR, other) is None
    unknown = slow_call(Verdict.UNTESTED, UNEXPLAINED)
    assert commanded(LINEAR, unknown).startswith("curvescope bench gemm")


def commanded(rows, total=None):
    answer = explained({"fc6": 10.0}, total or slow_call(Verdict.CONFIRMED))
    recording = SimpleNamespace(
        arrow=lambda table, columns: pa.Table.from_pylist(rows),
        meta={"device": {"kind": "cpu"}},
    )
    return candidates_command(
        recording, SimpleNamespace(answers=[answer], recorded=SimpleNamespace(groups={}))
    )
