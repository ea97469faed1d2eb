import numpy as np
import pytest

from curvescope.analysis.cost_model.choice import (
    LIBRARIES,
    choose_algorithm,
    get_library,
    look_up_choice,
)
from curvescope.analysis.cost_model.convolution import estimate_algorithms
from curvescope.analysis.cost_model.launches import ModelledGpu
from curvescope.analysis.cost_model.learned import (
    Branch,
    LearnedChoice,
    classify,
    describe,
    load_learned,
)
from curvescope.analysis.cost_model.problems import PHASES, Convolutions
from curvescope.analysis.cost_model.recording import machine_for
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware.devices import get_device

from ...tables import ask_each
from .start import start_constants

MACHINE = ModelledGpu(get_device("titanx_maxwell"), start_constants())
VGG_CONV3_1 = Convolutions(np.array([8.0, 16.0]), 128, 56, 56, 256, 3, 3, 1, 1, 1, 1)


def chosen(problems, phase, library, machine=MACHINE, **kwargs):
    choice = choose_algorithm(
        estimate_algorithms(phase, problems, machine), problems, phase, LIBRARIES[library], **kwargs
    )
    return [choice.names[i] for i in choice.index], choice


# Grids of NeuSight's rows (P100-PCIe and V100-PCIe, cuDNN 8.9.2), whose kernels are named in the
# ids.
@ask_each(
    ("device", "shape", "grid"),
    [
        ("p100_pcie", (3, 213, 14, 14, 829), 78 * 2),
        ("v100_pcie", (5, 119, 24, 24, 758), 120 * 3 * 2),
    ],
)
def test_the_grid_of_fused_winograd_is_the_published_one(device, shape, grid):
    n, c, h, w, k = shape
    problem = Convolutions(n, c, h, w, k, 3, 3, 1, 1, 1, 1)
    machine = ModelledGpu(get_device(device), start_constants())
    launch = estimate_algorithms("forward", problem, machine)["WINOGRAD"].launches[-1]
    assert launch.blocks[0] == grid


@ask_each("phase", PHASES)
def test_winograd_and_fft_need_stride_1(phase):
    strided = Convolutions(16, 128, 28, 28, 128, 3, 3, 1, 1, 2, 2)
    estimates = estimate_algorithms(phase, strided, MACHINE)
    for name in {"WINOGRAD", "WINOGRAD_NONFUSED", "FFT", "FFT_TILING"} & set(estimates):
        assert not estimates[name].possible.any(), name


def test_winograd_does_less_work_than_the_direct_algorithm():
    problem = Convolutions(32, 256, 28, 28, 256, 3, 3, 1, 1, 1, 1)
    estimates = estimate_algorithms("forward", problem, MACHINE)
    work = {
        name: sum(launch.flops_executed[0] for launch in estimates[name].launches)
        / problem.flops[0]
        for name in ("IMPLICIT_GEMM", "WINOGRAD", "WINOGRAD_NONFUSED")
    }
    assert work["IMPLICIT_GEMM"] >= 1
    assert 1 / 2.25 <= work["WINOGRAD"] < 0.75  # F(2×2, 3×3), padding of 28 to 32 × 32 included
    assert 1 / 4 <= work["WINOGRAD_NONFUSED"] < 0.35  # F(4×4, 3×3)


def test_cudnn_5_takes_fft_for_conv3_1_and_pays_for_it_sixfold():
    # DeepBench, Titan X (Maxwell): 1.849 ms at batch 8, 11.048 ms at 16. By batch 16 the data
    # gradient is FFT.
    names, choice = chosen(VGG_CONV3_1, "backward_data", "cudnn5", machine_for(MACHINE.device))
    assert names == ["WINOGRAD", "FFT"]
    assert 4 < choice.time_s[1] / choice.time_s[0] < 8
    names, choice = chosen(VGG_CONV3_1, "backward_data", "cudnn6")
    assert "FFT" not in names
    assert choice.time_s[1] / choice.time_s[0] < 2.2


def test_a_framework_that_times_the_algorithms_escapes_the_librarys_mistake():
    names, _ = chosen(VGG_CONV3_1, "backward_data", "cudnn5", autotuned=True)
    assert "FFT" not in names


@ask_each("phase", PHASES)
def test_without_workspace_only_algorithms_that_need_none_are_left(phase):
    problems = Convolutions(64, 256, 28, 28, 256, 3, 3, 1, 1, 1, 1)
    _, free = chosen(problems, phase, "cudnn7")
    _, tight = chosen(problems, phase, "cudnn7", workspace_limit_bytes=0.0)
    assert tight.workspace_bytes[0] == 0
    assert tight.time_s[0] > free.time_s[0]


def test_an_unknown_library_is_refused_by_name():
    with pytest.raises(CurvescopeError, match=r"cudnn99.*cudnn5.1"):
        get_library("cudnn99")


@ask_each("phase", PHASES)
def test_a_depthwise_convolution_takes_the_time_of_its_bytes(phase):
    """32 images of 96x56x56, 3x3 kernels of stride 2: 38.5 MB in, 9.6 MB out, both moved once in
    every phase.
    """
    problem = Convolutions(32, 96, 56, 56, 96, 3, 3, 1, 1, 2, 2, 96)
    machine = machine_for(get_device("v100"))
    estimates = estimate_algorithms(phase, problem, machine)
    assert [name for name, one in estimates.items() if one.possible.all()] == ["DEPTHWISE"]
    moved = 4 * (32 * 96 * 56 * 56 + 32 * 96 * 28 * 28 + 96 * 3 * 3)
    assert estimates["DEPTHWISE"].launches[0].dram_bytes == moved
    assert estimates["DEPTHWISE"].time_s == pytest.approx(
        1.32 * machine.stream("", np.array([moved])).time_s
    )
    assert estimates["DEPTHWISE"].workspace_bytes == 0


def test_groups_are_one_launch_with_the_blocks_of_each():
    """25,088 pixels are 196 tiles of 128; on V100 each of 4 groups has 64 outputs, which is one
    tile of 64.
    """
    problem = Convolutions(32, 256, 28, 28, 256, 3, 3, 1, 1, 1, 1, 4)
    estimates = estimate_algorithms("forward", problem, machine_for(get_device("v100")))
    launch = estimates["IMPLICIT_PRECOMP_GEMM"].launches[-1]
    assert (launch.blocks, launch.tile.tolist()) == (196 * 4, [[128, 64]])
    assert launch.flops_executed == 2 * 25088 * 256 * (64 * 3 * 3)


@ask_each("phase", PHASES)
def test_groups_take_implicit_products_and_no_longer_than_one_after_the_other(phase):
    machine = machine_for(get_device("v100"))
    grouped = estimate_algorithms(
        phase, Convolutions(32, 256, 28, 28, 256, 3, 3, 1, 1, 1, 1, 4), machine
    )
    single = estimate_algorithms(phase, Convolutions(32, 64, 28, 28, 64, 3, 3, 1, 1, 1, 1), machine)
    possible = {name for name, one in grouped.items() if one.possible.all()}
    assert possible == (
        {"IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM"} if phase == "forward" else {"ALGO_1"}
    )
    for name in possible:
        assert single[name].time_s < grouped[name].time_s <= 4 * single[name].time_s


# ResNet-50, 1x1 of 7x7 pixels, 512 to 2048 channels; 3x3 of 14x14 pixels, 256 channels.
POINTWISE = Convolutions(np.array([1.0, 64.0]), 512, 7, 7, 2048, 1, 1, 0, 0, 1, 1)
V100 = get_device("v100")


def test_a_tree_asks_its_questions_in_order():
    tree = Branch(
        "fill", 0.5, "IMPLICIT_GEMM", Branch("kernel", 2, "IMPLICIT_PRECOMP_GEMM", "WINOGRAD")
    )
    features = {"fill": np.array([0.5, 2.0, 2.0]), "kernel": np.array([3.0, 1.0, 3.0])}
    assert classify(tree, features).tolist() == [
        "IMPLICIT_GEMM",
        "IMPLICIT_PRECOMP_GEMM",
        "WINOGRAD",
    ]


def test_fill_counts_blocks_of_128_pixels_and_64_channels_per_sm():
    # 49 pixels are one block, 3136 are 25; 2048 channels are 32; V100 has 80 SMs.
    assert describe(POINTWISE, V100)["fill"].tolist() == [32 / 80, 25 * 32 / 80]


def test_a_choice_says_nothing_about_what_it_has_not_seen():
    choice = LearnedChoice("WINOGRAD", frozenset({(3, 1)}), knows_kepler=False)
    assert choice.take(POINTWISE, V100).tolist() == ["", ""]
    known = Convolutions(np.array([8.0]), 256, 14, 14, 256, 3, 3, 1, 1, 1, 1)
    assert choice.take(known, V100).tolist() == ["WINOGRAD"]
    assert choice.take(known, get_device("k80")).tolist() == [""]


@ask_each("limit_bytes", [np.inf, 0.0])
def test_a_library_takes_the_learned_algorithm_unless_the_workspace_is_too_small(limit_bytes):
    problem = Convolutions(np.array([64.0]), 256, 14, 14, 256, 3, 3, 1, 1, 1, 1)
    machine, library = machine_for(V100), get_library("cudnn7.6")
    taken = np.array(["FFT"])
    estimates = estimate_algorithms("forward", problem, machine)
    chosen = choose_algorithm(estimates, problem, "forward", library, limit_bytes, taken=taken)
    assert (chosen.names[chosen.index[0]] == "FFT") == (limit_bytes > 0)


def test_cudnn_7_6_takes_plain_implicit_gemm_while_the_grid_leaves_sms_idle():
    # cudnn_scope, V100: advised IMPLICIT_GEMM at batch 1 and IMPLICIT_PRECOMP_GEMM at 64.
    library = get_library("cudnn7.6")
    taken = look_up_choice(library, "forward", POINTWISE, V100, load_learned())
    assert taken is not None
    assert taken.tolist() == ["IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM"]
    assert look_up_choice(library, "backward_data", POINTWISE, V100, load_learned()) is None
    assert look_up_choice(get_library("cudnn5"), "forward", POINTWISE, V100, load_learned()) is None
