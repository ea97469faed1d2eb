"""Kernels of torch.compile in traces: their operators, and how they were compiled."""

import pytest

from curvescope.analysis.decompose.breakdown import break_down
from curvescope.analysis.decompose.kernel_times import device_work
from curvescope.profiling.attribution.fused_kernels import decode_shares, operators_of_name
from curvescope.profiling.attribution.kernel_names import ALGORITHMS, family
from curvescope.profiling.recording.store import open_recording

from ...tables import ask_each
from .made_profiles import PROFILES, imported
from .nsys_export import kernel, launch, push_pop, write_export

FUSED = "triton_poi_fused_add_relu_3"


@ask_each(
    ("name", "operators"),
    [
        ("triton_poi_fused_add_relu_3", "aten::add aten::relu"),
        ("triton_red_fused__unsafe_view_add_mean_1", "aten::_unsafe_view aten::add aten::mean"),
        ("cpp_fused_copy__relu_threshold_backward_1", "aten::copy_ aten::relu "
                                                      "aten::threshold_backward"),
        # cut by the profiler
        ("triton_poi_fused_add_bitwise_not_ge_", "aten::add aten::bitwise_not aten::ge"),
        ("triton_poi_fused_constant_pad_nd_moe_forward_0", "aten::constant_pad_nd moe_forward"),
        ("triton_poi_fused_0", ""),
        ("ampere_sgemm_128x64_nn", ""),
    ],
)  # fmt: skip
def test_the_operators_in_the_name_of_a_generated_kernel(name, operators):
    assert operators_of_name(name) == tuple(operators.split())


def test_a_real_trace_tells_operators_warps_stages_grid_and_bytes(tmp_path):
    recording = imported(PROFILES / "tl_torch_compile_triton.json.gz", tmp_path)
    kernels = recording.frame("kernels").set_index("name")
    silu = kernels.loc["triton_poi_fused__unsafe_view_mul_silu_2"]
    assert (silu["compiled_warps"], silu["pipeline_stages"], silu["grid_x"]) == (4, 1, 262144)
    # A view moves nothing: the two other operators have equal parts, as their bytes are unknown.
    assert decode_shares(silu["fused"]) == [(None, "aten::mul", 0.5), (None, "aten::silu", 0.5)]
    assert silu["bytes_compulsory"] == 2 * 8 * 4096 * 8192 * 2
    assert kernels["fused"].notna().sum() == 4
    assert (
        kernels["flops"][kernels["fused"].notna()].isna().all()
    )  # a name lists each operator once, however many
    assert kernels["compiled_warps"].dropna().tolist() == [8, 8, 4, 4]
    rows = {
        r.label: r for r in break_down(recording.frame("steps"), device_work(recording), "op").rows
    }
    assert rows["aten::silu"].time_ms == pytest.approx(0.527382 / 2, abs=1e-6)
    assert rows["aten::silu"].shared_time_share == 1
    assert not any("triton" in label for label in rows)


def test_generated_kernels_in_nsys_exports_have_their_operators_in_the_layer_of_their_launch(
    tmp_path,
):
    columns = {"ranges": [push_pop("fc1", 0, 90)], "launches": [launch(1, 50)]}
    path = write_export(
        tmp_path / "p",
        **columns,
        kernels=[kernel(1, 100, 200)],
        strings={1: FUSED, 3: "cudaLaunchKernel"},
    )
    recording = imported(path, tmp_path)
    assert [s.op for s in decode_shares(recording.frame("kernels")["fused"][0])] == [
        "aten::add",
        "aten::relu",
    ]
    rows = break_down(recording.frame("steps"), device_work(recording), "layer").rows
    assert rows[0].label.startswith("fc1")


def test_the_work_of_a_product_under_autocast_is_on_its_kernel_and_not_on_a_cast(imported_profile):
    recording = open_recording(imported_profile("parttrans_bs128.pt.trace.json.gz"))
    kernels = recording.frame("kernels").dropna(subset=["flops"])
    products = kernels[
        kernels["op"].isin(["aten::linear", "aten::matmul", "aten::bmm", "aten::addmm", "aten::mm"])
    ]
    families = products.groupby(products["name"].map(family))["flops"].sum()
    assert families[families.index.isin(ALGORITHMS)].sum() > 0.97 * families.sum()
