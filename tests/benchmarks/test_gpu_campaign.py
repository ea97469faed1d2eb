"""The GPU campaign's machinery, on stages of the test's; its real stages are listed, and rehearsed elsewhere."""

from __future__ import annotations

import importlib
import json
import random
import runpy
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.recording.experiments import Experiment, Scope, Stage, record_experiment
from curvescope.profiling.recording.store import RecordingWriter, columns_of

from ..curvescope.recordings import write_planted

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


def stage(campaign, *commands):
    return campaign.stages.Stage("one", 1, "a test's", tuple(campaign.stages.Command(**c) for c in commands))


def run_stage(campaign, made, folder, limit_s=60.0, *, rehearsal=True):
    done = campaign.running.run_stage(made, folder, folder.parent / "carry" / "data", limit_s, rehearsal=rehearsal)
    campaign.packing.carry(folder.parent, folder.name)
    return done


def test_a_command_that_fails_is_said_and_the_next_runs(campaign, tmp_path):
    made = stage(
        campaign,
        {"line": "python -c 'import sys; sys.exit(3)'"},
        {"line": "python -c 'import sys; sys.exit(2)'"},
        {"line": "no-such-program", "needs": "no-such-program"},
        {"line": "python -c 1", "package": "no_such_package"},
        {"line": "python -c 1", "cuda": True},
        {
            "line": "python -c 'import os; print(os.environ[\"MARK\"])'",
            "output": "said.md",
            "environment": {"MARK": "here"},
        },
    )
    done = run_stage(campaign, made, tmp_path / "one")
    assert done["outcomes"] == {"ok": 1, "failed": 1, "skipped": 4, "timed out": 0}
    assert [c["outcome"].split(":")[0] for c in done["commands"]] == ["failed", *["skipped"] * 4, "ok"]
    assert (tmp_path / "one" / "said.md").read_text() == "here\n"
    campaign.campaign.write_summary(tmp_path)
    summary = (tmp_path / "summary.md").read_text()
    assert "A rehearsal on a CPU" in summary
    assert "no-such-program is not on PATH" in summary
    assert "the Python package no_such_package is not installed" in summary
    assert "here" in summary


def test_on_a_gpu_nothing_is_missing_and_the_reason_of_a_failure_is_printed(campaign, tmp_path):
    line = "python -c 'import sys; sys.exit(chr(10).join([chr(110) * 9, chr(111) * 3]))'"  # two lines of its own
    made = stage(campaign, {"line": "python -c 'import sys; sys.exit(2)'"}, {"line": line})
    done = run_stage(campaign, made, tmp_path / "one", rehearsal=False)
    assert [c["outcome"] for c in done["commands"]] == ["failed: 2, it said nothing", "failed: 1, ooo"]
    (tmp_path / "carry" / "one" / "answer.md").write_text("| a | b |")
    assert campaign.campaign.results_of(tmp_path, done)[1:] == [
        "- `python -c 'import sys; sys.exit(2)'`: failed: 2, it said nothing",
        f"- `{line}`: failed: 1, ooo",
        "",
        "### answer",
        "",
        "| a | b |",
    ]


def test_a_recording_that_is_not_there_fails_its_stage(script, tmp_path):
    done = script("check_recording.py", "cuda:0", tmp_path / "recorded.md", tmp_path / "none")
    assert done.returncode == 1
    assert "there is no recording" in done.stdout
    assert "there is no recording" in (tmp_path / "recorded.md").read_text()


@pytest.mark.parametrize(
    ("counts", "watched"),
    [
        ({}, True),  # nobody watches, or ranges alone
        ({"kernels": 7}, True),  # torch.profiler
        ({"kernels": 7, "status": [None, "recording"]}, True),
        ({"kernels": 0, "status": ["recording"]}, False),
        ({"kernels": 7, "status": ["Another profiler subscribed first."]}, False),
    ],
)
def test_the_time_of_a_watcher_counts_only_if_it_watched(campaign, counts, watched):
    if watched:
        campaign.overhead.check("collector", counts)
    else:
        with pytest.raises(CurvescopeError, match="collector recorded"):
            campaign.overhead.check("collector", counts)


@pytest.mark.parametrize(
    ("document", "faults"),
    [
        ({"sweeps": [{"results": [{"outcome": "ok"}, {"outcome": "unsupported"}]}]}, []),
        ({"sweeps": [{"results": [{"outcome": "unsupported"}]}]}, ["gemm measured nothing"]),
        ({"sweeps": [{"results": [{"outcome": "ok"}, {"outcome": "incorrect"}]}]}, ["gemm: 1 results incorrect"]),
        ({"compute": {"fp32": {}}, "bandwidth": {}}, []),
        ({"compute": {}, "bandwidth": {}}, ["gemm measured nothing"]),
        (None, ["gemm measured nothing"]),
    ],
)
def test_a_benchmark_that_measured_nothing_fails_its_stage(script, tmp_path, document, faults):
    (tmp_path / "gemm.json").write_text("" if document is None else json.dumps(document))
    done = script("check_benches.py", tmp_path / "measured.md", tmp_path / "gemm.json")
    assert done.stdout.splitlines() == (faults or [""])
    assert done.returncode == bool(faults)


def test_two_tools_that_counted_the_same_kernels_are_compared_counter_by_counter(script, tmp_path):
    for name, sizes in (("cupti", (100, 220, None)), ("ncu", (100, 200, 300))):
        with RecordingWriter(tmp_path / name, {}) as writer:
            times = {"name": "k", "start_ns": 10, "duration_ns": 5, "source": "cupti"}
            writer.write("kernels", columns_of([{**times, "dram_bytes": size, "sm_cycles": 0} for size in sizes]))
    done = script("against_ncu.py", tmp_path / "cupti", tmp_path / "ncu", tmp_path / "tools.md")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "tools.md").read_text().splitlines()
    assert "| dram_bytes | 2 | 1.067 | 1.050 | 50% |" in lines
    assert "| sm_cycles | 3 | - | - | - |" in lines


def test_a_stage_ends_with_its_time(campaign, tmp_path, monkeypatch):
    monkeypatch.setattr(campaign.running, "GRACE_S", 1)
    stubborn = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    made = stage(campaign, {"line": f"python -c '{stubborn}'"}, {"line": "python -c 1"})
    done = run_stage(campaign, made, tmp_path / "one", 0.5, rehearsal=False)
    assert done["outcomes"]["timed out"] == 2
    assert done["seconds"] < 300
    assert json.loads((tmp_path / "one" / "done.json").read_text()) == done


def run(tmp_path, *arguments):
    # A stage may take as long as a busy machine needs; the limits have tests of their own.
    command = [sys.executable, FOLDER / "campaign.py", "-o", tmp_path / "out", "--stage-limit", "86400"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True)


def test_it_says_what_it_will_do_and_refuses_stages_that_are_not(tmp_path):
    listed = run(tmp_path, "--list")
    assert listed.returncode == 0
    assert "memory-pressure" in listed.stdout
    assert "minutes" in listed.stdout
    assert not (tmp_path / "out").exists()
    assert run(tmp_path, "everything").returncode == 2


def test_a_stage_that_is_done_is_not_run_again_and_nothing_is_overwritten(campaign, tmp_path):
    runs = FakeRuns(campaign, tmp_path / "gpu", 1)
    for options in ({}, {}, {"again": True}):
        runs.call(**options)
    folders = sorted(path.name for path in (tmp_path / "gpu").iterdir() if path.is_dir())
    assert [name.split(".")[0] for name in folders] == ["carry", "stage-0", "stage-0"]
    assert runs.said == ["stage-0: 1 ok, 60 s", "stage-0: done before (1 ok)", "stage-0: 1 ok, 60 s"]


@pytest.mark.slow
def test_a_rehearsal_describes_this_machine_once_and_packs_what_it_said(tmp_path):
    words = ("--rehearse", "machine", "--pack", tmp_path / "out.tar.gz")
    assert run(tmp_path, *words).returncode == 0
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        assert archive.getnames()[0] == "summary.md"
        doctor = json.load(archive.extractfile("machine/doctor.json"))
    assert any(row["name"] == "CPU" for row in doctor["checks"])
    assert "machine: done before" in run(tmp_path, "--rehearse", "machine").stdout


def experiment(number, stage, scope, factors=(), **changes):
    return Experiment(
        number=number,
        stage=stage,
        scope=scope,
        functional=((4, -2.0), (8, 1.0)),
        functional_kind="excess",
        batches=(4, 8),
        factors=factors,
        **changes,
    )


@pytest.fixture
def script(campaign, monkeypatch, capsys):
    """Runs a script of the campaign in this process, as Python would."""

    def run_script(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        code = 0
        try:
            runpy.run_path(str(FOLDER / name), run_name="__main__")
        except SystemExit as ended:
            code = ended.code
        return subprocess.CompletedProcess(name, code, *capsys.readouterr())

    return run_script


def test_the_table_of_experiments_has_a_line_per_factor(script, tmp_path):
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
    done = script("experiment_rows.py", tmp_path / "run", tmp_path / "rows.md")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "rows.md").read_text().splitlines()
    assert lines[0] == "1 rows of operators, 8 timed runs of experiments."
    assert lines[4:] == [
        "| fc6 forward, screen | excess over 4, 8 | as it is | 2 | 8 | 8 |  |",
        "| fc6 forward, screen | excess over 4, 8 | onednn | 2 | 8 | 8 |  |",
        "| fc6 forward, screen | excess over 4, 8 | cublaslt | 0 | 8 |  | no GPU |",
    ]


def test_a_stage_without_the_experiments_that_its_anomaly_needs_fails(script, tmp_path):
    """The recording has a planted anomaly, an entry of an experiment, and no timed run."""
    with RecordingWriter.extend(write_planted(tmp_path / "run")) as writer:
        record_experiment(writer, experiment(0, Stage.REMEDY, Scope.STEP, ("kept_memory",)))
    done = script("experiment_rows.py", tmp_path / "run", tmp_path / "rows.md")
    assert done.returncode == 1
    assert "has no rows of operators and of experiments" in done.stdout


def test_what_is_kept_has_tables_of_the_results_and_nothing_else(campaign, script, tmp_path):
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
        made = campaign.stages.Stage(name, 1, "a test's", (campaign.stages.Command(line, output),))
        run_stage(campaign, made, results / name, rehearsal=False)
    (results / "ceilings" / "large.csv").write_bytes(b"0" * 300_000)
    (results / "overhead" / "overhead.md").write_text("| watched by | ratio |\n| --- | --- |\n| none | 1.0 |\n")
    done = script("keep.py", results, "card", "--into", tmp_path / "kept")
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
    again = script("keep.py", results, "card", "--into", tmp_path / "kept")
    assert again.returncode == 2
    assert "nothing is overwritten" in again.stderr


def test_a_rehearsal_is_no_evidence(campaign, script, tmp_path):
    run_stage(campaign, stage(campaign, {"line": "python -c 1"}), tmp_path / "gpu" / "one")
    refused = script("keep.py", tmp_path / "gpu", "card")
    assert refused.returncode == 2
    assert "rehearsal" in refused.stderr
    assert script("keep.py", tmp_path / "gpu", "card", "--into", tmp_path / "kept").returncode == 0
    assert "nothing here is of a GPU" in (tmp_path / "kept/docs/case-studies/card.md").read_text()


def test_what_commands_measure_of_the_device_stays_in_the_folder(campaign, tmp_path):
    line = "python -c 'import os; print(os.environ[\"CURVESCOPE_DATA\"])'"
    run_stage(campaign, stage(campaign, {"line": line, "output": "said.txt"}), tmp_path / "gpu" / "one")
    assert (tmp_path / "gpu" / "one" / "said.txt").read_text().strip() == str(tmp_path / "gpu" / "carry" / "data")


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


def test_wheels_of_this_machine_are_not_carried(campaign):
    names = {requirement.partition("==")[0] for requirement in campaign.wheels.needed(("pandas", "numpy"))}
    assert {"duckdb", "adbc-driver-sqlite", "adbc-driver-manager", "pyarrow"} <= names
    assert not {"pandas", "numpy", "nvidia-cuda-nvrtc-cu11"} & names


@pytest.mark.parametrize(
    ("kernel", "status", "fault"),
    [
        ({"grid_x": 4, "block_x": 64, "registers_per_thread": 32, "device": 0}, "recording", None),
        ({"device": 0}, "recording", "1 of 1 kernels have no geometry"),
        (
            {"grid_x": 4, "block_x": 64, "registers_per_thread": 32, "device": 0},
            "refused",
            "the collector did not record",
        ),
        ({"device": None}, "recording", "no kernel ran on a GPU"),
        (None, "recording", "no kernel was recorded"),
    ],
)
def test_a_recording_without_what_its_recorder_should_have_recorded_is_a_fault(
    campaign, tmp_path, kernel, status, fault
):
    meta = {"recorder": "cupti", "collectors": [{"process": 1, "cupti_status": status}]}
    with RecordingWriter(tmp_path / "run", meta) as writer:
        if kernel is not None:
            times = {"name": "k", "start_ns": 10, "duration_ns": 5, "source": "cupti"}
            writer.write("kernels", columns_of([{**times, **kernel}]))
            writer.write(
                "api_calls",
                columns_of([{"name": "cuLaunchKernel", "start_ns": 5, "duration_ns": 1, "source": "cupti"}]),
            )
    found = list(campaign.check_recording.faults(campaign.check_recording.open_recording(tmp_path / "run"), True))
    assert (found == []) if fault is None else any(fault in one for one in found)


@pytest.mark.slow
def test_a_rehearsal_packs_the_records_that_a_cpu_gives(tmp_path):
    assert run(tmp_path, "--rehearse", "records").returncode == 0
    packed = tmp_path / "out" / "records" / "test_data"
    assert sorted(path.name for path in packed.iterdir()) == ["README.md", "collector", "torch_trace.json.gz"]
    log = (tmp_path / "out" / "records" / "log.txt").read_text()
    assert "raw_buffers.chunks.gz: not recorded here" in log
    assert "ncu.csv: not recorded here" in log


@pytest.mark.slow
def test_a_rehearsal_runs_the_scripts_of_questions_overhead_and_residue(tmp_path):
    done = run(tmp_path, "--rehearse", "checks", "overhead", "residual", "--pack", tmp_path / "out.tar.gz")
    assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        summary = archive.extractfile("summary.md").read().decode()
    assert "| Does a step take longer after an idle time? One step discarded, then one timed. | 0 s idle:" in summary
    assert "| torch.profiler with shapes |" in summary
    assert "| after a recording |" in summary
    assert " failed" not in summary


@pytest.mark.slow
def test_carried_wheels_are_installed_for_the_call_alone(tmp_path):
    """A wheel of one module, which Python imports at its start, says that the campaign runs with it."""
    wheels, facts = tmp_path / "wheels", "marker-1.0.dist-info"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "marker-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("sitecustomize.py", "print('with the wheel')\n")
        wheel.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: marker\nVersion: 1.0\n")
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")
    done = run(tmp_path, "--list", "--wheels", wheels)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("with the wheel\n")
    assert "records" in done.stdout
    empty = run(tmp_path, "--list", "--wheels", tmp_path)
    assert (empty.returncode, "make gpu-wheels" in empty.stdout) == (2, True)


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
