"""What the benchmarks of speed keep and print, without running what takes long."""

import json
import sys

from .conftest import BENCHMARKS


def test_what_a_script_prints_is_shown_with_its_exit_code(load, tmp_path, monkeypatch):
    speed = load("speed")
    (tmp_path / "script.py").write_text("print('2 s, ratio 3')\nraise SystemExit(3)")
    monkeypatch.setattr(speed, "HERE", tmp_path)
    benchmark = speed.Benchmark("x", "Title of it", "script.py", 1, "They draw better.")
    lines = speed.describe_benchmark(benchmark, speed.run(benchmark))
    assert lines[0] == "## Title of it"
    assert "It failed with exit code 3; its output follows." in lines
    assert "2 s, ratio 3" in lines
    assert "What peers do better: They draw better." in lines
    assert "Not measured yet." in speed.describe_benchmark(benchmark, None)


def test_what_was_run_stays_when_it_is_interrupted(load, tmp_path, monkeypatch, capsys):
    speed = load("speed")
    (tmp_path / "script.py").write_text("print('it ran')")
    monkeypatch.setattr(speed, "HERE", tmp_path)
    monkeypatch.setattr(speed, "KEPT", tmp_path / "kept.json")
    benchmarks = [speed.Benchmark(name, f"Title {name}", "script.py", 60) for name in "xy"]
    monkeypatch.setattr(speed, "BENCHMARKS", benchmarks)
    monkeypatch.setattr(sys, "argv", ["speed.py", "--missing"])
    run = speed.run

    def interrupted(benchmark):
        if benchmark.name == "y":
            raise KeyboardInterrupt
        return run(benchmark)

    monkeypatch.setattr(speed, "run", interrupted)
    assert speed.main() == 130
    assert "1 of 2: Title x (about 2 min left)\n  it ran\n" in capsys.readouterr().out
    assert [*json.loads((tmp_path / "kept.json").read_text())] == ["x"]
    monkeypatch.setattr(speed, "run", run)
    assert speed.main() == 0
    assert "1 of 1: Title y" in capsys.readouterr().out
    assert [*json.loads((tmp_path / "kept.json").read_text())] == ["x", "y"]


def test_every_benchmark_is_there(load):
    for benchmark in load("speed").BENCHMARKS:
        assert (BENCHMARKS / benchmark.script).is_file()
