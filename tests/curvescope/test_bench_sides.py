"""`bench gemm` alone: a sweep in the precisions of the device, cold and hot caches side by side, on
a fake clock.
"""

import json

import pytest

from curvescope.cli import main
from curvescope.commands.bench import BENCHES, measuring, problems
from curvescope.kernels import backends, ceilings
from curvescope.profiling.attribution.events import StepRows

from ..kernels.fakes import FakeBackend, exact
from ..tables import ask_each

USUAL = [2**power for power in range(13)]


class Device(FakeBackend):
    """Cold caches take twice as long as hot ones."""

    def __init__(self, facts):
        super().__init__(exact, (2_000_000,))
        self.facts = facts

    def describe(self):
        return self.facts

    def prepare(self, problem, operands):
        prepared = super().prepare(problem, operands)
        return prepared._replace(timer=Halved(self.timer))


class Halved:
    def __init__(self, timer):
        self.timer, self.resolution_ns = timer, timer.resolution_ns

    def take(self, run, calls, count, before):
        samples = self.timer.take(run, calls, count, before)
        if before is not None:
            return samples
        return [sample._replace(duration_ns=sample.duration_ns / 2) for sample in samples]


@pytest.fixture
def bench(monkeypatch, tmp_path, capsys):
    """Runs `bench gemm` on a device of these facts; returns what it printed."""
    monkeypatch.setattr(ceilings, "GEMM_EXTENTS", {"cpu": 8, "cuda": 8})

    def run(facts, *words):
        monkeypatch.setattr(backends, "open_backend", lambda *_: Device(facts))
        assert (
            main(
                [
                    "bench",
                    "gemm",
                    "--no-verify",
                    *words,
                    "-o",
                    str(tmp_path / str(len(list(tmp_path.iterdir())))),
                ]
            )
            == 0
        )
        return capsys.readouterr().out

    return run


@ask_each(
    ("facts", "precisions"),
    [
        ({"kind": "cpu"}, ("fp32", "fp64", "bf16")),
        ({"kind": "cuda", "compute_capability": "9.0"}, ("fp32", "tf32", "bf16")),
        ({"kind": "cuda", "compute_capability": "7.0"}, ("fp32", "fp64", "fp16")),
    ],
)
def test_nobody_has_to_choose_a_sweep(facts, precisions):
    parser, _ = BENCHES["gemm"].build()
    args = parser.parse_args([])
    listed = problems.gemm(args, Device(facts))
    extent = ceilings.GEMM_EXTENTS[facts["kind"]]
    labels = [f"gemm {extent}x*x{extent} NN {precision}" for precision in precisions]
    assert [sweep.label for sweep in listed] == labels
    assert all(list(sweep.problems) == USUAL for sweep in listed)
    assert measuring.caches_of(args) == ("cold", "hot")
    assert args.time_limit == pytest.approx(20 / 78)  # 20 s over all problems


@pytest.mark.slow
def test_cold_and_hot_stand_beside_each_other_with_the_curve(bench):
    shown = bench({"kind": "cpu", "name": "a device"}, "--precision", "fp32").splitlines()
    (line,) = [line for line in shown if line.startswith("gemm 8x4096x8 NN fp32")]
    assert " 2 ms" in line
    assert " 1 ms" in line
    assert line.endswith("█" * 12)  # the highest rate
    (small,) = [line for line in shown if line.startswith("gemm 8x1024x8 NN fp32")]
    assert small.endswith("█" * 3)
    assert any(line.startswith("Cold and hot caches") for line in shown)


def test_who_chooses_an_axis_gets_that(bench):
    document = json.loads(
        bench(
            {"kind": "cpu", "name": "a device"},
            "--axis",
            "n=4",
            "--axis",
            "m=8",
            "--axis",
            "k=8",
            "--json",
        )
    )
    (sweep,) = document["sweeps"]
    assert (sweep["label"], sweep["cache"]) == ("gemm 8x4x8 NN fp32", "cold")


class Profiled(Device):
    """A card whose calls of an epilogue are one kernel, or two where the activation follows."""

    def prepare(self, problem, operands):
        self.names = ["gemm_relu"] if problem.epilogue == "relu" else ["gemm", "relu"]
        return super().prepare(problem, operands)

    def record(self, run, layer, phase):
        rows = [
            {"name": name, "start_ns": 0, "duration_ns": 9, "source": "cupti"}
            for name in self.names
        ]
        return StepRows(rows, [(0, 9)], {})


@ask_each(("kind", "says"), [("cuda", True), ("cpu", False)])
def test_the_kernels_of_a_call_tell_what_a_gpu_fused(bench, monkeypatch, kind, says):
    """A CPU's profile has parts of operators."""
    monkeypatch.setitem(globals(), "Device", Profiled)
    axes = ("m=8", "n=8", "k=8", "epilogue=relu,then_relu")
    shown = bench({"kind": kind, "name": "a card"}, *[w for axis in axes for w in ("--axis", axis)])
    said = " ".join(shown.split())
    assert ("1 kernel a call of gemm 8x8x8 NN fp32 relu: 1 x gemm_relu." in said) == says
    both = "2 kernels a call of gemm 8x8x8 NN fp32 then_relu: 1 x gemm, 1 x relu."
    assert (both in said) == says
