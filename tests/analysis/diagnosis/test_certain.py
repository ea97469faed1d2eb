"""A layer that costs too much for certain is told, though the noise of the whole step hides it."""

import numpy as np
import pytest

from curvescope.analysis.causes.context import Recorded
from curvescope.analysis.diagnosis.explain import diagnose
from curvescope.analysis.render.found import find_all
from curvescope.analysis.render.headline import headline

from ...tables import ask_each, grade
from ..synthetic import sweep, times_of

BATCHES = (4, 8, 16, 24, 32)
LAYERS = {"embedding": 0.1, "attention": 0.8, "mlp.0": 1.0, "mlp.2": 1.1, "norm": 0.1, "head": 0.7}
PLANTED_MS = 20.0
COPY = {"op": "aten::copy_", "bytes_compulsory": 4_000_000}


def planted(kind, seed, planted_ms=PLANTED_MS, noise=0.4):
    """The diagnosis of a sweep whose unprofiled steps vary by 40 %, and its layers by 3 %, with
    copies or slow products of some ms in the mixer from batch 24 on. Where they are given back,
    attention takes as much less.
    """
    random = np.random.default_rng(seed)

    def is_slow(batch):
        return batch == 24 if kind == "copies at one size" else batch >= 24

    def extra_ms(batch):
        return planted_ms if kind != "nothing" and is_slow(batch) else 0.0

    def back_ms(batch):
        return extra_ms(batch) if kind == "given back" else 0.0

    def last_ms(batch):
        slower = kind == "copies beside a slower layer" and batch >= 24
        return 0.1 * batch + (2 * PLANTED_MS if slower else 0.0)

    def noisy(ms):
        return ms * np.exp(0.03 * random.standard_normal())

    def layers(batch):
        work = {"flops": batch * 10**6}
        kernels = []
        for layer, ms in LAYERS.items():
            usual_ms = 0.2 + ms * batch - (back_ms(batch) / 2 if layer == "attention" else 0.0)
            for phase in ("forward", "backward"):
                kernels.append((layer, phase, "gemm", noisy(usual_ms), work))
        slow_ms = extra_ms(batch)
        if kind.startswith("copies") or kind == "a wait":
            slow_ms = 0.0
        if kind == "a wait" and is_slow(batch):
            kernels.append((None, None, None, noisy(planted_ms)))
        name = "fft" if kind == "another kernel" and batch >= 24 else "gemm"
        kernels.append(("mixer", "forward", name, noisy(0.1 * batch + slow_ms), work))
        kernels.append(("last", "forward", "gemm", noisy(last_ms(batch)), work))
        if kind.startswith("copies") and is_slow(batch):
            phases = ("forward", "backward") if kind == "copies in both phases" else ("forward",)
            for phase in phases:
                kernels.append(("mixer", phase, "copy", noisy(planted_ms / len(phases)), COPY))
        return kernels

    steps, kernels = sweep(
        lambda batch: 3.5 + 7.7 * batch + extra_ms(batch) - back_ms(batch),
        layers,
        random,
        batches=BATCHES,
        noise=noise,
        drift=noise / 4,
    )
    times = times_of(steps, kernels, place_idle=True)
    return diagnose(Recorded(steps, kernel_times=times))


# Of each question a seed in `make test`, and the others in CI.
EACH_SEED = grade([0, 1, 2, 3], quick=[0], in_ci=[1, 2, 3])


@pytest.mark.parametrize("seed", EACH_SEED)
@ask_each("kind", ["copies", "slow products"])
def test_a_certain_layer_leads_though_no_deviation_of_the_step_is_significant(kind, seed):
    found = planted(kind, seed)
    assert found.anomalies == ()
    (part,) = found.certain
    assert (part.label, part.batch) == ("mixer forward", 24)
    assert part.value.low < PLANTED_MS < part.value.high
    assert part.step_share == pytest.approx(PLANTED_MS / found.curve.at(24).time_ms.value, rel=0.2)
    assert (part.from_shapes is not None) == (kind == "copies")
    assert (part.p_adjusted is not None) == (kind == "slow products")
    said = headline({"network": "lm"}, found)
    assert said.startswith("lm: mixer forward costs ")
    assert " more at batch 24 than smaller ones ask for, " in said
    assert ("aten::copy_ runs at 24 only, from shapes" in said) == (kind == "copies")
    assert "No anomaly" not in said


@pytest.mark.parametrize("seed", EACH_SEED)
def test_a_wait_in_a_layer_leads_though_no_deviation_of_the_step_is_significant(seed):
    found = planted("a wait", seed)
    assert found.anomalies == ()
    (part,) = found.certain
    assert (part.label, part.batch) == ("idle in mixer forward", 24)
    assert part.value.value == pytest.approx(PLANTED_MS, rel=0.1)
    assert find_all(found)[0].what.startswith("idle in mixer forward from 24 on: ")


@pytest.mark.slow
@ask_each("seed", range(2))
def test_counted_work_of_a_layer_is_added_up_over_its_phases(seed):
    """Each phase makes 1.3 % of the step, which alone is worth no word."""
    (part,) = planted("copies in both phases", seed, planted_ms=5.0).certain
    assert (part.label, part.layer, part.batch) == ("mixer", "mixer", 24)
    assert part.value.value == pytest.approx(5.0, rel=0.1)


@pytest.mark.slow
@ask_each("seed", range(2))
@ask_each(("kind", "lasts"), [("copies", True), ("copies at one size", False)])
def test_a_layer_that_all_larger_sizes_pay_for_is_slow_from_a_size_on(kind, lasts, seed):
    found = planted(kind, seed)
    (part,) = found.certain
    (entry,) = [entry for entry in find_all(found) if entry.certain]
    if lasts:
        share = PLANTED_MS / found.curve.at(32).time_ms.value
        assert part.share_at_largest == pytest.approx(share, rel=0.2)
        assert [size for size, _ in entry.worth] == [24, 32]
        assert entry.what.startswith("mixer forward from 24 on: ")
    else:
        assert part.share_at_largest is None
        assert entry.what.startswith("mixer forward at 24: ")


def test_counted_work_leads_a_larger_time_whose_cause_is_unknown():
    found = planted("copies beside a slower layer", 0)
    assert {part.label for part in found.certain} == {"mixer forward", "last forward"}
    first, second = find_all(found)[:2]
    assert first.where == "mixer forward"
    assert second.where == "last forward"


@pytest.mark.parametrize("seed", EACH_SEED[:3])
@ask_each(("kind", "told"), [("slow products", False), ("another kernel", True)])
def test_a_layer_for_which_only_its_time_speaks_needs_more_of_the_step(kind, told, seed):
    """9 ms are 5 % of the step."""
    certain = planted(kind, seed, planted_ms=9.0).certain
    assert [part.label for part in certain] == ["mixer forward"] * told


@pytest.mark.parametrize("seed", EACH_SEED[:3])
def test_what_another_layer_gives_back_makes_no_size_slow(seed):
    """Times of layers may move between them, e.g. where one waits for memory of the other."""
    found = planted("given back", seed, noise=0.005)
    assert found.certain == ()
    assert not [entry for entry in find_all(found) if entry.is_slow_size]


@pytest.mark.slow
@ask_each("seed", range(6))
def test_nothing_planted_is_nothing_certain(seed):
    found = planted("nothing", seed)
    assert found.certain == ()
    assert "no anomaly" in headline({"network": "lm"}, found)
