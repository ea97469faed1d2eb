"""The work of a framework around the kernels: memory, choice of algorithms, parameter updates,
waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .problems import ITEM_BYTES, Floats

# Host time of one launch, including the library call: NeuSight's shortest operators of four kernels
# take 46 us (V100) and 61 us (P100) longer than those of two.
HOST_LAUNCH_S = 25e-6
# Time of an MXNet operator beyond its kernel if the engine waits for it: 51 operators on 40 kB take
# 26.9 us (median; benchmarks/published/mxnet_operators_v100.csv), of which the model gives the
# kernel 4.0 us.
WAIT_S = 23e-6
# Time from the end of an MXNet operator to the start of the next one that needs it: the engine
# notes what is ready, and wakes a thread. No operator's published time holds it, so it is the
# median over four cards of what training steps of 1 to 4 images say; the scores of a card have the
# median of the others (benchmarks/network_sweeps.py).
ENGINE_S = 45e-6
# Bandwidth of PCIe 3.0 x16 (8 GT/s on 16 lanes, 128 of 130 bits). No copy reaches it, so it gives
# the least time for copying images, on GPUs of MXNet's time.
PCIE_BYTES_PER_S = 16 * 8e9 / 8 * 128 / 130
# Threads that run the operators of one GPU: MXNET_GPU_WORKER_NTHREADS is 2 by default
# (docs/how_to/env_var.md).
_WORKERS = 2

# Rows of a table that are not separate operators in a framework with whole layers: the parts of
# dropout, the batch counter of PyTorch's batch normalisation, and the loss, which is one operator
# with the softmax.
_PIECES = frozenset({"add_", "bernoulli_", "div_", "zeros_like", "nll_loss_forward"})
# Parameter tensors of an operator other than a convolution, which lists them in its row.
_PARAMETERS: Mapping[str, int] = {
    "native_batch_norm": 2,
    "native_layer_norm": 2,
    "addmm": 2,
    "mm": 1,
    "embedding": 1,
}


@dataclass(frozen=True)
class Framework:
    """Behaviour of a framework around the kernels."""

    name: str  # name of the framework
    # whether it stores the positions of a pool's maxima, instead of searching them again
    pool_places: bool
    # whether it times every algorithm of a convolution, instead of using the library's heuristic
    autotuned: bool
    workspace_bytes: float  # most scratch memory that a convolution may use
    # operators of a training step that the host waits for: none, all, or those with parameters
    waits: str = "none"
    # time from the end of an operator that the host waits for to the start of the next
    engine_s: float = 0.0
    # operators that update one parameter tensor; matters only if the host waits
    update_operators: int = 1
    # passes over the parameters' bytes in an update
    update_passes: int = 5  # weight and momentum read and written, the gradient read
    # whether its forward step is inference, which normalises by stored statistics
    infers: bool = False
    # whether the backward pass computes the gradient of the images, which nothing reads
    image_gradient: bool = False
    # whether a training step begins with a copy of its images to the GPU, without overlap
    copies_images: bool = False
    spare_share: float = 0.0  # share of the free memory that its allocator leaves alone
    spare_bytes: float = 0.0  # least memory that its allocator leaves alone
    excluded: tuple[str, ...] = ()  # algorithms that it never runs

    def usable_bytes(self, free_bytes: float) -> float:
        """Memory that it uses of the rest after driver and libraries have started."""
        share = self.spare_share * free_bytes
        return free_bytes - max(share, self.spare_bytes)


# It takes whatever is free. torch.backends.cudnn.benchmark is off if not set.
_TORCH = Framework("torch", pool_places=True, autotuned=False, workspace_bytes=np.inf)
_TORCH_BENCHMARK = replace(_TORCH, name="torch_benchmark", autotuned=True)
# Published benchmarks of Torch7 set cudnn.benchmark and time `model:training()`, whose `backward`
# computes the gradient of what it reads (jcjohnson/cnn-benchmarks 83d441f, cnn_benchmark.lua).
_TORCH7 = replace(_TORCH_BENCHMARK, name="torch7", image_gradient=True)
# TF_CUDNN_WORKSPACE_LIMIT_IN_MB is 4096 and TF_CUDNN_USE_AUTOTUNE is on if not set. The allocator
# leaves 5 % of the free memory alone, at least 300 MiB (gpu_device.cc, MinSystemMemory); a
# published log of a GTX 1080 has 6.90 GiB of 7.26 (tensorflow#7187).
_TENSORFLOW = Framework(
    "tensorflow", pool_places=False, autotuned=True, workspace_bytes=4 * 2**30,
    infers=True, spare_share=0.05, spare_bytes=300 * 2**20,
)  # fmt: skip
# Before 1.3, TF_ENABLE_WINOGRAD_NONFUSED is off if not set (tensorflow#9339).
_TENSORFLOW10 = replace(_TENSORFLOW, name="tensorflow1.0", excluded=("WINOGRAD_NONFUSED",))
# MXNet 1.2 (apache/mxnet 054aeee): a convolution's `workspace` is 1024 MiB and
# MXNET_CUDNN_AUTOTUNE_DEFAULT on if not set. A training step runs in segments and is waited for
# after each (graph_executor.cc, BulkTrainingOpSegs): forward they end where parameters come in,
# backward an operator that gives a gradient of parameters runs alone. Inference is one segment. The
# update is sgd_mom_update, then the new weights are copied out of the key-value store by other
# threads: two passes more. Images lie in the host's memory (common/data.py, SyntheticDataIter) and
# are copied over those that the step before has read to its end.
_MXNET = Framework(
    "mxnet", pool_places=False, autotuned=True, workspace_bytes=2**30, waits="parameters",
    engine_s=ENGINE_S, update_operators=1, update_passes=7, infers=True, copies_images=True,
)  # fmt: skip
# MXNet 0.9 (apache/mxnet 0a03417): training steps have no segments, so every operator is waited
# for; SGD is seven NDArray operators of 17 passes (optimizer.py), and the copy. Timing is off if
# not set, but the documentation asks for it in benchmarks (docs/how_to/env_var.md).
_MXNET09 = replace(_MXNET, name="mxnet0.9", waits="all", update_operators=7, update_passes=19)
# PaddlePaddle of 2017 (hl_cuda_cudnn.cc): cudnn_conv_workspace_limit_in_mb is 4096 if not set;
# cuDNN is asked.
_PADDLE = Framework("paddle", pool_places=False, autotuned=False, workspace_bytes=4 * 2**30)
# Caffe asks cuDNN with 8 MiB (cudnn_conv_layer.cpp; PaddlePaddle/Paddle 9d377f0,
# benchmark/README.md).
_CAFFE = replace(_PADDLE, name="caffe", workspace_bytes=8 * 2**20)
_EVERY = (
    _TORCH, _TORCH_BENCHMARK, _TORCH7, _TENSORFLOW, _TENSORFLOW10, _MXNET, _MXNET09, _PADDLE,
    _CAFFE,
)  # fmt: skip
FRAMEWORKS = {framework.name: framework for framework in _EVERY}


Work = Mapping[tuple[str, int], tuple[int, Floats]]


def waiting_s(
    operations: Mapping[str, Any],
    framework: Framework,
    kind: str,
    work: Work,
    update_s: Floats | float = 0.0,
) -> Floats | float:
    """Time of a step in which no kernel of the passes runs, because the host waits, by batch size.

    An operator that the host waits for starts on an idle GPU: only its own kernels can hide the
    launches that follow. Forward and backward are a chain. An update depends only on its gradient,
    so it runs beside the chain, on the stream of the other thread, and the next step waits only for
    the parameters that it reads (base_module.py: `fit` reads the outputs after it has queued the
    updates). All threads share all operators. Both need DRAM except during convolutions, so an
    update hides only behind those.

    `work` has the number of launches of an operator and the time of its kernels, by phase and index
    in the table.
    """
    if framework.waits == "none" or kind == "forward":
        return 0.0
    table = operations["operations"]
    rows = {}
    for index, row in enumerate(table):
        if row["op"] not in _PIECES:
            rows[index] = parameter_count(row)
    chain: Floats | float = 0.0
    for phase in ("forward", "backward"):
        for segment in _segments(rows, phase, alone=framework.waits == "all"):
            late_s = _late_launches_s(segment, phase, work)
            chain = chain + WAIT_S + framework.engine_s + late_s
    if kind != "training":
        return chain
    passes_s: Floats | float = 0.0
    convolutions_s: Floats | float = 0.0
    for (_, index), (_, time_s) in work.items():
        passes_s = passes_s + time_s
        if table[index]["op"] == "convolution":
            convolutions_s = convolutions_s + time_s
    waits = framework.update_operators * sum(rows.values())
    updates_s = update_s + WAIT_S * waits
    shared = (passes_s + chain + updates_s) / _WORKERS - passes_s
    at_least = np.maximum(chain, shared)
    return np.maximum(at_least, update_s - convolutions_s)


def _late_launches_s(segment: Sequence[int], phase: str, work: Work) -> Floats | float:
    """Time by which the kernels of a segment end before the host has launched all of them."""
    launches = 0
    device_s: Floats | float = 0.0
    for index in segment:
        if (phase, index) in work:
            count, time_s = work[phase, index]
            launches += count
            device_s = device_s + time_s
    host_s = (launches - 1) * HOST_LAUNCH_S
    return np.maximum(host_s - device_s, 0.0)


def _segments(rows: Mapping[int, int], phase: str, alone: bool) -> Iterator[list[int]]:
    """Indices of operators that MXNet waits for together, in order; `rows` gives the number of
    parameters by index.
    """
    ordered = list(rows)
    if phase == "backward":
        ordered.reverse()
    segment: list[int] = []
    for index in ordered:
        # A forward operator with parameters begins a segment; a backward one is a segment of its
        # own.
        follows_gradient = phase == "backward" and segment and rows[segment[0]]
        if segment and (alone or rows[index] or follows_gradient):
            yield segment
            segment = []
        segment.append(index)
    if segment:
        yield segment


def copying_s(
    operations: Mapping[str, Any], framework: Framework, kind: str, sizes: Floats
) -> Floats | float:
    """Time of a step in which the GPU idles during the copy of the images, by batch size."""
    if not framework.copies_images or kind != "training":
        return 0.0
    first = operations["operations"][0]
    elements = np.ones_like(sizes)
    for factor, constant in first["inputs"][0]:
        elements = elements * (factor * sizes + constant)
    return np.asarray(ITEM_BYTES * elements / PCIE_BYTES_PER_S)


def parameter_count(row: Mapping[str, Any]) -> int:
    """Number of parameter tensors of an operator of a table."""
    if row["op"] == "convolution":
        return len(row["inputs"]) - 1
    return _PARAMETERS.get(row["op"], 0)
