"""Factors of complete steps on the virtual card: each is switched on, and what it should change is
seen to change.
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from curvescope.experiments.factors import FACTORS, names_of
from curvescope.profiling.recording.experiments import Scope

from .card import Card

STEPS = Path(__file__).with_name("steps.py")
ON_GPU = [
    name
    for name in names_of(Scope.STEP)
    if FACTORS[name].refusal("cuda:0") is None and not FACTORS[name].frameworks
]
ELSEWHERE = {
    "locked_clock": "it is asked for: test_diagnosis.py",
    "inference_mode": "it is of forward steps: below",
    "compiled": "compiling takes a minute",
    "max_autotune": "compiling takes a minute",
    "padded_vocabulary": "it is of language models: test_factors_of_steps.py",
    **{
        f"{name}_attention": "test_language_model.py"
        for name in ("cudnn", "flash", "efficient", "math")
    },
    "more_versions": "it is of steps that their user compiles",
    "dynamic_shapes": "it is of steps that their user compiles",
    "static_shapes": "it is of steps that their user compiles",
    "replayed_operators": "it compares results, and a virtual card computes nothing",
    "malloc_async": "PyTorch reads its variable when it is loaded: below",
}

# A step with a factor, in a process of its own: its time, and its kernels and calls by name.
_PROGRAM = """
    import json, os
    from collections import Counter
    from curvescope.experiments.factor import Target
    from curvescope.experiments.factors import step_change
    from curvescope.profiling.collect.torch_step import record_step
    from curvescope.profiling.measure.configuration import Configuration
    from curvescope.profiling.measure.sites.here import build_workload

    configuration = Configuration.of_step({step!r}, "cuda:0")
    phases = frozenset(("forward", "backward", "optimizer"))
    target = Target(configuration, (16, 32), phases=phases, memory_shares={{16: 0.9, 32: 0.9}})
    change = step_change({factor!r})
    if not change.environment:  # else it is there already
        assert change.reason_against(target) is None, change.reason_against(target)
    change.prepare(target)
    steps = change.change(build_workload(configuration), target)
    for batch in target.batches:
        steps.load(batch)
        for _ in range(2):
            steps.time_step()
    with change.around(target):
        _, duration_ns = steps.time_step()
        rows = record_step(lambda _: steps.time_step(), (), device="cuda:0")
    names = Counter(row["name"] for row in rows.kernels), Counter(row["name"] for row in rows.api_calls)
    print(json.dumps([duration_ns, *names]))
"""  # noqa: E501


_UNMODIFIED = []  # the same in every test


@pytest.fixture
def step_with(answer_of):
    """A step with a factor, or none: nanoseconds, and how often its kernels and its calls ran, by
    name.
    """

    def run(factor):
        if factor is None and _UNMODIFIED:
            return _UNMODIFIED[0]
        program = _PROGRAM.format(step=f"{STEPS}:convolutions", factor=factor)
        answer = answer_of(Card(virtual_time=True), program)
        if factor is None:
            _UNMODIFIED.append(answer)
        return answer

    return run


def count(names, part):
    """How many of them have a name with that part."""
    return sum(number for name, number in names.items() if part in name)


# By factor: a part of the names of kernels that come, and one of those that go.
KERNELS = {
    "bf16_autocast": ("bf16bf16", "wgrad_implicit_gemm_f32f32"),
    "channels_last": ("nhwckrsc", "nchwkcrs"),
    "cudnn_benchmark": ("implicit_gemm_indexed", "fprop_implicit_gemm_f32"),
    "fused_optimizer": ("Fused", "BinaryOpListAlphaFunctor"),
    "tf32": (
        "xmma_gemm_f32f32_tf32f32",
        "xmma_gemm_f32f32_f32f32",
    ),  # PyTorch's convolutions have it anyway
}


@pytest.mark.parametrize("factor", KERNELS)
def test_a_factor_changes_kernels(step_with, factor):
    _, before, _ = step_with(None)
    _, after, _ = step_with(factor)
    comes, goes = KERNELS[factor]
    assert count(before, comes) == 0 < count(after, comes)
    assert count(after, goes) < count(before, goes)


def test_a_graph_leaves_one_launch(step_with):
    before_ns, kernels, _ = step_with(None)
    after_ns, replayed, calls = step_with("cuda_graph")
    assert count(calls, "cudaGraphLaunch") == 1
    assert count(calls, "cudaLaunchKernel") == 0
    assert count(replayed, "implicit_gemm") == count(kernels, "implicit_gemm")
    assert after_ns < before_ns


def test_without_an_update_the_optimizers_kernels_are_gone(step_with):
    _, before, _ = step_with(None)
    _, after, _ = step_with("no_update")
    assert count(after, "multi_tensor_apply") == 0 < count(before, "multi_tensor_apply")


def test_in_inference_mode_a_forward_step_keeps_nothing_for_gradients(answer_of):
    """Each product's input is needed for its gradient, else two of them at a time are there."""
    usual, changed = answer_of(
        Card(virtual_time=True),
        f"""
        import json, torch
        from curvescope.experiments.factor import Target
        from curvescope.experiments.factors import step_change
        from curvescope.profiling.measure.configuration import Configuration
        from curvescope.profiling.measure.sites.here import build_workload

        configuration = Configuration.of_step({f"{STEPS}:forward"!r}, "cuda:0")
        target = Target(configuration, (16, 32), phases=frozenset({{"forward"}}))
        change, workload = step_change("inference_mode"), build_workload(configuration)
        assert change.reason_against(target) is None
        peaks = []
        for steps in (workload, change.change(workload, target)):
            steps.load(32)
            steps.time_step()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            steps.time_step()
            peaks.append((torch.cuda.max_memory_allocated() - before) / (256 * 32 * 256 * 4))
        print(json.dumps(peaks))
        """,
    )
    assert usual == pytest.approx(8, abs=0.5)
    assert changed == pytest.approx(2, abs=0.5)


WITHOUT_TRACE = sorted({*ON_GPU} - {*ELSEWHERE} - {*KERNELS, "cuda_graph", "no_update"})


@pytest.mark.parametrize("factor", WITHOUT_TRACE)
def test_a_factor_runs(step_with, factor):
    """These change memory, priorities or the order of work, which a step's kernels do not show."""
    _, kernels, _ = step_with(factor)
    assert count(kernels, "implicit_gemm") >= 5


def test_a_limit_of_cudnns_workspace_leaves_the_algorithms_that_fit_it(answer_of):
    """The fastest has a workspace as large as its result; PyTorch keeps a choice by shape."""
    free, limited = answer_of(
        Card(virtual_time=True),
        f"""
        import json, os, torch
        torch.backends.cudnn.benchmark = True
        net = torch.nn.Conv2d(64, 64, 3, padding=1).cuda()

        def beyond_result(images):
            x = torch.empty(images, 64, 64, 64, device="cuda")
            with torch.no_grad():
                net(x)
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                result = net(x)
            return (torch.cuda.max_memory_allocated() - before) / result.nbytes - 1

        free = beyond_result(32)
        os.environ.update({dict(FACTORS["cudnn_workspace"].step.variables())!r})
        print(json.dumps([free, beyond_result(33)]))
        """,
    )
    assert free == pytest.approx(1, abs=0.1)
    assert limited == pytest.approx(0, abs=0.1)


def test_cudas_pool_takes_the_place_of_torchs_allocator(tmp_path, libraries):
    card = Card(virtual_time=True)
    program = textwrap.dedent(_PROGRAM.format(step=f"{STEPS}:convolutions", factor="malloc_async"))
    chosen = {
        **card.environment(tmp_path / "card", libraries),
        **FACTORS["malloc_async"].step.environment,
    }
    words = [sys.executable, "-c", program]
    done = subprocess.run(
        words, env=chosen, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    _, _, calls = json.loads(done.stdout.splitlines()[-1])
    assert count(calls, "cudaMallocAsync") > 0
