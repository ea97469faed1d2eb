"""Kernel traces of rocprofv3, in the headers of its versions."""

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

SIZES = '"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"'
TIMES = '"Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"'
# ROCm 6.2 to 6.4, 7, and the CSV of `rocpd convert`: header, and what is before the kernel and between times and sizes.
VERSIONS = {
    "6": (
        f'"Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Id",{TIMES},'
        f'"Private_Segment_Size","Group_Segment_Size",{SIZES}',
        '"KERNEL_DISPATCH",{agent},2,74441,1,2',
        "0,1024",
    ),
    "7": (
        f'"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id",{TIMES},'
        f'"LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",{SIZES}',
        '"KERNEL_DISPATCH","Agent {agent}",9,2,70,1,33',
        "1024,0,12,4,48",
    ),
    "rocpd": (
        f'"Guid","Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id",{TIMES},'
        f'"Lds_Block_Size","Scratch_Size","Vgpr_Count","Accum_Vgpr_Count","Sgpr_Count",{SIZES}',
        '"00006409-00d1","KERNEL_DISPATCH","Agent {agent}",9,2,70,1,33',
        "1024,0,12,4,48",
    ),
}


def trace(version, dispatches):
    """Dispatches: agent, name, start and end in ns."""
    header, before, after = VERSIONS[version]
    rows = [
        f'{before.format(agent=agent)},"{name}",{number},{start},{end},{after},256,1,1,1000,2,1'
        for number, (agent, name, start, end) in enumerate(dispatches)
    ]
    return "\n".join([header, *rows, ""])


def read(text, folder):
    (folder / "kernel_trace.csv").write_text(text)
    return open_recording(import_profile(folder / "kernel_trace.csv", folder / "run").path)


@pytest.mark.parametrize("version", VERSIONS)
def test_kernels_of_every_version(version, tmp_path):
    start = 1_614_963_487_781_917
    dispatches = [(8, "gemm(float*, int)", start, start + 500), (4, "relu<float>", start + 600, start + 700)]
    recording = read(trace(version, dispatches), tmp_path)
    gemm, relu = recording.arrow("kernels").to_pylist()
    assert (gemm["name"], gemm["start_ns"], gemm["duration_ns"]) == ("gemm(float*, int)", start, 500)
    # Agents count processors, too: agent 4 is the first GPU.
    assert (gemm["device"], relu["device"], gemm["stream"], gemm["source"]) == (1, 0, 2, "rocprof")
    # A grid of 1000 x 2 work-items in groups of 256.
    assert [gemm[f"grid_{axis}"] for axis in "xyz"] == [4, 2, 1]
    assert (gemm["block_x"], gemm["shared_memory_bytes"]) == (256, 1024)
    assert gemm["registers_per_thread"] == (None if version == "6" else 12)
    assert recording.meta["lost"] == {}


def test_unreadable_rows_are_counted(tmp_path):
    text = trace("7", [(4, "gemm", 10, 20), (4, "gemm", 30, "x"), ("", "gemm", 50, 60)]) + '"cut off\n'
    recording = read(text, tmp_path)
    assert (recording.count_rows("kernels"), recording.meta["lost"]["rows_unreadable"]["count"]) == (1, 3)


def test_a_table_without_kernels_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text(trace("7", []))
    with pytest.raises(CurvescopeError, match="no kernel; record with `rocprofv3 --kernel-trace"):
        import_profile(tmp_path / "t.csv", tmp_path / "run")
