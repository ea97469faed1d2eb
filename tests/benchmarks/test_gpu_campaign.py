"""The GPU campaign's machinery, on stages of the test's; its real stages are listed, and rehearsed elsewhere."""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "gpu"
MODULES = ("stages", "running", "packing", "campaign", "wheels", "check_recording", "overhead")


@pytest.fixture(scope="module")
def campaign():
    """The campaign's modules, with their names in one place."""
    before = list(sys.path)
    sys.path.insert(0, str(FOLDER))
    loaded = {name: importlib.import_module(name) for name in MODULES}
    yield type("Modules", (), loaded)
    sys.path[:] = before
    for name in (*MODULES, "scripts"):
        sys.modules.pop(name, None)


def test_every_stage_fits_its_limit_and_stands_alone(campaign):
    for scale in (campaign.stages.FULL, campaign.stages.REHEARSAL):
        stages = campaign.stages.stages(scale)
        assert len({stage.name for stage in stages}) == len(stages)
        assert all(0 < stage.minutes * 60 <= campaign.campaign.STAGE_LIMIT_S and stage.commands for stage in stages)
        # No command reaches into another stage's folder.
        assert not any(".." in word.split("/") for s in stages for c in s.commands for word in c.argv)


def test_records_come_first_and_then_a_sweep_that_is_explained(campaign):
    names = [stage.name for stage in campaign.stages.stages(campaign.stages.FULL)]
    assert names[:3] == ["machine", "records", "sweep-small"]
    assert {"experiments-alexnet", "experiments-vgg_a", "residual", "checks"} < set(names)
    # What half an hour on a card reaches: the answers and the collector come before further networks.
    assert max(map(names.index, ("checks", "experiments-alexnet", "collector-small", "residual", "tests"))) < 8


def test_every_stage_that_records_fails_where_nothing_was_recorded(campaign):
    for stage in campaign.stages.stages(campaign.stages.FULL):
        if stage.name.startswith(("records", "sweep", "collector", "experiments")):
            assert any("check_recording.py" in command.line for command in stage.commands), stage.name
        if stage.name.startswith(("ceilings", "operators")):
            assert "check_benches.py" in stage.commands[-1].line, stage.name


class FakeRuns:
    """Runs stages in no time: each takes its minutes of a clock that stands still otherwise."""

    def __init__(self, campaign, output, *minutes):
        self.now_s, self.ran = 1000.0, []
        self.stages = [campaign.stages.Stage(f"stage-{i}", m, "a test's", ()) for i, m in enumerate(minutes)]
        self.campaign, self.output, self.said = campaign, output, []

    def run(self, stage, folder, limit_s):
        folder.mkdir(parents=True)
        self.ran.append((stage.name, limit_s))
        self.now_s += stage.minutes * 60
        outcomes = {"ok": 1, "failed": 0, "skipped": 0, "timed out": 0}
        done = {"stage": stage.name, "says": "", "rehearsal": True, "utc": f"{self.now_s:09.0f}", "outcomes": outcomes}
        done |= {"seconds": 60.0 * stage.minutes, "commands": []}
        (folder / "done.json").write_text(json.dumps(done))
        (folder / "answer.md").write_text(f"answer of {stage.name}\n")
        return done

    def call(self, **options):
        """One call of the campaign, which begins now; returns what it started and what it left."""
        one = self.campaign.campaign.Campaign(
            self.stages, self.output, self.run, clock_s=lambda: self.now_s, began_s=self.now_s, say=self.said.append,
            **options,
        )  # fmt: skip
        left = one.run_stages()
        return one.started, left


def test_a_stage_starts_only_if_it_should_end_in_time_and_a_later_call_resumes(campaign, tmp_path):
    """Stages of 2, 8, 3 and 1 minutes in calls of 400 s, of which 25 are kept for the end."""
    runs = FakeRuns(campaign, tmp_path / "gpu", 2, 8, 3, 1)
    assert runs.call(total_limit_s=400) == (["stage-0", "stage-2", "stage-3"], ["stage-1"])
    assert runs.call(total_limit_s=400) == ([], ["stage-1"])
    assert runs.call(total_limit_s=520) == (["stage-1"], [])
    assert runs.call() == ([], [])
    # Each stage may use what is left, but never more than its own limit.
    assert runs.ran == [("stage-0", 375.0), ("stage-2", 255.0), ("stage-3", 75.0), ("stage-1", 480)]
    assert "stage-1: left for a later call" in runs.said
    assert "stage-0: done before (1 ok)" in runs.said


def test_another_machine_resumes_from_the_carried_folder_alone(campaign, tmp_path):
    first = FakeRuns(campaign, tmp_path / "first", 1, 1)
    first.stages = first.stages[:1]
    first.call()
    (tmp_path / "second").mkdir()
    (tmp_path / "first" / "carry").rename(tmp_path / "second" / "carry")
    second = FakeRuns(campaign, tmp_path / "second", 1, 1)
    second.now_s = first.now_s
    assert second.call() == (["stage-1"], [])
    summary = (tmp_path / "second" / "summary.md").read_text()
    assert summary.index("answer of stage-0") < summary.index("answer of stage-1")


def test_the_packed_file_has_the_summary_first_then_small_results_then_recordings_that_fit(campaign, tmp_path):
    runs = FakeRuns(campaign, tmp_path / "gpu", 1, 1)
    runs.call()
    for name, size in (("stage-0/recording/kernels", 2_000_000), ("stage-1/small", 1000), ("stage-1/test_data", 1000)):
        (tmp_path / "gpu" / name).mkdir(parents=True)
        # Bytes that do not compress.
        (tmp_path / "gpu" / name / "0.parquet").write_bytes(random.Random(0).randbytes(size))
    left_out = campaign.packing.pack(tmp_path / "gpu", ["stage-0", "stage-1"], tmp_path / "out.tar.gz", 1_000_000)
    assert left_out == ["stage-0/recording (2.0 MB)"]
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        names = archive.getnames()
        summary = archive.extractfile("summary.md").read().decode()
    assert names[0] == "summary.md"
    assert names[1:3] == ["carry/stage-0/answer.md", "carry/stage-0/done.json"]
    assert names[5:] == [
        "stage-0/answer.md",
        "stage-0/done.json",
        "stage-1/answer.md",
        "stage-1/done.json",
        "stage-1/test_data/0.parquet",
        "stage-1/small/0.parquet",
    ]
    assert summary.endswith("## Not packed\n\n- stage-0/recording (2.0 MB)\n")
    assert (tmp_path / "out.tar.gz").stat().st_size < 1_000_000


def run(tmp_path, *arguments):
    # A stage may take as long as a busy machine needs; the limits have tests of their own.
    command = [sys.executable, FOLDER / "campaign.py", "-o", tmp_path / "out", "--stage-limit", "86400"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True)


def test_a_terminated_campaign_packs_what_is_there(tmp_path):
    """SIGTERM, as `timeout` sends it, while a command runs: the stage is not done, and its log is packed."""
    program = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import stages
command = stages.Command("python -c 'import time; time.sleep(600)'")
stages.stages = lambda scale: (stages.Stage("one", 1, "", (command,)),)
import campaign
sys.exit(campaign.main())
"""
    words = ["--rehearse", "-o", str(tmp_path / "gpu"), "--pack", str(tmp_path / "out.tar.gz")]
    process = subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE)
    log, limit_s = tmp_path / "gpu" / "one" / "log.txt", time.monotonic() + 600
    while time.monotonic() < limit_s and not (log.is_file() and log.stat().st_size):
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=600)
    assert process.returncode == 143
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        assert archive.getnames() == ["summary.md", "one/log.txt"]


STARTING = """import os, signal, subprocess, sys
sys.path.insert(0, sys.argv[1])
import running, stages
from pathlib import Path

Popen = subprocess.Popen
def start(*arguments, **options):
    process = Popen(*arguments, **options)
    print(process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)  # before the caller has the process
    return process
subprocess.Popen = start
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
command = stages.Command("python -c 'import time; time.sleep(600)'")
with open("log.txt", "w") as log:
    running.run_command(command, Path("."), Path("."), log, 500.0, rehearsal=True)
"""


def test_a_command_that_starts_as_the_campaign_is_terminated_is_ended(tmp_path):
    words = [sys.executable, "-c", STARTING, str(FOLDER)]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 143, ended.stderr
    with pytest.raises(ProcessLookupError):
        os.killpg(int(ended.stdout), 0)


@pytest.mark.slow
def test_a_rehearsal_packs_the_records_that_a_cpu_gives(tmp_path):
    assert run(tmp_path, "--rehearse", "records").returncode == 0
    packed = tmp_path / "out" / "records" / "test_data"
    assert sorted(path.name for path in packed.iterdir()) == ["README.md", "collector", "torch_trace.json.gz"]
    log = (tmp_path / "out" / "records" / "log.txt").read_text()
    assert "raw_buffers.chunks.gz: not recorded here" in log
    assert "ncu.csv: not recorded here" in log
