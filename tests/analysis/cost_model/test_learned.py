import numpy as np
import pytest

from curvescope.analysis.cost_model.choice import choose_algorithm, get_library, known_choice
from curvescope.analysis.cost_model.convolution import estimate_algorithms
from curvescope.analysis.cost_model.learned import Branch, LearnedChoice, classify, describe, load_learned
from curvescope.analysis.cost_model.problems import Convolutions
from curvescope.analysis.cost_model.recording import machine_for
from curvescope.profiling.hardware.devices import get_device

# ResNet-50, 1x1 of 7x7 pixels, 512 to 2048 channels; 3x3 of 14x14 pixels, 256 channels.
POINTWISE = Convolutions(np.array([1.0, 64.0]), 512, 7, 7, 2048, 1, 1, 0, 0, 1, 1)
V100 = get_device("v100")


def test_a_tree_asks_its_questions_in_order():
    tree = Branch("fill", 0.5, "IMPLICIT_GEMM", Branch("kernel", 2, "IMPLICIT_PRECOMP_GEMM", "WINOGRAD"))
    features = {"fill": np.array([0.5, 2.0, 2.0]), "kernel": np.array([3.0, 1.0, 3.0])}
    assert classify(tree, features).tolist() == ["IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "WINOGRAD"]


def test_fill_counts_blocks_of_128_pixels_and_64_channels_per_sm():
    # 49 pixels are one block, 3136 are 25; 2048 channels are 32; V100 has 80 SMs.
    assert describe(POINTWISE, V100)["fill"].tolist() == [32 / 80, 25 * 32 / 80]


def test_a_choice_says_nothing_about_what_it_has_not_seen():
    choice = LearnedChoice("WINOGRAD", frozenset({(3, 1)}), knows_kepler=False)
    assert choice.take(POINTWISE, V100).tolist() == ["", ""]
    known = Convolutions(np.array([8.0]), 256, 14, 14, 256, 3, 3, 1, 1, 1, 1)
    assert choice.take(known, V100).tolist() == ["WINOGRAD"]
    assert choice.take(known, get_device("k80")).tolist() == [""]


@pytest.mark.parametrize("limit_bytes", [np.inf, 0.0])
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
    taken = known_choice(library, "forward", POINTWISE, V100, load_learned())
    assert taken is not None
    assert taken.tolist() == ["IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM"]
    assert known_choice(library, "backward_data", POINTWISE, V100, load_learned()) is None
    assert known_choice(get_library("cudnn5"), "forward", POINTWISE, V100, load_learned()) is None
