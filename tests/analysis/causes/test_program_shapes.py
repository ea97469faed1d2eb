"""What is said first of profiles of usual programs, made here: the causes were written by hand,
from times alone, before `explain` saw a file.
"""

import json

import pytest

from ...profiling.readers.test_tensorflow_json import process, ran, thread
from .test_first_words import A100, T4, advise_on, export_of, trace_of

HALF = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
EIGEN = "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<float>, long>"


def on_a100(path, edit=None):
    """A trace as of an A100, with its events changed."""
    document = json.loads(path.read_text())
    document["deviceProperties"] = [A100]
    if edit is not None:
        for event in document["traceEvents"]:
            edit(event)
    path.write_text(json.dumps(document))
    return path


class Made:
    """Kernels, calls, ranges and operators, in ms, as of `trace_of`."""

    def __init__(self):
        self.kernels, self.calls, self.ranges, self.operators = [], [], [], []

    def run(self, launched, begins, length, name, call="cudaLaunchKernel"):
        number = len(self.kernels) + 1
        self.calls.append((launched, 0.004, call, number))
        self.kernels.append((begins, length, name, number))

    def write(self, path, edit=None):
        tables = (self.kernels, self.calls, self.ranges, self.operators)
        return on_a100(trace_of(path, *tables), edit)


def late_rank(path):
    """Ten kernels of 1 ms, then four all-reduces of equal size: the first 20 ms, the others 0.5."""
    made = Made()
    for step in range(5):
        at = 31.7 * step
        made.ranges.append((at, 31.69, f"ProfilerStep#{step}"))
        for piece in range(10):
            made.run(at + 0.02 * piece, at + 0.1 + piece, 1.0, HALF)
        for call, length in enumerate((20.0, 0.5, 0.5, 0.5)):
            begins = at + 10.1 + (0.0 if not call else 20.0 + 0.5 * (call - 1))
            made.run(at + 1.0 + 0.1 * call, begins, length, ALL_REDUCE)

    def size(event):
        if event["name"] == ALL_REDUCE:
            facts = {"Collective name": "allreduce", "dtype": "Float", "Group size": 8}
            event["args"] |= facts | {"In msg nelems": 1 << 22, "Out msg nelems": 1 << 22}

    return made.write(path, size)


def gather_ahead_of_nothing(path):
    """Each of eight layers waits 2 ms for its parameters, and computes for 2 ms."""
    made = Made()
    for step in range(3):
        at = 33.0 * step
        made.ranges.append((at, 32.9, f"ProfilerStep#{step}"))
        for layer in range(8):
            begins = at + 0.1 + 4.0 * layer
            made.run(at + 0.05 * layer, begins, 2.0, ALL_GATHER)
            made.run(at + 0.05 * layer + 0.01, begins + 2.0, 2.0, HALF)
    return made.write(path)


def small_optimizer(path):
    """Ten products of 1 ms, then 800 kernels of 3 µs, one every 10 µs, in `Optimizer.step`."""
    made = Made()
    for step in range(4):
        at = 20.0 * step
        made.ranges.append((at, 19.9, f"ProfilerStep#{step}"))
        for piece in range(10):
            made.run(at + 0.02 * piece, at + 0.1 + piece, 1.0, HALF)
        made.ranges.append((at + 10.2, 8.1, "Optimizer.step#Adam.step"))
        for piece in range(800):
            launched = at + 10.25 + 0.01 * piece
            made.operators.append((launched - 0.002, 0.009, "aten::add_"))
            made.run(launched, launched + 0.005, 0.003, ADD)
    return made.write(path)


def loader_in_another_thread(path):
    """Thread 2 makes a batch for 45 ms of each 50; the loop waits 30 ms, then launches for 20."""
    made = Made()
    for step in range(6):
        at = 20.0 + 50.0 * step
        made.ranges.append((at, 49.9, f"ProfilerStep#{step}"))
        made.ranges.append((at - 15.0, 45.0, "load_batch"))
        for piece in range(20):
            made.run(at + 30.0 + 0.02 * piece, at + 30.1 + piece * 0.99, 0.99, HALF)

    def move(event):
        if event["name"] == "load_batch":
            event["tid"] = 2

    return made.write(path, move)


def loader_ahead_of_slow_launches(path):
    """Thread 2 loads all the time, ahead; the loop launches 200 kernels of 10 µs, one in 40 µs."""
    made = Made()
    for step in range(6):
        at = 8.0 * step
        made.ranges.append((at, 7.99, f"ProfilerStep#{step}"))
        made.ranges.append((at + 0.1, 7.9, "load_batch"))
        for piece in range(200):
            made.run(at + 0.04 * piece, at + 0.04 * piece + 0.005, 0.01, f"small_{piece}")

    def move(event):
        if event["name"] == "load_batch":
            event["tid"] = 2

    return made.write(path, move)


def eager_decode(path):
    """Forty tokens: 150 kernels of 5 µs, one in 12 µs, then a copy and a wait of 20 µs."""
    made = Made()
    for token in range(40):
        at = 2.3 * token
        for piece in range(150):
            launched = at + 0.012 * piece
            made.run(launched, launched + 0.006, 0.005, f"decode_{piece % 15}")
        made.run(at + 1.81, at + 1.815, 0.002, "argmax_kernel")
        made.calls.append((at + 1.82, 0.02, "cudaStreamSynchronize", 10**6 + token))
    return made.write(path)


def item_in_each_block(path):
    """Ten times in a step: 2 ms of work, a read that waits for it, then 0.6 ms until new work."""
    made = Made()
    for step in range(4):
        at = 26.0 * step
        made.ranges.append((at, 25.99, f"ProfilerStep#{step}"))
        for block in range(10):
            begins = at + 2.6 * block
            for piece in range(4):
                made.run(begins + 0.01 * piece, begins + 0.05 + 0.5 * piece, 0.5, HALF)
            waits = (begins + 0.06, 1.99, "cudaStreamSynchronize", 10**6 + 10 * step + block)
            made.calls.append(waits)
            made.operators.append((begins + 0.055, 2.0, "aten::_local_scalar_dense"))
    return made.write(path)


def copies_of_a_cpu(path):
    """A step of 20 ms on a CPU: 12 in products, 7 in 70 copies of `contiguous`."""
    made = Made()
    for step in range(3):
        at = 20.0 * step
        made.ranges.append((at, 20.0, f"ProfilerStep#{step}"))
        for piece in range(70):
            made.operators.append((at + 0.28 * piece, 0.17, "aten::mm"))
            made.operators.append((at + 0.28 * piece + 0.17, 0.1, "aten::copy_"))
    path = trace_of(path, [], [], made.ranges, made.operators)
    path.write_text(path.read_text().replace(json.dumps([T4]), "[]"))
    return path


def pageable(path):
    """Twenty times: 8 MB from pageable memory in 2.7 ms, then a kernel of 2 ms."""
    kernels, calls, copies = [], [], []
    for turn in range(20):
        at = 4.755 * turn
        calls.append((at, 2.72, "cudaMemcpy", 1000 + turn))
        copies.append((at + 0.02, 2.7, 1, 8 << 20, 0))
        calls.append((at + 2.73, 0.01, "cudaLaunchKernel", turn + 1))
        kernels.append((at + 2.75, 2.0, "stencil(float const*, float*, int)", turn + 1))
    return export_of(path, kernels, calls, copies)


def two_busy_streams(path):
    """Two streams of products overlap, and nothing is idle: nothing to say."""
    made = Made()
    for piece in range(40):
        made.run(0.01 * piece, 0.1 + piece, 1.0, HALF)
        made.run(0.01 * piece + 0.005, 0.6 + piece, 1.0, HALF)

    def move(event):
        if event["cat"] == "kernel" and event["args"]["correlation"] % 2:
            event["args"]["stream"] = event["tid"] = 8

    return made.write(path, move)


FRAMEWORK = [process(1, "/device:GPU:0"), process(9, "/host:CPU")]
FRAMEWORK += [thread(1, 13, "Stream #13(Compute)"), thread(9, 77, "python")]


def write_events(path, events):
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": [*FRAMEWORK, *events]}))
    return path


def jax_batches(path):
    """Six times: a batch is made for 12 ms, then 8 ms of work for which the program waits."""
    events = []
    for step in range(6):
        at = 20_600 * step  # µs
        events.append(ran(9, 77, "$train.py:40 make_batch", at, 12_000))
        events.append(ran(9, 77, "PjitFunction(update)", at + 12_000, 300))
        events.append(ran(9, 77, "$api.py:3154 block_until_ready", at + 12_310, 8_200))
        for piece in range(8):
            number = 8 * step + piece
            call = ran(9, 77, "cuLaunchKernel", at + 12_100 + piece, 1, correlation_id=str(number))
            facts = {"hlo_module": "jit_update", "correlation_id": str(number)}
            work = ran(1, 13, f"fusion_{piece}", at + 12_300 + 1_000 * piece, 1_000, **facts)
            events += [call, work]
    return write_events(path, events)


def jax_blocks(path):
    """Six times: 1 ms until the work begins, 3 ms of work, and a wait that ends 6 ms after it."""
    events = []
    for step in range(6):
        at = 10_000 * step
        events.append(ran(9, 77, "PjitFunction(update)", at, 900))
        events.append(ran(9, 77, "$api.py:3154 block_until_ready", at + 950, 9_030))
        events.append(ran(9, 77, "$api.py:3165 try_to_block", at + 960, 9_010))
        call = ran(9, 77, "cuLaunchKernel", at + 890, 5, correlation_id=str(step))
        facts = {"hlo_module": "jit_update", "correlation_id": str(step)}
        events += [call, ran(1, 13, "fusion_1", at + 1_000, 3_000, **facts)]
    return write_events(path, events)


def tensorflow_input(path):
    """Five steps of 30 ms: 18 in `IteratorGetNext`, then 11 of work."""
    events = []
    for step in range(5):
        at = 30_000 * step
        events.append(ran(9, 77, "train", at, 29_900, step_num=str(step)))
        events.append(ran(9, 77, "IteratorGetNext", at + 100, 18_000))
        for piece in range(11):
            number = 11 * step + piece
            launched = at + 18_200 + 10 * piece
            call = ran(9, 77, "cuLaunchKernel", launched, 5, correlation_id=str(number))
            facts = {"correlation_id": str(number), "tf_op": "model/dense/MatMul:MatMul"}
            work = ran(1, 13, HALF, at + 18_400 + 1_000 * piece, 1_000, **facts)
            events += [call, work]
    return write_events(path, events)


def tensorflow_pointwise(path):
    """A step of 1,000 of Eigen's kernels of 22 µs, 6 µs apart, on each of two GPUs; no host."""
    events = [process(2, "/device:GPU:1"), thread(2, 14, "Stream #14(Compute)")]
    for gpu in range(2):
        at = 30_000 * gpu
        events.append(thread(1 + gpu, 20, "Steps"))
        events.append(ran(1 + gpu, 20, "0", at, 28_000))
        for piece in range(1000):
            operator = f"model/dropout_{piece % 7}/Mul:Mul"
            events.append(ran(1 + gpu, 13 + gpu, EIGEN, at + 28 * piece, 22, tf_op=operator))
    return write_events(path, events)


def gaps_without_a_host(path):
    """Three times 80 ms of work and 900 ms in which nothing is recorded, as nvprof traces a GPU."""
    lines = ["==1== NVPROF is profiling process 1, command: ./program", "==1== Profiling result:"]
    columns = [
        "Start",
        "Duration",
        *(f"{what} {axis}" for what in ("Grid", "Block") for axis in "XYZ"),
    ]
    columns += ["Registers Per Thread", "Static SMem", "Dynamic SMem", "Size", "Throughput"]
    columns += ["Device", "Context", "Stream", "Name"]
    lines.append(",".join(f'"{name}"' for name in columns))
    lines.append("s,ms,,,,,,,,KB,B,MB,GB/s,,,,")
    for turn in range(3):
        for piece in range(8):
            start = 0.98 * turn + 0.01 * piece
            shape = "64,256,1,32,8,1,8,0.0,0,,"
            lines.append(f'{start:.6f},9.9,{shape},"Tesla T4 (0)","1","7","work_{piece}(int) [7]"')
    path.write_text("\n".join(lines) + "\n")
    return path


QUICK = (
    5  # the first: one of each profiler, one that waits for another, and one with nothing to say
)
CASES = [
    (late_rank, "trace.json", {"exposed communication"}, "another rank"),
    (loader_in_another_thread, "trace.json", {"waiting for input"}, "loading of a batch"),
    (tensorflow_input, "trace.json", {"waiting for input"}, "load batches ahead"),
    (gaps_without_a_host, "trace.csv", {"host code in one gap"}, "record what the host does"),
    (two_busy_streams, "trace.json", set(), ""),
    (gather_ahead_of_nothing, "trace.json", {"exposed communication"}, "communication"),
    (small_optimizer, "trace.json", {"optimizer work"}, "fuse the optimizer"),
    (loader_ahead_of_slow_launches, "trace.json", {"launch- or host-bound"}, "CUDA graph"),
    (eager_decode, "trace.json", {"launch- or host-bound"}, "CUDA graph"),
    (item_in_each_block, "trace.json", {"host waits for the device"}, "read results"),
    (copies_of_a_cpu, "trace.json", {"copies of operands"}, "keep tensors"),
    (pageable, "export.sqlite", {"copies from and to the host"}, "pin the host's memory"),
    (jax_batches, "trace.json", {"host code in one gap", "waiting for input"}, "code of the gap"),
    (jax_blocks, "trace.json", {"host waits for the device"}, "read results"),
    (tensorflow_pointwise, "trace.json", {"pointwise kernels in a row"}, "compile"),
]
# Others that are true, and may be said after the first.
ALSO = {
    small_optimizer: {"launch- or host-bound", "pointwise kernels in a row"},
    eager_decode: {"host waits for the device"},
    jax_blocks: {"host code in one gap"},
}


@pytest.mark.first_rows(QUICK)
@pytest.mark.parametrize(
    ("make", "file", "first", "words"), CASES, ids=[make.__name__ for make, *_ in CASES]
)
def test_what_an_expert_says_comes_first(make, file, first, words, tmp_path):
    found, told = advise_on(make(tmp_path / file), tmp_path)
    causes = [one.suggestion.cause for one in found.advised]
    assert set(causes[:1]) <= first
    assert bool(causes) == bool(first)
    assert set(causes) <= first | ALSO.get(make, set())
    if causes:
        assert words in told[causes[0]].do


@pytest.mark.slow
def test_a_bound_of_pointwise_kernels_is_of_one_gpu_in_each_step(tmp_path):
    """Each GPU has its own step, so that a mean over the steps of one was half of it."""
    _, told = advise_on(tensorflow_pointwise(tmp_path / "trace.json"), tmp_path)
    bound = told["pointwise kernels in a row"].suggestion
    assert bound.at_most_ms == pytest.approx(999 * 0.022)
