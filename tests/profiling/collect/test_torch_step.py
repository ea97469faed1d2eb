"""What torch's profiler saw on a GPU, through the path of our own sweeps: events made of a trace of
others.
"""

from pathlib import Path

import pytest
import torch

from curvescope.profile_files import import_profile
from curvescope.profiling.attribution.collectives import communicates
from curvescope.profiling.attribution.events import HostEvent, StepRows, kernel_rows, split_copies
from curvescope.profiling.collect.torch_step import (
    count_without_geometry,
    record_step,
    split_events,
)
from curvescope.profiling.measure.loop import VisitWriter
from curvescope.profiling.measure.visits import Visit
from curvescope.profiling.recording.schema import OPERATOR_MODE
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from .kineto_doubles import KinetoResults, OldKinetoEvent

B200 = Path(__file__).parents[2] / "data" / "profiles" / "tl_b200_eager.json.gz"
GEOMETRY = [
    *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"),
    "registers_per_thread",
]
GEOMETRY.append("shared_memory_bytes")
COPIES = ("Memcpy", "Memset")


@pytest.fixture(scope="module")
def results():
    return KinetoResults(B200)


@pytest.fixture(scope="module")
def events(results):
    return split_events(results)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    return open_recording(import_profile(B200, tmp_path_factory.mktemp("b200") / "r").path)


def rows_of(events):
    return kernel_rows(events.host, events.device, host_rows=False).kernels


def test_kernels_have_the_geometry_and_place_that_the_readers_import_of_the_same_trace_gives_them(
    events, imported
):
    ours = [row for row in rows_of(events) if not row["name"].startswith(COPIES)]
    theirs = imported.frame("kernels").sort_values("start_ns")
    assert len(ours) == len(theirs) == 768
    for name in ("name", "correlation_id", "stream", *GEOMETRY):
        assert [row[name] for row in ours] == theirs[name].tolist(), name
    # Two were launched by the driver outside every operator: the reader places them by the time of
    # their launch.
    placed = [
        (row["op"], op) for row, op in zip(ours, theirs["op"], strict=True) if row["op"] is not None
    ]
    assert len(placed) == 766
    # In the process a kernel of NCCL has the operator that torch names; the reader takes NCCL's
    # range inside it.
    assert {pair for pair in placed if pair[0] != pair[1]} == {
        ("c10d::_allgather_base_", "nccl:_all_gather_base")
    }


def test_a_kernel_of_nccl_communicates_under_whichever_operator_it_was_launched(events):
    (gather,) = [row for row in rows_of(events) if row["op"] == "c10d::_allgather_base_"]
    assert communicates(gather["name"], gather["op"])
    assert sum(communicates(row["name"], row["op"]) for row in rows_of(events)) == 1
    assert communicates("Memcpy DtoD (Device -> Device)", "nccl:_all_gather_base")


def test_calls_of_the_runtime_and_the_driver_are_rows_of_calls(events, imported):
    theirs = imported.frame("api_calls").sort_values(["start_ns", "correlation_id"])
    ours = sorted(events.api_calls, key=lambda row: (row["start_ns"], row["correlation_id"]))
    for name in ("name", "duration_ns", "thread", "correlation_id"):
        assert [row[name] for row in ours] == theirs[name].tolist(), name
    assert {"cudaLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync"} <= {
        row["name"] for row in ours
    }
    launches = {row["correlation_id"] for row in ours}
    assert all(row["correlation_id"] in launches for row in rows_of(events))


def test_no_kernel_is_attributed_to_a_call_that_has_the_number_of_an_operator(results, events):
    """CUPTI and torch both count from 1: in this trace the driver's launches and the operators
    share numbers.
    """
    operators = {event.correlation_id for event in events.host}
    driver = [event for event in results.events() if event.name() == "cuLaunchKernelEx"]
    assert sum(event.correlation_id() in operators for event in driver) > 50
    by_number = {event.correlation_id: event for event in events.host if not event.is_range}
    launches = {row["correlation_id"]: row["start_ns"] for row in events.api_calls}
    for event in events.device:
        around = by_number.get(event.host_correlation_id)
        if around is not None:
            launched_ns = launches[event.correlation_id]
            assert around.start_ns <= launched_ns <= around.start_ns + around.duration_ns


def write_visit(folder, kernels, mode):
    start_ns = min(row["start_ns"] for row in kernels)
    window = (start_ns, max(row["start_ns"] + row["duration_ns"] for row in kernels) - start_ns)
    with RecordingWriter(folder, {"unmeasured": []}) as writer:
        VisitWriter(writer, mode).write(1, 0, Visit([], [StepRows(kernels, [window], {})]))
    return open_recording(folder)


def test_a_sweep_records_copies_as_the_readers_import_does_of_the_same_trace(
    events, imported, tmp_path
):
    recording = write_visit(tmp_path / "r", rows_of(events), "training")
    ours, theirs = (r.frame("memory").sort_values("start_ns") for r in (recording, imported))
    assert len(ours) == len(theirs) == 161
    for name in (
        "kind",
        "memcpy_kind",
        "bytes",
        "duration_ns",
        "device",
        "stream",
        "correlation_id",
    ):
        assert ours[name].tolist() == theirs[name].tolist(), name
    assert ours["memcpy_kind"].value_counts().to_dict() == {"HtoD": 15, "DtoD": 146}
    assert not recording.frame("kernels")["name"].str.startswith(COPIES).any()


def test_a_copy_of_a_collective_is_its_communication():
    copy = {
        "name": "Memcpy DtoD (Device -> Device)",
        "op": "nccl:_all_gather_base",
        "communicator": "2 devices",
    }
    assert split_copies([copy, {**copy, "op": "aten::copy_"}], apart=True) == (
        [copy],
        [{"kind": "memcpy", "memcpy_kind": "DtoD"}],
    )


def test_a_copy_that_is_benched_stays_a_kernel(events, tmp_path):
    recording = write_visit(tmp_path / "r", rows_of(events), OPERATOR_MODE)
    assert recording.count_rows("memory") == 0
    assert recording.frame("kernels")["name"].str.startswith(COPIES).sum() == 161


@pytest.mark.slow
def test_an_older_torch_gives_the_same_geometry_through_the_file_of_its_trace(events):
    old = split_events(KinetoResults(B200, OldKinetoEvent), exposed=False)
    assert old == events


@pytest.mark.slow
def test_what_a_profile_lacks_is_missing(events, monkeypatch):
    monkeypatch.setattr(
        OldKinetoEvent, "metadata_json", lambda _: '"blocks per SM": inf, "grid": [1, 1, 1]'
    )
    assert all(
        event.columns == {} for event in split_events(KinetoResults(B200, OldKinetoEvent)).device
    )
    assert all(isinstance(event, HostEvent) for event in events.host)
    assert count_without_geometry(rows_of(events)) == 0
    # Copies have no grid in any torch.
    assert count_without_geometry(rows_of(split_events(KinetoResults(B200, OldKinetoEvent)))) == 768


def test_a_step_on_a_gpu_is_recorded_by_kineto_and_not_by_events(monkeypatch):
    """Without `use_kineto` torch times operators by events, asks CUPTI for nothing, and no kernel
    is recorded.
    """
    profilers = []

    class Begun(torch.autograd.profiler.profile):
        def __init__(self, **options):
            super().__init__(**options)
            profilers.append((self.profiler_kind, self.kineto_activities))
            # From here on as on this machine, which may have no GPU.
            super().__init__(**{**options, "use_device": None})

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("curvescope.profiling.collect.torch_step.take_buffers", lambda device: None)
    cpu, cuda = torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA
    monkeypatch.setattr(torch.autograd.profiler, "_supported_activities", lambda: {cpu, cuda})
    monkeypatch.setattr(torch.autograd.profiler, "profile", Begun)
    record_step(lambda ranges: None, (), device="cuda:0")
    assert profilers == [(torch.autograd.ProfilerState.KINETO, {cpu, cuda})]


def test_the_buffers_of_a_profiler_session_are_taken_before_its_step(monkeypatch):
    """CUPTI asks for a buffer and zeroes it at the first CUDA call of a session, here in the main
    thread, 1.5 ms.
    """
    begun, waits_us = [], []
    profile, ones = torch.autograd.profiler.profile, torch.ones

    def begin(use_device, **options):
        begun.append(use_device)
        return profile(**options)

    def cuda_call(name):
        waits_us.append((name, 1500 if len(begun) > sum(us > 0 for _, us in waits_us) else 0))

    def kernel_of_ones(*shape, device, **options):
        cuda_call(f"on {device}")
        return ones(*shape, **options)

    monkeypatch.setattr(torch.autograd.profiler, "profile", begin)
    monkeypatch.setattr(torch, "ones", kernel_of_ones)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: cuda_call("synchronize"))
    for _ in range(2):
        rows = record_step(
            lambda ranges: cuda_call("step"),
            (),
            device="cuda:1",
            before=lambda: cuda_call("before"),
        )
        assert rows.kernels == []
    session = [("on cuda:1", 1500), ("synchronize", 0), ("before", 0), ("step", 0)]
    assert (begun, waits_us) == (["cuda", "cuda"], 2 * session)
