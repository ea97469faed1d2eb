"""What the library offers for a product or a convolution beside its default."""

from dataclasses import replace

import pytest

from curvescope.experiments import candidates
from curvescope.experiments.candidates import (
    CANDIDATES,
    Candidate,
    ProductConfiguration,
    candidates_for,
    check_candidates,
)
from curvescope.kernels.conv import Conv
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.sweeps import along
from curvescope.profiling.hardware.host import cpu_features
from curvescope.profiling.measure.visits import Empty

from ..tables import ask_each

SWEEP = along("n", {n: Gemm(4, n, 3, "TN") for n in (2, 5)})
CONVOLUTIONS = along("n", {n: Conv(n, 2, 5, 5, 3, 3, 3) for n in (1, 2)})
ORDERS = ["stored-otherwise", "swapped"]


@ask_each(
    ("precision", "device", "features", "names"),
    [
        ("fp32", "cpu", {"avx", "avx2"}, ["onednn"]),
        ("fp64", "cpu", {"avx", "avx512f"}, ["mkl-avx2"]),
        ("bf16", "cpu", {"avx512f", "avx512_bf16"}, ["onednn-avx2", "onednn-avx512_core"]),
        ("int8", "cpu", {"avx512f", "amx_int8"}, ["onednn-avx2", "onednn-avx512_core_vnni"]),
        ("bf16", "cuda:1", {"avx512f"}, ["cublaslt", "cublaslt-list", "small-workspace"]),
        ("fp8", "cuda:0", set(), []),
    ],
)
def test_a_limit_is_a_candidate_where_the_cpu_has_more(precision, device, features, names):
    found = [one.name for one in candidates_for(precision, device, frozenset(features))]
    assert [name for name in found if name not in ("no-onednn", *ORDERS)] == names
    assert found[-2:] == ORDERS or precision in ("int8", "fp8")
    assert ("no-onednn" in found) == (precision in ("bf16", "int8") and device == "cpu")


@ask_each(
    ("device", "names"),
    [
        ("cpu", ["no-onednn", "channels-otherwise"]),
        ("cuda:0", ["cudnn-benchmark", "no-cudnn", "channels-otherwise"]),
    ],
)
def test_a_convolution_has_candidates_of_its_own(device, names):
    found = [one.name for one in candidates_for("fp32", device, frozenset(), Conv)]
    assert found == names


@ask_each(("sweep", "name"), [(SWEEP, "stored-otherwise"), (SWEEP, "swapped")])
def test_a_product_in_another_order_is_the_same_product(sweep, name):
    (checked,) = check_changed(sweep, name)
    assert (checked.name, checked.outcome) == (name, "ok")


def test_a_convolution_in_another_layout_is_the_same_convolution():
    (checked,) = check_changed(CONVOLUTIONS, "channels-otherwise")
    assert checked.outcome == "ok"


def check_changed(sweep, name):
    """The outcome of one candidate."""
    pytest.importorskip("torch")
    kind = type(next(iter(sweep.problems.values())))
    _, *checked = check_candidates(sweep, "cpu", [CANDIDATES[kind][name]], start=Here)
    return checked


def test_the_transposed_product_has_the_extents_of_the_other_side():
    swapped = CANDIDATES[Gemm]["swapped"].change(Gemm(4, 5, 3, "NN"))
    assert swapped == Gemm(5, 4, 3, "TT")
    assert CANDIDATES[Gemm]["swapped"].change(Gemm(4, 5, 3, "TN")) == Gemm(5, 4, 3, "TN")


def test_each_candidate_says_how_to_set_it():
    hows = {name: one.how for one_kind in CANDIDATES.values() for name, one in one_kind.items()}
    assert hows["onednn-avx2"] == "ONEDNN_MAX_CPU_ISA=AVX2 in the environment"
    assert hows["cublaslt"] == "torch.backends.cuda.preferred_blas_library('cublaslt')"
    assert all(hows.values())


def test_features_are_read_as_the_kernel_names_them():
    text = "processor\t: 0\nflags\t\t: fpu avx2 avx512f\nbugs\t: x\n\nflags\t\t: fpu\n"
    assert cpu_features(text) == {"fpu", "avx2", "avx512f"}
    assert cpu_features("processor : 0\n") == frozenset()


class Here:
    """Stands for the process of a candidate: it runs in this one."""

    def __init__(self, variables, make, configuration):
        self.variables, self._made = variables, make(configuration)

    def call(self, method, *arguments):
        return getattr(self._made, method)(*arguments)

    def end(self):
        pass


def test_the_product_of_every_candidate_is_checked_before_it_is_timed():
    pytest.importorskip("torch")
    (checked, other) = check_candidates(SWEEP, "cpu", [CANDIDATES[Gemm]["onednn"]], start=Here)
    assert (checked.name, checked.outcome) == ("default", "ok")
    assert (other.name, other.outcome) in [("onednn", "ok"), ("onednn", "failed")]


def test_a_wrong_product_is_not_timed(monkeypatch):
    torch = pytest.importorskip("torch")
    mm = torch.mm
    in_candidate = []

    class There(Here):
        def call(self, method, *arguments):
            in_candidate[:] = [self._made._problems] if "OFF" in self.variables else []
            return super().call(method, *arguments)

    def off_in_candidate(a, b, *, out):
        return mm(a, b, out=out).add_(len(in_candidate))

    monkeypatch.setattr(torch, "mm", off_in_candidate)
    off = Candidate(name="wrong", device="cpu", beyond={}, variables=(("OFF", "1"),))
    default, checked = check_candidates(SWEEP, "cpu", [off], start=There)
    assert (default.outcome, checked.outcome) == ("ok", "incorrect")
    assert not checked.timed
    assert "off by" in checked.detail


def test_a_candidate_that_cannot_be_set_here_says_why_and_is_not_started():
    pytest.importorskip("torch")
    older = replace(
        CANDIDATES[Gemm]["cublaslt-list"], why_not=lambda: "torch 2.13 does not time them"
    )
    (_, checked) = check_candidates(SWEEP, "cpu", [older], start=Here)
    assert (checked.outcome, checked.timed) == ("unsupported", False)
    assert checked.detail == "torch 2.13 does not time them"


def test_a_process_that_ends_is_an_outcome():
    class Ends(Here):
        def __init__(self, *_):
            pass

        def call(self, *_):
            return Empty("killed", "SIGILL")

    (checked,) = check_candidates(SWEEP, "cpu", [], start=Ends)
    assert (checked.outcome, checked.detail) == ("failed", "killed (SIGILL)")


def test_the_steps_of_a_candidate_are_its_products_along_the_axis():
    pytest.importorskip("torch")
    configuration = ProductConfiguration.of(SWEEP, "cpu")
    steps = configuration.build()
    steps.load(5)
    assert tuple(steps.submit().shape) == (5, 4)
    entry = configuration.entry
    assert entry["network"] == "gemm 4x*x3 TN fp32"
    assert entry["axis"]["name"] == "n"
    assert "bench gemm --candidates" in entry["step_not_importable"]
    assert candidates.DEFAULT in entry["step_not_importable"]
