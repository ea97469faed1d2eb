"""Synthetic sweeps of a process that keeps its place in memory, which its rounds repeat."""

import numpy as np

from curvescope.analysis.causes.context import Recorded
from curvescope.analysis.diagnosis.explain import diagnose
from curvescope.profiling.hardware.limits import Hardware

from .synthetic import sweep, times_of


def diagnose_placed(
    seed, processes, *, layers=8, placed=0.05, kind="cpu", slow_at_24=1.0, batches=(8, 16, 24, 32)
):
    """The diagnosis of a sweep, of which all times are in proportion but for the place of its
    process in memory; the last layer takes `slow_at_24` times as long from 24 on.
    """
    random = np.random.default_rng(seed)
    names = [f"block{number}" for number in range(layers)]
    place = {
        (layer, batch): np.exp(placed * random.standard_normal())
        for layer in names
        for batch in batches
    }
    for batch in batches[2:]:
        place[names[-1], batch] *= slow_at_24

    def layer_ms(layer, batch):
        return (0.2 + batch) * place[layer, batch]

    def kernels(batch):
        work = {"flops": batch * 10**6}
        return [(layer, "forward", "gemm", layer_ms(layer, batch), work) for layer in names]

    steps, launched = sweep(
        lambda batch: 1 + sum(layer_ms(layer, batch) for layer in names),
        kernels,
        random,
        batches=batches,
        noise=0.005,
        drift=0.005,
    )
    recorded = Recorded(
        steps,
        kernel_times=times_of(steps, launched),
        hardware=Hardware(None, kind),
        processes=processes,
    )
    return diagnose(recorded)
