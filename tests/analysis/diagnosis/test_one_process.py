"""A process has one place in memory: what its rounds share is no property of the program."""

import numpy as np
import pytest

from curvescope.analysis.causes.context import Recorded
from curvescope.analysis.diagnosis.explain import diagnose
from curvescope.analysis.render.found import find_all
from curvescope.profiling.hardware.limits import Hardware

from ...tables import ask_each
from ..synthetic import sweep, times_of

BATCHES = (8, 16, 24, 32)
LAYERS = tuple(f"block{number}" for number in range(8))
PLACED = 0.02  # spread of a layer's time at a size over processes
SEEDS = range(8)


def find_slow(seed, processes, *, kind="cpu", slow_at_24=1.0):
    """The slow sizes that are said of a sweep, of which all times are in proportion but for the
    place of its process in memory; the last layer takes `slow_at_24` times as long at 24.
    """
    random = np.random.default_rng(seed)
    place = {
        (layer, batch): np.exp(PLACED * random.standard_normal())
        for layer in LAYERS
        for batch in BATCHES
    }
    for batch in BATCHES[2:]:
        place[LAYERS[-1], batch] *= slow_at_24

    def layer_ms(layer, batch):
        return (0.2 + batch) * place[layer, batch]

    def kernels(batch):
        return [
            (layer, "forward", "gemm", layer_ms(layer, batch), {"flops": batch * 10**6})
            for layer in LAYERS
        ]

    steps, launched = sweep(
        lambda batch: 1 + sum(layer_ms(layer, batch) for layer in LAYERS),
        kernels,
        random,
        batches=BATCHES,
        noise=0.005,
        drift=0.005,
    )
    recorded = Recorded(
        steps,
        kernel_times=times_of(steps, launched),
        hardware=Hardware(None, kind),
        processes=processes,
    )
    return [found.what for found in find_all(diagnose(recorded)) if found.is_slow_size]


@ask_each("seed", SEEDS)
def test_what_one_process_shares_is_no_slow_size(seed):
    assert find_slow(seed, processes=1) == []


def test_the_same_is_one_where_processes_repeat_it_or_on_a_gpu():
    for several in ({"processes": 6}, {"processes": 1, "kind": "cuda"}):
        assert any(find_slow(seed, **several) for seed in SEEDS)


@pytest.mark.slow
@ask_each("seed", range(4))
def test_a_layer_beyond_what_places_make_is_named(seed):
    (first, *_) = find_slow(seed, processes=1, slow_at_24=2.0)
    assert LAYERS[-1] in first
