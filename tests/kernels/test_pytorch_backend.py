"""The torch backend: right on the CPU in every direction and precision; on CUDA through
its edge.
"""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from curvescope.base.errors import CurvescopeError
from curvescope.kernels.attention import Attention
from curvescope.kernels.backends import UnsupportedError, open_backend
from curvescope.kernels.backends.pytorch import TorchBackend
from curvescope.kernels.conv import DIRECTIONS, Conv
from curvescope.kernels.experts import ALGORITHMS, Experts
from curvescope.kernels.gemm import EPILOGUES, TRANSPOSES, Gemm
from curvescope.kernels.latency import Latency
from curvescope.kernels.launch import Launch
from curvescope.kernels.memory import KINDS as STREAMS
from curvescope.kernels.memory import Memory
from curvescope.kernels.row_operators import KINDS, RowOperator
from curvescope.kernels.timers import CudaEvents
from curvescope.profiling.hardware.host import last_level_cache_bytes

from ..tables import ask_each

PROBLEMS = [
    *(Gemm(33, 17, 65, transpose) for transpose in TRANSPOSES),
    *(Gemm(64, 32, 128, "TN", precision) for precision in ("fp64", "bf16", "fp16", "int8")),
    *(Gemm(33, 17, 65, transpose, batch=3) for transpose in TRANSPOSES),
    Gemm(33, 17, 65, precision="bf16", batch=3),
    *(
        Gemm(33, 17, 65, "TN", precision, epilogue=epilogue)
        for epilogue in EPILOGUES
        for precision in ("fp32", "bf16")
    ),
    *(
        Experts(3, 100, 32, 64, algorithm, precision)
        for algorithm in ALGORITHMS
        for precision in ("fp32", "bf16")
    ),
    *(
        Attention(2, 3, 33, 16, algorithm, causal, "fp32")
        for algorithm in ("flash", "math")
        for causal in (0, 1)
    ),
    *(
        Attention(2, 3, 16, 8, algorithm, causal, "fp32", "bwd")
        for algorithm in ("flash", "math")
        for causal in (0, 1)
    ),
    Attention(2, 3, 64, 32, "flash", precision="bf16"),
    *(Memory(kind, 12_012) for kind in STREAMS),
    Memory("triad", 120_000, 4),
    Launch("call"),
    *(RowOperator(33, 65, kind, precision) for kind in KINDS for precision in ("fp32", "bf16")),
    *(
        Conv(2, 8, 9, 11, 16, 3, 2, (2, 1), (1, 0), (1, 2), 2, direction)
        for direction in DIRECTIONS
    ),
    *(Conv(2, 8, 9, 11, 16, 3, 3, padding=(1, 1), direction=d, layout="nhwc") for d in DIRECTIONS),
    *(Conv(2, 8, 9, 11, 16, 3, 3, direction=d, precision="bf16") for d in DIRECTIONS),
]


@pytest.fixture(scope="module")
def backend():
    return open_backend("torch", "cpu")


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
def test_results_are_the_references(backend, problem):
    operands = problem.operands(np.random.default_rng(0))
    prepared = backend.prepare(problem, operands)
    prepared.run()
    error = problem.error(operands, prepared.result())
    assert error.acceptable, error


def test_a_recorded_call_names_the_kernel_its_layer_and_phase(backend):
    problem = Conv(2, 8, 9, 11, 16, 3, 3)
    prepared = backend.prepare(problem, problem.operands(np.random.default_rng(0)))
    rows = backend.record(prepared.run, "conv1", "forward")
    (primitive,) = [
        row for row in rows.kernels if row["source"] == "onednn" and "reorder" not in row["name"]
    ]
    assert "convolution" in primitive["name"]
    assert (primitive["layer"], primitive["phase"]) == ("conv1", "forward")


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Latency(6400), "no Latency"),
        (Attention(1, 1, 8, 8, "efficient"), "a CPU has no efficient attention"),
        (Attention(1, 1, 8, 8, "cudnn"), "a CPU has no cudnn attention: flash or math"),
        (Conv(1, 1, 4, 4, 1, 3, 3, precision="int8"), "no convolution in int8"),
        (Gemm(16, 16, 16, "TN", "fp8"), "does not support FP8"),
        (Gemm(16, 16, 16, "TN", "int8", batch=2), "of int8 are single"),
        (Gemm(16, 16, 16, "TN", "int8", epilogue="bias"), "have no epilogue"),
        (Gemm(2, 2, 2, "NN", "tf32"), "does not support TF32"),
        (Experts(2, 4, 8, 9), "multiples of 16 bytes"),
    ],
)
def test_what_the_cpu_or_torch_lacks_says_so(backend, problem, message):
    with pytest.raises(UnsupportedError, match=message):
        backend.prepare(problem, problem.operands(np.random.default_rng(0)))


def test_a_flush_reads_and_writes_all_of_its_buffer(monkeypatch):
    buffers, zeros = [], torch.zeros
    monkeypatch.setattr(
        torch, "zeros", lambda *of, **how: buffers.append(zeros(*of, **how)) or buffers[-1]
    )
    backend = open_backend("torch", "cpu")
    backend.flush()
    (buffer,) = buffers
    assert buffer.nbytes == 2 * (last_level_cache_bytes() or 128_000_000)
    buffer.fill_(5)
    backend.flush()
    assert (buffer == 6).all()
    assert backend.flush_ns > 0


def test_unknown_names_are_refused():
    with pytest.raises(CurvescopeError, match="choose from"):
        open_backend("abacus")


class CudaEdge:
    """What the backend uses of torch where the device is CUDA; tensors stay on the CPU."""

    def __init__(self, capability):
        self.log = []
        self.cuda = SimpleNamespace(
            Event=lambda enable_timing: SimpleNamespace(
                record=lambda stream: self.log.append(f"record in {stream}"),
                elapsed_time=lambda end: 1.5,
                query=lambda: False,
            ),
            current_stream=lambda device: f"stream of {device}",
            synchronize=lambda device: self.log.append(f"synchronize {device}"),
            _sleep=lambda cycles: self.log.append("hold"),
            device=lambda device: nullcontext(self.log.append(f"on {device}")),
            get_device_capability=lambda device: capability,
            get_device_properties=lambda device: SimpleNamespace(L2_cache_size=4_000),
        )
        self.backends = SimpleNamespace(
            cuda=SimpleNamespace(matmul=SimpleNamespace()), cudnn=SimpleNamespace()
        )
        self.float32, self.bfloat16, self.mm = torch.float32, torch.bfloat16, torch.mm

    def from_numpy(self, array):
        return SimpleNamespace(to=lambda device, dtype: torch.from_numpy(array).to(dtype))

    def empty(self, shape, dtype, device):
        return torch.empty(shape, dtype=dtype)

    def zeros(self, size, device):
        self.log.append(f"{size * 4} bytes on {device}")
        return torch.zeros(size)


def test_on_cuda_events_time_and_tf32_is_chosen_by_the_problem():
    edge = CudaEdge((8, 0))
    backend = TorchBackend(edge, "cuda:1")
    assert isinstance(backend.timer, CudaEvents)
    problem = Gemm(4, 4, 4, "NN", "tf32")
    prepared = backend.prepare(problem, problem.operands(np.random.default_rng(0)))
    assert edge.backends.cuda.matmul.allow_tf32 is True
    backend.prepare(Gemm(4, 4, 4), problem.operands(np.random.default_rng(0)))
    assert edge.backends.cuda.matmul.allow_tf32 is False
    edge.log.clear()
    (sample,) = backend.timer.take(prepared.run, 3, 1, None)
    assert sample.duration_ns == 500_000
    record = "record in stream of cuda:1"
    assert edge.log == [record, "on cuda:1", "hold", record, record, "synchronize cuda:1"]
    backend.flush()
    assert "8000 bytes on cuda:1" in edge.log  # twice the L2


@ask_each("precision", ["tf32", "bf16"])
def test_before_ampere_there_is_no_tf32_or_bf16(precision):
    backend = TorchBackend(CudaEdge((7, 5)), "cuda:0")
    with pytest.raises(UnsupportedError, match=r"compute capability 7\.5 does not support"):
        backend.prepare(Gemm(2, 2, 2, "NN", precision), ())


def test_launches_on_cuda_are_asked_for_in_four_ways(monkeypatch):
    edge = CudaEdge((9, 0))
    number = torch.zeros(1)

    @contextmanager
    def capture(graph):
        before = number.item()
        yield
        number.fill_(before)  # what is captured is not run

    edge.from_numpy = lambda array: SimpleNamespace(to=lambda device, dtype: number)
    edge.cuda.CUDAGraph, edge.cuda.graph = (
        lambda: SimpleNamespace(replay=lambda: number.add_(500)),
        capture,
    )
    backend = TorchBackend(edge, "cuda:0")
    seen = {}
    for kind in ("call", "synchronize", "throughput", "graph"):
        problem = Launch(kind)
        prepared = backend.prepare(problem, problem.operands(np.random.default_rng(0)))
        assert problem.error((), prepared.result()).acceptable
        seen[kind] = (
            prepared.inner,
            (prepared.timer or backend.timer).name,
            prepared.before is not None,
        )
    assert seen == {
        "call": (500, "perf_counter", True),
        "synchronize": (1, "perf_counter", True),
        "throughput": (500, "CUDA events", False),
        "graph": (500, "CUDA events", False),
    }
