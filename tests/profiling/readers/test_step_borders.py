"""Where the steps of real and made profiles begin and end, and what their batch size is."""

import json

import pandas as pd
import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.attribution.range_names import RangeNames
from curvescope.profiling.attribution.served_steps import ServedStep, parse_served_step
from curvescope.profiling.readers.sweep_import import import_sweep
from curvescope.profiling.recording.store import NO_STEP, open_recording

from ...tables import ask_each
from .made_profiles import PROFILES, imported
from .nsys_export import kernel, launch, push_pop, write_export
from .test_pytorch_json import event

PARTICLE_TRANSFORMER = [
    PROFILES / f"parttrans_bs{batch}.pt.trace.json.gz" for batch in (32, 128, 512)
]


def steps_of(path, folder, **options):
    recording = imported(path, folder, **options)
    return recording.meta, recording.frame("steps")


@pytest.mark.parametrize(
    ("name", "count", "steps_from", "batch", "mode"),
    [
        # One decode step replays the graph of 36 layers, which are no steps.
        ("tl_sglang_decode.json.gz", 1, "marks", 32, "decode"),
        ("tl_vllm_piecewise_execution.json.gz", 1, "marks", 46, "mixed"),
        ("tl_b200_eager.json.gz", 1, "marks", 1, "prefill"),
        ("tl_mi300_ddp_resnet18.json.gz", 5, "the ends of the optimizer's steps", 512, "training"),
        # One call of a compiled graph has no border inside.
        ("tl_torch_compile_triton.json.gz", 1, NO_STEP, 8, None),
        ("pipit_cloverleaf.sqlite.gz", 5, "repetition of the kernel sequence", None, None),
    ],
)
def test_steps_of_real_profiles(name, count, steps_from, batch, mode, imported_profile):
    recording = open_recording(imported_profile(name))
    meta, steps = recording.meta, recording.frame("steps")
    assert (len(steps), meta["steps_from"]) == (count, steps_from)
    assert set(steps["batch"].dropna()) == ({batch} if batch else set())
    assert set(steps["mode"].dropna()) == ({mode} if mode else set())
    assert meta["device_time_in_steps"] > 0.95


@pytest.mark.slow
def test_one_forward_per_batch_size_is_a_sweep_of_three_steps(tmp_path):
    sweep = open_recording(import_sweep(PARTICLE_TRANSFORMER, tmp_path / "sweep").path)
    steps, work = sweep.frame("steps"), pd.concat([sweep.frame("kernels"), sweep.frame("memory")])
    assert steps["batch"].tolist() == [32, 128, 512]
    busy_ms = work.groupby("step")["duration_ns"].sum() / 1e6
    assert busy_ms.tolist() == pytest.approx([10.3, 26.4, 91.7], abs=0.05)
    assert (sweep.meta["batch_from"], sweep.meta["device_time_in_steps"]) == (
        "the input of the first convolution",
        1,
    )


def test_the_user_decides_how_steps_are_found(tmp_path):
    decode = PROFILES / "tl_sglang_decode.json.gz"
    meta, steps = steps_of(decode, tmp_path, steps="whole")
    assert (len(steps), meta["steps_from"]) == (1, "the whole profile as one step")
    meta, steps = steps_of(decode, tmp_path, steps=r"marks:^step\[")
    assert (len(steps), meta["steps_from"], steps["batch"][0]) == (1, "marks", 32)
    with pytest.raises(CurvescopeError, match="no range has such a name"):
        steps_of(decode, tmp_path, steps="marks:epoch")
    # Repetition below 80 % of the device time counts only where the user asks for it.
    meta, steps = steps_of(PARTICLE_TRANSFORMER[0], tmp_path, steps="repetition")
    assert (len(steps), meta["device_time_in_steps"]) == (7, pytest.approx(0.53, abs=0.01))


@pytest.mark.parametrize("steps", ["wholly", "marks:", "marks:("])
def test_an_unknown_way_to_find_steps_is_refused_before_anything_is_made(steps, tmp_path):
    with pytest.raises(CurvescopeError, match="--steps"):
        steps_of(PARTICLE_TRANSFORMER[0], tmp_path, steps=steps)
    assert not list(tmp_path.iterdir())


class Trace:
    """A made trace of torch.profiler; times in microseconds."""

    def __init__(self):
        self.events, self.correlation = [], 0

    def span(self, name, start, duration, category="cpu_op", **args):
        self.events.append(event(category, name, start, duration, 1, **args))

    def kernels(self, names, start, graph=False):
        """Kernels of 10 us each, 10 us apart; all launched at `start` by one graph, or each by a
        call of its own.
        """
        for index, name in enumerate(names):
            if not graph or index == 0:
                self.correlation += 1
                call = "cudaGraphLaunch" if graph else "cudaLaunchKernel"
                self.span(
                    call,
                    start + 20 * index * (not graph),
                    2,
                    "cuda_runtime",
                    correlation=self.correlation,
                )
            args = {"device": 0, "stream": 7, "correlation": self.correlation}
            self.span(name, start + 5 + 20 * index, 10, "kernel", **args)

    def write(self, path):
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return path


@pytest.mark.parametrize("graph", [True, False])
def test_no_step_begins_inside_one_launch_of_a_graph(graph, tmp_path):
    trace = Trace()
    trace.kernels(["attention", "mlp"] * 12, 1000, graph)
    _, steps = steps_of(trace.write(tmp_path / "trace.json"), tmp_path)
    assert len(steps) == (1 if graph else 12)


@pytest.mark.parametrize(
    ("category", "name", "count"), [("cpu_op", "aten::lstm", 1), ("user_annotation", "step 1", 1)]
)
def test_no_step_begins_inside_an_operator_or_an_annotation(category, name, count, tmp_path):
    trace = Trace()
    trace.span(name, 990, 1000, category)
    trace.kernels(["cell", "gate"] * 12, 1000)
    _, steps = steps_of(trace.write(tmp_path / "trace.json"), tmp_path, steps="auto")
    assert len(steps) == count


def test_two_optimizers_of_one_backward_pass_end_one_step(tmp_path):
    trace = Trace()
    for start in (1000, 2000, 3000):
        trace.span("aten::linear", start, 10)
        trace.span("autograd::engine::evaluate_function: AddmmBackward0", start + 100, 100)
        trace.kernels(["gemm", "add"], start + 110)
        for offset in (300, 400):
            trace.span("Optimizer.step#Adam.step", start + offset, 50, "user_annotation")
    meta, steps = steps_of(trace.write(tmp_path / "trace.json"), tmp_path)
    assert (len(steps), meta["steps_from"]) == (3, "the ends of the optimizer's steps")


@pytest.mark.slow
def test_work_of_one_device_can_be_read_alone(tmp_path, imported_profile):
    two = PROFILES / "nsysai_h100_2gpu_1s.sqlite.gz"
    both = open_recording(imported_profile(two.name))
    one = imported(two, tmp_path, device=1)
    assert set(both.frame("kernels")["device"]) == {0, 1}
    assert set(one.frame("kernels")["device"]) == {1}
    assert 2 * one.count_rows("kernels") == both.count_rows("kernels") == 3442


@pytest.mark.slow
def test_a_device_without_work_is_refused_with_the_devices_that_have_some(tmp_path):
    with pytest.raises(CurvescopeError, match=r"--gpu 9: .* it has work of 0, 1\."):
        imported(PROFILES / "nsysai_h100_2gpu_1s.sqlite.gz", tmp_path, device=9)
    trace = Trace()
    trace.span("aten::mm", 1000, 10)  # the work of a CPU has no column for the device
    with pytest.raises(CurvescopeError, match="it names no device; omit --gpu"):
        imported(trace.write(tmp_path / "trace.json"), tmp_path, device=0)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


TRT = "[Executor] _forward_step 7:"


@ask_each(
    ("name", "expected"),
    [
        ("execute_context_2(6144)_generation_3(3)", ServedStep("vLLM", "mixed", 5, 6147)),
        ("execute_context_1(888_788544)_generation_0(0)", ServedStep("vLLM", "prefill", 1, 888)),
        (
            "execute_64_context_0(sq0sk0sqsq0sqsk0)_generation_64(sq64sk131072sqsq64sqsk131072)",
            ServedStep("vLLM", "decode", 64, 64, 131072),
        ),
        ("step[DECODE bs=64]", ServedStep("SGLang", "decode", 64, 64)),
        ("step[EXTEND bs=2 toks=14721]", ServedStep("SGLang", "prefill", 2, 14721)),
        (
            "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 "
            "g_sqsk=12]",
            ServedStep("SGLang", "mixed", 2, 6, 20),
        ),
        ("prefill[bs=6 tok=17408 ctx=[4096, 4096]...+4]", ServedStep("ATOM", "prefill", 6, 17408)),
        ("decode[bs=117/128 tok=117 d=117]", ServedStep("ATOM", "decode", 117, 117, None, 128)),
        (
            "decode[bs=128 tok=384 p=2 d=126 sqsq=9 sqsk=9 sk=258048]",
            ServedStep("ATOM", "mixed", 128, 384, 258048),
        ),
        (
            f"{TRT} 2 ctx reqs, 96 ctx tokens, 30 gen reqs",
            ServedStep("TensorRT-LLM", "mixed", 32, 126),
        ),
        (f"{TRT} 0 ctx reqs, 32 gen reqs", ServedStep("TensorRT-LLM", "decode", 32)),
        ("execute_context_0(0)_generation_0(0)", None),
        ("step 7", None),
        ("decode", None),
    ],
)
def test_marks_of_inference_servers(name, expected):
    assert parse_served_step(name) == expected
    assert RangeNames().read(name).served == expected


@ask_each(
    ("name", "layer", "op"),
    [
        (
            "FSDP::pre_forward (encoder.block.3.layer.1), op_id = 314290",
            "encoder.block.3.layer.1.FSDP",
            None,
        ),
        ("record_param_comms, op_id = 12", None, "record_param_comms"),
        ("attention, op_id = 7", "attention", None),
        ("aten::mm, op_id = 7", None, "aten::mm"),
    ],
)
def test_numbers_of_calls_are_no_part_of_a_name(name, layer, op):
    found = RangeNames().read(name)
    assert (found.layer, found.op) == (layer, op)


@pytest.mark.parametrize(
    ("name", "count", "steps_from"),
    [
        # Six layers of one step, each with the same kernels.
        ("FSDP::pre_forward (blocks.{}._checkpoint_wrapped_module), op_id = 7", 1, NO_STEP),
        ("demo/layer_{}_forward", 1, NO_STEP),
        # Six steps of one layer each.
        (
            "FSDP::pre_forward (blocks.0._checkpoint_wrapped_module), op_id = {}",
            6,
            "repetition of the kernel sequence",
        ),
    ],
)
def test_repeated_kernels_of_different_modules_are_layers_and_no_steps(
    name, count, steps_from, tmp_path
):
    starts = range(0, 6000, 1000)
    ranges = [push_pop(name.format(i), start, start + 400) for i, start in enumerate(starts)]
    launches = [
        launch(10 * i + k, start + 10 + k) for i, start in enumerate(starts) for k in range(2)
    ]
    work = [
        kernel(10 * i + k, start + 100 + 200 * k, start + 290 + 200 * k, demangledName=1 + k)
        for i, start in enumerate(starts)
        for k in range(2)
    ]
    path = write_export(tmp_path / "p", ranges=ranges, launches=launches, kernels=work)
    meta, steps = steps_of(path, tmp_path)
    assert (len(steps), meta["steps_from"]) == (count, steps_from)
    layers = set(open_recording(tmp_path / "recording").frame("kernels")["layer"])
    if name.startswith("demo"):
        assert layers == {name.format(i) for i in range(6)}
    else:
        assert layers == {f"blocks.{i}.FSDP" for i in range(6 if count == 1 else 1)}


def test_a_stream_of_collectives_does_not_decide_on_steps(tmp_path):
    """Two all-reduces in each of four steps take most of the time, in a stream of their own that
    holds nothing else.
    """
    strings = {1: "gemm", 2: "relu", 3: "cudaLaunchKernel", 4: "ncclDevKernel_Generic_1(args)"}
    work, number = [], 0
    for start in range(0, 4000, 1000):
        for name, stream, begin, end in (
            (1, 7, 0, 90),
            (4, 20, 100, 500),
            (2, 7, 200, 290),
            (4, 20, 510, 900),
        ):
            number += 1
            work.append(
                kernel(number, start + begin, start + end, demangledName=name, streamId=stream)
            )
    launches = [launch(i + 1, i) for i in range(number)]
    path = write_export(tmp_path / "p", launches=launches, kernels=work, strings=strings)
    meta, steps = steps_of(path, tmp_path, steps="repetition")
    assert (len(steps), meta["steps_from"]) == (4, "repetition of the kernel sequence")
