"""Recognises collectives, sends and receives by the names of their kernels and calls, and counts
their messages.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .kernel_names import COMMUNICATION, family
from .operation import element_bytes
from .range_names import COLLECTIVES, DISTRIBUTED

# NCCL 2.0 to 2.27 and RCCL: ncclAllReduceRingLLKernel_sum_f32,
# ncclKernel_AllReduce_RING_LL_Sum_float, ncclDevKernel_AllReduce_Sum_f32_RING_LL. Gloo, by torch's
# names: gloo:all_reduce.
_NCCL = re.compile(
    r"nccl(?:Dev)?(?:Kernel)?_?(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|AlltoAll)",
    re.IGNORECASE,
)
_GLOO = re.compile(r"^gloo:(\w+)")
# ncclDevKernel_SendRecv, ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t, ncclSendRecvKernel; gloo:send,
# gloo:recv.
_BETWEEN_TWO = re.compile(r"nccl(?:Dev)?(?:Kernel)?_?SendRecv|^gloo:(?:send|recv)", re.IGNORECASE)
_SPELLED = {"allreduce": "AllReduce", "allgather": "AllGather", "reducescatter": "ReduceScatter"}
_SPELLED |= {"broadcast": "Broadcast", "reduce": "Reduce", "alltoall": "AlltoAll"}
# Torch's names of collectives, without underscores: allreduce_coalesced, _allgather_base,
# reduce_scatter_tensor.
_TORCH = re.compile(
    r"(allreduce|allgather|reducescatter|broadcast|reduce|alltoall|gather|scatter|send|recv)"
)
_TORCH_SPELLED = {
    **_SPELLED,
    "gather": "Gather",
    "scatter": "Scatter",
    "send": "SendRecv",
    "recv": "SendRecv",
}
# Kernels of other libraries: multimem_all_reduce_kernel, vllm::cross_device_reduce_1stage,
# reduce_scatter_kernel.
_OTHERS = re.compile(
    r"(?P<AllReduce>all_?reduce|cross_device_reduce)|(?P<AllGather>all_?gather)|"
    r"(?P<ReduceScatter>reduce_?scatter)|(?P<AlltoAll>all_?to_?all)",
    re.IGNORECASE,
)
# Algorithm and protocol in names of NCCL's kernels.
_ALGORITHM = re.compile(
    r"(NVLS_?TREE|NVLS|COLLNET|TREE|RING|PAT)_?(?:DIRECT|CHAIN)?_?(LL128|LL|SIMPLE)", re.IGNORECASE
)
_ALGORITHMS = {"NVLSTREE": "NVLS tree", "COLLNET": "CollNet", "TREE": "tree", "RING": "ring"}


@lru_cache(maxsize=65_536)
def collective(name: str) -> str | None:
    """The collective of this name in NCCL's spelling; None for others, also for sends and receives
    (between two).
    """
    if match := _NCCL.search(name):
        return _SPELLED.get(match[1].lower(), match[1])
    if match := _GLOO.match(name):
        plain = match[1].replace("_", "").lower()
        if between_two(name):
            return None
        return _SPELLED.get(plain, match[1])
    return None


def communicates(name: str, op: str | None) -> bool:
    """Whether a kernel moves data between ranks, by its own name or by the collective that launched
    it.

    On a GPU torch's operator around NCCL's kernel may be its own, e.g. `c10d::allreduce_`.
    """
    return (op or "").startswith(COLLECTIVES) or collective(name) is not None or between_two(name)


@lru_cache(maxsize=65_536)
def collective_of_torch(name: str) -> str | None:
    """The collective that torch calls so, e.g. `_allgather_base`, in NCCL's spelling; None for
    others, e.g. a barrier.

    Sends and receives are SendRecv, as NCCL's kernel for both.
    """
    match = _TORCH.match(name.replace("_", "").lower())
    return _TORCH_SPELLED[match[1]] if match else None


def collective_of_kernel(name: str) -> str | None:
    """The collective of a kernel of any library, in NCCL's spelling; None if its name does not tell
    it.
    """
    if (kind := collective(name)) is not None or between_two(name):
        return kind or "SendRecv"
    match = _OTHERS.search(name)
    return match.lastgroup if match else None


@lru_cache(maxsize=65_536)
def algorithm(kernel: str) -> str | None:
    """The algorithm of a collective, from the name of NCCL's kernel; None if the name does not tell
    it.
    """
    match = _ALGORITHM.search(kernel)
    if match is None:
        return None
    name = match[1].upper().replace("_", "")
    protocol = match[2].upper()
    # NCCL from 2.19 on runs other algorithms in this kernel, too (`best_kernel` in its
    # `src/device/generate.py`).
    if (name, protocol) == ("RING", "LL") and "ncclDevKernel" in kernel:
        return None
    return _ALGORITHMS.get(name, name)


def message_bytes(
    elements_in: int | None, elements_out: int | None, dtype: str | None
) -> int | None:
    """Bytes of a collective's message as nccl-tests counts it: the larger of a rank's input and
    output.

    `dtype` is torch's name, e.g. `BFloat16`. None if elements or their size are unknown, or no
    64-bit number holds it.
    """
    counts = [count for count in (elements_in, elements_out) if count is not None and count >= 0]
    size = element_bytes(dtype)
    message_bytes = max(counts) * size if counts and size else None
    if message_bytes is not None and message_bytes < 1 << 63:
        return message_bytes
    return None


def between_two(name: str) -> bool:
    """Whether this is a send or a receive."""
    return _BETWEEN_TWO.search(name) is not None


@lru_cache(maxsize=65_536)
def is_communication(name: str) -> bool:
    """Whether work of this name is communication between devices or processes: its kernel, or its
    call on a host.
    """
    is_collective = (
        collective(name) is not None or between_two(name) or name.startswith(DISTRIBUTED)
    )
    return is_collective or family(name) == COMMUNICATION
