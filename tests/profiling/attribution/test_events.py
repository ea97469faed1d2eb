"""Nesting, layers, phases and the backward join, on events built by hand."""

from curvescope.profiling.attribution.events import DeviceEvent, HostEvent, kernel_rows
from curvescope.profiling.attribution.library_calls import MklCall, Primitive, VerboseLog
from curvescope.profiling.attribution.operation import Work
from curvescope.profiling.attribution.operator_work import count_work

from ...tables import ask_each

T = 1  # the thread


def mark(name, start, duration):
    return HostEvent(f"curvescope.{name}", start, duration, T, is_range=True)


def op(name, start, duration, sequence=-1, shapes=(), correlation=0, thread=T):
    return HostEvent(
        name, start, duration, thread, sequence=sequence, shapes=shapes, correlation_id=correlation
    )


def node(name, start, duration, sequence, thread=T):
    wrapped = f"autograd::engine::evaluate_function: {name}"
    return HostEvent(wrapped, start, duration, thread, sequence=sequence, forward_thread=T)


STEP = mark("step", 0, 1000)


def placed(rows):
    return [
        (r["name"], r["start_ns"], r["duration_ns"], r["layer"], r["phase"]) for r in rows.kernels
    ]


def test_own_time_of_an_operator_is_what_its_children_leave():
    rows = kernel_rows([STEP, op("aten::linear", 100, 100), op("aten::addmm", 120, 50)])
    times = [("aten::linear", 100, 20), ("aten::addmm", 120, 50), ("aten::linear", 170, 30)]
    assert placed(rows) == [(*time, None, None) for time in times]
    assert {row["op"] for row in rows.kernels} == {"aten::linear"}
    assert rows.windows == [(0, 1000)]


def test_layer_and_phase_come_from_the_innermost_range_and_windows_of_fetched_batches_are_told():
    marks = [
        mark("phase:input", 2, 7),
        mark("phase:forward", 10, 490),
        mark("layer:block", 10, 400),
    ]
    operators = [op("aten::copy_", 3, 5), op("aten::conv2d", 30, 50), op("aten::add", 200, 10)]
    rows = kernel_rows([STEP, *marks, mark("layer:block.conv", 20, 100), *operators])
    assert rows.inputs == [(2, 7)]
    assert placed(rows) == [
        ("aten::copy_", 3, 5, None, "input"),
        ("aten::conv2d", 30, 50, "block.conv", "forward"),
        ("aten::add", 200, 10, "block", "forward"),
    ]


def test_backward_lands_on_the_layer_that_made_the_node():
    """`view` in pool1 shows number 7 and makes no node; conv2's convolution draws 7: the last one
    has it.
    """
    forward = [mark("layer:pool1", 0, 50), op("aten::view", 10, 10, sequence=7)]
    forward += [mark("layer:conv2", 100, 50), op("aten::conv2d", 110, 30, sequence=7)]
    backward = [
        node("ConvolutionBackward0", 510, 100, sequence=7),
        op("aten::convolution_backward", 520, 50),
    ]
    rows = kernel_rows([STEP, *forward, mark("phase:backward", 500, 400), *backward]).kernels
    found = {(row["layer"], row["phase"], row["op"]) for row in rows if row["start_ns"] >= 500}
    assert found == {("conv2", "backward", "ConvolutionBackward0")}


def test_primitives_go_under_the_operator_that_ran_them():
    verbose = VerboseLog(
        [Primitive("convolution jit:avx2", 125, 40), Primitive("reorder", 600, 40)]
    )
    rows = kernel_rows(
        [STEP, mark("layer:conv1", 90, 200), op("aten::conv2d", 100, 100)], verbose=verbose
    )
    times = [
        ("aten::conv2d", 100, 25),
        ("convolution jit:avx2", 125, 40),
        ("aten::conv2d", 165, 35),
    ]
    assert placed(rows) == [(*time, "conv1", None) for time in times]
    assert (rows.kernels[1]["source"], rows.kernels[1]["op"]) == ("onednn", "aten::conv2d")
    assert rows.lost == {"primitives_outside_operators": 1}


def test_mkl_calls_go_to_the_operator_of_their_shape_at_its_end():
    calls = [MklCall("mkl SGEMM(T,N)", (10, 4, 4096), 60), MklCall("mkl SGEMM(T,N)", (3, 3, 3), 60)]
    events = [
        STEP,
        op("aten::mm", 50, 20, shapes=([4, 7], [7, 10])),
        op("aten::linear", 100, 120, shapes=([4, 4096], [10, 4096], [10])),
        op("aten::addmm", 110, 100, shapes=([10], [4, 4096], [4096, 10])),
        op("aten::expand", 115, 5),
    ]
    rows = kernel_rows(events, verbose=VerboseLog(mkl_calls=calls))
    call = next(row for row in rows.kernels if row["name"].startswith("mkl"))
    assert (call["start_ns"], call["duration_ns"], call["source"]) == (150, 60, "mkl")
    assert rows.lost == {"mkl_calls_not_placed": 1}


def test_batched_products_go_by_kind_and_order():
    verbose = VerboseLog(
        mkl_calls=[MklCall("mkl SGEMM_BATCH(N,N)", (), 60), MklCall("mkl SGEMM_BATCH(T,N)", (), 30)]
    )
    product, batched = op("aten::mm", 50, 100, shapes=([4, 7], [7, 10])), ([2, 4, 7], [2, 7, 10])
    added = op("aten::baddbmm", 400, 50, shapes=([2, 4, 10], *batched))
    rows = kernel_rows(
        [STEP, product, op("aten::bmm", 200, 100, shapes=batched), added], verbose=verbose
    )
    calls = [(row["name"], row["op"]) for row in rows.kernels if row["source"] == "mkl"]
    assert calls == [
        ("mkl SGEMM_BATCH(N,N)", "aten::bmm"),
        ("mkl SGEMM_BATCH(T,N)", "aten::baddbmm"),
    ]


@ask_each("reach", [-40, 0, 40, 95])
def test_rows_of_a_thread_never_overlap_and_add_up(reach):
    """A library's clock that runs early or late against the profiler's never makes rows overlap."""
    verbose = VerboseLog([Primitive("a", 105 + reach, 60), Primitive("b", 160 + reach, 30)])
    rows = kernel_rows(
        [STEP, op("aten::conv2d", 100, 100), op("aten::empty", 110, 30)], verbose=verbose
    ).kernels
    ends = [row["start_ns"] + row["duration_ns"] for row in rows]
    assert all(end <= row["start_ns"] for end, row in zip(ends, rows[1:], strict=False))
    assert sum(row["duration_ns"] for row in rows) == 100


def test_work_is_counted_once_per_call_on_its_longest_row():
    linear = op("aten::linear", 100, 100, shapes=([4, 8], [16, 8], [16]))
    addmm = op("aten::addmm", 120, 70, shapes=([16], [4, 8], [8, 16]))
    rows = kernel_rows([STEP, linear, addmm], count_work=lambda operation: Work(1024, 64)).kernels
    flops = [(row["name"], row.get("flops")) for row in rows]
    assert flops == [("aten::linear", None), ("aten::addmm", 1024), ("aten::linear", None)]


def test_device_kernels_take_layer_and_phase_of_their_launch():
    marks = [STEP, mark("phase:forward", 0, 300), mark("layer:conv1", 0, 200)]
    device = [
        DeviceEvent("implicit_gemm", 40, 300, 0, 7, 91, 5),
        DeviceEvent("memset", 400, 10, 0, 7, 92, 77),
    ]
    rows = kernel_rows([*marks, op("aten::conv2d", 10, 50, correlation=5)], device, host_rows=False)
    assert placed(rows) == [
        ("implicit_gemm", 40, 300, "conv1", "forward"),
        ("memset", 400, 10, None, None),
    ]
    assert rows.lost == {"kernels_without_operator": 1}


def test_communication_is_told_from_the_layer_it_runs_under():
    """DDP copies a gradient into its bucket and starts the collective inside the hook of the
    layer's last gradient.
    """
    accumulate, gradient = (
        "autograd::engine::evaluate_function: ",
        "torch::autograd::AccumulateGrad",
    )
    reducer, bucket = (
        "torch::distributed::reducer::mul_out",
        "torch.distributed.ddp.reducer::copy_bucket_to_grad",
    )
    rows = kernel_rows(
        [
            STEP,
            mark("phase:backward", 0, 900),
            op(accumulate + gradient, 100, 300),
            op(gradient, 110, 10),
            *(op(reducer, 150, 100), op("aten::mul", 160, 80), op("c10d::allreduce_", 300, 50)),
            op("gloo:all_reduce", 320, 500, thread=2),
            op(bucket, 850, 20),
            op("aten::copy_", 855, 10),
        ]
    )
    assert {(row["name"], row["op"]) for row in rows.kernels} == {
        *(
            (name, name)
            for name in (gradient, reducer, "c10d::allreduce_", "gloo:all_reduce", bucket)
        ),
        *(("aten::mul", reducer), ("aten::copy_", bucket)),
    }


def test_a_primitive_beside_a_collective_is_its_operators():
    """Gloo's thread begins the collective after the operator and before the primitive, which is
    inside the operator.
    """
    log = VerboseLog(primitives=[Primitive("convolution jit:avx2", 250, 40)])
    events = [STEP, op("aten::convolution", 200, 150), op("gloo:all_reduce", 220, 400, thread=2)]
    rows = kernel_rows(events, verbose=log).kernels
    assert [(row["name"], row["op"], row["start_ns"], row["duration_ns"]) for row in rows] == [
        ("aten::convolution", "aten::convolution", 200, 50),
        ("gloo:all_reduce", "gloo:all_reduce", 220, 400),
        ("convolution jit:avx2", "aten::convolution", 250, 40),
        ("aten::convolution", "aten::convolution", 290, 60),
    ]


BACKWARD_SHAPES = ([4, 8, 6, 6], [4, 3, 8, 8], [8, 3, 3, 3])
# Direct algorithm: 2 per product, 4·8·6·6 results of the forward pass of 3·3·3 products each, once
# for each gradient; the gradient of the bias adds up 4·8·6·6 numbers.
GRADIENT_FLOPS, BIAS_FLOPS = 2 * 4 * 8 * 6 * 6 * 27, 4 * 8 * 6 * 6


@ask_each(
    ("kernels", "expected"),
    [
        (
            [
                ("convolution.backward_data jit", 30),
                ("convolution.backward_weights jit", 10),
                ("reorder jit:blk", 90),
            ],
            [GRADIENT_FLOPS, GRADIENT_FLOPS + BIAS_FLOPS, None],
        ),
        (
            [
                ("sm80_xmma_dgrad_implicit_gemm", 20),
                ("wgrad_alg0_engine", 10),
                ("wgrad_alg0_engine", 30),
            ],
            [
                GRADIENT_FLOPS,
                (GRADIENT_FLOPS + BIAS_FLOPS) // 4,
                (GRADIENT_FLOPS + BIAS_FLOPS) * 3 // 4,
            ],
        ),
        (  # which gradient the product is of, its name does not tell: all run at one rate
            [
                ("cudnn::winogradDgradData4x4", 10),
                ("maxwell_sgemm_128x64_nt", 20),
                ("nchwToNhwcKernel", 70),
            ],
            [
                (2 * GRADIENT_FLOPS + BIAS_FLOPS) // 3,
                (2 * GRADIENT_FLOPS + BIAS_FLOPS) * 2 // 3,
                None,
            ],
        ),
    ],
)
def test_the_gradients_of_a_convolution_are_counted_where_they_are_computed(kernels, expected):
    concrete = ["", "", "", [8], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]]
    call = op("aten::convolution_backward", 100, 100, shapes=BACKWARD_SHAPES, correlation=5)
    call = call._replace(concrete=concrete, dtypes=["float"] * 3)
    device = [
        DeviceEvent(name, 200 + 100 * i, length, 0, 7, i, 5)
        for i, (name, length) in enumerate(kernels)
    ]
    rows = kernel_rows([STEP, call], device, count_work=count_work, host_rows=False).kernels
    found = [row.get("flops") for row in rows]
    assert sum(flops or 0 for flops in found) == 2 * GRADIENT_FLOPS + BIAS_FLOPS
    assert [None if flops is None else round(flops, -1) for flops in found] == [
        None if flops is None else round(flops, -1) for flops in expected
    ]
