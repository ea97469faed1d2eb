"""`curvescope scale`: the slow tests are of real processes over Gloo, with planted delays.

The others ask what it refuses and says. Scaling runs of four ranks that are fakes are in
`tests/profiling/measure/test_loop.py`, and the split of their losses in
`tests/analysis/test_scaling.py`.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from curvescope.profiling.measure.scaling_launch import describe_failure
from curvescope.profiling.recording.rank_info import RankInfo, rank_info_of
from curvescope.profiling.recording.store import Status, open_recording

from ..security.listening import Watch
from ..shared import shared_folder
from . import scale_models as planted

HERE = Path(__file__).parent
NETWORK = ["scale_models:build", "--input-shape", "64", "--device", "cpu", "--threads", "1"]
SHORT = ["--quick", "--time-limit", "0.1"]  # the least number of rounds


@pytest.fixture(scope="module")
def measured(tmp_path_factory, command):
    """Two processes, weak and strong; the folder and the document."""

    def make(folder):
        options = [
            "--devices",
            "1,2",
            "--at",
            "8",
            "--total-batch",
            "16",
            "--input",
            "scale_models:load",
        ]
        done = command(
            "scale",
            "measure",
            *NETWORK,
            *options,
            *SHORT,
            "-o",
            folder / "run",
            "--json",
            cwd=HERE,
            code=0,
        )
        (folder / "document.json").write_text(done.stdout)

    folder = shared_folder(tmp_path_factory, "scale", make)
    return folder / "run", json.loads((folder / "document.json").read_text())


def point_of(document, kind, devices):
    series = next(one for one in document["series"] if one["kind"] == kind)
    return next(point for point in series["points"] if point["devices"] == devices)


def parts_of(point):
    return {part["kind"]: part["ms"]["value"] for part in point["loss"]["shares"]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_split_of_two_processes_adds_up_to_the_loss(measured, kind):
    alone, point = (point_of(measured[1], kind, devices) for devices in (1, 2))
    ideal_ms = alone["step_ms"]["value"] / (1 if kind == "weak" else 2)
    loss_ms = point["step_ms"]["value"] - ideal_ms
    assert point["loss"]["ms"]["value"] == pytest.approx(loss_ms, abs=1e-9)
    assert math.fsum(parts_of(point).values()) == pytest.approx(loss_ms, abs=1e-9)
    assert point["efficiency"]["value"] == pytest.approx(ideal_ms / point["step_ms"]["value"])
    assert point["samples_per_s"]["value"] == pytest.approx(16e3 / point["step_ms"]["value"])
    assert (point["rounds"], point["incomplete_steps"], point["unmatched_steps"]) == (4, 0, 0)


@pytest.mark.slow
def test_ranks_reads_the_recordings_and_names_the_slow_one_too(measured, document_of):
    # Both say whom the ranks wait for, `scale` as it measures and `ranks` from what it recorded.
    document = document_of("scale", "read", measured[0] / "devices2")
    assert [(one["rank"], one["terms"][0]["layer"]) for one in document["stragglers"]] == [
        (1, "slow")
    ]
    assert document["unmatched"] == {"point_to_point": 0, "collectives_that_differ": 0}
    wait = document["waits"][0]
    assert (wait["operation"], wait["ranks"], wait["last"][0][0]) == ("AllReduce", 2, 1)
    assert wait["last"][0][1] > 500 * planted.SLOW_RANK_S


@pytest.mark.slow
def test_planted_slow_rank_and_its_layer_are_named(measured):
    loss = point_of(measured[1], "weak", 2)["loss"]
    late = loss["late"]
    assert (late["rank"], late["node"], late["latest_in"]) == (1, 1, late["profiled_steps"])
    first = late["shares"][0]
    assert (first["layer"], first["phase"], first["kind"]) == ("slow", "forward", "slower kernels")
    assert first["ms"]["value"] > 0.9e3 * planted.SLOW_RANK_S
    # One of two ranks is longer, the other waits as long for it: half of the delay each, in the
    # mean of the ranks.
    assert (
        parts_of(point_of(measured[1], "weak", 2))["load imbalance"] > 0.3e3 * planted.SLOW_RANK_S
    )
    slow = next(
        part for part in loss["kernels"] if (part["layer"], part["phase"]) == ("slow", "forward")
    )
    assert slow["ms"]["value"] > 0.3e3 * planted.SLOW_RANK_S


@pytest.mark.slow
def test_planted_slow_input_shows_as_input(measured):
    assert parts_of(point_of(measured[1], "weak", 2))["input"] > 0.9e3 * planted.SLOW_INPUT_S


@pytest.mark.slow
def test_a_recording_per_rank_says_whose_it_is(measured):
    folder = measured[0]
    found = {
        path.parent.relative_to(folder).as_posix() for path in folder.glob("*/*/recording.json")
    }
    assert found == {"devices1/rank0", "devices2/rank0", "devices2/rank1"}
    assert rank_info_of(open_recording(folder / "devices2" / "rank1").meta) == RankInfo(
        1, 2, 1, node=1
    )


@pytest.mark.slow
def test_collectives_name_the_group_they_ran_over(measured):
    kernels = open_recording(measured[0] / "devices2" / "rank0").frame("kernels")
    collectives = kernels["name"].str.startswith("gloo:")
    assert collectives.sum() >= 3
    assert set(kernels["communicator"][collectives]) == {"2 devices"}
    assert kernels["communicator"][~collectives].isna().all()


@pytest.mark.slow
def test_a_complete_run_is_printed_again_without_measuring(
    measured, document_of, text_of, monkeypatch
):
    monkeypatch.chdir(HERE)  # there the code lies that the run names
    again = document_of("scale", "measure", "--resume", measured[0])
    assert again["series"] == measured[1]["series"]
    text = text_of("explain", measured[0], "--all")
    assert text.startswith("Weak scaling: 2 devices are ")
    assert "\nStrong scaling: 2 devices are " in text
    assert "Weak scaling, batch 8 on each device" in text
    assert "Strong scaling, batch 16 in all" in text
    assert "slow forward" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Name the network"),
        (("alexnet", "--devices", "1,two"), "write sizes of at least 1"),
        (
            ("alexnet", "--devices", "1,3", "--total-batch", "16"),
            "cannot be divided equally among 3 devices",
        ),
        (("alexnet", "--at", "0"), "--at 0: must be at least 1"),
        (("alexnet", "--nodes", "1,2"), "torchrun and srun"),
        (("alexnet", "--input-shape", "8"), "does not take text"),
        (("--resume", "nowhere"), "contains no scaling run"),
    ],
)
def test_bad_input_says_what_to_do(arguments, says, refusal_of):
    assert says in refusal_of("scale", "measure", *arguments, "--device", "cpu")


def test_more_gpus_than_there_are_is_refused(monkeypatch, tmp_path, refusal_of):
    from curvescope.commands.scale import measure as command

    monkeypatch.setattr(command, "_device", lambda _: "cuda")
    monkeypatch.setattr(command, "_device_count", lambda _: 2)
    assert "4 devices are requested, but this machine has 2 GPUs" in refusal_of(
        "scale", "measure", "alexnet", "--devices", "1,2,4", "-o", tmp_path / "run"
    )
    assert not (tmp_path / "run").exists()


def test_the_rank_that_took_the_others_with_it_is_named(tmp_path):
    """Rank 0 lost the connection to rank 2, which the system killed."""
    (tmp_path / "rank2.log").write_text("first\nlast words\n")
    text = describe_failure({0: 1, 2: -9}, tmp_path, Path("runs/x"))
    assert text.startswith(
        "Rank 2 was killed by SIGKILL, which the system sends when memory runs out"
    )
    assert "last words" in text
    assert "curvescope scale measure --resume runs/x" in text


def test_what_a_rank_refuses_is_told_in_its_words(tmp_path):
    (tmp_path / "rank1.log").write_text(
        "noise\ncurvescope: alexnet does not fit: choose a smaller --batch.\n[W] noise of the end\n"
    )
    text = describe_failure({0: 1, 1: 2}, tmp_path, Path("runs/x"))
    assert text == "alexnet does not fit: choose a smaller --batch."


@pytest.mark.slow
def test_two_processes_of_an_existing_launch(tmp_path):
    """As a user's own torchrun starts it: rank 0 prints the document, alone, and measures alone
    what is of one device.
    """
    options = ["--devices", "1,2", "--at", "4", *SHORT, "-o", str(tmp_path / "run"), "--json"]
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "-m",
    ]
    done = subprocess.run(
        [*torchrun, "curvescope", "scale", "measure", *NETWORK, *options],
        cwd=HERE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    alone, point = (point_of(document, "weak", devices) for devices in (1, 2))
    loss_ms = point["step_ms"]["value"] - alone["step_ms"]["value"]
    assert math.fsum(parts_of(point).values()) == pytest.approx(loss_ms, abs=1e-9)
    assert point["loss"]["late"]["shares"][0]["layer"] == "slow"


@pytest.mark.slow
def test_a_dying_rank_ends_the_run_and_resume_continues_it(tmp_path, command, monkeypatch):
    folder = tmp_path / "run"
    options = [*NETWORK, "--devices", "1,2", "--at", "4", *SHORT, "-o", str(folder)]
    # The first round has three visits' steps on two devices: it is whole; the second is not.
    with monkeypatch.context() as environment:
        environment.setenv("CURVESCOPE_TEST_DIE_AT", "12")
        done = command("scale", "measure", *options, cwd=HERE)
    assert done.returncode == 2
    assert "Rank 1 was killed by SIGKILL" in done.stderr
    assert not ranks_alive(folder)
    before = {path: path.read_bytes() for path in folder.glob("devices*/rank0/steps/*.parquet")}
    assert before
    done = command("scale", "measure", "--resume", folder, "--json", cwd=HERE, code=0)
    document = json.loads(done.stdout)
    assert document["complete"]
    assert point_of(document, "weak", 2)["rounds"] == 4
    kept = [path for path, content in before.items() if path.read_bytes() == content]
    assert len(kept) >= len(before) - 1  # but for the visit that rank 1 did not finish


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_leaves_no_process_and_ranks_listen_on_loopback(tmp_path):
    folder = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "curvescope",
        "scale",
        "measure",
        *NETWORK,
        "--devices",
        "1,2",
        "-o",
        str(folder),
    ]
    process = subprocess.Popen(command, cwd=HERE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 600
    with Watch(process.pid) as watch:
        while (
            process.poll() is None
            and not list(folder.glob("devices2/rank1/steps/*.parquet"))
            and time.monotonic() < deadline
        ):
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    assert watch.found
    assert not watch.beyond_loopback
    assert process.returncode == 130
    assert f"curvescope scale measure --resume {folder}" in said.replace("\n", "")
    assert not ranks_alive(folder)
    metas = [json.loads(path.read_text()) for path in folder.glob("devices*/rank*/recording.json")]
    assert [meta["status"] for meta in metas] == [Status.INTERRUPTED] * 3


def ranks_alive(folder):
    alive = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if (
                str(folder).encode() in cmdline.read_bytes()
                and int(cmdline.parent.name) != os.getpid()
            ):
                alive.append(cmdline.parent.name)
        except OSError:
            continue
    return alive
