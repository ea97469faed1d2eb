"""What a framework does around the kernels: memory, choice of algorithms, updates of parameters, waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# Host time of one launch, with the library's call around it: NeuSight's shortest operators of four kernels take 46 us
# (V100) and 61 us (P100) longer than those of two.
HOST_LAUNCH_S = 25e-6
# What an operator of MXNet takes beyond its kernel when the engine waits for it: 51 operators on 40 kB take 26.9 us
# (median; benchmarks/published/mxnet_operators_v100.csv), of which the model gives the kernel 4.0 us.
WAIT_S = 23e-6
# Threads that run the operators of one GPU: MXNET_GPU_WORKER_NTHREADS is 2 if not set (docs/how_to/env_var.md).
_WORKERS = 2

# Rows of a table that are no operators of their own in a framework with whole layers: the pieces of dropout, the count
# of batches that PyTorch's batch normalisation keeps, and the loss, which is one operator with the softmax.
_PIECES = frozenset({"add_", "bernoulli_", "div_", "zeros_like", "nll_loss_forward"})
# Parameter tensors of an operator other than a convolution, whose row lists them.
_PARAMETERS: Mapping[str, int] = {"native_batch_norm": 2, "native_layer_norm": 2, "addmm": 2, "mm": 1, "embedding": 1}


@dataclass(frozen=True)
class Framework:
    """What a framework does around the kernels.

    Attributes:
        name: of the framework.
        pool_places: whether it keeps where the maxima of a pool lie, instead of finding them again.
        autotuned: whether it times every algorithm of a convolution, instead of asking the library.
        workspace_bytes: most scratch memory that it grants a convolution.
        waits: for which operators of a training step the host waits: none, all, or those with parameters.
        update_operators: operators that update one parameter tensor; counts only where the host waits.
        update_passes: how often an update reads or writes as many bytes as there are parameters.
    """

    name: str
    pool_places: bool
    autotuned: bool
    workspace_bytes: float
    waits: str = "none"
    update_operators: int = 1
    update_passes: int = 5  # weight and momentum read and written, the gradient read


FRAMEWORKS = {
    framework.name: framework
    for framework in (
        Framework("torch", True, False, np.inf),  # whatever is free; torch.backends.cudnn.benchmark is off if not set
        # TF_CUDNN_WORKSPACE_LIMIT_IN_MB is 4096 and TF_CUDNN_USE_AUTOTUNE is on if not set.
        Framework("tensorflow", False, True, 4 * 2**30),
        # MXNet 1.2 (apache/mxnet 054aeee): a convolution's `workspace` is 1024 MiB and MXNET_CUDNN_AUTOTUNE_DEFAULT on
        # if not set. A training step runs in segments that end where parameters or their gradients come in
        # (graph_executor.cc, BulkTrainingOpSegs), and is waited for after each; inference is one segment. The update is
        # sgd_mom_update, then the new weights are copied out of the key-value store: two passes more.
        Framework("mxnet", False, True, 2**30, "parameters", 1, 7),
        # MXNet 0.9 (apache/mxnet 0a03417): training steps have no segments, so every operator is waited for; SGD is
        # seven NDArray operators of 17 passes (optimizer.py), and the copy. Timing is off if not set, but the
        # documentation asks for it in benchmarks (docs/how_to/env_var.md).
        Framework("mxnet0.9", False, True, 2**30, "all", 7, 19),
        # PaddlePaddle of 2017 (hl_cuda_cudnn.cc): cudnn_conv_workspace_limit_in_mb is 4096 if not set; cuDNN is asked.
        Framework("paddle", False, False, 4 * 2**30),
        # Caffe asks cuDNN with 8 MiB (cudnn_conv_layer.cpp; PaddlePaddle/Paddle 9d377f0, benchmark/README.md).
        Framework("caffe", False, False, 8 * 2**20),
    )
}


def waiting_s(operations: Mapping[str, Any], framework: Framework, kind: str) -> float:
    """Time of a step in which the GPU idles because the host waits for operators one by one.

    Forward and backward are a chain; updates depend on nothing but their gradient, so all threads share them.

    Args:
        operations: of the network.
        framework: that runs it.
        kind: training, forward or forward+backward.
    """
    if framework.waits == "none" or kind == "forward":
        return 0.0
    rows = [row for row in operations["operations"] if row["op"] not in _PIECES]
    tensors = [_parameters(row) for row in rows]
    waited = len(rows) if framework.waits == "all" else sum(count > 0 for count in tensors)
    chain = 2 * waited
    updates = framework.update_operators * sum(tensors) if kind == "training" else 0
    return WAIT_S * max(chain, (chain + updates) / _WORKERS)


def _parameters(row: Mapping[str, Any]) -> int:
    if row["op"] == "convolution":
        return len(row["inputs"]) - 1
    return _PARAMETERS.get(row["op"], 0)
