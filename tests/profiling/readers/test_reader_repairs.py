"""Clocks that run backwards, ids beyond 63 bits, commas too many, in every format with events:
counted or refused.
"""

import json
import sqlite3

import pytest

from curvescope.cli import main

from .made_profiles import imported, lost, of_events, of_text, rows
from .nsys_export import kernel, launch, push_pop, write_export
from .test_nvprof import write_nvprof
from .test_pytorch_json import PLANTED, event, on_gpu
from .test_tensorflow_json import JAX, TF1, TF2, process, ran, thread


def durations(recording):
    return recording.frame("kernels")["duration_ns"].tolist()


def refused(path, tmp_path, capsys):
    """What a refusal says; nothing is left of it."""
    assert main(["import", str(path), "-o", str(tmp_path / "refused")]) == 2
    assert not (tmp_path / "refused").exists()
    return capsys.readouterr().err


# Clocks: spans that end before they begin, and steps that begin before the one before them ends.


def test_pytorch_leaves_out_spans_that_end_before_they_begin(tmp_path):
    backward = [on_gpu("kernel", "back", 1095, -5, 12), on_gpu("kernel", "b", -9, 5, 12)]
    recording = of_events([*PLANTED, *backward], tmp_path)
    assert durations(recording) == durations(of_events(PLANTED, tmp_path))
    assert lost(recording)["events_unreadable"] == 1 + 2  # one of them is planted


def test_pytorch_cuts_steps_of_a_clock_that_was_set_back(tmp_path):
    set_back = event("user_annotation", "ProfilerStep#4", 1050, 200)
    recording = of_events([*PLANTED, set_back, on_gpu("kernel", "late", 1200, 9, 14)], tmp_path)
    # The work of the first one reaches to 1131 µs.
    steps = rows(recording, "steps", "start_ns", "duration_ns")
    assert steps == [(1_000_500, 130_500), (1_131_000, 119_000)]
    assert lost(recording)["steps_cut"] == 1
    assert recording.frame("kernels")["step"].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("events", [TF1, TF2], ids=["TensorFlow 1", "TensorFlow 2"])
def test_tensorflow_keeps_kernels_that_end_before_they_begin_without_a_time(events, tmp_path):
    pid, tid = (5, 0) if events is TF1 else (1, 14)
    recording = of_events([*events, ran(pid, tid, "back", 400, -7)], tmp_path)
    known = recording.frame("kernels")["duration_ns"].dropna()
    assert known.tolist() == durations(of_events(events, tmp_path))
    assert (
        recording.count_rows("kernels") - len(known),
        lost(recording)["negative_durations"],
    ) == (1, 1)


def test_nsys_counts_a_clock_that_was_set_back(tmp_path):
    marks = [
        push_pop("iteration 1", 0, 100),
        push_pop("iteration 2", 60, 160),
        push_pop("inner", 70, 170),
    ]
    work = [kernel(1, 10, 50), kernel(2, 130, 120), kernel(3, 130, 150)]
    calls = [launch(1, 5), launch(2, 110), launch(3, 115, end=90)]
    recording = imported(
        write_export(tmp_path / "p", ranges=marks, kernels=work, launches=calls), tmp_path
    )
    found = {"negative_durations": 1, "steps_cut": 1, "ranges_cut": 2}
    assert lost(recording) == found | {
        "device_work_without_range": 2
    }  # past the ends of the ranges that were cut
    assert rows(recording, "kernels", "duration_ns", "step") == [(40, 0), (None, None), (20, 1)]
    assert rows(recording, "steps", "start_ns", "duration_ns") == [(0, 100), (100, 60)]


def test_nvprof_counts_a_clock_that_was_set_back(tmp_path):
    path = write_nvprof(tmp_path / "p", 11)
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL SET end = start - 3 WHERE correlationId "
            "= 6"
        )
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_MARKER SET timestamp = 70 WHERE flags = 4")
    recording = imported(path, tmp_path)
    assert lost(recording)["negative_durations"] == 2
    assert durations(recording)[0] == 30
    assert recording.frame("kernels")["duration_ns"].isna().tolist() == [False, True]


# Ids: those of 64 bits without a sign join like others; longer ones are no ids.


def test_pytorch_joins_ids_without_a_sign(tmp_path):
    far = {11: 2**64 - 11, 12: 2**63 + 5}
    events = json.loads(json.dumps(PLANTED))
    for each in events:
        args = each.get("args", {})
        args.update(
            {"correlation": far[args["correlation"]]} if args.get("correlation") in far else {}
        )
        each.update({"tid": 2**64 - 7} if each.get("tid") == 8 else {})
    conv, grad, _ = rows(
        of_events(events, tmp_path), "kernels", "name", "op", "layer", "phase", "correlation_id"
    )
    assert conv == ("conv", "aten::conv2d", "Conv2d_0", "forward", -11)
    assert grad[:4] == ("grad", "Backward0", "Conv2d_0", "backward")


def test_pytorch_takes_all_bits_set_for_no_id_and_leaves_out_what_is_none(tmp_path):
    beyond = [
        on_gpu("kernel", "none", 1140, 1, 2**64 - 1),
        on_gpu("kernel", "long", 1150, 1, 2**64),
    ]
    beyond += [on_gpu("gpu_memcpy", "Memcpy HtoD", 1160, 1, 12, bytes=2**64 - 4096)]
    recording = of_events([*PLANTED, *beyond], tmp_path)
    kernels = rows(recording, "kernels", "name", "correlation_id")
    assert kernels == [("conv", 11), ("grad", 12), ("stray", 13), ("none", None)]
    assert lost(recording)["events_unreadable"] == 1 + 1
    assert rows(recording, "memory", "bytes") == [(64,), (None,)]  # no negative sum


def test_tensorflow_joins_ids_of_all_64_bits(tmp_path):
    events = json.loads(json.dumps(TF2))
    for each in events:
        args = each.get("args", {})
        far = {"31": str(2**40 + 31), "32": str(2**64 - 32)}.get(args.get("correlation_id"))
        args.update({"correlation_id": far} if far else {})
        each.update({"tid": 2**63 + 77} if each.get("tid") == 77 else {})
        if "memcpy_details" in args:
            args["memcpy_details"] = args["memcpy_details"].replace("4096", str(3 << 30))
    recording = of_events(events, tmp_path)
    assert rows(recording, "kernels", "step", "correlation_id") == [(0, 2**40 + 31), (1, -32)]
    assert recording.frame("memory")["bytes"].tolist() == [3 << 30]


def test_threads_whose_ids_have_no_sign_are_kept_apart(tmp_path):
    """Two threads of a host nest for themselves, whatever their numbers."""
    host = [
        process(1, "/device:GPU:0"),
        process(9, "/host:CPU"),
        thread(1, 13, "Stream #13(Compute)"),
    ]
    host += [
        ran(9, 2**33, "train", 0, 100, step_num="1"),
        ran(9, 2**33 + 1, "eval", 50, 100, step_num="1"),
    ]
    host += [
        ran(9, 2**33, "cuLaunchKernel", 10, 1, correlation_id="5"),
        ran(1, 13, "k", 20, 30, correlation_id="5"),
    ]
    recording = of_events(host, tmp_path)
    assert "ranges_cut" not in lost(recording)
    assert set(recording.frame("ranges")["thread"]) == {2**33, 2**33 + 1}


@pytest.mark.parametrize(
    "make", [lambda path: write_export(path, kernels=[kernel(1, 10, 50)]), None]
)
def test_databases_with_longer_ids_are_refused(make, tmp_path, capsys):
    """SQLite itself keeps such a number as one with a point: which it was cannot be
    told any more.
    """
    path = make(tmp_path / "p") if make else write_nvprof(tmp_path / "p", 11)
    table = "CUPTI_ACTIVITY_KIND_" + ("KERNEL" if make else "CONCURRENT_KERNEL")
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE {table} SET correlationId = 18446744073709551615")
    assert f"table {table} holds a value of the wrong type" in refused(path, tmp_path, capsys)


# Commas too many.


TEXTS = [json.dumps({"traceEvents": events}) for events in (PLANTED, TF1, TF2, JAX)]


@pytest.mark.first_rows(2)
@pytest.mark.parametrize("text", TEXTS, ids=["PyTorch", "TensorFlow 1", "TensorFlow 2", "JAX"])
def test_a_comma_at_the_end_is_counted_and_one_elsewhere_refused(text, tmp_path, capsys):
    last = text.rindex("]")
    found = of_text(f"{text[:last]},{text[last:-1]},}}", tmp_path)
    assert durations(found) == durations(of_text(text, tmp_path))
    assert lost(found)["stray_commas"] == 2
    first = text.index("[", text.index('"traceEvents"')) + 1
    between = text.index("}, {", first)
    inside = text.index("}", first)
    for at in (1, first, between + 1, inside):
        (tmp_path / "p").write_text(f"{text[:at]},{text[at:]}")
        assert "broken JSON" in refused(tmp_path / "p", tmp_path, capsys)
