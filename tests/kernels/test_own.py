"""One's own kernel and one's own shapes, as problems."""

import numpy as np
import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.method import BenchOutcome, Method
from curvescope.kernels.own import own_sweeps
from curvescope.kernels.runner import run_sweep
from curvescope.kernels.sweeps import list_shapes

from ..tables import ask_each
from .fakes import FakeBackend

KERNELS = """
import numpy as np

def alone(n):
    return lambda: n

def product(n, k=4, kind="right"):
    a = np.ones((n, k), np.float32)
    right = a @ a.T
    made = {"right": right, "wrong": right * 1.1, "flat": right.ravel()}[kind]
    work = {"flops": 2 * n * n * k, "bytes": 8 * n * k}
    return {"run": lambda: made, "reference": lambda: right, **work}

def once():
    return lambda: None

def writes(n):
    out = np.zeros(n)
    def run():
        out[:] = 1
    return {"run": run, "result": lambda: out, "reference": lambda: np.ones(n)}

def strange(n):
    return {"run": lambda: n, "work": 3}
"""


class Own(FakeBackend):
    """A device whose calls take a millisecond; the problem makes its own call, as for torch."""

    def __init__(self):
        super().__init__(None)

    def prepare(self, problem, _operands):
        return problem.prepare("cpu")


@pytest.fixture
def results_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.py").write_text(KERNELS)

    def run(function, *axes):
        (sweep,) = own_sweeps(f"kernels.py:{function}", axes, "fp32")
        folder = tmp_path / f"r{len(list(tmp_path.iterdir()))}"
        return run_sweep(sweep, Own(), Method(visit_s=0.003), folder)

    return run


def test_a_function_is_swept_over_its_axes_and_verified(results_of):
    results = results_of("product", "n=2,4..8")
    assert [(result.value, result.outcome) for result in results] == [
        (2, "ok"),
        (4, "ok"),
        (8, "ok"),
    ]
    assert results[0].problem == "product n=2 k=4 kind=right precision=fp32"
    assert results[2].axes == {"n": 8, "k": 4, "kind": "right", "precision": "fp32"}
    assert results[2].gflop_per_s == pytest.approx(2 * 8 * 8 * 4 / 1e6)
    assert results[2].bytes_compulsory == 8 * 8 * 4


@ask_each(
    ("call", "outcome"),
    [
        (("product", "n=8", "kind=wrong"), BenchOutcome.INCORRECT),
        (("product", "n=8", "kind=flat"), BenchOutcome.INCORRECT),
        (("alone", "n=8"), BenchOutcome.NOT_VERIFIED),
        (("writes", "n=8"), BenchOutcome.OK),
        (("once",), BenchOutcome.NOT_VERIFIED),
        (("strange", "n=8"), BenchOutcome.FAILED),
    ],
)
def test_what_is_wrong_is_not_timed_and_what_is_not_compared_is_said(results_of, call, outcome):
    (result,) = results_of(*call)
    assert result.outcome == outcome
    assert (result.median_ns is None) == (outcome in (BenchOutcome.INCORRECT, BenchOutcome.FAILED))


@ask_each(
    ("axes", "words"),
    [
        ((), "needs a value of n"),
        (("n=1", "q=2"), "the axes of product are n, k, kind, precision"),
    ],
)
def test_axes_are_the_parameters_of_the_function(results_of, axes, words):
    with pytest.raises(CurvescopeError, match=words):
        results_of("product", *axes)


def test_the_command_takes_a_function_of_a_file(results_of, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("curvescope.kernels.backends.open_backend", lambda *_: Own())
    assert main(["bench", "kernels.py:product", "--axis", "n=2,4", "-o", str(tmp_path / "o")]) == 0
    shown = capsys.readouterr().out
    assert "product n=2 k=4 kind=right" in shown
    with pytest.raises(SystemExit):
        main(["bench", "gem"])
    assert "did you mean gemm?" in capsys.readouterr().err


def test_shapes_are_zipped_from_options_and_files(tmp_path):
    (tmp_path / "net.csv").write_text("m,n,k\n512,64,1024\n512,128,1024\n8,1,8\n")
    sweeps = list_shapes(Gemm(2, 2, 2), [str(tmp_path / "net.csv"), "m=3,n=5,k=7"], "fp32")
    problems = [[(p.m, p.n, p.k) for p in sweep.problems.values()] for sweep in sweeps]
    assert problems == [[(512, 64, 1024), (512, 128, 1024)], [(8, 1, 8)], [(3, 5, 7)]]
    assert sweeps[0].label == "gemm 512x*x1024 NN fp32"


@ask_each(
    ("content", "words"),
    [
        ("m,q\n1,2\n", "the axes of gemm are m, n, k"),
        ("m,n\n1\n", "write a line of axes"),
        ("", "write a line of axes"),
        ("m,n\n1,x\n", "not a whole number"),
    ],
)
def test_a_file_of_other_things_is_refused(tmp_path, content, words):
    (tmp_path / "net.csv").write_text(content)
    with pytest.raises(CurvescopeError, match=words):
        list_shapes(Gemm(2, 2, 2), [str(tmp_path / "net.csv")])


def test_results_of_other_libraries_come_to_the_host():
    """Torch, CuPy and numba each have their own way."""
    from types import SimpleNamespace

    from curvescope.kernels.own import _to_host

    ones = np.ones(2, np.float32)
    for array in (SimpleNamespace(get=lambda: ones), SimpleNamespace(copy_to_host=lambda: ones)):
        assert _to_host(array).tolist() == [1.0, 1.0]
