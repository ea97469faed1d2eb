"""`curvescope compare` on recordings, and as a check."""

from functools import partial
from random import Random

import pytest

import curvescope
from curvescope.cli import main
from curvescope.profiling.measure import versions
from curvescope.profiling.measure.visits import Visit

from ..profiling.measure.fake_measurers import machine
from ..profiling.readers.nsys_export import kernel, launch, push_pop, write_export
from ..shared import PROFILES
from ..tables import ask_each
from .recordings import write_planted


def slower(factor):
    def change(steps, kernels):
        # From the planted windows: every step and kernel that much longer, in place.
        for frame in (steps, kernels):
            frame["duration_ns"] = (frame["duration_ns"] * factor).astype("int64")

    return change


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    write_planted(folder / "base", "unexplained", seed=1)
    write_planted(folder / "again", "unexplained", seed=2)
    write_planted(folder / "slow", "unexplained", seed=3, change=slower(1.12))
    v100 = {"name": "Tesla V100-SXM2-16GB", "kind": "cuda"}
    write_planted(
        folder / "v100",
        "algorithm switch",
        seed=4,
        device=v100,
        precision="tf32",
        change=slower(0.5),
    )
    return folder


def test_the_same_twice_is_no_change_and_passes(runs, text_of):
    out = text_of("compare", runs / "base", runs / "again", "--fail-over", "1%")
    assert out.startswith("No step time grew significantly")
    assert out.splitlines()[1].startswith(
        "No step time of B differs significantly from A's (Holm correction): a step of"
    )
    assert "A change of the machine's speed" not in out


def test_a_growth_that_the_measurement_does_not_rule_out_is_told_and_passes(
    runs, document_of, text_of
):
    command = ("compare", runs / "base", runs / "again", "--fail-over", "0.1%")
    out = text_of(*command)
    assert out.splitlines()[1].startswith("Could not tell: a growth of ")
    document = document_of(*command)
    assert (document["failed"], document["undecided"], document["grown_layers"]) == (
        False,
        True,
        [],
    )


@pytest.mark.slow
def test_a_real_growth_fails_only_over_its_size(runs, document_of, text_of):
    command = ("compare", runs / "base", runs / "slow")
    document = document_of(*command, "--fail-over", "5%", code=1)
    assert document["failed"]
    for line in document["steps"]:
        (change,) = line["changes"]
        assert change["real"]
        assert change["speedup"] == pytest.approx(1 / 1.12, rel=0.03)
        assert change["low"] < change["speedup"] < change["high"] < 1
    text_of(*command, "--fail-over", "20%")
    out = text_of(*command)
    assert "A change of the machine's speed between the recordings" in out
    verdict = " ".join(out.split("\n\n")[0].split())
    assert verdict.startswith("B is slower than A: a step of batch 16 takes 1.1")
    assert "3 of 3 step times differ significantly. Most of it is in " in verdict


def test_rows_of_a_batch_size_that_further_rounds_left_out(runs, tmp_path, document_of):
    """Found by use: a diagnosis whose further rounds visited other batch sizes ended `compare` in a
    traceback.
    """

    def without_the_largest_later(steps):
        return steps[(steps["batch"] != 16) | (steps["round"] < 4)]

    write_planted(tmp_path / "focused", "unexplained", seed=7, keep=without_the_largest_later)
    rows = document_of("compare", runs / "base", tmp_path / "focused", "--at", "16")["rows"]
    assert all(row["times_ms"][1] > 0 for row in rows if row["label"] != "idle")


@pytest.mark.slow
def test_three_generations_side_by_side_name_algorithms_and_hardware(runs, document_of, text_of):
    paths = [str(runs / name) for name in ("base", "again", "v100")]
    document = document_of("compare", *paths, "--at", "16")
    rows = {row["label"]: row for row in document["rows"]}
    assert rows["conv3 backward"]["remarks"][1].startswith("GEMM → implicit GEMM")
    # V100 has 15.7 TFLOP/s and 898 GB/s to the GTX 1080's 8.87 and 320: 1.77 and 2.8 times; twice
    # as fast follows.
    assert rows["conv1 forward"]["remarks"] == ["", ""]
    assert document["roof_ratios"][1]["compute"]["ratio"] == pytest.approx(1.77, abs=0.01)
    assert document["batch"] == 16
    assert document["differences"] == {"precision": ["unknown", "unknown", "tf32"]}
    out = text_of("compare", *paths)
    assert max(map(len, out.splitlines())) <= 80


def test_a_forward_step_beside_a_training_step_is_said(runs, tmp_path, text_of):
    write_planted(tmp_path / "forward", "unexplained", seed=1, mode="forward")
    assert "Recorded with different settings: mode: training, forward." in " ".join(
        text_of("compare", runs / "base", tmp_path / "forward").split()
    )


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("by", ["family", "kernel"])
def test_rows_add_up_to_the_profiled_step(runs, by, document_of):
    paths = [str(runs / name) for name in ("base", "slow")]
    document = document_of("compare", *paths, "--by", by)
    whole = document_of("breakdown", paths[0], "--at", "16")
    profiled = whole["time_ms"] - whole["overhead_ms"]
    assert sum(row["times_ms"][0] or 0 for row in document["rows"]) == pytest.approx(profiled)


def test_without_a_common_batch_size_it_says_so(runs, tmp_path, refusal_of):
    def other_batches(steps, kernels):
        steps["batch"] *= 3

    write_planted(tmp_path / "other", change=other_batches)
    assert "No batch size is common" in refusal_of("compare", runs / "base", tmp_path / "other")


@pytest.mark.slow
def test_two_imported_profiles_of_different_generations_align_by_kernel_family(
    tmp_path, document_of, refusal_of
):
    """nvprof on Pascal (CUDA sample of convolution by FFT) and on Maxwell (TensorFlow): one step
    each, no interval.
    """
    pascal, maxwell = "magus_gtx1080ti_convolutionFFT2D_trace.csv", "syed-ahmed_tf_out.nvvp.gz"
    for name in (pascal, maxwell):
        assert main(["import", str(PROFILES / name), "-o", str(tmp_path / name)]) == 0
    command = ("compare", str(tmp_path / pascal), str(tmp_path / maxwell))
    said = refusal_of(*command)
    assert "different devices" in said
    assert "--different compares them nevertheless" in said
    document = document_of(*command, "--different")
    assert document["by"] == "family"
    assert [r["device"] for r in document["recordings"]] == [
        "GeForce GTX 1080 Ti",
        "GeForce GTX TITAN X",
    ]
    assert all(r["profiled_steps_only"] for r in document["recordings"])
    rows = {row["label"]: row for row in document["rows"]}
    assert all(time > 0 for time in rows["copy and layout"]["times_ms"])
    assert rows["implicit GEMM"]["times_ms"][0] is None
    assert rows["implicit GEMM"]["remarks"] == ["only in one"]
    assert rows["copy and layout"]["changes"][0]["low"] is None
    assert document["roof_ratios"][0]["DRAM"]["ratio"] == pytest.approx(336.5 / 484.4, abs=0.01)


def test_a_profile_without_steps_says_so(tmp_path, refusal_of):
    name = str(tmp_path / "ncu")
    assert main(["import", str(PROFILES / "averyclapp_metrics_long.csv"), "-o", name]) == 0
    assert "has no step" in refusal_of("compare", name, name)


@pytest.mark.slow
def test_a_modelled_recording_is_said_to_be_one(tmp_path, text_of):
    for gpu in ("k40", "gtx1080"):
        command = ["diagnose", "alexnet", "--card", gpu, "--batch", "8,16"]
        assert main([*command, "-o", str(tmp_path / gpu)]) == 0
    out = text_of("compare", tmp_path / "k40", tmp_path / "gtx1080")
    assert "Modelled, not measured" in out
    assert "was profiled in" not in out
    assert main(["report", str(tmp_path / "k40"), "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "alexnet (modelled):" in page
    assert "Modelled, not measured: times come from the cost model" in page


@pytest.mark.slow
def test_work_that_was_not_recorded_is_said_and_is_no_idle_time(tmp_path, document_of, text_of):
    """Found by use: step marks of runs under WSL 2 were compared without a word, and their rows
    were idle time.
    """
    marks = [push_pop(f"step {i}", 1000 * i, 1000 * i + 900) for i in range(4)]
    calls = [launch(i, 1000 * i + 20) for i in range(4)]
    write_export(tmp_path / "wsl.sqlite", ranges=marks, launches=calls)
    work = [kernel(i, 1000 * i + 40, 1000 * i + 500) for i in range(4)]
    write_export(tmp_path / "whole.sqlite", ranges=marks, launches=calls, kernels=work)
    for name in ("wsl", "whole"):
        assert main(["import", str(tmp_path / f"{name}.sqlite"), "-o", str(tmp_path / name)]) == 0
    said = " ".join(text_of("compare", tmp_path / "whole", tmp_path / "wsl").split())
    assert "no kernel, memcpy or memset was recorded" in said
    assert "--trace=cuda,nvtx" in said
    assert "idle" not in said
    document = document_of("compare", tmp_path / "whole", tmp_path / "wsl")
    assert (document["without_device_work"], document["rows"]) == ([str(tmp_path / "wsl")], [])
    assert "idle" in text_of("compare", tmp_path / "whole", tmp_path / "whole")


def test_recordings_compare_themselves_by_batch_size_and_by_row(runs, document_of):
    """As the command, in a DataFrame."""
    base, slow = (curvescope.open_recording(runs / name) for name in ("base", "slow"))
    steps = base.compare(slow, by="batch")
    document = document_of("compare", runs / "base", runs / "slow")
    assert steps["label"].tolist() == [line["label"] for line in document["steps"]]
    assert steps["speedup"].tolist() == [
        line["changes"][0]["speedup"] for line in document["steps"]
    ]
    assert (steps["time_ms"] / steps["other_ms"]).tolist() == pytest.approx(
        steps["speedup"].tolist()
    )
    assert steps["real"].all()
    rows = base.compare(slow)
    assert rows["label"].tolist() == [line["label"] for line in document["rows"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Name two recordings or more, or versions to measure"),
        (["RUN"], "Name two recordings or more"),
        (["RUN", "RUN", "--step", "step.py:make_step"], "recordings are compared: omit --step"),
        (["RUN", "RUN", "--batch", "1,2"], "recordings are compared: omit --batch"),
        (["RUN", "RUN", "--published"], "--steps prints step times; without it: omit --published"),
        (["RUN", "--steps", "--by", "layer"], "--steps prints recorded times: omit --by"),
        (["--steps"], "Name recordings or the folder of a sweep"),
        (
            ["--measure", "base=.", "--step", "step.py:make_step"],
            "takes two versions or more with different names",
        ),
        (
            ["--measure", "a=.", "a=.", "--step", "step.py:make_step"],
            "takes two versions or more with different names",
        ),
        (["--measure", "a=.", "b=."], "and --step"),
        (
            ["--measure", "a=.", "b=nowhere", "--step", "step.py:make_step", "--device", "cpu"],
            "no such revision",
        ),
    ],
)
def test_what_compare_needs_is_said(arguments, message, runs, tmp_path, monkeypatch, refusal_of):
    monkeypatch.chdir(tmp_path)
    assert message in refusal_of(
        "compare", *(runs / "base" if one == "RUN" else one for one in arguments)
    )
    assert list(tmp_path.iterdir()) == []


class OfVersion:
    """In place of a process of a version: its step takes the milliseconds that its folder says.

    Each process is up to 3 % slower or faster, each step up to 1 %.
    """

    random = Random(0)

    def __init__(self, python, folder, variables, make, configuration):
        self._step_ns = float((folder / "ms").read_text()) * 1e6 * self._about(0.03)

    def _about(self, share):
        return 1 + self.random.uniform(-share, share)

    def call(self, method, *arguments):
        if method == "describe":
            return machine()
        if method == "prepare":
            return 1_000_000_000
        if method in ("files", "losses"):
            return []
        return Visit([{"start_ns": 0, "duration_ns": round(self._step_ns * self._about(0.01))}])

    def end(self):
        pass


@pytest.mark.slow
def test_a_version_that_takes_three_times_as_long_fails_and_the_same_twice_passes(
    tmp_path, monkeypatch, document_of
):
    """How long a step really takes is not asked; processes that run are in test_versions.py and on
    the pages.
    """
    monkeypatch.chdir(tmp_path)
    started = partial(versions.measure_versions, start=OfVersion)
    monkeypatch.setattr(versions, "measure_versions", started)
    for name, ms in (("base", 10), ("same", 10), ("slow", 30)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ms").write_text(str(ms))
    command = ("compare", "--step", "step.py:make_step", "--device", "cpu", "--fail-over", "50%")
    measured = ("--measure", "base=base", "same=same")
    (line,) = document_of(*command, *measured, "head=slow", code=1)["steps"]
    same, slow = line["changes"]
    assert 1 / slow["speedup"] == pytest.approx(3, rel=0.06)
    assert same["speedup"] == pytest.approx(1, rel=0.06)
    document_of(*command, *measured, code=0)


FALLING = [1 / (1 + number) for number in range(50)]


@pytest.mark.slow
@ask_each(
    ("losses", "sentences"),
    [
        (FALLING, ["Loss, mean of the last 10 of 50 steps from one seed, one run each: A 0.022"]),
        ([2 * loss for loss in FALLING], ["one run each: A 0.022", "B trains worse: its loss is"]),
        ([1.0, 1.0, None], ["B trains worse: its loss is not finite at step 3."]),
        ([], []),
    ],
)
def test_a_version_that_trains_worse_is_told(losses, sentences, tmp_path, capsys):
    folder = tmp_path / f"{len(losses)} {losses[-1:]}"
    write_planted(folder / "base", "unexplained", seed=1, losses=FALLING)
    write_planted(folder / "head", "unexplained", seed=2, losses=losses)
    summary = folder / "summary.md"
    line = ["compare", folder / "base", folder / "head", "--summary", summary]
    assert main([str(part) for part in line]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert all(sentence in said for sentence in sentences)
    assert ("trains worse" in said) == any("trains worse" in each for each in sentences)
    assert ("Loss, mean" in said) == any("one run each" in each for each in sentences)
    assert ("trains worse" in summary.read_text()) == ("trains worse" in said)
    capsys.readouterr()
