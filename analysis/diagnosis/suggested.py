"""Advice for a recording without a curve: one profile, or one batch size.

Nothing was tried: it is suggested.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from ...base.errors import CurvescopeError
from ...profiling.attribution.cupti_names import host_kind
from ...profiling.attribution.kernel_names import family
from ...profiling.attribution.range_names import XLA_DOMAIN
from ...profiling.hardware.limits import hardware_of
from ...profiling.recording.experiments import FactorFacts
from ...profiling.recording.store import STEP, Recording
from ..causes import fixed, fusion, host, memory, numbers, work
from ..causes.catalogue import suggestions
from ..causes.single_profile import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    LONG_GAP_NS,
    ProfiledStep,
    Suggestion,
)
from ..causes.totals import CauseTotal
from ..decompose.breakdown import Breakdown, break_down_recording
from ..decompose.communication import communication
from ..decompose.exclusive import share_by_layer_ns
from ..decompose.host_functions import HostCode, HostFunctions
from ..decompose.idle import choose_sampled, explain_idle, host_spans, long_gaps
from ..decompose.kernel_times import (
    device_work,
    kernel_times,
    kernel_totals,
    of_steps,
    select_profiled_steps,
)
from ..decompose.launches import find_paced_kernels, mean_paced
from ..decompose.pointwise import pointwise_runs
from ..decompose.terms import IDLE, is_outside
from ..measured_bounds import MeasuredBound, measured_bounds
from ..verdicts.words import Verdict
from .result import Diagnosis

_KEYS = ("layer", "phase", "op", "name")
_NO_OP = "no op"  # label of the row of kernels without an operator
_WAITING = ("synchronisation", "synchronous copy")


@dataclass(frozen=True, kw_only=True)
class Advised:
    """One suggestion, with what to do about it."""

    suggestion: Suggestion
    do: str  # an instruction
    how: str | None  # how to do it; None if `do` says it


@dataclass(frozen=True, kw_only=True)
class LongGap:
    """One of the longest gaps."""

    step: int  # number of the step that it is in
    time_ms: float  # its length
    reason: str | None  # what the host did; None if unknown
    before: str | None  # layer of the work that follows; None if that has no layer
    # call that launched the work that follows and waits; None if it does not wait, or is unknown
    launch: str | None
    meanwhile: str | None  # what the host does while that work waits; None likewise
    code: HostCode | None  # functions of the program in it; None without call stacks


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The suggestions of one profile."""

    breakdown: Breakdown  # of the largest batch size, by layer, else by kernel
    step: ProfiledStep
    command: tuple[str, ...] = ()  # of the recorded program; empty for a profile
    advised: tuple[Advised, ...]  # the largest bound first
    gaps: tuple[LongGap, ...]  # the longest gaps of the steps used, one by one
    bounds: tuple[MeasuredBound, ...] = ()  # of kernels, where their throughputs were measured
    # kernel family, ms and calls per step
    families: tuple[tuple[str, float, float], ...] = field(default=())


def has_no_curve(recording: Recording) -> bool:
    """Whether a recording has no timed step, and profiled steps of one batch size, or of unknown
    ones, at most.
    """
    steps = recording.frame("steps")
    is_profiled = steps["profiled"].astype(bool)
    return steps.empty or bool(is_profiled.all() and steps["batch"].nunique() < 2)


def advise(recording: Recording, facts: Mapping[str, FactorFacts]) -> Advice:
    """Ask every cause for its suggestion on one profile; `facts` describe the factors of complete
    steps, by name.

    CurvescopeError: nothing of the device, or of operators, was recorded.
    """
    breakdown = _break_down(recording)
    step = average_profile(recording, breakdown)
    advised = tuple(_advise(suggestion, facts, step) for suggestion in _ask_causes(step))
    gaps, families = _longest(step), _families(step.groups, step.on_host)
    command = recording.meta.get("argv") if recording.meta.get("recorder") else None
    return Advice(
        breakdown=breakdown,
        step=step,
        advised=advised,
        gaps=gaps,
        bounds=() if breakdown.n_profiled else measured_bounds(recording),
        families=families,
        command=tuple(map(str, command or ())),
    )


def _break_down(recording: Recording) -> Breakdown:
    """The breakdown by layer where one is known, else by operator, else by kernel."""
    if _knows(recording, "layer"):
        breakdown = break_down_recording(recording, by_instance=False)
        if any(row.calls and not is_outside(row.label) for row in breakdown.rows):
            return breakdown
    if _knows(recording, "op"):
        breakdown = break_down_recording(recording, "op")
        busy_ms = sum(row.time_ms for row in breakdown.groups)
        if sum(row.time_ms for row in breakdown.groups if row.label == _NO_OP) <= busy_ms / 2:
            return breakdown
    return break_down_recording(recording, "kernel")


def _knows(recording: Recording, column: str) -> bool:
    """Whether any work has a value there: each breakdown takes as long as all of this."""
    return any(piece[column].null_count < len(piece) for piece in device_work(recording)([column]))


def suggest_beside(
    recording: Recording, diagnosis: Diagnosis, facts: Mapping[str, FactorFacts]
) -> Advice | None:
    """The suggestions of a sweep's profiled steps at its largest batch size, beside the causes that
    are claimed, and the changes that were tried; None if there is none.

    Waits for the host are in many terms, of which none names the change of the step: until one was
    tested, it is suggested.
    """
    try:
        advice = advise(recording, facts)
    except CurvescopeError:
        return None
    totals: list[CauseTotal] = []
    for explanation in diagnosis.all_explanations:
        totals += explanation.causes
    claimed = {total.cause for total in totals}
    if all(total.verdict == Verdict.UNTESTED for total in totals if total.cause == host.HOST_BOUND):
        claimed.discard(host.HOST_BOUND)
    tried = {saving.factor for saving in diagnosis.remedies.attempts}
    left = []
    for advised in advice.advised:
        suggestion = advised.suggestion
        if suggestion.cause not in claimed and not tried & set(suggestion.factors):
            left.append(advised)
    return replace(advice, advised=tuple(left)) if left else None


def suggest_shares(recording: Recording) -> dict[str, float]:
    """The share of a step that each factor of complete steps saves at most, by what one profile
    suggests; empty where nothing was profiled.
    """
    try:
        step = average_profile(recording, break_down_recording(recording, by_instance=False))
    except CurvescopeError:
        return {}
    shares: dict[str, float] = {}
    for suggestion in _ask_causes(step) if step.time_ms else ():
        for factor in suggestion.factors:
            share = suggestion.at_most_ms / step.time_ms
            shares[factor] = max(share, shares.get(factor, 0.0))
    return shares


def _ask_causes(step: ProfiledStep) -> Sequence[Suggestion]:
    """The suggestions of causes; without a timed kernel nobody knows what the step waits for."""
    return () if step.groups.empty else suggestions(step)


# What to do in a program without PyTorch, and how, by cause; the rest is the same.
_WITHOUT_TORCH = {
    host.HOST_BOUND: (
        "launch the work of a step as one graph",
        "stream capture and one graph launch in CUDA or HIP; in JAX and TensorFlow, one compiled "
        "function for a step",
    ),
    fixed.OPTIMIZER: ("update all parameters in few kernels", None),
    work.COPIES: ("keep images in the memory format of the kernels", None),
    memory.MEMORY_PRESSURE: (
        "keep the memory instead of freeing it, and take it before the first step",
        "a pool, e.g. cudaMallocAsync; in the first steps of a program allocations are usual",
    ),
    fusion.POINTWISE_IN_A_ROW: (
        "compile the step",
        "tf.function(jit_compile=True) in TensorFlow: XLA makes one kernel of each run",
    ),
    host.WAITING_FOR_INPUT: (
        "load batches ahead, beside the step",
        "dataset.prefetch(tf.data.AUTOTUNE) in TensorFlow; else a thread or process that loads",
    ),
    host.FIRST_USE: (
        None,
        "run some steps first; in a service run each shape once at the start; with CUDA, "
        "CUDA_MODULE_LOADING=EAGER loads all modules at the start",
    ),
}


def is_tried(suggestion: Suggestion, step: ProfiledStep) -> bool:
    """Whether `diagnose` tries a suggestion on such a program: all of PyTorch, and of JAX its
    own changes.
    """
    own = set(suggestion.factors) <= set(numbers.JAX_FACTORS.values())
    return bool(suggestion.factors) and (step.is_torch or (step.is_jax and own))


def _advise(
    suggestion: Suggestion, facts: Mapping[str, FactorFacts], step: ProfiledStep
) -> Advised:
    if not step.is_torch and not is_tried(suggestion, step) and suggestion.cause in _WITHOUT_TORCH:
        do, how = _WITHOUT_TORCH[suggestion.cause]
        return Advised(suggestion=suggestion, do=do or suggestion.remedy or "", how=how)
    if suggestion.remedy is None:
        for name in suggestion.factors:
            remedy = facts[name].remedy if name in facts else None
            if remedy:
                do = remedy.format(where="the step")
                return Advised(suggestion=suggestion, do=do, how=facts[name].how)
    return Advised(suggestion=suggestion, do=suggestion.remedy or "", how=suggestion.how)


def average_profile(recording: Recording, breakdown: Breakdown) -> ProfiledStep:
    """The mean of the steps that a breakdown uses, as causes examine it."""
    work = device_work(recording, copied_bytes=True)
    used = recording.frame("steps")
    if len(used):
        steps = select_profiled_steps(used, breakdown.batch)
        used = choose_sampled(recording, steps[steps["step"].isin(breakdown.used)])
    count = max(len(used), 1)
    if len(used):
        kernels = kernel_times(work, used, _KEYS, ("flops", "duration_ns"))
        kernels = kernels[kernels["name"] != IDLE]
    else:
        kernels = kernel_totals(work, _KEYS, ("flops", "duration_ns"))
    groups = kernels[[*_KEYS, "kind"]].reset_index(drop=True)
    groups["ms"] = (kernels["exclusive_ms"] / count).to_numpy()
    groups["own_ms"] = (kernels["duration_ns"].fillna(0.0) / 1e6 / count).to_numpy()
    groups["calls"] = (kernels["calls"].astype(float) / count).to_numpy()
    groups["flops"] = (kernels["flops"] / count).to_numpy()
    phases = set(groups["phase"].dropna())
    functions = cache(lambda: HostFunctions(recording))
    hardware = hardware_of(recording.meta)
    facts: dict[str, Any] = {}
    if len(used) and not recording.count_rows("marks"):
        spans = host_spans(recording)
        gaps, facts["host_gaps"] = long_gaps(work, used, *spans, LONG_GAP_NS)
        facts["gaps"] = gaps.assign(kernel=_first_kernels(recording, gaps["end_ns"]))
        facts["calls"], facts["ranges"] = _calls(recording, used), spans[1]().table()
        facts["capture_ms"] = _capture_ms(recording, used)
        paced = find_paced_kernels(recording, used, hardware.sm_count)
        facts["paced"] = None if paced.empty else mean_paced(paced, count)
    merged = (recording.meta.get("merged") or {}).get("communication_ms", ())
    return ProfiledStep(
        time_ms=breakdown.time_ms,
        batch=breakdown.batch,
        steps=count,
        trains=bool(phases & {"backward", "optimizer"}),
        on_host=recording.on_host,
        hardware=hardware,
        groups=groups,
        copies=_copies(recording, used, count),
        exposed_ms=_find_exposed(recording, used, count),
        copying_devices=_memory(recording, used)["device"].nunique(),
        idle=explain_idle(recording, work, breakdown),
        in_a_row=pointwise_runs(recording, used),
        communication=communication(work, used, breakdown.batch) if len(used) else None,
        ranks_ms={f"process {number}": time_ms for number, time_ms in enumerate(merged)},
        is_torch=_is_torch(recording, groups),
        knows_steps=breakdown.unit == STEP,
        is_jax=_is_jax(recording),
        is_recorded=recording.meta.get("recorder") == "cupti",
        on_amd=_on_amd(recording, groups),
        has_stacks=bool(recording.count_rows("functions")),
        code_in=cache(lambda begin_ns, end_ns: functions().during(begin_ns, end_ns)),
        **facts,
    )


def _first_kernels(recording: Recording, ends: pd.Series) -> list[str | None]:
    """The kernel that begins at the end of each gap, where it is the first with its name."""
    earliest: dict[str, int] = {}
    for piece in recording.pieces("kernels", ["name", "start_ns"]):
        starts = piece.group_by("name").aggregate([("start_ns", "min")])
        for row in starts.to_pylist():
            name, start = row["name"], row["start_ns_min"]
            if start is not None:
                earliest[name] = min(start, earliest.get(name, start))
    first = {start: name for name, start in earliest.items()}
    return [first.get(int(end)) for end in ends]


_JAX_MODULE = r"^XlaModule:#.*\bhlo_module=(?:jit|pmap)_"
_TORCH_OPERATOR = r"^(?:aten::|torch\.|c10)"
_TORCH_KERNEL = r"\bat::native::|\bat_cuda_detail::|^triton_(?:poi|per|red|tem)_"


def _is_torch(recording: Recording, groups: pd.DataFrame) -> bool:
    """Whether PyTorch ran the program, by the format of the profile or the names of its operators
    or kernels.
    """
    source = recording.meta.get("imported_from")
    for column, form in (("op", _TORCH_OPERATOR), ("name", _TORCH_KERNEL)):
        if bool(groups[column].dropna().astype(str).str.contains(form).any()):
            return True
    if source is None:
        return not _is_jax(recording)
    return "PyTorch" in source


def _is_jax(recording: Recording) -> bool:
    """Whether JAX ran the program, by the profiler or the names of XLA's modules."""
    if (recording.meta.get("profiler") or {}).get("name") == "JAX":
        return True
    ranges = recording.arrow("ranges", ["name", "domain"])
    of_xla = ranges.filter(pc.equal(ranges["domain"], XLA_DOMAIN))
    return bool(pc.any(pc.match_substring_regex(of_xla["name"], _JAX_MODULE)).as_py())


_AMD = re.compile(r"\b(AMD|Instinct|Radeon)\b")
_AMD_KERNEL = re.compile(r"^Cijk_|^__amd_rocclr|^ck::|_MT\d+x\d+x\d+_.*_WG\d+")


def _on_amd(recording: Recording, groups: pd.DataFrame) -> bool:
    """Whether AMD made the device, by its name, else by the names of kernels of AMD's libraries."""
    name = (recording.meta.get("device") or {}).get("name")
    if name:
        return _AMD.search(str(name)) is not None
    return any(_AMD_KERNEL.search(str(kernel)) for kernel in groups["name"].dropna())


def _capture_ms(recording: Recording, used: pd.DataFrame) -> float:
    """Time per step between the begin and the end of a graph's capture."""
    table = recording.arrow("api_calls", ["name", "start_ns", "duration_ns"])
    names = pc.cast(table["name"], "string")
    captures = table.filter(pc.match_substring(names, "StreamBeginCapture"))
    ends = table.filter(pc.match_substring(names, "StreamEndCapture"))
    if not captures.num_rows or not ends.num_rows:
        return 0.0
    begin_ns = np.sort(captures["start_ns"].drop_null().to_numpy())
    end_ns = np.sort(ends["start_ns"].drop_null().to_numpy())
    following = np.searchsorted(end_ns, begin_ns)
    inside = following < len(end_ns)
    begin_ns, end_ns = begin_ns[inside], end_ns[following[inside]]
    total_ns = 0
    for start, length in zip(used["start_ns"].tolist(), used["duration_ns"].tolist(), strict=True):
        cut = np.minimum(end_ns, start + length) - np.maximum(begin_ns, start)
        total_ns += int(cut[cut > 0].sum())
    return total_ns / 1e6 / len(used)


def _calls(recording: Recording, used: pd.DataFrame) -> pd.DataFrame:
    """Calls of the host: name, start_ns, end_ns, kind (see `host_kind`), waits, and whether they
    lie in a step used.

    A copy to the device is no wait for a result, also where it holds the host up: it is told with
    the copies. Of calls inside each other, e.g. of the runtime and of the driver, the outer one
    counts.
    """
    table = recording.arrow("api_calls", list(_CALL_COLUMNS)).to_pandas()
    table = table.dropna(subset=["start_ns", "duration_ns"])
    table = table[~_is_inside(table)]
    kind_of = {name: host_kind(str(name)) for name in table["name"].unique()}
    kind = table["name"].map(kind_of)
    sends = kind.eq("synchronous copy") & _keys(table).isin(_copies_in(recording))
    waits = kind.isin(_WAITING) & ~sends
    end_ns = table["start_ns"] + table["duration_ns"]
    table = table.assign(end_ns=end_ns, kind=kind, waits=waits)
    table = table[table["kind"].notna()]
    start_ns = table["start_ns"].to_numpy(np.int64)
    begin_ns = used["start_ns"].to_numpy(np.int64)
    stop_ns = begin_ns + used["duration_ns"].to_numpy(np.int64)
    at = np.searchsorted(begin_ns, start_ns, side="right") - 1
    inside = (at >= 0) & (start_ns < stop_ns[np.maximum(at, 0)])
    return table.assign(in_used=inside)


_CALL_COLUMNS = ("name", "start_ns", "duration_ns", "process", "thread", "correlation_id")


def _is_inside(calls: pd.DataFrame) -> pd.Series:
    """Whether each call lies in another of its thread; Nsight Systems writes some twice, e.g. as
    cudaMemcpy_v3020.
    """
    spans = calls[["process", "thread", "start_ns"]].copy()
    spans["end_ns"] = calls["start_ns"] + calls["duration_ns"]
    order = ["start_ns", "end_ns"]
    ordered = spans.sort_values(order, ascending=[True, False], kind="stable")
    of_thread = ordered.groupby(["process", "thread"], dropna=False)["end_ns"]
    reached = of_thread.cummax().groupby([ordered["process"], ordered["thread"]], dropna=False)
    return (ordered["end_ns"] <= reached.shift()).reindex(calls.index)


def _keys(table: pd.DataFrame) -> pd.Series:
    """The key that joins a call and its copy: process and correlation id, as text; a null one joins
    nothing.
    """
    correlated = table["correlation_id"].notna()
    keys = table["process"].astype(str) + ":" + table["correlation_id"].astype(str)
    return keys.where(correlated)


def _copies_in(recording: Recording) -> set[str]:
    """The keys of copies to the device."""
    columns = ["memcpy_kind", "process", "correlation_id"]
    table = recording.arrow("memory", columns).to_pandas()
    return set(_keys(table[table["memcpy_kind"].eq(HOST_TO_DEVICE)]).dropna())


def _memory(recording: Recording, used: pd.DataFrame) -> pd.DataFrame:
    wanted = ["kind", "memcpy_kind", "host_memory", "device", "step"]
    wanted += ["start_ns", "duration_ns", "bytes"]
    table = recording.arrow("memory", wanted)
    is_timed = table["duration_ns"].is_valid()
    rows = table.filter(pc.and_(pc.equal(table["kind"], "memcpy"), is_timed)).to_pandas()
    if len(used):
        return rows[rows["step"].isin(used["step"])]
    return rows


def _copies(recording: Recording, used: pd.DataFrame, count: int) -> pd.DataFrame:
    """Memcpys by kind and memory of the host, per step."""
    rows = _memory(recording, used)
    sums = rows.groupby(["memcpy_kind", "host_memory"], dropna=False).agg(
        calls=("bytes", "size"), bytes=("bytes", "sum"), own_ms=("duration_ns", "sum")
    )
    sums["own_ms"] /= 1e6
    return (sums / count).reset_index().rename(columns={"memcpy_kind": "kind"})


def _find_exposed(recording: Recording, used: pd.DataFrame, count: int) -> dict[str, float]:
    """Time per step in which nothing but copies from or to the host runs, by their direction."""
    moved = _memory(recording, used)
    shares: dict[str, float] = {}
    if moved.empty or used.empty:
        return shares
    columns = ["step", "start_ns", "duration_ns"]
    number = used["step"].to_numpy(np.int64)
    pieces = []
    for piece in recording.pieces("kernels", columns):
        inside, _ = of_steps(piece, number)
        pieces.append(inside.select(columns).to_pandas())
    others = pd.concat([*pieces, moved[columns]], ignore_index=True)
    begins, lengths = others["start_ns"], others["duration_ns"]
    for kind in (HOST_TO_DEVICE, DEVICE_TO_HOST):
        is_kind = np.zeros(len(others), np.int64)
        is_kind[len(others) - len(moved) :] = moved["memcpy_kind"].eq(kind)
        if not is_kind.any():
            continue
        total_ns = 0.0
        for step in used.itertuples():
            rows = (others["step"] == step.step).to_numpy()
            window = int(step.start_ns), int(step.duration_ns)
            starts = begins.to_numpy(np.int64)[rows]
            exclusive, _ = share_by_layer_ns(
                starts, lengths.to_numpy(np.int64)[rows], is_kind[rows], *window
            )
            total_ns += float(exclusive[is_kind[rows] == 1].sum())
        shares[kind] = total_ns / 1e6 / count
    return shares


_MOST_GAPS = 5


def _longest(step: ProfiledStep) -> tuple[LongGap, ...]:
    if step.gaps.empty:
        return ()
    length_ms = (step.gaps["end_ns"] - step.gaps["begin_ns"]) / 1e6
    gaps = []
    for index, row in step.gaps.loc[length_ms.nlargest(_MOST_GAPS).index].iterrows():
        names = ("before", "launch", "meanwhile")
        before, launch, meanwhile = (
            None if pd.isna(row[name]) else str(row[name]) for name in names
        )
        gap = LongGap(
            step=int(row["step"]),
            time_ms=float(length_ms[index]),
            reason=row["reason"],
            before=before,
            launch=launch,
            meanwhile=meanwhile,
            code=step.code_in(int(row["begin_ns"]), int(row["end_ns"])),
        )
        gaps.append(gap)
    return tuple(gaps)


def _families(groups: pd.DataFrame, on_host: bool) -> tuple[tuple[str, float, float], ...]:
    # Operators of the host are families themselves: their names say what they do.
    family_of = {}
    for name in groups["name"].unique():
        family_of[name] = str(name) if on_host else family(str(name))
    by_family = groups.groupby(groups["name"].map(family_of))[["ms", "calls"]]
    sums = by_family.sum().sort_values("ms", ascending=False)
    families = zip(sums.index, sums["ms"].tolist(), sums["calls"].tolist(), strict=True)
    return tuple((str(name), ms, calls) for name, ms, calls in families)
