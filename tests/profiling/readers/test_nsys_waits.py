"""What CUDA calls waited for, from the synchronisation records of Nsight Systems."""

from pathlib import Path

from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

from .nsys_export import GLOBAL_PID, kernel, launch, wait, write_export

PROFILES = Path(__file__).parents[2] / "data" / "profiles"


def waits_of(recording):
    return [(row["waits_for"], row["stream"]) for row in recording.arrow("api_calls").to_pylist()]


def test_each_kind_of_wait_joins_its_call_in_its_process(tmp_path):
    calls = [launch(number, 100 * number) for number in range(1, 7)]
    waits = [wait(1, 1, event=5), wait(2, 2, stream=13), wait(3, 3, stream=7), wait(4, 4), wait(5, 99)]
    waits.append(wait(6, 3, process=GLOBAL_PID + (1 << 24)))  # of another process
    path = write_export(tmp_path / "e", kernels=[kernel(1, 120, 150)], launches=calls, waits=waits)
    recording = open_recording(import_profile(path, tmp_path / "r").path)
    expected = [("event", None), ("stream_event", 13), ("stream", 7), ("context", None), (None, None), (None, None)]
    assert waits_of(recording) == expected


def test_a_device_synchronisation_of_a_real_export_waits_for_the_context(tmp_path):
    """Nsight Systems 2024.5 writes the type of an event for cudaDeviceSynchronize, without an event."""
    recording = open_recording(import_profile(PROFILES / "pipit_cloverleaf.sqlite.gz", tmp_path / "r").path)
    calls = recording.arrow("api_calls").to_pylist()
    synchronised = {call["waits_for"] for call in calls if call["name"] == "cudaDeviceSynchronize"}
    assert synchronised == {"context"}
    assert {call["waits_for"] for call in calls if call["name"] != "cudaDeviceSynchronize"} == {None}
