"""What the headline says of the time in which no kernel runs."""

from types import SimpleNamespace

import numpy as np
import pandas as pd

from curvescope.analysis.decompose.terms import IDLE, KERNELS, Key
from curvescope.analysis.render.headline import largest_clauses

from ...tables import ask_each


def diagnosis_of(cores, kernels=0.1, kind="cpu", threads=2):
    """Steps of 100 ms of batch 8, with the CPU time of so many cores, and kernels for a share."""
    steps = {"batch": [8, 8], "duration_ns": [100_000_000] * 2, "cpu_time_ns": [None, cores * 1e8]}
    frame = pd.DataFrame(steps)
    frame.loc[0, "duration_ns"] = 0  # the profiled one, of which no CPU time is known
    recorded = SimpleNamespace(hardware=SimpleNamespace(kind=kind, threads=threads), steps=frame)
    keys = [Key(None, None, KERNELS), Key(None, None, IDLE)]
    values_ms = np.array([[100 * kernels, 100 * (1 - kernels)]])
    kernel_times = pd.DataFrame({"batch": [], "name": [], "exclusive_ms": []})
    return SimpleNamespace(
        recorded=recorded,
        terms=SimpleNamespace(keys=keys, values_ms=values_ms, conditions=[8]),
        curve=SimpleNamespace(conditions=[8]),
        kernel_times=kernel_times,
    )


@ask_each(
    ("how", "words"),
    [
        ({"cores": 0.97}, "host work that is not recorded"),
        ({"cores": 0.05}, "idle: nothing runs"),
        ({"cores": 0.8, "kernels": 0.4}, "idle: nothing runs"),  # two threads of its kernels
        ({"cores": 1.3, "kernels": 0.4}, "host work that is not recorded"),
        ({"cores": 0.97, "kind": "cuda", "threads": None}, "idle: nothing runs"),
        ({"cores": 0.97, "threads": None}, "host work that is not recorded"),
    ],
)
def test_what_a_core_does_beside_kernels_is_no_idle_time(how, words):
    assert f"of the profiled step is {words}" in largest_clauses(diagnosis_of(**how), {})
