"""Scopes of XLA's instructions, from the modules that its profiler stores with a profile."""

import gzip
from pathlib import Path

import pytest

from curvescope.profile_files import open_any
from curvescope.profiling.attribution.kernel_names import (
    CONVOLUTION,
    GEMM,
    REDUCTION,
    SORT,
    family,
)
from curvescope.profiling.readers.hlo_scopes import instructions_of
from curvescope.profiling.readers.xspace_pb import _message_type, _says_nothing

from ...tables import ask_each

XSPACE = Path(__file__).parents[2] / "data" / "jax" / "jax_cpu.xplane.pb.gz"


def test_every_operator_of_jax_on_a_cpu_has_its_layer_and_phase(tmp_path):
    profile = tmp_path / "jax.xplane.pb"
    profile.write_bytes(gzip.decompress(XSPACE.read_bytes()))
    with open_any(profile) as recording:
        kernels = recording.frame("kernels")
        assert recording.meta["missing"].keys() == {"device"}
    found = set(kernels[["layer", "phase"]].dropna().itertuples(index=False, name=None))
    assert found >= {
        ("hidden", "forward"),
        ("hidden", "backward"),
        ("out", "forward"),
        ("out", "backward"),
    }
    assert {"sgd"} <= set(kernels["layer"].dropna())
    named = kernels["layer"].notna() | kernels["phase"].notna()
    assert kernels.loc[named, "duration_ns"].sum() > 0.9 * kernels["duration_ns"].sum()


def test_a_fusion_of_a_library_says_which_product_it_is(tmp_path):
    profile = tmp_path / "jax.xplane.pb"
    profile.write_bytes(gzip.decompress(XSPACE.read_bytes()))
    with open_any(profile) as recording:
        names = set(recording.frame("kernels")["name"])
    assert "dot ynn_fusion.1" in names
    assert not any(name.startswith("ynn_fusion") for name in names)
    assert family("dot ynn_fusion.1") == family("dot.1") == GEMM
    assert family("convolution ynn_fusion.9") == CONVOLUTION
    assert family("wrapped_reduce-window.3") == REDUCTION


@ask_each(
    ("kind", "opcodes", "what"),
    [
        ("kCustom", ["add"], None),
        ("kCustom", ["add", "reduce"], "reduce"),
        ("kCustom", ["reduce", "dot", "add"], "dot"),
        ("kLoop", ["reduce", "add"], None),
    ],
)
def test_a_custom_fusion_is_named_after_the_work_in_it(kind, opcodes, what):
    fused = [{"id": 1, "name": "a", "opcode": opcode} for opcode in opcodes]
    outer = instruction(2, "block_fusion.3", called=[7], opcode="fusion", fusion_kind=kind)
    assert custom_of(fused, [outer]) == ({} if what is None else {"block_fusion.3": what})


def test_a_custom_call_is_named_after_what_it_calls():
    call = instruction(2, "custom-call.1", opcode="custom-call", custom_call_target="TopK")
    assert custom_of([], [call]) == {"custom-call.1": "TopK"}


@ask_each(
    ("kernel", "of", "says_nothing"),
    [
        ("ynn_fusion.9", "ynn_fusion.9", True),
        ("block_fusion_3", "block_fusion.3", True),
        ("block_fusion_3.kd", "block_fusion.3", True),
        ("gemm_fusion_dot_3", "gemm_fusion_dot.3", False),  # a product by its name
        ("sm90_xmma_gemm", "custom-call.1", False),  # the library's own
    ],
)
def test_only_a_kernel_whose_name_says_nothing_gets_the_one_of_its_work(kernel, of, says_nothing):
    assert _says_nothing(kernel, of) == says_nothing


@ask_each(
    ("name", "of"),
    [
        ("reduce ynn_fusion", REDUCTION),
        ("dot block_fusion_3", GEMM),
        ("convolution block_fusion", CONVOLUTION),
        ("TopK custom-call", SORT),
    ],
)
def test_a_name_by_its_work_has_its_family(name, of):
    assert family(name) == of


def custom_of(fused, entry):
    """What is known of custom instructions of a module with these computations, by name."""
    computations = [{"id": 7, "instructions": fused}, {"id": 9, "instructions": entry}]
    module = _message_type("HloModule")(name="jit_f", computations=computations)
    return {name: what for (_, name), what in instructions_of({"jit_f": module}).custom.items()}


def instruction(number, name, path="", operands=(), called=(), **more):
    named = {"id": number, "name": name, "metadata": {"op_name": path}}
    return {**named, "operand_ids": operands, "called_computation_ids": called, **more}


@pytest.fixture
def module():
    """A fusion without a path of its own, and a copy of its result, which the last instruction
    takes.
    """
    fused = [
        instruction(1, "mul", "jit(f)/a/mul"),
        instruction(2, "add", "jit(f)/a/mul"),
        instruction(3, "b", "x/b"),
    ]
    entry = [
        instruction(4, "fusion", called=[7]),
        instruction(5, "copy", operands=[4]),
        instruction(6, "dot", "jit(f)/c/dot;jit(f)/d/dot", operands=[5]),
        instruction(8, "unused"),
    ]
    computations = [{"id": 7, "instructions": fused}, {"id": 9, "instructions": entry}]
    return _message_type("HloModule")(name="jit_f", computations=computations)


def test_a_fusion_has_the_commonest_path_inside_and_a_copy_that_of_its_user(module):
    found = instructions_of({"jit_f": module}).paths
    assert found["jit_f", "fusion"] == "jit(f)/a/mul"
    assert found["jit_f", "copy"] == found["jit_f", "dot"] == "jit(f)/c/dot"
    assert ("jit_f", "unused") not in found


def test_programs_of_one_name_are_told_apart_by_their_numbers(module):
    """A step compiled for two batch sizes had the layers of either, by chance."""
    of_other = [{"id": 9, "instructions": [instruction(6, "dot", "jit(f)/other/dot")]}]
    other = _message_type("HloModule")(name="jit_f", computations=of_other)
    alone = _message_type("HloModule")(name="jit_g", computations=of_other)
    known = instructions_of({"jit_f(18)": module, "jit_f(20)": other, "jit_g(3)": alone})

    def path(function, number, instruction="dot"):
        facts = {"hlo_module": function, "program_id": number, "hlo_op": instruction}
        return known.paths.get(known.key(facts))

    assert path("jit_f", 18) == "jit(f)/c/dot"
    assert path("jit_f", 20) == path("jit_g", 3) == "jit(f)/other/dot"
    # Loaded from JAX's cache, it has the number of another process.
    assert path("jit_g", 7) == path("jit_g", None) == "jit(f)/other/dot"
    assert path("jit_f", 7) is None  # nothing says which of the two
    assert path("jit_f", 7, "fusion") == "jit(f)/a/mul"


def test_operators_of_keras_on_tensorflow_without_xla_have_their_layers_and_phases(tmp_path):
    stored = XSPACE.parents[1] / "tensorflow" / "keras_cpu.xplane.pb.gz"
    profile = tmp_path / "keras.xplane.pb"
    profile.write_bytes(gzip.decompress(stored.read_bytes()))
    with open_any(profile) as recording:
        kernels = recording.frame("kernels")
        assert len(recording.frame("steps")) == 2
    assert set(kernels["source"]) == {"tensorflow"}
    found = set(kernels[["layer", "phase"]].dropna().itertuples(index=False, name=None))
    assert found >= {
        ("sequential_1/conv1_1", "forward"),
        ("sequential_1/fc_1", "forward"),
        ("sequential_1/fc_1", "backward"),
        ("sgd", "optimizer"),
    }
    reads = kernels[kernels["op"] == "ReadVariableOp"]
    assert {"sequential_1/conv1_1", "sequential_1/fc_1"} <= set(reads["layer"].dropna())
