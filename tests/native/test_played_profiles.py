"""Profiles that others recorded on GPUs, through the collector's own path.

The fields of each record (`play_profile`) become CUPTI's records in the test double, go through buffers, reader, chunk
file and merge, and must be what the reader's import of the same file says, table by table.
"""

from pathlib import Path

import pytest

from curvescope.profiling.recording.store import open_recording

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
GEOMETRY = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread"]
COLUMNS = {
    "kernels": ["start_ns", "name", "duration_ns", "device", "stream", "correlation_id", *GEOMETRY,
                "shared_memory_bytes"],
    "memory": ["start_ns", "kind", "memcpy_kind", "bytes", "duration_ns", "device", "stream", "correlation_id"],
    "api_calls": ["start_ns", "name", "duration_ns", "thread", "correlation_id"],
}  # fmt: skip


def rows(recording, table, process):
    """The rows of a process as tuples, in order; times count from its first kernel."""
    kernels, frame = (recording.frame(name) for name in ("kernels", table))
    if process is not None:
        kernels, frame = (one[one["process"] == process] for one in (kernels, frame))
    frame = frame.assign(start_ns=frame["start_ns"] - kernels["start_ns"].min())
    found = frame[COLUMNS[table]].astype(object).where(frame[COLUMNS[table]].notna(), None)
    return sorted(map(tuple, found.to_numpy()), key=repr)


@pytest.mark.parametrize(
    ("player", "file"),
    [
        ("play_nsys", "pipit_cloverleaf.sqlite.gz"),
        ("play_nsys", "nsysai_h100_2gpu_1s.sqlite.gz"),
        ("play_kineto", "tl_b200_eager.json.gz"),
        ("play_kineto", "hta_alexnet_trace.json.gz"),
    ],
)
def test_the_collectors_recording_of_a_profiles_records_is_the_readers_import(
    record_fake, imported_profile, player, file
):
    path = PROFILES / file
    code, played = record_fake(
        f"""
        from play_profile import {player}
        {player}(FakeGpu("12.4"), {str(path)!r})
        """
    )
    assert code == 0
    read = open_recording(imported_profile(file))
    processes = read.frame("kernels")["process"].dropna().unique()
    process = min(processes) if len(processes) > 1 else None
    assert played.count_rows("kernels") > 50
    for table in ("kernels", "memory"):
        assert rows(played, table, None) == rows(read, table, process), table
    here, there = rows(played, "api_calls", None), rows(read, "api_calls", process)
    # The collector leaves out calls that start, move, allocate and wait for nothing.
    wanted = {row[1] for row in here}
    assert here == [row for row in there if row[1] in wanted]
    assert any("Launch" in name for name in wanted)
    assert not any("Launch" in row[1] or "Memcpy" in row[1] for row in there if row[1] not in wanted)
