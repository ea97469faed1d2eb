"""Causes in transfers: kernels beside communication, and communication or copies that nothing
hides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..decompose.statistics import LEVEL, normal_estimate
from ..decompose.terms import COMMUNICATION, KERNELS
from .case import Case, Cause, Intervention, SlowDown
from .evidence import Claim, Strength, cite
from .single_profile import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    ProfiledStep,
    Suggestion,
    fact,
    short_gaps_ms,
)

# Kernels beside communication: a collective takes SMs and DRAM bandwidth from kernels that run at
# the same time.
#
# Half of a call beside one collective counts as time of the collective, so that half of the
# slow-down is claimed in the term of communication. Calls of kernels that never run alone are left
# out: the amount is a lower bound.

BESIDE_COMMUNICATION = "kernels beside communication"
_NONE = SlowDown(0.0, 0.0, 0.0, 0.0)
_TABLE = "kernels.duration_ns"


def weigh_beside_communication(case: Case) -> Claim | None:
    """Claim the slow-down, where it is larger than its error."""
    if case.share.key.kind not in (KERNELS, COMMUNICATION) or not case.slow_downs:
        return None
    slowed = {batch: case.slow_downs.get(batch, _NONE) for batch in case.functional.conditions}
    amount = case.evaluate(lambda batch: slowed[batch].time_ms)
    errors = [weight * slowed[batch].error_ms for batch, weight in case.functional.coefficients]
    if normal_estimate(amount, math.hypot(*errors)).p >= LEVEL:
        return None
    expected_ms = [slowed[batch].expected_ms for batch in case.sides]
    excess_ms = [slowed[batch].excess_ms for batch in case.sides]
    evidence = (
        cite("time of calls beside communication, had they run alone", expected_ms, "ms", _TABLE),
        cite("their slow-down per step", excess_ms, "ms", _TABLE),
    )
    refutation = "Without collectives beside them, the kernels are as slow."
    return Claim(BESIDE_COMMUNICATION, amount, Strength.SIGN, evidence, refutation)


beside_communication = Cause(
    name=BESIDE_COMMUNICATION,
    weigh=weigh_beside_communication,
    intervention=Intervention(
        expected="With the collectives after the kernels instead of beside them, the kernels are "
        "as fast as alone.",
        untested="no factor takes communication out of a step",
    ),
)


# Communication that no computation hides: the step waits for messages, or for the last rank.

EXPOSED_COMMUNICATION = "exposed communication"
_OF_PARAMETERS = ("AllGather", "ReduceScatter")
_OF_GRADIENTS = ("AllReduce", "Reduce", "Broadcast")
_LATE = 1.5  # time in communication of another rank over that of the last
# bus rate of the fastest call over the mean one, from which calls mostly wait for another rank
_WAITS = 3.0


def suggest_exposed_communication(step: ProfiledStep) -> Suggestion | None:
    """Suggest to overlap communication, or to look for the late rank."""
    communication = step.communication
    if communication is None or not step.enough(communication.most_exposed_ms):
        return None
    main = communication.collectives[0]
    evidence = [
        fact(
            "communication in which no other kernel runs, per step",
            communication.most_exposed_ms,
            "ms",
            "kernels.start_ns",
        ),
        fact("all communication, per step", communication.time_ms, "ms", "kernels.duration_ns"),
        fact(
            "most of it",
            f"{main.name}, {main.calls:.4g} call{'' if main.calls == 1 else 's'}",
            "",
            "kernels.collective",
        ),
    ]
    mean, fastest = main.bus_gb_per_s, main.fastest_bus_gb_per_s
    late = mean is not None and fastest is not None and fastest >= _WAITS * mean
    if late:
        ratio = fastest / mean  # type: ignore[operator]
        about = "bus rate of the fastest call over that of the mean"
        evidence.append(fact(about, ratio, "", "kernels"))
    remedy = "run communication beside other work"
    by_rank_ms = (
        communication.by_device_ms if len(communication.by_device_ms) > 1 else step.ranks_ms
    )
    if last := _last(by_rank_ms):
        times = ", ".join(f"{place} {time_ms:.4g} ms" for place, time_ms in by_rank_ms.items())
        evidence.append(fact("time in communication", times, "", "kernels.device"))
        remedy += f"; {last} comes last: it waits least, and the others for it"
    elif late:
        remedy += "; its calls wait for another rank: compare all ranks' profiles"
    return Suggestion(
        cause=EXPOSED_COMMUNICATION,
        what="communicates while nothing else runs",
        at_most_ms=communication.most_exposed_ms,
        evidence=tuple(evidence),
        where=main.name,
        remedy=remedy,
        how=_how(main.name, step) + ("; curvescope scale read FILE FILE ..." if late else ""),
    )


def _last(by_rank_ms: Mapping[str, float]) -> str | None:
    """The rank that spends far less time in communication than the others; None without one.

    A call of a collective ends for all ranks together, so that the one that enters last spends
    least time in it.
    """
    if len(by_rank_ms) < 2:
        return None
    first, *others = sorted(by_rank_ms.items(), key=lambda item: item[1])
    return first[0] if 0 < first[1] <= others[-1][1] / _LATE else None


def _how(collective: str, step: ProfiledStep) -> str:
    """How to hide a collective: gradients beside the backward pass, parameters ahead, exchanges in
    parts.
    """
    if not step.is_torch:
        return (
            "a stream of its own for communication, and work that does not need its result beside "
            "it"
        )
    if collective in _OF_PARAMETERS:
        return (
            "FSDP with backward_prefetch and forward_prefetch, or fully_shard, which gathers ahead"
        )
    if collective not in _OF_GRADIENTS or not step.trains:
        return (
            "async_op=True and other work before wait(); split what is exchanged, so that one part "
            "computes while another moves; fewer ranks per model where it fits"
        )
    return (
        "DistributedDataParallel(bucket_cap_mb=..., gradient_as_bucket_view=True), which sends "
        "beside the backward"
    )


exposed_communication = Cause(
    name=EXPOSED_COMMUNICATION,
    suggest=suggest_exposed_communication,
)


# Copies between host and device that nothing hides: batches, results, and weights that stay on the
# host.

HOST_COPIES = "copies from and to the host"
# The beginnings of names, e.g. of "Memcpy HtoD (Pinned -> Device)".
_COPIES = ("Memcpy HtoD", "Memcpy DtoH")
_OFFLOADED_BYTES = 1e9  # in a step of a network: more than any batch, so weights or states
_OFFLOADED_SHARE = 0.3  # of the step
_SOME = 0.01  # share of the bytes in pageable memory that is said


def weigh_host_copies(case: Case) -> Claim | None:
    """Claim the time of copies between host and device."""
    copies = [use for use in case.uses if use.name.startswith(_COPIES)]
    if case.share.key.kind == "idle" or not copies:
        return None
    times = [sum(use.time_ms for use in copies if use.batch == batch) for batch in case.sides]
    amount = sum(use.share for use in copies)
    evidence = (cite("copies from and to the host per step", times, "ms", "memory.duration_ns"),)
    refutation = "With the data already on the device, the time of the copies stays in the step."
    return Claim(HOST_COPIES, amount, Strength.SIGN, evidence, refutation)


def suggest_host_copies(step: ProfiledStep) -> Suggestion | None:
    """Suggest to hide, to avoid or to speed up copies, where nothing else runs beside them."""
    exposed_ms = sum(step.exposed_ms.get(kind, 0.0) for kind in (HOST_TO_DEVICE, DEVICE_TO_HOST))
    if not step.enough(exposed_ms) or step.copies.empty or step.migrates:
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
    offloads &= step.knows_steps and (step.is_torch or step.is_jax)
    where = step.place_of(step.groups[step.groups["name"].str.startswith("Memcpy", na=False)])
    if offloads:
        what, remedy = (
            "fetches its data from the host",
            "keep weights and states on the device, or fetch them ahead",
        )
        how = (
            "turn off CPU offload (offload_params of FSDP, offload_optimizer of DeepSpeed), or "
            "prefetch"
        )
    elif share >= _SOME:
        what, remedy = (
            "copies from pageable memory",
            "pin the host's memory, and copy without blocking",
        )
        how = "DataLoader(..., pin_memory=True); tensor.to(device, non_blocking=True)"
    else:
        what = "copies between host and device while nothing else runs"
        remedy = "copy beside other work"
        how = "tensor.to(device, non_blocking=True) in a stream of its own, one batch ahead"
        if moved["host_memory"].isna().any():  # pageable memory would hold the host all the same
            remedy += ", from pinned memory"
            how = f"DataLoader(..., pin_memory=True); {how}"
    if not step.is_torch:
        how = (
            "cudaHostRegister or cudaMallocHost for the host's memory; cudaMemcpyAsync in a stream "
            "of its own"
        )
    beside_ms = _most_beside_ms(step)
    if not offloads and share < _SOME and beside_ms < exposed_ms:
        exposed_ms = beside_ms
        about = "time of the step less the longer direction, which nothing hides"
        evidence.append(fact(f"{about}, per step", beside_ms, "ms", "memory.start_ns"))
    if not step.enough(exposed_ms):
        return None
    return Suggestion(
        cause=HOST_COPIES,
        what=what,
        at_most_ms=exposed_ms,
        evidence=tuple(evidence),
        where=where,
        remedy=remedy,
        how=how,
    )


def _most_beside_ms(step: ProfiledStep) -> float:
    """What copies beside other work save at most: each device's copies of one direction share a
    link, so the step takes as long as these.
    """
    return step.time_ms - max(step.exposed_ms.values()) / max(step.copying_devices, 1)


host_copies = Cause(
    name=HOST_COPIES,
    weigh=weigh_host_copies,
    suggest=suggest_host_copies,
    intervention=Intervention(
        expected="With the data on the device, or copied beside other work, their time leaves the "
        "step.",
        untested="no factor changes where the program keeps its data",
    ),
)


# Managed memory moves in pages, when the device or the host touches one that the other has.

MIGRATION = "migration of managed memory"


def suggest_migration(step: ProfiledStep) -> Suggestion | None:
    """Suggest to move managed memory before it is used; with the gaps between its pages, where
    most of what runs are pages.
    """
    pages = step.migrations
    if pages.empty:
        return None
    own_ms, size, calls = (float(pages[column].sum()) for column in ("own_ms", "bytes", "calls"))
    between_ms = short_gaps_ms(step) if step.migrates else 0.0
    at_most_ms = min(own_ms + between_ms, step.time_ms)
    if not step.enough(at_most_ms):
        return None
    evidence = (
        fact("copies of managed memory, per step", calls, "", "memory.host_memory"),
        fact("their time, per step", own_ms, "ms", "memory.duration_ns"),
        fact("their mean size", size / calls / 1e3, "kB", "memory.bytes"),
        fact("idle time in gaps of at most 1 ms, per step", between_ms, "ms", "kernels.start_ns"),
    )
    most = pages.groupby("kind")["own_ms"].sum().idxmax()
    return Suggestion(
        cause=MIGRATION,
        what="moves managed memory between host and device, page by page",
        at_most_ms=at_most_ms,
        evidence=evidence if between_ms else evidence[:-1],
        where=f"Memcpy {most}",
        remedy="move managed memory before it is used",
        how="cudaMemPrefetchAsync to the device before the kernel, and to cudaCpuDeviceId before "
        "the host reads results; or cudaMalloc and copies in one piece",
    )


migration = Cause(
    name=MIGRATION,
    suggest=suggest_migration,
)
