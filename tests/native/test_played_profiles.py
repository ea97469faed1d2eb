"""Profiles that others recorded on GPUs, through the collector's own path.

The rows of a reader's import become CUPTI's records in the test double, go through buffers, reader,
chunk file and merge, and must come back, table by table. Ranges cannot be played, because they
carry the time of now.
"""

import textwrap

import pytest

from curvescope.profiling.recording.store import open_recording

GEOMETRY = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread"]
COLUMNS = {
    "kernels": ["start_ns", "name", "duration_ns", "device", "stream", "correlation_id", *GEOMETRY,
                "shared_memory_bytes"],
    "memory": ["start_ns", "kind", "memcpy_kind", "bytes", "duration_ns", "device", "stream", "correlation_id"],
    "api_calls": ["start_ns", "name", "duration_ns", "thread", "correlation_id"],
}  # fmt: skip
PLAY = """
    from curvescope.profiling.recording.store import open_recording

    def rows(table):
        return [row for row in open_recording(path).arrow(table).to_pylist() if process in (None, row["process"])]

    def times(row):
        return row["start_ns"], row["start_ns"] + row["duration_ns"]

    gpu, calls = FakeGpu("12.4"), rows("api_calls")
    # The double's names of calls; the collector chooses among them when it starts.
    ids = {name: (int(not name.startswith("cuda")), 100 + i) for i, name in enumerate({row["name"] for row in calls})}
    for name, (driver, number) in ids.items():
        gpu.cupti.fake_name_call(driver, number, name.encode())
    assert gpu.start() == 0
    for row in calls:
        driver, number = ids[row["name"]]
        gpu.call(number, *times(row), row["thread"], row["correlation_id"], driver=driver)
    for row in rows("kernels"):
        grid, block = ([row[f"{what}_{axis}"] for axis in "xyz"] for what in ("grid", "block"))
        gpu.kernel(row["name"], *times(row), row["correlation_id"], device=row["device"], stream=row["stream"],
                   grid=grid, block=block, registers_per_thread=row["registers_per_thread"],
                   dynamic_shared_bytes=row["shared_memory_bytes"])
    for row in rows("memory"):
        moved = (row["bytes"], *times(row), row["correlation_id"])
        place = {"device": row["device"], "stream": row["stream"]}
        if row["kind"] == "memset":
            gpu.set(*moved, **place)
        else:
            gpu.copy({"HtoD": 1, "DtoH": 2, "DtoD": 8}[row["memcpy_kind"]], *moved, **place)
"""


def rows(recording, table, process):
    """The rows of a process as tuples, in order; times count from its first kernel."""
    kernels, frame = (recording.frame(name) for name in ("kernels", table))
    if process is not None:
        kernels, frame = (one[one["process"] == process] for one in (kernels, frame))
    frame = frame.assign(start_ns=frame["start_ns"] - kernels["start_ns"].min())
    found = frame[COLUMNS[table]].astype(object).where(frame[COLUMNS[table]].notna(), None)
    return sorted(map(tuple, found.to_numpy()), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "pipit_cloverleaf.sqlite.gz",
        "nsysai_h100_2gpu_1s.sqlite.gz",
        "tl_b200_eager.json.gz",
        "hta_alexnet_trace.json.gz",
    ],
)
def test_the_collectors_recording_of_a_profiles_records_is_the_readers_import(
    record_fake, imported_profile, file
):
    path = imported_profile(file)
    read = open_recording(path)
    processes = read.frame("kernels")["process"].dropna().unique()
    process = int(min(processes)) if len(processes) > 1 else None
    code, played = record_fake(f"path, process = {str(path)!r}, {process}\n{textwrap.dedent(PLAY)}")
    assert code == 0
    assert played.count_rows("kernels") > 50
    for table in ("kernels", "memory"):
        assert rows(played, table, None) == rows(read, table, process), table
    here, there = rows(played, "api_calls", None), rows(read, "api_calls", process)
    # The collector leaves out calls that start, move, allocate and wait for nothing.
    wanted = {row[1] for row in here}
    assert here == [row for row in there if row[1] in wanted]
    assert any("Launch" in name for name in wanted)
    assert not any(
        "Launch" in row[1] or "Memcpy" in row[1] for row in there if row[1] not in wanted
    )
