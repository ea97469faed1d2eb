"""The layers of networks, by facts that can be checked by hand."""

import pytest

from curvescope.kernels import problem_sets
from curvescope.kernels.conv import Conv
from curvescope.kernels.gemm import Gemm
from curvescope.profiling.workload.networks import get_network
from curvescope.profiling.workload.networks.facts import facts


@pytest.mark.slow
def test_layers_of_vgg_a():
    network = get_network("vgg_a")
    sweeps = problem_sets.layer_sweeps(network, (1, 2), Conv)
    assert (
        len(sweeps) == 8 * 3 - 1 - 3
    )  # eight convolutions; the first has no bwd_data; conv5_2 is like conv5_1
    by_label = {sweep.label: sweep for sweep in sweeps}
    first = by_label["conv1_1 conv fwd n* c3 224x224 k64 3x3 p1 fp32"]
    assert first.problems == {n: Conv(n, 3, 224, 224, 64, 3, 3, padding=(1, 1)) for n in (1, 2)}
    alike = next(sweep for sweep in sweeps if "conv5_1" in sweep.layers)
    assert alike.layers == ("conv5_1", "conv5_2")
    assert {sweep.phase for sweep in sweeps} == {"forward", "backward"}


def test_the_fully_connected_layers_are_three_products_each():
    sweeps = problem_sets.layer_sweeps(get_network("vgg_a"), (64,), Gemm, "fp16")
    assert [sweep.problems[64] for sweep in sweeps[:3]] == [
        Gemm(4096, 64, 25088, "TN", "fp16"),
        Gemm(25088, 64, 4096, "NN", "fp16"),
        Gemm(25088, 4096, 64, "NT", "fp16"),
    ]
    assert [sweep.axis for sweep in sweeps[:3]] == ["n", "n", "k"]


@pytest.mark.slow
def test_forward_problems_do_the_work_of_the_network():
    # torch's counter sees convolutions and matrix products only, as the problems do; alike layers
    # count each.
    for name in ("alexnet", "googlenet", "resnet50"):
        network = get_network(name)
        flops = sum(
            sweep.problems[2].work.flops * len(sweep.layers)
            for kind in (Conv, Gemm)
            for sweep in problem_sets.layer_sweeps(network, (2,), kind)
            if sweep.phase == "forward"
        )
        assert flops == 2 * facts(network).forward_flops
