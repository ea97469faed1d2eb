"""What the ranks of a test's scaling run step, with what is planted in them.

Planted on several devices: rank 1 sleeps inside an operator of layer `slow`; every rank's loader
sleeps. Rank 1 also pretends to be on another node, with a clock that is five seconds ahead, and can
be told to die at some step.
"""

from __future__ import annotations

import os
import signal
import time
from collections import OrderedDict

import torch
from torch import nn

SLOW_RANK_S = 0.08
SLOW_INPUT_S = 0.03
CLOCK_AHEAD_NS = 5 * 10**9


@torch.library.custom_op("curvescope_test::linger", mutates_args=())
def linger(x: torch.Tensor) -> torch.Tensor:
    time.sleep(SLOW_RANK_S)
    return x.clone()


linger.register_autograd(lambda context, gradient: gradient)


steps = 0


class Slow(nn.Linear):
    def forward(self, x):
        global steps
        steps += 1
        if os.environ["RANK"] == "1" and str(steps) == os.environ.get("CURVESCOPE_TEST_DIE_AT"):
            os.kill(os.getpid(), signal.SIGKILL)
        x = super().forward(x)
        return linger(x) if os.environ["RANK"] == "1" else x


def build():
    layers = [("first", nn.Linear(64, 64)), ("slow", Slow(64, 64)), ("head", nn.Linear(64, 8))]
    return nn.Sequential(OrderedDict(layers))


def load(batch, rank, world_size):
    while True:
        if world_size > 1:
            time.sleep(SLOW_INPUT_S)
        yield torch.ones(batch, 64), None


if os.environ.get("RANK") == "1":
    from curvescope.profiling.measure import process_group

    shared_ns = time.monotonic_ns
    time.monotonic_ns = lambda: shared_ns() + CLOCK_AHEAD_NS
    process_group.machine_identity = lambda: "another node"
