"""Our CUDA kernels through their backends: the arguments against what the sources say and against
the cubins.
"""

import ctypes
import re
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.kernels.backends import UnsupportedError, cubins, open_backend, peak_problem
from curvescope.kernels.backends.cubins import CubinBackend
from curvescope.kernels.backends.cupy import CupyDriver
from curvescope.kernels.backends.pycuda import PycudaDriver
from curvescope.kernels.catalog import BY_NAME, KERNELS
from curvescope.kernels.compile import compile_source, own_sources
from curvescope.kernels.conv import DIRECTIONS, Conv
from curvescope.kernels.cubin import read_cubin
from curvescope.kernels.cuda_plans import (
    BYTES_PER_LAUNCH,
    NO_SUM,
    Buffer,
    hold_launch,
    peak_kernel,
    plan,
)
from curvescope.kernels.gemm import TRANSPOSES, Gemm
from curvescope.kernels.latency import Latency
from curvescope.kernels.launch import Launch
from curvescope.kernels.memory import KINDS, Memory
from curvescope.kernels.method import BenchMeasurement, BenchOutcome, Method
from curvescope.kernels.mix import Mix
from curvescope.kernels.peak import PeakRounds

from ..tables import ask_each
from .fake_cuda import FakeLibrary, run_kernel
from .fake_cuda import Memory as DeviceMemory

# What the other kernels make of their arguments is run by test_cuda_sources.py.
CHECKED = [
    Gemm(65, 33, 130),
    Conv(2, 4, 9, 7, 6, 1, 1),
    Memory("copy", 4800),
    Memory("read", 4800),
    Latency(64 * 100, loads=16 * 20),
]
UNCHECKED = [
    *(Launch(k) for k in ("call", "synchronize", "throughput")),
]


REGISTERS = {"peak_bf16_tensor": 48}  # of a thread; the other kernels have 32


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.setattr(cubins, "compile_source", lambda source, sm: f"{source.name} {sm}")
    resources = [
        SimpleNamespace(name=name, registers_per_thread=REGISTERS.get(name, 32), shared_bytes=0)
        for name in BY_NAME
    ]
    monkeypatch.setattr(cubins, "read_cubin", lambda _: resources)


@pytest.fixture
def library():
    return FakeLibrary()


@pytest.fixture
def backend(library):
    return CubinBackend("pycuda", PycudaDriver(library, library))


@pytest.mark.parametrize("problem", CHECKED, ids=lambda problem: problem.label)
def test_a_problem_is_uploaded_set_up_checked_and_timed(backend, problem):
    measurement = BenchMeasurement(problem)
    measurement.take(backend, Method(cache="hot", visit_s=0.0))
    assert measurement.verification.outcome == BenchOutcome.OK, measurement.verification
    # One launch, and nothing else, between the events.
    assert measurement.durations_ns() == [1e6 / measurement.inner]
    repeated = isinstance(problem, Memory)
    assert measurement.inner == (
        -(-BYTES_PER_LAUNCH // problem.work.bytes_compulsory) if repeated else 1
    )


def test_a_problem_that_a_launch_repeats_runs_once_with_cold_caches(backend):
    measurement = BenchMeasurement(Memory("copy", 4800))
    measurement.take(backend, Method(cache="cold", visit_s=0.0))
    assert measurement.inner == 1
    assert measurement.durations_ns() == [1e6]


def test_a_chase_goes_on_where_it_ended_and_so_visits_the_complete_buffer(backend, library):
    """Each run visits 32 of 200 lines; runs from the first line would meet the same 32 again."""
    measurement = BenchMeasurement(Latency(64 * 200, loads=32))
    measurement.take(backend, Method(cache="hot", samples_per_visit=(7, 7)))
    assert len(set(library.memory.visited[-7 * 32 :])) == 200


def test_the_stream_is_held_while_the_launches_of_the_throughput_are_queued(backend, library):
    measurement = BenchMeasurement(Launch("throughput"))
    measurement.take(backend, Method(cache="hot", visit_s=0.0))
    launched = library.launches[-501:]
    assert launched == ["spin", *["empty"] * 500]
    assert measurement.durations_ns() == [1e6]  # of one launch: the hold is before the first event


@pytest.mark.parametrize("problem", UNCHECKED, ids=lambda problem: problem.label)
def test_kernels_that_keep_nothing_are_timed_and_said_not_to_be_verified(backend, problem):
    measurement = BenchMeasurement(problem)
    measurement.take(backend, Method(cache="hot", visit_s=0.0))
    assert measurement.verification.outcome == BenchOutcome.NOT_VERIFIED


def test_a_timed_read_stores_no_sum(backend, library):
    """Its stores would be bytes that nobody counts."""
    problem = Memory("read", 4800)
    prepared = backend.prepare(problem, problem.operands(np.random.default_rng(0)))
    (sums,) = [array for array in library.memory.arrays.values() if array.size % 256 == 0]
    prepared.run()
    prepared.once()
    assert not sums.any()
    assert prepared.result() == problem.reference(problem.operands(np.random.default_rng(0)))
    assert sums.any()
    assert np.finfo(np.float32).max == NO_SUM


@ask_each(
    ("capability", "blocks"), [((7, 5), 4), ((8, 0), 8), ((8, 6), 6), ((8, 9), 6), ((12, 1), 6)]
)
def test_as_many_blocks_as_run_at_once_go_round_the_memory(capability, blocks):
    """SMs hold 1024, 2048 or 1536 threads: more blocks would wait for the first ones to end."""
    device = on_device(capability)
    problem = Memory("copy", 132 * 8 * 256 * 4 * 8)
    made = plan(problem, problem.operands(np.random.default_rng(0)), device._count_resident)
    assert made.launch.grid == (132 * blocks, 1, 1)
    assert device.peak("fp32").threads == 132 * blocks * 256


def test_registers_limit_the_blocks_of_a_peak():
    """48 registers of 256 threads: five blocks fit in 65,536."""
    assert on_device((8, 0)).peak("bf16").threads == 132 * 5 * 256


def test_the_peak_is_checked_in_one_round_and_timed_in_many(backend):
    problem = peak_problem(backend, "fp32")
    assert problem == PeakRounds("peak_fp32", 4 * 8 * 256, 1024)
    measurement = BenchMeasurement(problem)
    measurement.take(backend, Method(cache="hot", visit_s=0.0))
    assert measurement.verification.outcome == BenchOutcome.OK
    assert set(backend.peak_precisions) == {"fp64", "fp32", "tf32", "fp16", "bf16", "int8"}
    assert problem.work.flops == 1024 * 4 * 8 * 256 * 500
    assert measurement.notes(backend, Method(cache="hot"))[-1].kind != "at least"


def test_a_source_is_compiled_for_the_device_and_loaded_once(backend, library):
    problem = Gemm(4, 4, 4)
    for _ in range(3):
        backend.prepare(problem, problem.operands(np.random.default_rng(0)))
    assert library.loaded == [("gemm 80", "sgemm_nn")]


@ask_each(
    ("capability", "architecture"),
    [((3, 5), 35), ((7, 2), 70), ((8, 7), 86), ((9, 0), 90), ((12, 1), 121)],
)
def test_the_nearest_older_cubin_of_the_same_major_version_is_taken(capability, architecture):
    assert on_device(capability)._architecture == architecture


def on_device(capability):
    library = FakeLibrary(capability, 132)
    return CubinBackend("pycuda", PycudaDriver(library, library))


def hopper(monkeypatch, wgmma):
    monkeypatch.setattr(cubins, "can_compile_wgmma", lambda: wgmma)
    return on_device((9, 0))


def test_a_hoppers_tensor_peaks_are_those_of_wgmma(monkeypatch):
    """A round of a warpgroup: 128 steps of 64 x 128 x 16 products, 2 FLOPs each, over
    128 threads.
    """
    backend = hopper(monkeypatch, wgmma=True)
    assert set(backend.peak_precisions) == {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"}
    problem = backend.peak("fp16")
    assert (problem.kernel, problem.flops_per_thread_round) == (
        "peak_fp16_wgmma",
        2 * 64 * 128 * 16 * 128 // 128,
    )
    assert problem.threads == 132 * 8 * 256
    assert backend.peak("fp8").flops_per_thread_round == 2 * problem.flops_per_thread_round
    backend.prepare(problem, ())
    assert backend._driver._driver.loaded == [("peak_wgmma 90", "peak_fp16_wgmma")]


def test_without_a_compiler_for_wgmma_a_hopper_has_the_older_instructions(monkeypatch):
    backend = hopper(monkeypatch, wgmma=False)
    peak = backend.peak("fp16")
    assert (peak.kernel, peak.label) == (
        "peak_fp16_tensor",
        f"peak_fp16_tensor {peak.threads} threads, at least",
    )
    assert "with wgmma" in peak.note.sentence
    assert "nvidia-cuda-nvrtc-cu12" in peak.note.sentence
    assert backend.peak("fp32").note is None
    with pytest.raises(UnsupportedError, match="nvidia-cuda-nvrtc-cu12"):
        backend.peak("fp8")


@ask_each(
    ("capability", "beyond"),
    [((8, 9), ""), ((10, 0), "tcgen05"), ((10, 3), "tcgen05"), ((12, 0), "")],
)
def test_a_peak_by_mma_sync_says_where_it_is_a_lower_bound(capability, beyond):
    """GeForce cards of Blackwell have no tcgen05: there mma.sync is the peak."""
    backend = on_device(capability)
    assert backend.peak("bf16").beyond == beyond
    measurement = BenchMeasurement(backend.peak("bf16"))
    measurement.take(backend, Method(cache="hot", visit_s=0.0, verify=False))
    notes = [note.kind for note in measurement.notes(backend, Method(cache="hot"))]
    assert ("at least" in notes) == bool(beyond)
    assert peak_kernel("bf16", 100).name == "peak_bf16_tensor"


def test_a_kepler_has_no_half_precision_peak():
    assert on_device((3, 5)).peak_precisions == ("fp64", "fp32")


def test_a_flush_goes_through_twice_the_cache(backend, library):
    backend.flush()
    assert library.launches[:2] == [
        "memory_scale",
        "memory_read",
    ]  # nothing is left to be written back
    assert max(array.nbytes for array in library.memory.arrays.values()) == 2 * 4096


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Gemm(2, 2, 2, "NN", "bf16"), "are fp32"),
        (Conv(1, 2, 4, 4, 2, 3, 3, layout="nhwc"), "needs the NCHW layout"),
        (
            Memory("copy", 4800, 2),
            "only the read kernel of Curvescope's CUDA kernels supports a stride",
        ),
        (Memory("copy", 40), "four elements"),
        (Latency(6400, loads=17), "needs a multiple of 16 loads"),
        (Launch("graph"), "torch backend does"),
    ],
)
def test_what_our_kernels_have_not_is_unsupported(backend, problem, message):
    with pytest.raises(UnsupportedError, match=message):
        backend.prepare(problem, problem.operands(np.random.default_rng(0)))


@pytest.mark.slow
def test_the_arguments_take_as_many_bytes_as_the_cubin_says():
    try:
        cubin_kernels = {s.name: read_cubin(compile_source(s, 80)) for s in own_sources()}
    except BackendMissingError as error:
        pytest.skip(str(error))
    source_of = {kernel.name: kernel.source for kernel in KERNELS}
    peaks = [
        PeakRounds(
            kernel.name,
            256,
            kernel.flops_per_thread_round,
            re.search("(?:tf|bf|fp|int)\\d+", kernel.name)[0],
        )
        for kernel in KERNELS
        if kernel.flops_per_thread_round
    ]
    others = [
        *(Gemm(65, 33, 130, transpose) for transpose in TRANSPOSES),
        *(Conv(2, 4, 9, 7, 6, 1, 1, direction=direction) for direction in DIRECTIONS),
        *(Memory(kind, 4800) for kind in KINDS),
        Memory("read", 4800, 4),
        Mix(3, 4800),
    ]
    seen = set()
    problems = [*CHECKED, *UNCHECKED, *peaks, *others]
    plans = [
        plan(problem, problem.operands(np.random.default_rng(0)), lambda _: 32)
        for problem in problems
    ]
    for launch in [
        hold_launch(1),
        *(launch for planned in plans for launch in (*planned.setup, planned.launch)),
    ]:
        size = 0
        for argument in launch.arguments:
            item = 8 if isinstance(argument, Buffer) else argument.nbytes
            alignment = min(item, 8) if not isinstance(argument, np.void) else 4
            size = -(-size // alignment) * alignment + item
        (entry,) = [k for k in cubin_kernels[source_of[launch.kernel]] if k.name == launch.kernel]
        assert entry.parameter_bytes == size, launch
        seen.add(launch.kernel)
    assert seen == set(source_of)


def fake_cupy():
    """What the backend uses of CuPy, over numpy; kernels read their arguments where the driver
    would.
    """
    memory, log = DeviceMemory(), []
    types = {"sgemm_nn": "PPPiiiff", "convolution_forward": "PPPs", "empty": "", "spin": "q"}

    def launch(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra):
        pointers = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_uint64))
        readers = {
            "P": ctypes.c_uint64,
            "i": ctypes.c_int32,
            "f": ctypes.c_float,
            "q": ctypes.c_int64,
        }
        readers["s"] = ctypes.c_byte * 64  # struct Convolution
        values = [readers[t].from_address(pointers[i]) for i, t in enumerate(types[function])]
        values = [getattr(value, "value", value) for value in values]
        run_kernel(memory, function, (gx, gy, gz), (bx, by, bz), values)
        log.append((function, shared, stream, extra))

    def upload(array):
        address = memory.put(array)
        return SimpleNamespace(data=SimpleNamespace(ptr=address))

    properties = {"name": b"Fake", "major": 8, "minor": 6, "multiProcessorCount": 2}
    properties |= {"totalGlobalMem": 10, "l2CacheSize": 5}
    driver = SimpleNamespace(
        moduleLoadData=lambda cubin: 7,
        moduleGetFunction=lambda module, name: name,
        launchKernel=launch,
    )

    def count_launches():
        return sum(1 for entry in log if entry[0] != "event")

    def create_event():
        event = SimpleNamespace(done=False)

        def record(stream):
            event.at = count_launches()
            log.append(("event", stream))

        event.record = record
        return event

    cuda = SimpleNamespace(
        driver=driver,
        runtime=SimpleNamespace(getDeviceProperties=lambda index: properties),
        Stream=SimpleNamespace(null="null stream"),
        Event=create_event,
        Device=lambda index: SimpleNamespace(
            synchronize=lambda: log.append(("synchronize", index))
        ),
        get_elapsed_time=lambda start, end: 0.25 if end.at > start.at else 0.0,
    )
    cupy = SimpleNamespace(
        cuda=cuda, asarray=upload, asnumpy=lambda buffer: memory.at(buffer.data.ptr)
    )
    return cupy, log


@ask_each(
    ("problem", "kernel"),
    [
        (Gemm(5, 6, 7), "sgemm_nn"),
        (Conv(2, 4, 9, 7, 6, 1, 1), "convolution_forward"),
        (Launch("synchronize"), "empty"),
    ],
)
def test_cupy_launches_through_the_driver_and_times_in_the_same_stream(problem, kernel):
    cupy, log = fake_cupy()
    backend = CubinBackend("cupy", CupyDriver(cupy, 0))
    measurement = BenchMeasurement(problem)
    measurement.take(backend, Method(cache="hot", visit_s=0.0))
    assert (kernel, 0, 0, 0) in log  # the null stream
    if kernel != "empty":
        assert measurement.verification.outcome == BenchOutcome.OK
        assert measurement.durations_ns() == [250_000 / measurement.calls]
        assert ("event", "null stream") in log
    assert backend.describe()["compute_capability"] == "8.6"


@pytest.mark.parametrize(("name", "extra"), [("cupy", "cuda12"), ("pycuda", "pycuda")])
def test_where_the_library_is_missing_it_is_said_how_to_get_it(monkeypatch, name, extra):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendMissingError, match=rf"curvescope\[{extra}\]"):
        open_backend(name, "cuda")
    with pytest.raises(CurvescopeError, match="not cpu"):
        open_backend(name, "cpu")


def test_cupy_has_a_context_before_a_module_is_loaded(monkeypatch):
    """Before CUDA 12 the choice of a device makes none."""
    log = []
    cupy, _ = fake_cupy()
    cupy.cuda.Device = lambda index: SimpleNamespace(
        use=lambda: log.append("use"), synchronize=None
    )
    cupy.cuda.runtime.free = lambda address: log.append(("free", address))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    open_backend("cupy", "cuda")
    assert log == ["use", ("free", 0)]


def test_cupy_without_a_device_is_said(monkeypatch):
    class CUDARuntimeError(RuntimeError):
        pass

    def use():
        raise CUDARuntimeError("no CUDA-capable device is detected")

    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(
        Device=lambda index: SimpleNamespace(use=use),
        runtime=SimpleNamespace(CUDARuntimeError=CUDARuntimeError),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(BackendMissingError, match="doctor"):
        open_backend("cupy")
