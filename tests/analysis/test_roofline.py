"""The roofline: points by hand, which source is used, and the exported form."""

import json
import time

import pandas as pd
import pytest

from curvescope.analysis.decompose.kernel_times import kernel_totals
from curvescope.analysis.likely_bounds import likely_point, plain_rows
from curvescope.analysis.render.documents import document_text
from curvescope.analysis.render.roofline import RooflineDocument
from curvescope.analysis.roofline import CSV_COLUMNS, csv_rows, roofline
from curvescope.profiling.hardware.limits import hardware_of
from curvescope.profiling.recording.schema import KERNELS

from ..tables import ask_each
from .synthetic import profiled_step, times_of, work_of

# 8.87 TFLOP/s, 320.3 GB/s
GTX_1080 = hardware_of({"device": {"name": "GeForce GTX 1080", "kind": "cuda"}})


def tables(kernels):
    step, rows = profiled_step(0, 8, 0, kernels)
    columns = dict.fromkeys(c.name for c in KERNELS.columns)
    return pd.DataFrame([step]), pd.DataFrame([{**columns, **row} for row in rows])


def work(flops=None, compulsory=None, **measured):
    return {"flops": flops, "bytes_compulsory": compulsory, **measured}


def test_points_by_hand():
    steps, kernels = tables(
        [
            # 4 GFLOP in 1 ms: 4 TFLOP/s, 45 % of compute; 10 MB: 10 GB/s. Compute needs 0.451 ms:
            # neither.
            ("conv1", "forward", "sgemm", 1.0, work(4 * 10**9, 10**7)),
            # 8 GFLOP in 1 ms: 90 %: compute-bound.
            ("conv2", "forward", "winograd", 1.0, work(8 * 10**9, 10**7)),
            # 256 MB in 1 ms: 80 % of DRAM: memory-bound.
            ("relu", "forward", "relu", 1.0, work(10**6, 256 * 10**6)),
            (None, "optimizer", "nobody knows", 0.5, work()),
        ]
    )
    drawn = roofline(times_of(steps, kernels), GTX_1080)
    points = {p.label: p for p in drawn.points}
    assert {label: p.bound for label, p in points.items()} == {
        "sgemm": "neither",
        "winograd": "compute",
        "relu": "memory",
    }
    assert points["sgemm"].flops_per_s == pytest.approx(4e12)
    assert points["sgemm"].utilisation == pytest.approx(4e12 / GTX_1080.roof("compute").per_s)
    assert points["relu"].utilisation == pytest.approx(256e9 / 320.3e9)
    (level,) = points["relu"].levels
    assert (level.level, level.source, level.flops_per_byte) == (
        "DRAM",
        "compulsory",
        pytest.approx(1 / 256),
    )
    assert points["relu"].roof_kind == "peak"
    assert drawn.time_without_work_s == pytest.approx(0.5e-3)
    by_phase = {p.label: p for p in roofline(times_of(steps, kernels), GTX_1080, "phase").points}
    assert by_phase["forward"].time_s == pytest.approx(3e-3)
    assert by_phase["forward"].flops == pytest.approx(12.001e9)


def test_kernels_have_the_roof_of_the_precision_in_their_names():
    """A100, by hand: 312 TFLOP/s of bf16 in tensor cores, 19.5 of fp32; the layer's roof is that of
    its two kernels.
    """
    a100 = hardware_of({"device": {"name": "NVIDIA A100-SXM4-40GB", "kind": "cuda"}})
    steps, kernels = tables(
        [
            ("fc", "forward", "ampere_bf16_s16816gemm_bf16_128x128", 1.0, work(156 * 10**9, 10**6)),
            ("fc", "forward", "ampere_sgemm_128x64_nn", 1.0, work(39 * 10**8, 10**6)),
            ("other", "forward", "triton_tem_fused_mm_0", 1.0, work(39 * 10**9, 10**6)),
        ]
    )
    drawn = roofline(times_of(steps, kernels), a100)
    points = {p.label: p for p in drawn.points}
    assert [p.precisions for p in points.values()] == [("bf16",), ("fp32",), ("unknown",)]
    # The last is faster than fp32 can be, so it is compared with the highest roof: 39 of 624
    # TFLOP/s of int8.
    assert [round(p.utilisation, 2) for p in points.values()] == [0.5, 0.2, 0.06]
    assert [p.exceeded_roofs for p in points.values()] == [(), (), ()]
    assert {roof.precision for roof in drawn.roofs} == {None, "bf16", "fp32"}
    by_layer = {p.label: p for p in roofline(times_of(steps, kernels), a100, "layer").points}
    assert set(by_layer["fc forward"].precisions) == {"bf16", "fp32"}
    assert by_layer["fc forward"].utilisation == pytest.approx((0.5 + 0.2) / 2, rel=0.01)


def test_a_roof_that_no_kernel_ran_under_is_not_drawn():
    meta = {"device": {"name": "NVIDIA A100-SXM4-40GB", "kind": "cuda"}, "precision": "fp32"}
    steps, kernels = tables(
        [("fc", "forward", "sm80_xmma_gemm_tf32f32_tf32f32_f32", 1.0, work(10**9, 10**6))]
    )
    drawn = roofline(times_of(steps, kernels), hardware_of(meta))
    assert {roof.precision for roof in drawn.roofs} == {None, "tf32"}


def test_measured_bytes_and_flops_go_before_compulsory_ones():
    measured = work(
        10**9,
        10**6,
        dram_bytes=10**8,
        l2_bytes=2 * 10**8,
        l1_bytes=3 * 10**8,
        flops_executed=2 * 10**9,
    )
    steps, kernels = tables([("conv1", "forward", "sgemm", 1.0, measured)])
    (point,) = roofline(times_of(steps, kernels), GTX_1080).points
    assert point.flops_source == "measured"
    assert [(lv.level, lv.bytes, lv.source) for lv in point.levels] == [
        ("DRAM", 1e8, "measured"),
        ("L2", 2e8, "measured"),
        ("L1", 3e8, "measured"),
    ]
    assert point.levels[0].flops_per_byte == pytest.approx(20)


def test_without_roofs_nothing_is_bound():
    steps, kernels = tables([("conv1", "forward", "sgemm", 1.0, work(10**9, 10**6))])
    (point,) = roofline(times_of(steps, kernels), hardware_of({})).points
    assert (point.bound, point.utilisation, point.roof_kind) == ("unknown", None, None)


def test_kernels_without_steps_are_taken_together():
    _, kernels = tables([("a", "forward", "sgemm", 1.0, work(10**9, 10**6))] * 2)
    drawn = roofline(kernel_totals(work_of(kernels)), GTX_1080)
    assert (drawn.n_steps, drawn.points[0].calls, drawn.points[0].flops) == (None, 2, 2e9)


def test_the_exported_form_is_stable():
    """A consumer relies on these names: adding one is fine, renaming one needs a new version."""
    steps, kernels = tables([("a", "forward", "sgemm", 1.0, work(10**9, 10**6))])
    drawn = roofline(times_of(steps, kernels), GTX_1080)
    exported = json.loads(document_text(RooflineDocument(**vars(drawn), device=None)))
    assert (exported["format"], exported["version"]) == ("curvescope roofline", 1)
    assert CSV_COLUMNS[:8] == (
        "row",
        "label",
        "level",
        "calls",
        "time_s",
        "flops",
        "flops_source",
        "flops_per_s",
    )
    rows = csv_rows(drawn)
    assert [row["row"] for row in rows] == ["roof", "roof", "point"]
    assert all(tuple(row) == CSV_COLUMNS for row in rows)


# 108 SMs, 64 warps each
A100 = hardware_of({"device": {"name": "NVIDIA A100-SXM4-80GB", "kind": "cuda"}})
UNKNOWN = hardware_of({})


def row(name, ms, calls=1, blocks=None, phase=None, threads=256, registers=32):
    launch = {
        "grid_x": blocks,
        "grid_y": 1,
        "grid_z": 1,
        "block_x": threads,
        "block_y": 1,
        "block_z": 1,
    }
    return {
        "name": name, "phase": phase, "exclusive_ms": ms, "calls": calls, **launch,
        "registers_per_thread": registers, "shared_memory_bytes": 0,
    }  # fmt: skip


@ask_each(
    ("kernel", "hardware", "likely"),
    [
        (row("Memcpy HtoD", 3.0), UNKNOWN, "host link"),
        (row("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3.0, blocks=24), A100, "communication"),
        (
            row("vectorized_elementwise_kernel<4>", 0.4, calls=100, blocks=900),
            A100,
            "short calls",
        ),  # 4 µs each
        (row("vectorized_elementwise_kernel<4>", 4.0, calls=100, blocks=900), A100, "memory"),
        (row("ampere_sgemm_128x64_nn", 4.0, blocks=107), A100, "few blocks"),
        (row("ampere_sgemm_128x64_nn", 4.0, blocks=108), A100, "memory or compute"),
        (
            row("ampere_sgemm_128x64_nn", 4.0, blocks=2),
            UNKNOWN,
            "memory or compute",
        ),  # of how many SMs?
        (row("nobody_knows", 4.0, phase="optimizer"), UNKNOWN, "memory"),
        (row("nobody_knows", 4.0), A100, "memory or compute"),
    ],
)
def test_names_and_launches_tell(kernel, hardware, likely):
    point = likely_point("x", plain_rows(pd.DataFrame([kernel])), 1, hardware)
    assert (point.likely, point.share) == (likely, 1.0)


def test_a_layer_is_bound_by_what_holds_for_most_of_its_time():
    rows = pd.DataFrame([row("Memcpy HtoD", 3.0), row("ampere_sgemm_128x64_nn", 1.0, blocks=864)])
    point = likely_point("conv1", plain_rows(rows), 2, A100)
    assert (point.likely, point.share, point.calls, point.time_s) == ("host link", 0.75, 1.0, 0.002)


def test_waves_and_occupancy_by_hand():
    """8 blocks of 8 warps fill the 64 warps of an SM; 108 SMs hold 864 blocks at once."""
    point = likely_point(
        "conv1",
        plain_rows(pd.DataFrame([row("ampere_sgemm_128x64_nn", 1.0, blocks=1296)])),
        1,
        A100,
    )
    assert (point.waves, point.occupancy) == (1.5, 1.0)


@pytest.mark.slow
def test_the_time_grows_with_the_names():
    """Ten thousand kernels took a minute, as each was a frame of its own."""
    kernels = pd.DataFrame(
        [row(f"kernel_{number}", 1.0 + number, blocks=108) for number in range(10_000)]
    )
    began = time.process_time()
    drawn = roofline(kernels.assign(flops=None, flops_executed=None), A100)
    assert time.process_time() - began < 15
    assert len(drawn.without_work) == 10_000
