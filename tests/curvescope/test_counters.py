"""`counters`: the steps of a planted recording counted by doubles: of ncu, which writes a CSV for
each batch size, and of the process that counts itself, which writes JSON.
"""

import json
import os

import pandas as pd
import pytest

from curvescope.base import torch_runtime
from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.collect.range_profiler import KernelCounts
from curvescope.profiling.measure import counted_step, counters
from curvescope.profiling.recording.store import open_recording

from ..browser import Page, needs_browser
from .recordings import write_planted
from .test_report import embedded

COMMAND = counted_step.command
# Takes the log file and the batch size, its last argument, from the command line.
NCU = """#!/bin/sh
for word; do case "$word" in --log-file=*) log="${{word#*=}}" ;; esac; done
for word; do printf '%s\\n' "$word"; done > "{folder}/$word.arguments"
cp "{folder}/$word.csv" "$log"
"""
METRICS = {
    "dram__bytes.sum": ("Mbyte", "3"),
    "lts__t_bytes.sum": ("Mbyte", "8"),
    "sm__cycles_elapsed.max": ("cycle", "1,000"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "12.5"),
    **{
        f"smsp__sass_thread_inst_executed_op_f{op}_pred_on.sum": ("inst", "7")
        for op in ("add", "mul", "fma")
    },
}


def table(names):
    """What ncu writes on its raw page, with 64 blocks of 128 threads for each kernel."""
    fixed = {
        "ID": "",
        "Process ID": "",
        "Kernel Name": "",
        "Block Size": "",
        "Grid Size": "",
        "CC": "",
    }
    lines = [[*fixed, *METRICS], [*fixed.values(), *(unit for unit, _ in METRICS.values())]]
    for number, name in enumerate(names):
        lines.append(
            [
                str(number),
                "7",
                name,
                "(128, 1, 1)",
                "(64, 1, 1)",
                "9.0",
                *(v for _, v in METRICS.values()),
            ]
        )
    return (
        "==PROF== Connected\n"
        + "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
        + "\n"
    )


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """Puts the double on PATH; takes the text that it writes, by batch size."""
    folder = tmp_path / "ncu-bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(counters, "check_same_machine", lambda meta: ())

    def install(written):
        (folder / "ncu").write_text(NCU.format(folder=folder))
        (folder / "ncu").chmod(0o755)
        for batch, text in written.items():
            (folder / f"{batch}.csv").write_text(text)
        return folder

    return install


@pytest.fixture
def recorded(tmp_path):
    path = write_planted(
        tmp_path / "r", "cache capacity", network="alexnet", torch_device="cuda:0", precision="fp32"
    )
    return open_recording(path)


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Stands for the process that counts itself; takes what it writes by batch size, or its last
    words.
    """
    monkeypatch.setattr(counters, "count_gpus", lambda: 1)
    monkeypatch.setattr(counters, "check_same_machine", lambda meta: ())

    def install(written):
        def command(configuration, batch, *more):
            if not more:
                return COMMAND(configuration, batch)
            answer = written[batch]
            if isinstance(answer, str):
                return ["sh", "-c", f"echo progress >&2; echo '{answer}' >&2; exit 1"]
            (tmp_path / "answer.json").write_text(json.dumps(answer))
            return ["cp", str(tmp_path / "answer.json"), more[1]]

        monkeypatch.setattr(counted_step, "command", command)

    return install


def counted(names, **columns):
    """What the process writes of kernels with 64 blocks of 128 threads."""
    geometry = {"grid_x": 64, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
    return {
        "kernels": [{"name": name, **geometry, **columns} for name in names],
        "flops_counted": [],
    }


def names_at(recording, batch):
    """Names of the kernels of one profiled step, in order."""
    steps, kernels = recording.frame("steps"), recording.frame("kernels")
    step = steps.loc[(steps["batch"] == batch) & steps["profiled"].astype(bool), "step"].iloc[0]
    return kernels[kernels["step"] == step].sort_values("start_ns")["name"].tolist()


def of_batch(recording, batch):
    steps = recording.frame("steps")
    kernels = recording.frame("kernels")
    return kernels[kernels["step"].isin(steps.loc[steps["batch"] == batch, "step"])]


def test_counts_are_joined_to_every_profiled_step(ncu, recorded, capsys):
    folder = ncu({8: table(names_at(recorded, 8))})
    before = recorded.frame("kernels")
    assert main(["counters", str(recorded.path), "--batch", "8"]) == 0
    after = open_recording(recorded.path)
    rows = of_batch(after, 8)
    assert rows[["dram_bytes", "l2_bytes", "sm_cycles"]].drop_duplicates().to_numpy().tolist() == [
        [3e6, 8e6, 1000]
    ]
    assert rows["tensor_pipe_use"].unique().tolist() == [0.125]
    # They ran on tensor cores whose products the table lacks: its FLOPs are not the kernels' work.
    assert rows["flops_executed"].isna().all()
    assert of_batch(after, 4)["dram_bytes"].isna().all()
    unchanged = [name for name in before if name not in counters.COUNTED]
    pd.testing.assert_frame_equal(after.frame("kernels")[unchanged], before[unchanged])
    entry = after.meta["counters"]
    assert (entry["tool"], entry["cache_control"], entry["clock_control"]) == (
        "ncu",
        "none",
        "none",
    )
    counts = {
        "kernels": 3,
        "unused": 0,
        "steps": 8,
        "recorded": 24,
        "joined": 24,
        "by_geometry": False,
    }
    assert entry["batches"] == [{"batch": 8, **counts, "tool": "ncu"}]
    assert (
        "24 of 24 recorded kernels in 8 steps joined by order and name" in capsys.readouterr().out
    )
    arguments = (folder / "8.arguments").read_text().splitlines()
    assert {
        "--nvtx",
        f"--nvtx-include={counted_step.RANGE}",
        "--cache-control=none",
        "--clock-control=none",
    } <= set(arguments)
    assert json.loads(arguments[-2])["network"] == "alexnet"


def test_what_does_not_join_is_counted_and_said(ncu, recorded, capsys):
    first, *_, last = names_at(recorded, 16)
    ncu({16: table([first, "another_kernel", last])})
    assert main(["counters", str(recorded.path), "--batch", "16"]) == 0
    after = open_recording(recorded.path)
    missing = of_batch(after, 16)["dram_bytes"].isna()
    assert missing.sum() == 8
    assert set(of_batch(after, 16)["name"][missing]) == set(names_at(recorded, 16)[1:2])
    assert after.meta["lost"]["kernels_without_counters"]["count"] == 8
    assert after.meta["status"] == recorded.meta["status"]
    assert "16 of 24 recorded kernels" in (out := capsys.readouterr().out)
    assert "1 counted kernel joins none" in out


def test_each_call_goes_on_with_what_is_not_counted(ncu, recorded, refusal_of):
    ncu({batch: table(names_at(recorded, batch)) for batch in (4, 8, 16)})
    assert main(["counters", str(recorded.path), "--batch", "4"]) == 0
    assert main(["counters", str(recorded.path)]) == 0
    assert [entry.batch for entry in counters.list_counted(open_recording(recorded.path))] == [
        4,
        8,
        16,
    ]
    assert "has the counters of 4, 8, 16 already" in refusal_of("counters", recorded.path)


def test_a_batch_size_that_fails_costs_only_itself(ncu, recorded, capsys):
    counts = {batch: table(names_at(recorded, batch)) for batch in (4, 16)}
    ncu({**counts, 8: "==WARNING== No kernels were profiled.\n"})
    assert main(["counters", str(recorded.path)]) == 0
    assert [entry.batch for entry in counters.list_counted(open_recording(recorded.path))] == [
        4,
        16,
    ]
    assert "8 could not be counted: ncu profiled no kernel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("", "wrote no profile"),
    ],
)
def test_a_tool_that_may_not_count_is_said_with_a_remedy(ncu, recorded, written, words, refusal_of):
    ncu(dict.fromkeys((4, 8, 16), written))
    assert words in refusal_of("counters", recorded.path)
    assert "counters" not in open_recording(recorded.path).meta


def test_what_cannot_be_counted_is_refused_before_anything_runs(
    ncu, recorded, tmp_path, monkeypatch, refusal_of
):
    monkeypatch.setattr(torch_runtime, "pick_device", lambda name: name)  # without torch
    ncu({})
    assert "Batch 5 was not profiled; the recording has 4, 8, 16" in refusal_of(
        "counters", recorded.path, "--batch", "5"
    )
    on_cpu = write_planted(tmp_path / "cpu", network="alexnet", torch_device="cpu")
    assert "ran on the CPU" in refusal_of("counters", on_cpu)
    modelled = write_planted(tmp_path / "modelled", recording_type="model", network="alexnet")
    assert "is modelled: no kernel ran" in refusal_of("counters", modelled)
    imported = write_planted(tmp_path / "imported", imported_from="nsys")
    assert "was imported from nsys, so its steps cannot run again" in refusal_of(
        "counters", imported
    )


def test_the_process_counts_itself_where_cupti_can(ncu, process, recorded, capsys):
    first, *_, last = names_at(recorded, 8)
    process(
        {
            8: counted(
                [first, "another_kernel", last],
                dram_bytes=2_000_000,
                tensor_pipe_use=0.5,
                flops_executed=9,
            )
        }
    )
    assert main(["counters", str(recorded.path), "--batch", "8"]) == 0
    after = open_recording(recorded.path)
    rows = of_batch(after, 8)
    assert rows["dram_bytes"].dropna().unique().tolist() == [2_000_000]
    assert rows["tensor_pipe_use"].dropna().unique().tolist() == [0.5]
    assert rows[["flops_executed", "l2_bytes"]].isna().all(axis=None)
    assert (
        after.meta["lost"]["kernels_without_counters"]["count"]
        == rows["dram_bytes"].isna().sum()
        == 8
    )
    entry = after.meta["counters"]
    assert (entry["tool"], entry["replay"], entry["batches"][0]["tool"]) == (
        "cupti",
        "step",
        "cupti",
    )
    assert (
        "3 kernels of a step counted by CUPTI; 16 of 24 recorded kernels" in capsys.readouterr().out
    )


def test_where_cupti_cannot_count_the_reason_is_said_once_and_ncu_counts(
    ncu, process, recorded, capsys
):
    ncu({batch: table(names_at(recorded, batch)) for batch in (4, 8, 16)})
    process(
        dict.fromkeys(
            (4, 8, 16),
            "cuptiRangeProfilerEnable: only administrators may read performance counters",
        )
    )
    assert main(["counters", str(recorded.path)]) == 0
    messages = " ".join(capsys.readouterr().err.split())
    reason = (
        "so Nsight Compute does: cuptiRangeProfilerEnable: only administrators may read "
        "performance counters"
    )
    assert messages.count(reason) == 1
    assert [one.tool for one in counters.list_counted(open_recording(recorded.path))] == ["ncu"] * 3


def test_a_process_that_hangs_is_ended_and_ncu_counts(ncu, process, recorded, monkeypatch, capsys):
    ncu({8: table(names_at(recorded, 8))})
    process({})
    monkeypatch.setattr(counters, "_LIMIT_S", 0.2)

    def hangs(configuration, batch, *more):
        return ["sleep", "600"] if more else COMMAND(configuration, batch)

    monkeypatch.setattr(counted_step, "command", hangs)
    assert main(["counters", str(recorded.path), "--batch", "8"]) == 0
    assert "did not end within 0.2 s" in " ".join(capsys.readouterr().err.split())


def test_replays_of_a_graph_are_counted_by_ncu_alone(process, tmp_path, refusal_of):
    planted = {"network": "alexnet", "torch_device": "cuda:0", "precision": "fp32", "graphed": True}
    path = write_planted(tmp_path / "graphed", "cache capacity", **planted)
    assert "takes a CUDA graph for one kernel; use --with ncu" in refusal_of(
        "counters", path, "--with", "cupti"
    )


def test_a_chosen_tool_is_the_only_one(ncu, process, recorded, monkeypatch, refusal_of):
    process(dict.fromkeys((4, 8, 16), "no permission"))
    assert "no permission" in refusal_of("counters", recorded.path, "--with", "cupti")
    monkeypatch.setattr(counters, "count_gpus", lambda: 0)
    assert "no CUDA device is usable here" in refusal_of(
        "counters", recorded.path, "--with", "cupti"
    )


def test_a_missing_tool_is_said_with_how_to_get_it(
    ncu, recorded, tmp_path, monkeypatch, refusal_of
):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "ncu is not on PATH: install Nsight Compute" in refusal_of("counters", recorded.path)


def test_views_show_measured_traffic_where_it_is(ncu, recorded, capsys, document_of):
    ncu({16: table(names_at(recorded, 16))})
    main(["breakdown", str(recorded.path)])
    said = capsys.readouterr().out
    assert "measured GB/s" not in said
    assert "tensor" not in said
    main(["counters", str(recorded.path), "--batch", "16"])
    rows = document_of("breakdown", recorded.path, "--by", "kernel")["rows"]
    assert [row["tensor_pipe_use"] for row in rows[:3]] == pytest.approx([0.125] * 3)
    for row in rows[:3]:  # each kernel moves 3 MB in its time
        assert row["measured_gb_per_s"] == pytest.approx(3e6 / row["time_ms"] / 1e6)
    assert [row["measured_gb_per_s"] for row in rows[3:]] == [None] * 2
    main(["breakdown", str(recorded.path)])
    said = capsys.readouterr().out
    assert "measured" in said
    assert "active tensor pipes, by hardware counters: 12% in conv3 backward" in " ".join(
        said.split()
    )


class Kernels:
    """A workload of a GPU."""

    def try_step(self, batch):
        pass

    def time_step(self):
        return 0, 1


def test_counts_of_a_step_belong_to_the_kernels_that_it_launches_in_order():
    def count(run):
        return KernelCounts([{"dram_bytes": 10}, {"dram_bytes": 20}], ["half precision"])

    listed = [
        {"name": name, "grid_x": grid, "correlation_id": 1}
        for name, grid in (("first", 7), ("second", 8))
    ]
    rows, flops_counted = counted_step.count_step(Kernels(), 4, count, lambda workload: listed)
    assert flops_counted == ["half precision"]
    assert [(row["name"], row["grid_x"], row["dram_bytes"]) for row in rows] == [
        ("first", 7, 10),
        ("second", 8, 20),
    ]
    with pytest.raises(
        CurvescopeError, match="counted 2 kernels in a step in which torch's profiler saw 3"
    ):
        counted_step.count_step(Kernels(), 4, count, lambda workload: [*listed, listed[0]])


def test_the_marked_step_is_one_step_after_a_warm_up_in_a_range_of_all_threads(monkeypatch):
    import nvtx

    class Steps:
        def __init__(self):
            self.seen = []

        def try_step(self, batch):
            self.seen.append(f"try {batch}")

        def time_step(self):
            self.seen.append("step")

    steps = Steps()
    monkeypatch.setattr(nvtx, "start_range", lambda name: steps.seen.append(f"start {name}") or 7)
    monkeypatch.setattr(nvtx, "end_range", lambda number: steps.seen.append(f"end {number}"))
    counted_step.run_marked(steps, 8)
    assert steps.seen == ["try 8", "step", "step", "start curvescope.counted", "step", "end 7"]


@pytest.mark.slow
def test_the_report_has_the_use_of_tensor_pipes_and_the_occupancy_where_they_were_measured(
    process, recorded, tmp_path
):
    page = tmp_path / "report.html"
    main(["report", str(recorded.path), "-o", str(page)])
    assert not {"tensor", "occupancy"} & embedded(page)["runs"][0]["kernels"]["rows"][0].keys()
    first, *rest = names_at(recorded, 16)
    answer = counted([first], tensor_pipe_use=0.25, achieved_occupancy=0.5)
    answer["kernels"] += counted(rest, achieved_occupancy=0.75)["kernels"]
    process({16: answer})
    assert main(["counters", str(recorded.path), "--batch", "16"]) == 0
    main(["report", str(recorded.path), "-o", str(page), "--force"])
    rows = {
        row["name"]: (row["tensor"], row["occupancy"])
        for row in embedded(page)["runs"][0]["kernels"]["rows"]
    }
    assert rows[first] == ([None, None, 0.25], [None, None, 0.5])
    assert rows[rest[-1]] == ([None, None, None], [None, None, 0.75])


@pytest.mark.slow
@needs_browser
def test_the_page_draws_what_was_measured(process, recorded, tmp_path):
    process({16: counted(names_at(recorded, 16), tensor_pipe_use=0.25)})
    main(["counters", str(recorded.path), "--batch", "16"])
    main(["report", str(recorded.path), "-o", str(tmp_path / "report.html")])
    with Page(tmp_path / "report.html") as opened:
        assert "25" in opened.evaluate(
            "document.querySelector('#kernel-table tbody tr td:last-child').textContent"
        )
        heads = opened.evaluate("document.querySelector('#kernel-table thead').textContent")
        assert heads.endswith("tensor pipes")
        assert "occupancy" not in heads
        assert opened.problems == []
