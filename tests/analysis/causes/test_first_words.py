"""What is said first of small profiles that are made here, each with one fact that is known."""

import json
import sqlite3

import pytest

from curvescope.analysis.diagnosis.suggested import advise
from curvescope.experiments.factors import all_facts
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.experiments import Scope
from curvescope.profiling.recording.store import open_recording

from ...profiling.readers.nsys_export import copy, kernel, launch, write_export
from ...tables import ask_each

T4 = {"id": 0, "name": "Tesla T4", "totalGlobalMem": 15 << 30, "numSms": 40}
T4 |= {"computeMajor": 7, "computeMinor": 5}


def trace_of(path, kernels, calls=(), ranges=(), operators=()):
    """A trace of the PyTorch profiler.

    A kernel is start, length, name and correlation, or None without a launch; a call is the same, a
    range and an operator are start, length and name. Times are in ms.
    """
    events = []

    def add(category, place, start, length, name, **args):
        times = {"ts": 1e3 * start, "dur": 1e3 * length}
        events.append({"ph": "X", "cat": category, "name": name, "args": args, **times, **place})

    for start, length, name, correlation in kernels:
        joined = {} if correlation is None else {"correlation": correlation}
        args = {"device": 0, "stream": 7, **joined}
        add("kernel", {"pid": 0, "tid": 7}, start, length, name, **args)
    host = {"pid": 1, "tid": 1}
    for start, length, name, correlation in calls:
        add("cuda_runtime", host, start, length, name, correlation=correlation)
    for category, rows in (("user_annotation", ranges), ("cpu_op", operators)):
        for row in rows:
            add(category, host, *row)
    document = {"schemaVersion": 1, "deviceProperties": [T4], "traceEvents": events}
    path.write_text(json.dumps(document))
    return path


def export_of(path, kernels, calls, copies=()):
    """An export of Nsight Systems; kernels and calls as of `trace_of`, a copy is start, length,
    CUPTI's kind, bytes, and CUDA's kind of the host's memory.
    """
    numbers = {name: at for at, name in enumerate({row[2] for row in (*kernels, *calls)}, 1)}

    def times(start, length):
        return {"start": round(1e6 * start), "end": round(1e6 * (start + length))}

    write_export(
        path,
        kernels=[
            kernel(at, 0, 0, demangledName=numbers[name], shortName=numbers[name])
            | times(start, length)
            for start, length, name, at in kernels
        ],
        launches=[
            launch(at, 0, nameId=numbers[name]) | times(start, length)
            for start, length, name, at in calls
        ],
        copies=[
            copy(0, kind, size, memory) | times(start, length)
            for start, length, kind, size, memory in copies
        ],
        strings={at: name for name, at in numbers.items()},
    )
    return path


@pytest.fixture
def advice(tmp_path):
    """Advice on a profile, by cause."""

    return lambda path: advise_on(path, tmp_path)


def advise_on(path, folder):
    """Advice on a profile, which is imported into a folder, and its suggestions by cause."""
    recording = import_profile(path, folder / f"recording of {path.name}").path
    found = advise(open_recording(recording), all_facts(Scope.STEP, "cuda"))
    return found, {one.suggestion.cause: one for one in found.advised}


def facts_of(advised):
    return {fact.what.replace(", per step", ""): fact.after for fact in advised.suggestion.evidence}


def frees(path, count=50):
    """Before each kernel of 3 ms a gap of 1 ms, in which cudaFree and cudaMalloc take 0.4 ms."""
    kernels, calls = [], []
    for number in range(count):
        at = 4.0 * number
        calls += [
            (at, 0.4, "cudaFree", 1000 + number),
            (at + 0.42, 0.4, "cudaMalloc", 2000 + number),
        ]
        calls.append((at + 0.98, 0.01, "cudaLaunchKernel", number + 1))
        kernels.append((at + 1.0, 3.0, f"kernel_{number}", number + 1))
    return export_of(path, kernels, calls)


def test_a_gap_is_divided_among_the_calls_in_it(tmp_path, advice):
    """No single call took half of it, so that all was outside API calls."""
    found, told = advice(frees(tmp_path / "frees.sqlite"))
    idle = {time.reason: time.time_ms for time in found.step.idle}
    assert idle["host in cudaFree"] == pytest.approx(49 * 0.4)
    assert idle["host in cudaMalloc"] == pytest.approx(49 * 0.4)
    assert idle["host outside API calls"] == pytest.approx(49 * 0.19)
    assert {gap.reason for gap in found.gaps} == {"host in cudaFree"}
    memory = told["memory pressure"].suggestion
    assert memory.at_most_ms == pytest.approx(49 * 0.8)
    assert facts_of(told["memory pressure"])["calls of cudaFree"] == 49


@pytest.mark.slow
def test_a_call_that_makes_a_context_is_no_memory_pressure(tmp_path, advice):
    kernels = [(0.0, 0.01, "fill", 1), (1001.0, 50.0, "work", 3)]
    calls = [(0.0, 0.01, "cudaLaunchKernel", 1), (0.1, 1000.0, "cudaFree", 2)]
    calls.append((1000.5, 0.01, "cudaLaunchKernel", 3))
    _, told = advice(export_of(tmp_path / "context.sqlite", kernels, calls))
    assert set(told) == {"work of a first use"}
    first = told["work of a first use"].suggestion
    assert (first.at_most_ms, first.where) == (pytest.approx(1000.0), "cudaFree")


@pytest.mark.slow
def test_libraries_around_streams_that_are_made_are_a_first_use(tmp_path, advice):
    """It was code of the host, to run beside the step; nothing records the loading itself."""
    kernels = [(0.0, 0.01, "fill", 1), (2400.0, 50.0, "work", 3)]
    calls = [(0.0, 0.01, "cudaLaunchKernel", 1), (2399.9, 0.01, "cudaLaunchKernel", 3)]
    ranges = [(0.0, 2500.0, "forward")]

    def causes(length):
        made = (1870.0, length, "cudaStreamCreateWithFlags", 2)
        return advice(trace_of(tmp_path / f"{length}.json", kernels, [*calls, made], ranges))[1]

    told = causes(475.0)
    assert set(told) == {"work of a first use"}
    first = told["work of a first use"].suggestion
    assert first.at_most_ms == pytest.approx(2399.9, rel=1e-3)
    assert set(causes(1.0)) == {"host code in one gap"}


@pytest.mark.slow
def test_a_context_before_many_steps_is_no_work_of_a_mean_step(tmp_path, advice):
    """Nothing marks where the first step begins, so that it held the set-up of the program."""
    kernels, ranges, calls = [], [], [(0.0, 1000.0, "cudaFree", 100)]
    for step in range(10):
        at = 1010.0 + 10 * step
        calls.append((at, 0.01, "cudaLaunchKernel", step + 1))
        kernels.append((at + 1.0, 7.0, "gemm", step + 1))
        ranges.append((at + 8.5, 0.5, "Optimizer.step#SGD.step"))
    operators = [(0.0, 1005.0, "aten::empty")]
    found, told = advice(trace_of(tmp_path / "steps.json", kernels, calls, ranges, operators))
    assert "work of a first use" not in told
    assert found.breakdown.time_ms == pytest.approx(10.0)
    assert found.breakdown.set_aside.startswith("1 of 10 profiled steps set aside")


@pytest.mark.slow
def test_a_module_that_is_loaded_is_no_batch(tmp_path, advice):
    calls = [(0.0, 0.1, "cudaMemcpyAsync", 1), (0.2, 1.9, "cuLibraryLoadData", 2)]
    calls += [(2.12, 0.02, "cudaLaunchKernel", 3), (2.3, 0.1, "cudaMemcpyAsync", 4)]
    kernels, copies = (
        [(2.2, 0.02, "my_kernel", 3)],
        [(0.05, 0.1, 1, 1 << 20, 1), (2.35, 0.1, 2, 1 << 20, 1)],
    )
    _, told = advice(export_of(tmp_path / "module.sqlite", kernels, calls, copies))
    assert "waiting for input" not in told
    assert told["work of a first use"].suggestion.where == "cuLibraryLoadData"


def test_copies_of_a_vector_sum_are_no_offloaded_weights(tmp_path, advice):
    """1.2 GB at 13 GB/s from pinned memory, none beside a kernel."""
    kernels, calls, copies, at = [], [], [], 0.0
    for piece in range(4):
        for kind in (1, 1, 2):
            copies.append((at, 7.5, kind, 100_000_000, 1))
            at += 7.52
        calls.append((at, 0.01, "cudaLaunchKernel", piece + 1))
        kernels.append(
            (at + 0.01, 1.2, "add(const float *, const float *, float *, int)", piece + 1)
        )
        at += 1.22
    found, told = advice(export_of(tmp_path / "sum.sqlite", kernels, calls, copies))
    copied = told["copies from and to the host"]
    assert copied.do == "copy beside other work"
    assert "offload" not in copied.how
    # Those to the device share a link, and take 60 ms whatever runs beside them.
    assert copied.suggestion.at_most_ms == pytest.approx(found.step.time_ms - 60.0)
    assert facts_of(copied)["copies in which nothing else runs"] == pytest.approx(90.0)


@pytest.mark.slow
@ask_each(
    ("memory", "do"),
    [
        (0, "pin the host's memory, and copy without blocking"),
        (1, "copy beside other work"),
        (99, "copy beside other work, from pinned memory"),
    ],
)
def test_memory_that_no_record_tells_is_not_taken_for_pinned(tmp_path, advice, memory, do):
    """Pageable, pinned and unknown memory, by Nsight Systems' numbers."""
    kernels, calls = [(8.0, 12.0, "my_kernel", 1)], [(7.9, 0.01, "cudaLaunchKernel", 1)]
    file = tmp_path / f"{memory}.sqlite"
    _, told = advice(export_of(file, kernels, calls, [(0, 7.5, 1, 10**8, memory)]))
    assert told["copies from and to the host"].do == do


def test_a_launch_that_loads_its_kernel_is_a_first_use(tmp_path, advice):
    calls = [(0.0, 0.008, "cudaMemcpy", 1), (0.010, 0.115, "cudaLaunchKernel", 2)]
    kernels = [(0.1285, 0.0015, "matmul", 2)]
    copies = [(0.001, 0.001, 1, 512, 0)]
    _, told = advice(export_of(tmp_path / "first.sqlite", kernels, calls, copies))
    first = told["work of a first use"].suggestion
    assert (first.at_most_ms, first.where) == (
        pytest.approx(0.115),
        "the first launch of a kernel",
    )


def test_where_nothing_is_suggested_the_largest_reason_is_said(tmp_path, text_of):
    """A call that no cause knows took the time."""
    calls = [(0.0, 0.01, "cudaLaunchKernel", 1), (1.0, 8.0, "cudaProfilerStart", 2)]
    calls.append((9.98, 0.01, "cudaLaunchKernel", 3))
    kernels = [(0.02, 0.5, "first", 1), (10.0, 0.5, "second", 3)]
    path = export_of(tmp_path / "call.sqlite", kernels, calls)
    said = " ".join(text_of("explain", path).split())
    assert "no kernel runs, most of it host in cudaProfilerStart (76%)" in said
    assert "does not tell" not in said


EXPERTS = (
    ("aten::mm", "nvjet_tst_router", 0.006),
    ("aten::softmax", "void softmax_warp_forward<float, float, float, 6, false>", 0.012),
    ("aten::topk", "void at::native::sbtopk::gatherTopK<float>", 0.007),
    ("aten::index", "void at::native::vectorized_gather_kernel<16, long>", 0.013),
    ("aten::bmm", "nvjet_tst_experts_in", 0.009),
    ("aten::bmm", "nvjet_tst_experts_out", 0.008),
)
ATTENTION = (
    ("aten::bmm", "nvjet_tst_scores", 0.009),
    ("aten::softmax", "void softmax_warp_forward<float, float, float, 6, false>", 0.012),
    ("aten::bmm", "nvjet_tst_values", 0.008),
)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    ("calls", "is_attention"), [(EXPERTS, False), (ATTENTION, True), ((*ATTENTION, *EXPERTS), True)]
)
def test_the_softmax_of_a_router_is_no_attention(tmp_path, advice, steps, calls, is_attention):
    """In three steps calls per step are sums of thirds, which equal no whole number."""
    kernels, launches, operators, ranges, at = [], [], [], [], 0.0
    for step in range(steps):
        begin = at
        for op, name, length in calls:
            number = len(kernels) + 1
            operators.append((at, 0.008, op))
            launches.append((at + 0.001, 0.005, "cudaLaunchKernel", number))
            kernels.append((at + 0.01, length, name, number))
            at += 0.02
        ranges.append((begin, at - begin, f"ProfilerStep#{step}"))
    path = trace_of(tmp_path / "trace.json", kernels, launches, ranges, operators)
    _, told = advice(path)
    assert ("attention in several kernels" in told) == is_attention


def decode(path):
    """A prefill of 90 ms, then nine equal steps of 18 ms after 27 ms of host code."""
    kernels, calls, at = [], [], 0.0
    for step in range(10):
        count, length = (60, 18 / 60) if step else (40, 90 / 40)
        at += 27.0
        for piece in range(count):
            number = len(kernels) + 1
            calls.append((at + piece * 0.01, 0.005, "hipLaunchKernel", number))
            name = f"gemm_{piece % 7}" if step else f"prefill_{piece}"
            kernels.append((at + 0.02 + piece * length, length, name, number))
        at += length * count + 0.1
    return trace_of(path, kernels, calls)


@pytest.mark.slow
def test_equal_periods_after_waits_are_steps(tmp_path, advice):
    """They hold 64 % of the device time, and 80 % were asked for."""
    found, told = advice(decode(tmp_path / "decode.json"))
    assert found.step.steps == 9
    gap = told["host code in one gap"].suggestion
    assert gap.at_most_ms == pytest.approx(27.1 * 8 / 9, rel=0.01)
    assert found.advised[0].suggestion is gap


def test_kernels_without_a_launch_are_no_idle_time(tmp_path, advice):
    """One chain without a break, whose first five kernels were launched before the profile."""
    kernels = [(float(at), 1.0, "conv", at + (100 if at < 5 else 0)) for at in range(15)]
    calls = [(0.5 + 0.01 * at, 0.005, "hipExtModuleLaunchKernel", at) for at in range(5, 15)]
    ranges = [(0.4, 0.3, "ProfilerStep#1"), (0.7, 14.0, "ProfilerStep#2")]
    found, told = advice(trace_of(tmp_path / "chain.json", kernels, calls, ranges))
    assert sum(time.time_ms for time in found.step.idle) == pytest.approx(0.0, abs=1e-3)
    assert not told
    # Nothing ran in the second step, which halved the time of a step.
    assert (found.step.steps, found.step.time_ms) == (1, pytest.approx(14.0))


def test_pytorch_is_known_by_its_kernels(tmp_path, advice):
    """Nsight Systems without ranges names no operator."""
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
    layout = "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float>"
    kernels = [(0.1 + at, 0.99, layout if at % 10 == 9 else add, at + 1) for at in range(60)]
    calls = [(0.01 * at, 0.005, "cudaLaunchKernel", at + 1) for at in range(60)]
    found, told = advice(export_of(tmp_path / "eager.sqlite", kernels, calls))
    assert found.step.is_torch
    assert told["pointwise kernels in a row"].do == "compile the step"
    assert "channels_last" in told["copies of operands"].how


def test_words_and_bound_are_of_one_change(tmp_path, advice):
    """Products in TF32 would halve, too; the bound was that of TF32 over fp32 alone."""
    kernels = [(0.0, 1.0, "volta_sgemm_128x64_nn", 1)]
    kernels.append((1.0, 7.0, "cutlass_80_tensorop_s1688gemm_tf32_128x128", 2))
    calls = [(0.0, 0.01, "cudaLaunchKernel", 1), (0.02, 0.01, "cudaLaunchKernel", 2)]
    path = export_of(tmp_path / "products.sqlite", kernels, calls)
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE TARGET_INFO_GPU SET name = 'NVIDIA A100-SXM4-40GB', smCount = 108, "
            "computeMajor = 8, memoryBandwidth = 1555200000000, clockRate = 1410000000"
        )
    _, told = advice(path)
    products = told["precision"]
    assert products.do == "compute products in fp16 or bf16"
    assert products.suggestion.at_most_ms == pytest.approx(
        1 - 19.5 / 312 + 7 * (1 - 156 / 312), rel=1e-3
    )


A100 = {**T4, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108, "computeMajor": 8, "computeMinor": 0}


def test_products_in_tf32_of_pytorch_could_take_half_the_bits(tmp_path, advice):
    """Only those in fp32 were counted: nothing was said where PyTorch had set TF32 already."""
    product = "cutlass_80_tensorop_s1688gemm_256x128_32x3_nt_align1"
    kernels = [(3.0 * at, 2.9, product, at + 1) for at in range(4)]
    calls = [(0.01 * at, 0.005, "cudaLaunchKernel", at + 1) for at in range(4)]
    operators = [(0.01 * at, 0.009, "aten::mm") for at in range(4)]
    path = trace_of(tmp_path / "tf32.json", kernels, calls, (), operators)
    path.write_text(path.read_text().replace(json.dumps(T4), json.dumps(A100)))
    _, told = advice(path)
    products = told["precision"].suggestion
    assert products.factors == ("bf16_autocast",)
    # Of each of four steps, one product.
    assert products.at_most_ms == pytest.approx(2.9 * (1 - 156 / 312), rel=1e-3)


@pytest.mark.slow
def test_a_few_gaps_count_together(tmp_path, advice):
    """Three of 12 ms in a step of 250: each is less than a tenth of it."""
    kernels, calls, at = [], [], 0.0
    for number in range(4):
        calls.append((at, 0.01, "cudaLaunchKernel", number + 1))
        kernels.append((at + 0.02, 53.48, f"work_{number}", number + 1))
        at += 53.5 + 12.0
    _, told = advice(
        trace_of(tmp_path / "gaps.json", kernels, calls, [(0.0, at, "ProfilerStep#1")])
    )
    assert told["host code in one gap"].suggestion.at_most_ms == pytest.approx(4 * 12.0, rel=0.01)


@pytest.mark.slow
def test_a_loop_of_one_launch_is_bound_by_launches(tmp_path, advice):
    """Half of each step of one short kernel is idle: ten launches in a step were asked for."""
    kernels, calls, ranges = [], [], []
    for at in range(40):
        begin = 0.1 * at
        ranges.append((begin, 0.1, f"ProfilerStep#{at}"))
        calls.append((begin + 0.01, 0.005, "cudaLaunchKernel", at + 1))
        kernels.append((begin + 0.02, 0.05, "small", at + 1))
    _, told = advice(trace_of(tmp_path / "loop.json", kernels, calls, ranges))
    bound = told["launch- or host-bound"].suggestion
    assert bound.at_most_ms == pytest.approx(0.05, rel=0.05)


@pytest.mark.slow
def test_copies_of_a_cpu_are_told(tmp_path, advice):
    """One tenth of a CPU's step, and nothing was suggested: no copy made 2 %."""
    operators = [(10.0 * at, 9.0, "aten::mm") for at in range(3)]
    operators += [(10.0 * at + 9.0, 1.0, "aten::copy_") for at in range(3)]
    ranges = [(10.0 * at, 10.0, f"ProfilerStep#{at}") for at in range(3)]
    path = trace_of(tmp_path / "cpu.json", [], [], ranges, operators)
    path.write_text(path.read_text().replace(json.dumps([T4]), "[]"))
    _, told = advice(path)
    assert told["copies of operands"].suggestion.at_most_ms == pytest.approx(1.0)


@pytest.mark.slow
def test_a_gap_before_the_first_kernel_of_triton_is_a_compilation(tmp_path, advice):
    """Without call stacks it was code of the host that should run beside the step."""
    kernels, calls, at = [], [], 0.0
    for number, name in enumerate(["sgemm", "triton_poi_fused_add_0", "sgemm"]):
        at += 800.0 if name.startswith("triton") else 1.0
        calls.append((at, 0.01, "cudaLaunchKernel", number + 1))
        kernels.append((at + 0.02, 20.0, name, number + 1))
        at += 20.0
    _, told = advice(trace_of(tmp_path / "compiled.json", kernels, calls))
    assert "host code in one gap" not in told
    compiled = told["compilation in the step"]
    assert compiled.suggestion.at_most_ms == pytest.approx(800.0, rel=0.01)
    assert facts_of(compiled)["first kernel after it, of Triton"] == "triton_poi_fused_add_0"


@pytest.mark.slow
def test_a_long_gap_before_a_kernel_of_triton_that_ran_before_is_none(tmp_path, advice):
    kernels, calls, at = [], [], 0.0
    for number, wait in enumerate([1.0, 800.0]):
        at += wait
        calls.append((at, 0.01, "cudaLaunchKernel", number + 1))
        kernels.append((at + 0.02, 20.0, "triton_poi_fused_add_0", number + 1))
        at += 20.0
    _, told = advice(trace_of(tmp_path / "later.json", kernels, calls))
    assert "compilation in the step" not in told


@pytest.mark.slow
def test_equal_kernels_in_a_row_are_counted(tmp_path, advice):
    """They were listed as `elementwise, elementwise, elementwise, elementwise and 5 more`."""
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
    names = [*[add] * 9, "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float>"] * 6
    kernels = [(0.1 + at, 0.99, name, at + 1) for at, name in enumerate(names)]
    calls = [(0.01 * at, 0.005, "cudaLaunchKernel", at + 1) for at in range(len(names))]
    _, told = advice(export_of(tmp_path / "row.sqlite", kernels, calls))
    assert facts_of(told["pointwise kernels in a row"])["most time"] == "9 x elementwise"


def test_a_host_without_a_device_is_told_by_its_ranges(tmp_path, refusal_of):
    """Ranges that mark a step, the profiler's and the program's own, say nothing of it."""
    steps = [(0.0, 50.0, "ProfilerStep#1"), (1.0, 46.0, "train_step 1")]
    ranges = [*steps, (1.0, 15.0, "forward"), (17.0, 30.0, "backward")]
    operators = [(2.0, 1.0, "aten::mm")]
    calls = [(2.5, 0.01, "cudaLaunchKernel", 1)]
    path = trace_of(tmp_path / "host.json", [], calls, ranges, operators)
    said = " ".join(refusal_of("explain", path).split())
    assert "the longest ranges of the host are backward 30.00 ms, forward 15.00 ms" in said
