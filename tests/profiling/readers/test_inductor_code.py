"""Operators of generated kernels from the code that Inductor leaves in its cache."""

import json

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.readers.inductor_code import read_generated
from curvescope.profiling.recording.store import open_recording

from .nsys_export import kernel, launch, push_pop, write_export

# 64 floats are 256 bytes. The sum is one call and one node; the normalisation is one call and three
# nodes.
CODE = """
# kernel path: /somewhere/triton_0.py
# Topologically Sorted Source Nodes: [x_1, norm], Original ATen: [aten.add, aten.view, aten.native_layer_norm]
# Source node to ATen node mapping:
#   norm => mean, mul, sub
#   x_1 => add, view
# Graph fragment:
#   %a : Tensor "f32[8, 8][8, 1]cuda:0" = PlaceHolder[target=a]
#   %b : Tensor "f32[8, 8][8, 1]cuda:0" = PlaceHolder[target=b]
#   %add : Tensor "f32[8, 8][8, 1]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.add.Tensor](args = (%a, %b), kwargs = {})
#   %view : Tensor "f32[64][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.view.default](args = (%add, [64]), kwargs = {})
#   %mean : Tensor "f32[8, 1][1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mean.dim](args = (%add, [1]), kwargs = {})
#   %sub : Tensor "f32[8, 8][8, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%add, %mean), kwargs = {})
#   %mul : Tensor "f32[8, 8][8, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%sub, 2), kwargs = {})
#   return %mul
triton_per_fused_0 = async_compile.triton('triton_per_fused_0', '''
import triton
''', device_str='cuda')
"""  # noqa: E501
OLD = CODE.replace('Tensor "f32[8, 8][8, 1]cuda:0"', "").replace(
    "triton_per_fused_0", "triton_poi_fused_1"
)


def written(folder, *codes):
    for number, code in enumerate(codes):
        (folder / f"c{number}").mkdir(parents=True)
        (folder / f"c{number}" / "graph.py").write_text(code)
    return folder


@pytest.mark.parametrize(("code", "parts"), [(CODE, (0.6, 0.4)), (OLD, (0.5, 0.5))])
def test_parts_follow_the_bytes_that_each_operator_moves_and_are_equal_without_shapes(
    code, parts, tmp_path
):
    """The sum reads two tensors and gives one, the normalisation reads one and gives one; a view
    moves nothing.
    """
    (fused,) = read_generated(written(tmp_path, code)).fused.values()
    operators = ("aten::add", "aten::native_layer_norm")
    assert json.loads(fused) == [[None, *each] for each in zip(operators, parts, strict=True)]


def test_a_name_with_two_contents_is_left_to_its_words_and_one_with_two_sizes_has_no_flops(
    tmp_path,
):
    other = CODE.replace("aten.add, ", "aten.sub, ")
    assert read_generated(written(tmp_path / "a", CODE, other, OLD)).fused.keys() == {
        "triton_poi_fused_1"
    }
    larger = CODE.replace("8, 8", "16, 8").replace("[64]", "[128]")
    assert read_generated(written(tmp_path / "b", CODE, larger)).flops == {}


def test_flops_are_those_of_all_nodes_or_none(tmp_path):
    """Of 64 elements each: a sum, the mean's sums, a difference and a product; the view is none,
    integers are none.
    """
    for code, flops in (
        (CODE, {"triton_per_fused_0": 4 * 64}),
        (CODE.replace('mul : Tensor "f32', 'mul : Tensor "i64'), {"triton_per_fused_0": 3 * 64}),
        (CODE.replace("aten.mul.Tensor", "aten.native_dropout.default"), {}),  # without a rule
        (CODE.replace('sub : Tensor "f32[8, 8]', 'sub : Tensor "f32[s0, 8]'), {}),
        (CODE.replace("#   %mul :", "#   mul :"), {}),  # a node of the call that cannot be read
        (OLD, {}),
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        assert read_generated(written(folder, code)).flops == flops


@pytest.mark.slow
def test_an_import_takes_the_operators_of_a_kernel_whose_name_tells_none(tmp_path):
    columns = {"ranges": [push_pop("fc1", 0, 90)], "launches": [launch(1, 50)]}
    strings = {1: "triton_per_fused_0", 3: "cudaLaunchKernel"}
    path = write_export(tmp_path / "p", **columns, kernels=[kernel(1, 100, 200)], strings=strings)
    folder = written(tmp_path / "cache", CODE)
    assert main(["import", str(path), "--inductor", str(folder), "-o", str(tmp_path / "run")]) == 0
    (fused,) = open_recording(tmp_path / "run").frame("kernels")["fused"]
    assert [op for _, op, _ in json.loads(fused)] == ["aten::add", "aten::native_layer_norm"]
    assert open_recording(tmp_path / "run").frame("kernels")["flops"].tolist() == [4 * 64]
    assert main(["import", str(path), "-o", str(tmp_path / "plain")]) == 0
    assert (
        open_recording(tmp_path / "plain")
        .frame("kernels")[["fused", "flops"]]
        .isna()
        .all(axis=None)
    )


def test_a_folder_without_code_of_inductor_is_refused(tmp_path):
    (tmp_path / "other.py").write_text("print()")
    for folder, message in (
        (tmp_path, "no Triton kernel of Inductor"),
        (tmp_path / "none", "no folder"),
    ):
        with pytest.raises(CurvescopeError, match=message):
            read_generated(folder)


@pytest.mark.parametrize("cut", range(0, len(CODE), 97))
def test_code_that_is_cut_or_mixed_up_breaks_nothing(cut, tmp_path):
    read_generated(
        written(tmp_path, OLD, CODE[cut:] + CODE[:cut], CODE[:cut].replace("8, 8", "s0, -1"))
    )
