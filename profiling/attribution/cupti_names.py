"""Names and numbers of CUPTI's records, for SQLite files of NVIDIA's profilers and for the
collector.
"""

from __future__ import annotations

import re

# CUpti_ActivityMemcpyKind, in order.
# 3 to 7 are of arrays
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoD",
    4: "DtoH",
    5: "DtoD",
    6: "DtoD",
}
COPY_KINDS |= {7: "DtoD", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
GPU_COPIES = ("Memcpy", "Memset")  # beginnings of the names of device work without a geometry
# What the name of a copy contains, by Kineto, e.g. `Memcpy HtoD (Pinned -> Device)`, and by Level
# Zero, which tells pageable memory of the host (M) from pinned memory (H).
_KINDS_IN_NAMES = {kind: kind for kind in ("HtoD", "DtoH", "DtoD", "PtoP")}
_KINDS_IN_NAMES |= {"M2D": "HtoD", "H2D": "HtoD", "D2M": "DtoH", "D2H": "DtoH", "D2D": "DtoD"}


def kind_of_copy(name: str) -> str | None:
    """The kind of memcpy that a name of device work tells; None without one."""
    return next((kind for part, kind in _KINDS_IN_NAMES.items() if part in name), None)


PAGEABLE, PINNED, MANAGED = HOST_MEMORY = ("pageable", "pinned", "managed")
# ENUM_CUDA_MEM_KIND of Nsight Systems, and CUpti_ActivityMemoryKind.
NSYS_MEMORY = {0: PAGEABLE, 1: PINNED, 4: MANAGED, 6: MANAGED}
CUPTI_MEMORY = {1: PAGEABLE, 2: PINNED, 5: MANAGED, 7: MANAGED}


def host_memory_of_copy(name: str) -> str | None:
    """The memory of the host that a name of a memcpy tells, e.g.
    `Memcpy HtoD (Pageable -> Device)`; None without.
    """
    lowered = name.lower()
    return next((memory for memory in HOST_MEMORY if memory in lowered), None)


# Columns of the `kernels` table, and members of CUPTI's kernel record; columns of SQLite files have
# the same names.
LAUNCH_SHAPE = {
    f"{what}_{axis}": f"{what}{axis.upper()}" for what in ("grid", "block") for axis in "xyz"
}
LAUNCH_SHAPE |= {"registers_per_thread": "registersPerThread"}

# CUDA API calls by their effect on the host; the first match counts.
HOST_KINDS = (
    # Growing segments (cuMemCreate, cuMemMap) and cudaMallocAsync allocate, too.
    (
        "allocation",
        re.compile(
            r"^cu(da)?(Malloc|Free|HostAlloc|Mem(Alloc|Free|Create|Map|Unmap|Release|SetAccess))"
        ),
    ),
    # JAX's own waits are read as such calls.
    (
        "synchronisation",
        re.compile(r"^(cu(da)?\w*Synchronize|block_until_ready|BlockHostUntilReady)"),
    ),
    ("synchronous copy", re.compile(r"^cu(da)?Memcpy(?!.*Async)")),
    ("launch", re.compile(r"^cu(da)?(Ext|Module)*(Launch|GraphLaunch)")),
    # A program makes contexts, streams and modules once.
    (
        "preparation",
        re.compile(
            r"^(cu(da)?Init|.*(ModuleLoad|LibraryLoad|ModuleGetFunction|LibraryGetKernel"
            r"|FuncGetAttributes|StreamCreate|EventCreate|CtxCreate|PrimaryCtxRetain"
            r"|GetDeviceProperties|LinkComplete|nvrtc|nvPTXCompiler))"
        ),
    ),
)


def host_kind(name: str) -> str | None:
    """The effect of a CUDA or HIP API call on the host, see `HOST_KINDS`; None for others."""
    plain = name.replace("hip", "cuda", 1) if name.startswith("hip") else name
    return next((kind for kind, form in HOST_KINDS if form.match(plain)), None)
