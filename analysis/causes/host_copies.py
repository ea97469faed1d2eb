"""Copies between host and device that nothing hides: batches, results, and weights that stay on the host."""

from __future__ import annotations

from .case import Intervention
from .single_profile import DEVICE_TO_HOST, HOST_TO_DEVICE, ProfiledStep, Suggestion, fact

CAUSE = "copies from and to the host"
INTERVENTION = Intervention(
    expected="With the data on the device, or copied beside other work, their time leaves the step.",
    untested="no factor changes where the program keeps its data",
)
_OFFLOADED_BYTES = 1e9  # per step: more than any batch, so weights or states
_OFFLOADED_SHARE = 0.3  # of the step
_SOME = 0.01  # share of the bytes in pageable memory that is said


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest to hide, to avoid or to speed up copies, where nothing else runs beside them."""
    exposed_ms = sum(step.exposed_ms.get(kind, 0.0) for kind in (HOST_TO_DEVICE, DEVICE_TO_HOST))
    if not step.enough(exposed_ms) or step.copies.empty:
        return None
    moved = step.copies[step.copies["kind"].isin([HOST_TO_DEVICE, DEVICE_TO_HOST])]
    size, calls, own_ms = (float(moved[column].sum()) for column in ("bytes", "calls", "own_ms"))
    pageable = moved[moved["host_memory"] == "pageable"]
    evidence = [
        fact("copies in which nothing else runs, per step", exposed_ms, "ms", "memory.start_ns"),
        fact("bytes from and to the host, per step", size / 1e6, "MB", "memory.bytes"),
        fact(
            "their rate",
            size / own_ms / 1e6 if own_ms else None,
            "GB/s",
            "memory.bytes, memory.duration_ns",
        ),
        fact("copies per step", calls, "", "memory"),
    ]
    if (share := float(pageable["bytes"].sum()) / size if size else 0.0) >= _SOME:
        evidence.append(
            fact("share of these bytes in pageable memory", share, "1", "memory.host_memory")
        )
    offloads = size >= _OFFLOADED_BYTES and exposed_ms >= _OFFLOADED_SHARE * step.time_ms
    where = step.place_of(step.groups[step.groups["name"].str.startswith("Memcpy", na=False)])
    if offloads:
        what, remedy = (
            "fetches its data from the host",
            "keep weights and states on the device, or fetch them ahead",
        )
        how = "turn off CPU offload (offload_params of FSDP, offload_optimizer of DeepSpeed), or prefetch"
    elif share >= _SOME:
        what, remedy = (
            "copies from pageable memory",
            "pin the host's memory, and copy without blocking",
        )
        how = "DataLoader(..., pin_memory=True); tensor.to(device, non_blocking=True)"
    else:
        what, remedy = (
            "copies between host and device while nothing else runs",
            "copy beside other work",
        )
        how = "tensor.to(device, non_blocking=True) in a stream of its own, one batch ahead"
    if not step.knows_operators and not offloads:
        how = "cudaHostRegister or cudaMallocHost for the host's memory; cudaMemcpyAsync in a stream of its own"
    return Suggestion(
        cause=CAUSE,
        what=what,
        at_most_ms=exposed_ms,
        evidence=tuple(evidence),
        where=where,
        remedy=remedy,
        how=how,
    )
