"""Sentences on profiles that others recorded, each against what the file itself says."""

import gzip
import json
import sqlite3

import pytest

from ...shared import PROFILES


@pytest.fixture
def said(text_of):
    """What a command prints, in one line."""
    return lambda *words: " ".join(text_of(*words).split())


def events(name, category):
    """Complete events of a category in a trace of the PyTorch profiler, by time."""
    document = json.loads(gzip.decompress((PROFILES / name).read_bytes()))
    return sorted(
        (e for e in document["traceEvents"] if e["cat"] == category), key=lambda event: event["ts"]
    )


@pytest.mark.slow
def test_steps_that_wait_for_the_loader_are_steps(imported_profile, document_of, said):
    """Five of 30 steps waited 0.7 s for the DataLoader, were called of another kind, and left the
    mean.
    """
    optimizer = [
        e
        for e in events("param_resnet.json.gz", "user_annotation")
        if e["name"] == "Optimizer.step#SGD.step"
    ]
    ends_ms = [(event["ts"] + event["dur"]) / 1e3 for event in optimizer]
    mean_ms = (ends_ms[-1] - ends_ms[0]) / (len(ends_ms) - 1)
    assert mean_ms == pytest.approx(332.8, abs=0.05)
    path = imported_profile("param_resnet.json.gz")
    found = document_of("breakdown", path)
    assert found["time_ms"] == pytest.approx(mean_ms, rel=0.001)
    assert (found["n_used"], found["n_profiled"]) == (29, 30)
    (loader,) = (one for one in found["idle"] if "DataLoader" in (one["reason"] or ""))
    assert loader["time_ms"] == pytest.approx(175.6, rel=0.01)
    text = said("breakdown", path)
    assert (
        "1 of 30 profiled steps set aside, as a counter says or as a warm-up for which no "
        "recorded work is the reason: 4451 ms (number 1); the others take 124.0 to 829.3 ms."
        in text
    )
    assert "another kind" not in text


@pytest.mark.slow
def test_an_imported_sweep_says_at_once_which_steps_no_estimate_uses(said, tmp_path):
    profile = PROFILES / "param_resnet.json.gz"
    imported = said(
        "import", "--as", "sweep", "--batch", "32,64", profile, profile, "-o", tmp_path / "sweep"
    )
    for batch in (32, 64):
        line = f"Batch {batch}: 1 of 30 profiled steps set aside"
        assert line in imported
        assert line in said("explain", tmp_path / "sweep", "--all")


@pytest.mark.slow
def test_time_in_which_launched_work_waits_is_not_the_hosts(imported_profile, document_of, said):
    """The step began with a gap of 8.37 ms, for which the graph had been launched 6.3 ms before the
    first kernel.
    """
    kernels, copies = (events("tl_vllm_decode.json.gz", name) for name in ("kernel", "gpu_memcpy"))
    first = min((*kernels, *copies), key=lambda event: event["ts"])
    calls = {e["args"]["correlation"]: e for e in events("tl_vllm_decode.json.gz", "cuda_runtime")}
    launch = calls[first["args"]["correlation"]]
    waited_ms = (first["ts"] - launch["ts"] - launch["dur"]) / 1e3
    assert waited_ms == pytest.approx(7.826, abs=0.001)
    path = imported_profile("tl_vllm_decode.json.gz")
    idle = {one["reason"]: one["time_ms"] for one in document_of("breakdown", path)["idle"]}
    assert idle["device: launched work waits"] == pytest.approx(waited_ms, abs=0.001)
    assert idle["host in range execute"] == pytest.approx(0.532, abs=0.001)
    of_host_ms = sum(time_ms for reason, time_ms in idle.items() if reason.startswith("host"))
    assert of_host_ms == pytest.approx(0.545, abs=0.001)
    assert "in 41% launched work waits, for an event or for work that is not recorded" in said(
        "breakdown", path
    )


def test_half_precision_has_its_own_roof(imported_profile, document_of):
    """Convolutions in bf16 were marked as above the roof of fp32, 163 TFLOP/s."""
    rows = document_of("breakdown", imported_profile("tl_mi300_ddp_resnet18.json.gz"))["rows"]
    fast = [
        row for row in rows if row["label"].startswith("Conv2d") and row["gflop_per_s"] > 200_000
    ]
    assert len(fast) > 10
    assert not any("compute" in row["exceeded_roofs"] for row in fast)
    (op,) = (
        row
        for row in document_of(
            "breakdown", imported_profile("tl_h100_timesformer.json.gz"), "--by", "op"
        )["rows"]
        if row["label"] == "aten::linear"
    )
    assert op["gflop_per_s"] > 67_000  # of fp32
    assert not op["exceeded_roofs"]
    assert set(op["precisions"]) == {"bf16"}


def test_the_batch_size_is_what_the_trace_states(imported_profile, said):
    """128 frames of one video were a batch of 128, by the input of the first convolution."""
    assert "A step of batch 1 takes 382.5 ms" in said(
        "breakdown", imported_profile("tl_h100_timesformer.json.gz")
    )


def test_most_is_more_than_half(imported_profile, said):
    text = said(
        "breakdown", imported_profile("kineto_resnet50_w0_a.pt.trace.json.gz"), "--by", "kernel"
    )
    assert "the largest parts of the busy time are dgrad_engine" in text
    assert "61% of the busy time" not in text
    text = said("breakdown", imported_profile("kineto_resnet50_w0_a.pt.trace.json.gz"))
    assert (
        "96% of the busy time is in backward outside layers (61%), forward outside layers (35%)"
        in text
    )


@pytest.mark.slow
def test_own_durations_stand_beside_shared_out_times(imported_profile, document_of, said, tmp_path):
    """A kernel that runs beside others had half of the time that its file says, without a word."""
    database = tmp_path / "h100.sqlite"
    database.write_bytes(gzip.decompress((PROFILES / "nsysai_h100_2gpu_1s.sqlite.gz").read_bytes()))
    query = """
        SELECT value, sum(end - start) / 1e6, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL
        JOIN StringIds ON demangledName = StringIds.id GROUP BY value
    """
    with sqlite3.connect(database) as connection:
        summed = {name: (time_ms, calls) for name, time_ms, calls in connection.execute(query)}
    path = imported_profile("nsysai_h100_2gpu_1s.sqlite.gz")
    rows = [
        row
        for row in document_of("breakdown", path, "--by", "kernel")["rows"]
        if row["label"] in summed
    ]
    assert len(rows) == len(summed)
    for row in rows:
        assert (row["duration_ms"], row["calls"]) == pytest.approx(summed[row["label"]])
    assert any(row["duration_ms"] > 1.2 * row["time_ms"] for row in rows)
    assert "durations: the sum of the own durations of a row's kernels" in said(
        "breakdown", path, "--by", "kernel"
    )


@pytest.mark.slow
def test_modules_that_a_profiler_numbers_are_one_row(imported_profile, document_of):
    path = imported_profile("tl_h100_timesformer.json.gz")
    rows = {row["label"]: row for row in document_of("breakdown", path)["rows"]}
    apart = document_of("breakdown", path, "--by-instance")["rows"]
    odd = [f"TimesformerSelfAttention_{number} forward" for number in range(1, 24, 2)]
    together = rows["TimesformerSelfAttention_1,3,…,23 (12 times) forward"]
    assert together["time_ms"] == pytest.approx(
        sum(row["time_ms"] for row in apart if row["label"] in odd)
    )
    assert together["calls"] == 84


@pytest.mark.slow
def test_parts_of_a_fused_kernel_are_said_to_be_modelled(imported_profile, said):
    """One Triton kernel of add, sin and cos was a third each, as if that had been measured."""
    text = said("explain", imported_profile("hta_triton_example.json.gz"))
    assert "aten::cos (33%), most of it modelled parts of fused kernels." in text
    other = said("explain", imported_profile("kineto_resnet50_w0_a.pt.trace.json.gz"))
    assert "modelled" not in other
