"""The GPU campaign's machinery, on stages of the test's; its real stages are listed, and rehearsed elsewhere."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from curvescope.profiling.recording.experiments import Experiment, Scope, Stage, record_experiment
from curvescope.profiling.recording.store import RecordingWriter, columns_of

from ..curvescope.recordings import write_planted

FOLDER = Path(__file__).parents[2] / "benchmarks" / "gpu"


@pytest.fixture(scope="module")
def campaign():
    spec = importlib.util.spec_from_file_location("campaign", FOLDER / "campaign.py")
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_every_stage_fits_ten_minutes_and_stands_alone(campaign):
    for scale in (campaign.FULL, campaign.REHEARSAL):
        stages = campaign.stages(scale)
        assert len({stage.name for stage in stages}) == len(stages)
        assert all(0 < stage.minutes <= 10 and stage.commands for stage in stages)
        # No command reaches into another stage's folder.
        assert not any(".." in word.split("/") for s in stages for c in s.commands for word in c.argv)


def stage(campaign, *commands):
    return campaign.Stage("one", 1, "a test's", tuple(campaign.Command(**c) for c in commands))


def test_a_command_that_fails_is_said_and_the_next_runs(campaign, tmp_path):
    made = stage(
        campaign,
        {"line": "python -c 'import sys; sys.exit(3)'"},
        {"line": "python -c 'import sys; sys.exit(2)'"},
        {"line": "no-such-program", "needs": "no-such-program"},
        {"line": "python -c 1", "cuda": True},
        {
            "line": "python -c 'import os; print(os.environ[\"MARK\"])'",
            "output": "said.md",
            "environment": {"MARK": "here"},
        },
    )
    done = campaign.run_stage(made, tmp_path / "one", rehearsal=True)
    assert done["outcomes"] == {"ok": 1, "failed": 1, "skipped": 3, "timed out": 0}
    assert [c["outcome"].split(":")[0] for c in done["commands"]] == ["failed", *["skipped"] * 3, "ok"]
    assert (tmp_path / "one" / "said.md").read_text() == "here\n"
    campaign.write_summary(tmp_path, rehearsal=True)
    summary = (tmp_path / "summary.md").read_text()
    assert "A rehearsal on a CPU" in summary
    assert "no-such-program is not on PATH" in summary
    assert "here" in summary


def test_a_stage_ends_with_its_time(campaign, tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "STAGE_LIMIT_S", 0.5)
    monkeypatch.setattr(campaign, "GRACE_S", 3)
    stubborn = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"
    made = stage(campaign, {"line": f"python -c '{stubborn}'"}, {"line": "python -c 1"})
    done = campaign.run_stage(made, tmp_path / "one", rehearsal=False)
    assert done["outcomes"]["timed out"] == 2
    assert done["seconds"] < 30
    assert json.loads((tmp_path / "one" / "done.json").read_text()) == done


def run(tmp_path, *arguments):
    return subprocess.run(
        [sys.executable, FOLDER / "campaign.py", "-o", tmp_path / "out", *arguments], capture_output=True, text=True
    )


def test_it_says_what_it_will_do_and_refuses_stages_that_are_not(tmp_path):
    listed = run(tmp_path, "--list")
    assert listed.returncode == 0
    assert "memory-pressure" in listed.stdout
    assert "minutes" in listed.stdout
    assert not (tmp_path / "out").exists()
    assert run(tmp_path, "everything").returncode == 2


def test_a_stage_that_is_done_is_not_run_again_and_nothing_is_overwritten(tmp_path):
    for again in ((), ("--again",)):
        assert run(tmp_path, "--rehearse", "machine", *again).returncode == 0
    folders = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert len(folders) == 2
    assert folders[0] == "machine"
    assert "machine: done before" in run(tmp_path, "--rehearse", "machine").stdout
    doctor = json.loads((tmp_path / "out" / "machine" / "doctor.json").read_text())
    assert any(row["name"] == "CPU" for row in doctor)


def experiment(number, stage, scope, factors=(), **changes):
    return Experiment(number, stage, scope, ((4, -2.0), (8, 1.0)), "excess", (4, 8), factors, **changes)


def rows_of(path, tmp_path):
    script = FOLDER / "experiment_rows.py"
    return subprocess.run([sys.executable, script, path, tmp_path / "rows.md"], capture_output=True, text=True)


def test_the_table_of_experiments_has_a_line_per_factor(tmp_path):
    """A screen of two factors, of which one could not be changed."""
    untested = {"cublaslt": "no GPU"}
    screen = experiment(
        0, Stage.SCREEN, Scope.TERM, ("onednn", "cublaslt"), layer="fc6", phase="forward", untested=untested
    )
    operators = {"batch": 4, "op": "aten::mm", "arguments": "[]", "calls": 1, "position": 0, "source": "torch"}
    rows = [
        {"experiment": 0, "factor": factor, "batch": batch, "round": round_, "index": 0, "duration_ns": batch * 10**6}
        for factor in (None, "onednn")
        for batch in (4, 8)
        for round_ in (0, 1)
    ]
    with RecordingWriter.extend(write_planted(tmp_path / "run")) as writer:
        writer.write("operators", columns_of([operators]))
        writer.write("experiments", columns_of(rows))
        record_experiment(writer, screen)
    done = rows_of(tmp_path / "run", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "rows.md").read_text().splitlines()
    assert lines[0] == "1 rows of operators, 8 timed runs of experiments."
    assert lines[4:] == [
        "| fc6 forward, screen | excess over 4, 8 | as it is | 2 | 8 | 8 |  |",
        "| fc6 forward, screen | excess over 4, 8 | onednn | 2 | 8 | 8 |  |",
        "| fc6 forward, screen | excess over 4, 8 | cublaslt | 0 | 8 |  | no GPU |",
    ]


def test_a_stage_without_the_experiments_that_its_anomaly_needs_fails(tmp_path):
    """The recording has a planted anomaly, an entry of an experiment, and no timed run."""
    with RecordingWriter.extend(write_planted(tmp_path / "run")) as writer:
        record_experiment(writer, experiment(0, Stage.REMEDY, Scope.STEP, ("kept_memory",)))
    done = rows_of(tmp_path / "run", tmp_path)
    assert done.returncode == 1
    assert "has no rows of operators and of experiments" in done.stdout


def keep(*arguments):
    return subprocess.run([sys.executable, FOLDER / "keep.py", *arguments], capture_output=True, text=True)


def test_what_is_kept_has_tables_of_the_results_and_nothing_else(campaign, tmp_path):
    """A campaign of two stages, one of them not done; the page says both, and a second one overwrites nothing."""
    results = tmp_path / "gpu"
    ceilings = {
        "compute": {"fp32": {"per_s": 51.2e12, "how": "gemm 4096, torch", "uncertainty": 0.004}},
        "bandwidth": {"DRAM": {"per_s": 4.1e12, "how": "copy", "uncertainty": None}},
    }
    (tmp_path / "made.json").write_text(json.dumps(ceilings))
    for name, line in (
        ("ceilings", f"cat {tmp_path / 'made.json'}"),
        ("overhead", "python -c 'import sys; sys.exit(3)'"),
    ):
        output = "ceilings.json" if name == "ceilings" else None
        made = campaign.Stage(name, 1, "a test's", (campaign.Command(line, output),))
        campaign.run_stage(made, results / name, rehearsal=False)
    (results / "ceilings" / "large.csv").write_bytes(b"0" * 300_000)
    (results / "overhead" / "overhead.md").write_text("| watched by | ratio |\n| --- | --- |\n| none | 1.0 |\n")
    done = keep(results, "card", "--into", tmp_path / "kept")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "kept" / "docs" / "case-studies" / "card.md").read_text()
    assert "| fp32 | 5.12e+04 GFLOP/s | 0.4% | gemm 4096, torch |" in page
    assert "| DRAM | 4100 GB/s |  | copy |" in page
    assert "| none | 1.0 |" in page
    assert "failed: 3" in page
    assert "The stage `machine` left nothing." in page
    assert "None were measured." in page  # operators
    kept = tmp_path / "kept" / "benchmarks" / "results" / "card"
    assert sorted(p.name for p in (kept / "ceilings").iterdir()) == ["ceilings.json", "done.json"]
    assert not (tmp_path / "kept" / "tests").exists()
    again = keep(results, "card", "--into", tmp_path / "kept")
    assert again.returncode == 2
    assert "nothing is overwritten" in again.stderr


def test_a_rehearsal_is_no_evidence(campaign, tmp_path):
    campaign.run_stage(stage(campaign, {"line": "python -c 1"}), tmp_path / "gpu" / "one", rehearsal=True)
    refused = keep(tmp_path / "gpu", "card")
    assert refused.returncode == 2
    assert "rehearsal" in refused.stderr
    assert keep(tmp_path / "gpu", "card", "--into", tmp_path / "kept").returncode == 0
    assert "nothing here is of a GPU" in (tmp_path / "kept/docs/case-studies/card.md").read_text()


def test_what_commands_measure_of_the_device_stays_in_the_folder(campaign, tmp_path):
    line = "python -c 'import os; print(os.environ[\"CURVESCOPE_DATA\"])'"
    campaign.run_stage(stage(campaign, {"line": line, "output": "said.txt"}), tmp_path / "gpu" / "one", rehearsal=True)
    assert (tmp_path / "gpu" / "one" / "said.txt").read_text().strip() == str(tmp_path / "gpu" / "data")


@pytest.mark.slow
def test_a_rehearsal_packs_the_records_that_a_cpu_gives(tmp_path):
    assert run(tmp_path, "--rehearse", "records").returncode == 0
    packed = tmp_path / "out" / "records" / "test_data"
    assert sorted(path.name for path in packed.iterdir()) == ["README.md", "collector", "torch_trace.json.gz"]
    log = (tmp_path / "out" / "records" / "log.txt").read_text()
    assert "raw_buffers.chunks.gz: not recorded here" in log
    assert "ncu.csv: not recorded here" in log


@pytest.mark.slow
def test_a_rehearsal_runs_experiments_and_replays_operators(tmp_path):
    """On a CPU: the operators are there, and so are timed experiments if the step has an anomaly or a fixed cost."""
    done = run(tmp_path, "--rehearse", "experiments-alexnet")
    assert done.returncode == 0, done.stdout + done.stderr
    stage = tmp_path / "out" / "experiments-alexnet"
    outcomes = json.loads((stage / "done.json").read_text())["outcomes"]
    assert (outcomes["failed"], outcomes["timed out"]) == (0, 0), (stage / "log.txt").read_text()
    assert "timed runs of experiments" in (stage / "experiments.md").read_text()
    assert json.loads((stage / "replay.json").read_text())["calls"]
