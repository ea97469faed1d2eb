"""Recognises collectives, sends and receives by the names of their kernels and calls."""

from __future__ import annotations

import re
from functools import lru_cache

from .kernel_names import COMMUNICATION, family
from .range_names import COLLECTIVES, DISTRIBUTED

# NCCL 2.0 to 2.27 and RCCL: ncclAllReduceRingLLKernel_sum_f32, ncclKernel_AllReduce_RING_LL_Sum_float,
# ncclDevKernel_AllReduce_Sum_f32_RING_LL. Gloo, by torch's names: gloo:all_reduce.
_NCCL = re.compile(
    r"nccl(?:Dev)?(?:Kernel)?_?(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|AlltoAll)", re.IGNORECASE
)
_GLOO = re.compile(r"^gloo:(\w+)")
# ncclDevKernel_SendRecv, ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t, ncclSendRecvKernel; gloo:send, gloo:recv.
_BETWEEN_TWO = re.compile(r"nccl(?:Dev)?(?:Kernel)?_?SendRecv|^gloo:(?:send|recv)", re.IGNORECASE)
_SPELLED = {"allreduce": "AllReduce", "allgather": "AllGather", "reducescatter": "ReduceScatter"}
_SPELLED |= {"broadcast": "Broadcast", "reduce": "Reduce", "alltoall": "AlltoAll"}


@lru_cache(maxsize=65_536)
def collective(name: str) -> str | None:
    """The collective of this name in NCCL's spelling; None for other names.

    Sends and receives are communication between two ranks, not collectives.
    """
    if match := _NCCL.search(name):
        return _SPELLED.get(match[1].lower(), match[1])
    if match := _GLOO.match(name):
        plain = match[1].replace("_", "").lower()
        return None if between_two(name) else _SPELLED.get(plain, match[1])
    return None


def communicates(name: str, op: str | None) -> bool:
    """Whether a kernel moves data between ranks, by its own name or by the collective that launched it.

    On a GPU torch's operator around NCCL's kernel may be its own, e.g. `c10d::allreduce_`.
    """
    return (op or "").startswith(COLLECTIVES) or collective(name) is not None or between_two(name)


def between_two(name: str) -> bool:
    """Whether this is a send or a receive."""
    return _BETWEEN_TWO.search(name) is not None


@lru_cache(maxsize=65_536)
def is_communication(name: str) -> bool:
    """Whether work of this name is communication between devices or processes: its kernel, or its call on a host."""
    if collective(name) is not None or between_two(name) or name.startswith(DISTRIBUTED):
        return True
    return family(name) == COMMUNICATION
