"""The collector on a real GPU, held against torch.profiler. These have not been run on a GPU yet."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from curvescope.cli import main
from curvescope.profiling.recording.store import open_recording

pytestmark = pytest.mark.gpu

_STEP = """
    import contextlib, json, nvtx, os, sys, time, torch
    from curvescope.profiling.workload.networks import get_network
    model = get_network("resnet50").build().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(1000, (32,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    for _ in range(5): step()
    torch.cuda.synchronize()
"""


def record(tmp_path, program):
    """The recording of a program, and what it printed as JSON into `said`."""
    source = tmp_path / "program.py"
    source.write_text(textwrap.dedent(_STEP) + textwrap.dedent(program))
    assert main(["record", "-o", str(tmp_path / "r"), "--", sys.executable, str(source)]) == 0
    return checked(open_recording(tmp_path / "r"))


def checked(recording):
    """The recording, if the collector recorded a GPU's work in it."""
    on_gpu = [one for one in recording.meta["collectors"] if one.get("cupti_status") == "recording"]
    kernels = recording.frame("kernels")
    assert on_gpu, recording.meta["collectors"]
    assert len(kernels) > 0
    for name in ("grid_x", "block_x", "registers_per_thread", "duration_ns"):
        assert kernels[name].notna().all(), name
    assert len(recording.frame("api_calls")) > 0
    assert recording.meta["device"]["sm_count"] > 0
    return recording


def run(tmp_path, program):
    source = tmp_path / "program.py"
    source.write_text(textwrap.dedent(_STEP) + textwrap.dedent(program))
    return json.loads(subprocess.check_output([sys.executable, str(source)], text=True).splitlines()[-1])


def test_kernels_of_a_resnet50_step_are_those_of_torchs_profiler_by_name_and_count(tmp_path):
    seen = run(
        tmp_path,
        """
        torch.backends.cudnn.benchmark = False
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiler:
            step()
            torch.cuda.synchronize()
        on_device = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        kernels = [(e.name, e.device_time) for e in on_device if not e.name.startswith(("Memcpy", "Memset"))]
        print(json.dumps(kernels))
        """,
    )
    recording = record(
        tmp_path,
        """
        torch.backends.cudnn.benchmark = False
        with nvtx.annotate("one step"):
            step()
            torch.cuda.synchronize()
        """,
    )
    ranges, kernels = recording.frame("ranges"), recording.frame("kernels")
    (start,), (duration,) = ranges["start_ns"], ranges["duration_ns"]
    ours = kernels[kernels["start_ns"].between(start, start + duration)]
    names, counts = np.unique([name for name, _ in seen], return_counts=True)
    assert ours["name"].value_counts().to_dict() == dict(zip(names.tolist(), counts.tolist(), strict=True))
    theirs_ns = sum(microseconds for _, microseconds in seen) * 1e3
    # Two processes at clocks of their own.
    assert ours["duration_ns"].sum() == pytest.approx(theirs_ns, rel=0.1)
    assert recording.meta["lost"].get("device_work_without_launch", {"count": 0})["count"] == 0


def test_no_kernel_starts_before_its_launch_by_more_than_the_error_that_is_said(tmp_path):
    recording = record(tmp_path, "step(); torch.cuda.synchronize()")
    (collector,) = recording.meta["collectors"]
    assert collector["cupti_status"] == "recording"
    assert collector["clock_error_ns"] < 100_000
    assert recording.meta.get("kernel_before_launch_ns", 0) <= collector["clock_error_ns"] + 10_000


def test_kernels_of_a_cuda_graph_carry_its_id(tmp_path):
    recording = record(
        tmp_path,
        """
        a = torch.randn(256, 256, device="cuda")
        (a @ a).sum()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph): b = (a @ a).sum()
        graph.replay()
        torch.cuda.synchronize()
        """,
    )
    kernels = recording.frame("kernels")
    assert kernels["graph_id"].notna().any()
    assert kernels["graph_id"].isna().any()


def test_the_process_that_profiles_itself_runs_on(tmp_path):
    recording = record(
        tmp_path,
        """
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiler:
            step()
            torch.cuda.synchronize()
        on_device = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        assert len(on_device) > 100, "the program's own profile has no kernels"
        with nvtx.annotate("after"):
            step()
            torch.cuda.synchronize()
        """,
    )
    assert recording.meta["status"] == "complete"
    (collector,) = recording.meta["collectors"]
    assert collector["cupti_pauses"] >= 1
    ranges, kernels = recording.frame("ranges"), recording.frame("kernels")
    after = ranges[ranges["name"] == "after"].iloc[0]
    assert (kernels["start_ns"] > after["start_ns"]).sum() > 100, "the collector did not resume"


def test_a_block_inside_a_profile_is_refused(tmp_path):
    said = run(
        tmp_path,
        f"""
        import curvescope
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
            try:
                with curvescope.record({str(tmp_path / "block")!r}): pass
                said = None
            except Exception as error: said = str(error)
        print(json.dumps(said))
        """,
    )
    assert "end that profile first" in said


def test_a_block_of_this_process_holds_the_kernels_launched_in_it(tmp_path):
    seen = run(
        tmp_path,
        f"""
        import curvescope
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]): step()  # idle from now on
        counts = []
        for number in range(2):
            with curvescope.record({str(tmp_path / "block")!r} + str(number)) as recording:
                step()
            counts.append(len(recording.frame("kernels")))
        print(json.dumps(counts))
        """,
    )
    assert min(seen) > 100
    assert seen[0] == seen[1]
    for number in range(2):
        checked(open_recording(tmp_path / f"block{number}"))


# Each launches `mine` three times: cupy by CUDA's runtime or the driver, as it likes, the others by the driver alone.
_EMPTY_PTX = ".version 6.3\\n.target sm_50\\n.address_size 64\\n.visible .entry mine() { ret; }\\0"
_OTHERS = {
    "numba": """
        from numba import cuda
        @cuda.jit
        def mine(x): x[cuda.grid(1)] += 1
        x = cuda.to_device(np.zeros(64))
        launch = lambda: mine[1, 64](x)
        """,
    "cupy": """
        import cupy
        mine = cupy.RawKernel('extern "C" __global__ void mine() {}', "mine")
        launch = lambda: mine((1,), (64,), ())
        """,
    "pycuda": f"""
        import pycuda.autoinit, pycuda.driver
        mine = pycuda.driver.module_from_buffer(b"{_EMPTY_PTX}").get_function("mine")
        launch = lambda: mine(block=(64, 1, 1), grid=(1, 1))
        """,
}


@pytest.mark.parametrize("package", _OTHERS)
def test_a_block_records_what_another_package_launches(tmp_path, package):
    pytest.importorskip(package)
    block = f"""
        import curvescope
        launch()  # compiled, and CUDA under way before the block
        with curvescope.record({str(tmp_path / "block")!r}) as recording:
            for _ in range(3): launch()
        kernels = recording.frame("kernels")
        mine = kernels[kernels["name"].str.contains("mine")]
        print(len(mine), len(recording.frame("api_calls")), mine["grid_x"].notna().sum())
        """
    program = "import numpy as np\n" + textwrap.dedent(_OTHERS[package]) + textwrap.dedent(block)
    seen = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert int(seen[0]) == int(seen[2]) == 3
    assert int(seen[1]) >= 3
