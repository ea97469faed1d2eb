"""`bench roof` on a device of 1,000 GFLOP/s and 100 GB/s, on a fake clock."""

import json

import pytest

from curvescope.cli import main
from curvescope.kernels import backends
from curvescope.kernels.mix import find_ridge

from ..kernels.fakes import FakeBackend, FakeTimer, exact


class Device(FakeBackend):
    def prepare(self, problem, operands):
        work = problem.work
        nearer_ns = max(work.flops // 1000, work.bytes_compulsory // 100)
        return super().prepare(problem, operands)._replace(timer=FakeTimer([nearer_ns]))


@pytest.fixture
def bench(monkeypatch, tmp_path, capsys):
    """Runs `bench roof`; returns what it printed."""
    monkeypatch.setattr(backends, "open_backend", lambda *_: Device(exact))

    def run(*words):
        size = ("--axis", "size=8000000")
        asked = ("bench", "roof", *size, "--no-verify", "-o", str(tmp_path / "roof"), *words)
        assert main([*asked]) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_the_ridge_is_where_both_roofs_meet(bench, tmp_path, capsys):
    shown = bench()
    said = " ".join(shown.split())
    assert "Ridge at 10.0 FLOPs a byte: 1000 GFLOP/s over 100.0 GB/s" in said
    picture = [line for line in shown.splitlines() if "│" in line or "└" in line]
    assert picture[0].startswith("   1000 │")  # the roof's top, which 16, 32 and 64 reach
    assert picture[0].endswith("●")
    assert sum(line.count("●") for line in picture) == 9
    assert picture[-2].startswith("   25.0 │●")  # 0.25 FLOPs a byte at 100 GB/s
    assert main(["roofline", str(tmp_path / "roof")]) == 0
    assert "64" in capsys.readouterr().out


@pytest.mark.slow
def test_json_has_the_rates(bench):
    (sweep,) = json.loads(bench("--json"))["sweeps"]
    rates = [(result["axes"]["fmas"], result["gflop_per_s"]) for result in sweep["results"]]
    assert rates == [(2**power, min(1000, 25 * 2**power)) for power in range(9)]


def test_a_ridge_has_the_best_rate_of_each():
    ridge = find_ridge([(25.0, 90.0), (90.0, 100.0), (80.0, 5.0)])
    assert (ridge.gflop_per_s, ridge.gb_per_s, ridge.flops_per_byte) == (90, 100, 0.9)
