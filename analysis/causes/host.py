"""Causes in the host: launches, input, waits, first use and compilation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...profiling.attribution.cupti_names import host_kind
from ..decompose.host_functions import HostCode
from ..decompose.idle import FOLLOWS, IN_RANGE, WAITS, place_of, range_name
from ..decompose.launches import PACED_LATE_US, Paced
from ..decompose.statistics import Ints
from ..decompose.terms import IDLE, KERNELS
from .case import Case, Cause, Intervention
from .evidence import Claim, Evidence, Strength, cite
from .single_profile import (
    ProfiledStep,
    Suggestion,
    context_calls,
    fact,
    gap_ms,
    host_gaps,
    in_gaps,
    longer_gaps,
    short_gaps_ms,
    stack_of,
)

# Launch- or host-bound: the device waits for the host, between kernels or in synchronous copies, or
# streams run small kernels one by one as the host launches them, and no instant is idle.

HOST_BOUND = "launch- or host-bound"
# A smaller idle share of the step is no cause.
_LEAST_IDLE = 0.02


def weigh_host_bound(case: Case) -> Claim | None:
    """Claim idle time, and of kernels what their streams would take less if they were full."""
    if case.share.key.kind == KERNELS:
        return _weigh_paced(case)
    if case.share.key.kind != IDLE:
        return None
    sides = [case.facts[batch] for batch in case.sides]
    shares: list[float] = []
    kernel_us: list[float | None] = []
    waits: list[float | None] = []
    for facts in sides:
        whole_ms = facts.idle_ms + facts.kernel_ms
        shares.append(facts.idle_ms / whole_ms if facts.idle_ms > 0 else 0.0)
        count = facts.kernel_calls
        kernel_us.append(1e3 * facts.kernel_ms / count if count else None)
        waits.append(facts.host_use.run_queue_wait_ms if facts.host_use else None)
    if max(shares) < _LEAST_IDLE:
        return None
    idle = [facts.idle_ms for facts in sides]
    calls = [facts.kernel_calls for facts in sides]
    evidence = [
        cite("idle per step", idle, "ms", "kernels.start_ns, steps.duration_ns"),
        cite("share of the profiled step", shares, "1", "the same"),
        cite("kernels per step", calls, "", "kernels"),
        cite("mean time of a kernel", kernel_us, "µs", "kernels.duration_ns"),
    ]
    before, after = sides
    for kind in ("synchronous copy", "synchronisation", "launch"):
        low, high = before.host.get(kind), after.host.get(kind)
        if high is not None:
            spent = (low.time_ms if low else 0.0, high.time_ms)
            evidence.append(cite(f"{kind} calls per step", spent, "ms", "api_calls.duration_ns"))
    if waits[1]:
        what = "threads waiting for a core per step"
        evidence.append(cite(what, waits, "ms", "steps.run_queue_wait_ns"))
    refutation = "With the step replayed as one CUDA graph, idle does not shrink."
    amount = sum(use.share for use in case.uses)
    return Claim(HOST_BOUND, amount, Strength.SIGN, tuple(evidence), refutation)


def _weigh_paced(case: Case) -> Claim | None:
    """Claim the part of the time of kernels that is the host's, as they wait for their launches."""
    key = case.share.key
    paced = [case.facts[batch].paced.get(key) for batch in case.sides]
    if not any(paced):
        return None

    def waits_ms(batch: int) -> float:
        of_batch = case.facts[batch].paced.get(key)
        return of_batch.waits_ms if of_batch else 0.0

    def cite_sides(what: str, name: str, unit: str, table: str) -> Evidence:
        return cite(what, [getattr(side, name) if side else None for side in paced], unit, table)

    times, launches = "kernels.start_ns", "kernels.start_ns, api_calls.duration_ns"
    within = f"kernels that begin within {PACED_LATE_US:g} µs of the end of their launch, per step"
    blocks = f"blocks of the largest, beside {case.hardware.sm_count} multiprocessors"
    evidence = (
        cite_sides(within, "calls", "", launches),
        cite_sides("median time from the end of the launch", "late_us", "µs", launches),
        cite_sides(blocks, "blocks", "", "kernels.grid_x"),
        cite_sides("their time", "time_ms", "ms", times),
        cite_sides("their time if their streams were full", "full_ms", "ms", times),
    )
    most, batch = max(
        (side.calls, batch) for batch, side in zip(case.sides, paced, strict=True) if side
    )
    refutation = "With the step replayed as one CUDA graph, the term takes as long."
    detail = f"({most:,.0f} small kernels at {batch} begin as the host launches them)"
    amount = case.evaluate(waits_ms)
    return Claim(HOST_BOUND, amount, Strength.FACT, evidence, refutation, detail)


_LEAST_CALLS = 10  # of all steps; what launches less is not bound by launching
_LEAST_GAPS = 0.1  # gaps per kernel; in fewer the host does something else, e.g. between two steps
_MOST_KERNEL_MS = 0.1  # mean time of a kernel up to which launching it may be what takes long


def suggest_host_bound(step: ProfiledStep) -> Suggestion | None:
    """Suggest one launch for many kernels, where the device is idle between short kernels."""
    if step.on_host or step.is_capture or step.migrates:
        return None
    if not step.knows_reasons and step.paced is None:
        return None
    if len(step.calls) and step.calls["name"].str.contains("GraphLaunch").any():
        return None
    calls = float(step.groups["calls"].sum())
    kernel_ms = float(step.groups["own_ms"].sum()) / calls if calls else 0.0
    if calls * step.steps < _LEAST_CALLS or not 0 < kernel_ms <= _MOST_KERNEL_MS:
        return None
    gaps = _short_gaps(step) >= _LEAST_GAPS * calls
    short_ms = short_gaps_ms(step) if gaps else 0.0
    paced_ms = step.paced.waits_ms if step.paced else 0.0
    if not step.enough(short_ms + paced_ms):
        return None
    evidence = [
        fact("idle time in gaps of at most 1 ms, per step", short_ms, "ms", "kernels.start_ns"),
        *_of_paced(step.paced),
        fact("kernels and copies per step", calls, "", "kernels"),
        fact("their mean time", 1e3 * kernel_ms, "µs", "kernels.duration_ns"),
    ]
    if step.has_stacks:
        about = "recorded with call stacks, which slow the host down"
        evidence.append(fact(about, "without a profiler less is idle", "", "functions"))
    return Suggestion(
        cause=HOST_BOUND,
        what="launches short kernels more slowly than the device runs them",
        at_most_ms=short_ms + paced_ms,
        evidence=tuple(evidence),
        where=None,
        factors=("cuda_graph", "compiled"),
    )


def _of_paced(paced: Paced | None) -> list[Evidence]:
    """Facts about kernels that wait for their launches."""
    if paced is None:
        return []
    begin = f"small kernels that begin within {PACED_LATE_US:g} µs of the end of their launch"
    waits = "their time beyond that of full streams, per step"
    return [
        fact(f"{begin}, per step", paced.calls, "", "kernels.start_ns, api_calls.duration_ns"),
        fact(waits, paced.waits_ms, "ms", "kernels.start_ns"),
    ]


def _short_gaps(step: ProfiledStep) -> float:
    """Number of gaps per step that are the host's, without the long ones."""
    gaps = (idle.gaps or 0.0 for idle in step.idle if idle.reason not in (WAITS, FOLLOWS))
    return sum(gaps) - len(longer_gaps(step)) / step.steps


host_bound = Cause(
    name=HOST_BOUND,
    weigh=weigh_host_bound,
    suggest=suggest_host_bound,
    intervention=Intervention(
        expected="With the step as one CUDA graph, compiled, or without the code between its "
        "operators, idle shrinks.",
        step=("cuda_graph", "replayed_operators", "compiled"),
    ),
)


# Waiting for input: the device is idle while the program fetches the next batch.

WAITING_FOR_INPUT = "waiting for input"
INPUT = re.compile(
    r"DataLoader|IteratorGetNext|waiting for input|(next|get|load)[_ ]?(batch|data)|data[_ ]?load"
    r"|phase:input",
    re.I,
)
_LOAD_AHEAD = "load batches ahead in worker processes"
LOAD_FASTER = "Make the loading of a batch faster, or add workers"
LOAD_HOW = (
    "DataLoader(..., num_workers=N, persistent_workers=True, pin_memory=True), N up to the number "
    "of cores"
)
_ONE_PROCESS = "_SingleProcessDataLoaderIter"


def suggest_waiting_for_input(step: ProfiledStep) -> Suggestion | None:
    """Suggest batches that are loaded ahead, where the device is idle for them, or the host makes
    them itself.
    """
    loading, fetching = _loading(step), _find_fetches(step)
    waits_ms = step.idle_because(lambda reason: reason == WAITING_FOR_INPUT)
    waits_ms += float(loading["ms"].sum() + fetching.sum())
    if not step.enough(waits_ms):
        return None
    places = [*fetching.index, *loading["layer"], WAITING_FOR_INPUT]
    where = range_name(places[0])
    mine = step.gaps
    if len(mine):
        names = {*fetching.index, *map(range_name, fetching.index)}
        mine = mine[mine["reason"].map(place_of).isin(names)]
    _, code = step.longest_gap(mine)
    time = "time" if len(loading) else "idle time"
    what = f"{time} in which the next batch is fetched, per step"
    evidence = [fact(what, waits_ms, "ms", "ranges, kernels")]
    alone = _ONE_PROCESS in where
    if "DataLoader" in where:
        workers = "there are some, and they are too slow"
        if alone:
            workers = "none: the loop's own process loads"
        evidence.append(fact("workers of the DataLoader", workers, "", "ranges.name"))
    return Suggestion(
        cause=WAITING_FOR_INPUT,
        what="waits for the next batch",
        at_most_ms=waits_ms,
        evidence=tuple(evidence),
        where=where,
        stack=stack_of(code),
        factors=("loader_workers",) if alone else (),
        remedy=_LOAD_AHEAD if alone else LOAD_FASTER[0].lower() + LOAD_FASTER[1:],
        how=LOAD_HOW,
    )


def _find_fetches(step: ProfiledStep) -> pd.Series:
    """The ranges that fetch a batch, in gaps of the device, see `in_gaps`.

    A thread without an API call may load ahead: its batch is waited for where a gap ends with it.
    """
    fetches = step.ranges_named(lambda name: INPUT.search(name) is not None)
    if fetches.empty or step.calls.empty or step.host_gaps is None:
        return in_gaps(step, fetches)
    begin_ns, end_ns, _ = step.host_gaps
    next_gap = np.searchsorted(end_ns, fetches["end_ns"].to_numpy(np.int64))
    gap_ns = np.append(begin_ns, np.iinfo(np.int64).max)[next_gap]
    is_ahead = fetches["thread"].notna() & ~fetches["thread"].isin(step.calls["thread"])
    start_ns = fetches["start_ns"].mask(is_ahead, np.maximum(fetches["start_ns"], gap_ns))
    fetches = fetches.assign(start_ns=start_ns)
    return in_gaps(step, fetches[start_ns <= fetches["end_ns"]])


def _loading(step: ProfiledStep) -> pd.DataFrame:
    """Operators of the host that make a batch while no other work runs; none where a device works
    beside them.
    """
    if not step.on_host:
        return step.groups.iloc[:0]
    place = step.groups["layer"].fillna("").astype(str)
    return step.groups[_is_of_input(place)]


def _is_of_input(texts: pd.Series) -> pd.Series:
    """Whether each text names the loading of a batch."""
    return texts.map(lambda text: INPUT.search(text) is not None).astype(bool)


waiting_for_input = Cause(
    name=WAITING_FOR_INPUT,
    suggest=suggest_waiting_for_input,
)


# One long gap: code of the host that runs once in a step, or once in the profile, while the device
# is idle.

ONE_GAP = "host code in one gap"
_LEAST_OF_STEP = 0.1  # of the step, of one gap
_LEAST_MS = 1.0  # of one gap; shorter ones lie between launches
_FEW = 4  # gaps per step that are alike; more come from what the program does all the time
_CALL = "host in "
_NUMBER = re.compile(r"\d+")
_RECORD = "record what the host does while nothing runs"


class _GapAdvice(NamedTuple):
    """A suggestion, and the gaps that it names."""

    suggestion: Suggestion
    gaps: pd.DataFrame


def suggest_one_gap(step: ProfiledStep) -> Suggestion | None:
    """Suggest to move the code of the longest gap, unless an API call or the input explains it; to
    record it, where nothing of the host was recorded.
    """
    advice = _advise_on_gap(step)
    return None if advice is None else advice.suggestion


def _advise_on_gap(step: ProfiledStep) -> _GapAdvice | None:
    gaps = host_gaps(step)
    if gaps.empty or step.is_capture:
        return None
    if len(step.calls):  # else nothing of the host was recorded
        gaps = gaps[gaps["reason"].notna()]
    reason = gaps["reason"].fillna("")
    gaps = gaps.assign(reason=reason)
    named = reason.str.startswith(_CALL) & reason.map(place_of).isna()
    gaps = gaps[~named & ~_is_of_input(reason)]
    others = [*_find_compiling(step).index, *_find_starting(step).index]
    gaps = gaps.drop(index=others, errors="ignore")
    longest, code = step.longest_gap(gaps)
    if longest is None:
        return None
    length_ms = float(longest["end_ns"] - longest["begin_ns"]) / 1e6
    # In a mean of several steps a gap counts with the share that it has in all of them.
    alike = gaps[(gaps["end_ns"] - gaps["begin_ns"]) >= 0.5 * length_ms * 1e6]
    per_step_ms = gap_ms(alike, step.steps)
    again = len(alike) > _FEW * step.steps
    of_ranges = _in_ranges(step, gaps) if again else None
    if again and (step.knows_steps or of_ranges):
        return of_ranges
    share_ms = per_step_ms if again else max(length_ms, per_step_ms)
    if length_ms < _LEAST_MS or share_ms < _LEAST_OF_STEP * step.time_ms:
        return None
    if not step.enough(per_step_ms):
        return None
    reason_text = str(longest["reason"])
    where = place_of(reason_text)
    # Operators of the host are its code themselves; the rest of it lies between them.
    recorded = bool(reason_text) or code is not None or step.on_host
    number = "many long gaps" if again else "a few long gaps"
    if len(alike) <= step.steps:
        number = "one long gap"
    what = f"waits for code of the host in {number}"
    if not recorded:
        what = f"is idle in {number}, and nothing of the host was recorded"
    hit = alike["step"].nunique()
    if hit < step.steps:
        what += f", in {hit} of {step.steps} steps"
    alike_per_step = len(alike) / step.steps
    evidence = [
        fact("longest time without a kernel", length_ms, "ms", "kernels.start_ns"),
        fact("times of at least half its length, per step", alike_per_step, "", "kernels.start_ns"),
    ]
    if code is not None and code.own_ms:
        name, own_ms = code.own_ms[0]
        evidence.append(fact(f"own time of {name} in it", own_ms, "ms", "functions"))
    suggestion = _of_host_code(step, what, per_step_ms, evidence, where, code)
    if not recorded:
        suggestion = replace(suggestion, remedy=_RECORD, how=_recorder(step))
    return _GapAdvice(suggestion, alike)


def _in_ranges(step: ProfiledStep, gaps: pd.DataFrame) -> _GapAdvice | None:
    """Suggest to move the code of several ranges of one kind, e.g. of `load_layer_0` to
    `load_layer_7`.

    One range around many gaps is the range of a step: its code is all of the step's.
    """
    gaps = gaps[gaps["reason"].str.startswith(IN_RANGE)]
    kind = gaps["reason"].str.removeprefix(IN_RANGE).str.replace(_NUMBER, "*", regex=True)
    length_ms = (gaps["end_ns"] - gaps["begin_ns"]).groupby(kind).sum() / 1e6 / step.steps
    different = gaps["reason"].groupby(kind).nunique()
    length_ms = length_ms[different > 1]
    if not len(length_ms) or length_ms.max() < _LEAST_OF_STEP * step.time_ms:
        return None
    where = str(length_ms.idxmax())
    mine = gaps[kind == where]
    _, code = step.longest_gap(mine)
    per_step = len(mine) / step.steps
    evidence = [
        fact("gaps that lie mostly in them, per step", length_ms[where], "ms", "kernels.start_ns"),
        fact("gaps, per step", per_step, "", "kernels.start_ns"),
        fact("ranges", float(mine["reason"].nunique()), "", "ranges.name"),
    ]
    what = "waits for code of the host in ranges of one kind"
    at_most_ms = float(length_ms[where])
    return _GapAdvice(_of_host_code(step, what, at_most_ms, evidence, where, code), mine)


def _of_host_code(
    step: ProfiledStep,
    what: str,
    at_most_ms: float,
    evidence: Sequence[Evidence],
    where: str | None,
    code: HostCode | None,
) -> Suggestion:
    return Suggestion(
        cause=ONE_GAP,
        what=what,
        at_most_ms=at_most_ms,
        evidence=tuple(evidence),
        where=where,
        stack=stack_of(code),
        remedy="move the host's code of the gap before the step, or beside it",
        how=None if code is not None else f"record what the host does there: {_recorder(step)}",
    )


def _recorder(step: ProfiledStep) -> str:
    """The recorder of functions of the host beside the device's work."""
    if step.is_recorded:
        return "`curvescope attach PID` while it is recorded again"
    if step.is_torch:
        return "torch.profiler.profile(with_stack=True)"
    if step.is_jax:
        return "jax.profiler.ProfileOptions with python_tracer_level = 1"
    return "rocprof-sys-sample" if step.on_amd else "nsys profile --sample=process-tree"


one_gap = Cause(
    name=ONE_GAP,
    suggest=suggest_one_gap,
)


# Waits of the host: a call waits for the device, which then runs out of work until the host
# launches again.

HOST_WAITS = "host waits for the device"
_NEAR_NS = 200_000  # between the return of a wait and a gap that follows from it
_IN_TORCH = (
    "no .item(), .cpu(), print or boolean test of a tensor in the step; add losses up on the "
    "device; copy with non_blocking=True; torch.cuda.set_sync_debug_mode('warn') names each place"
)
_IN_CUDA = (
    "work of one stream runs in order without a wait of the host; let events, and only the last "
    "read, wait"
)
_IN_JAX = "no block_until_ready or float() of a result in the loop: JAX dispatches ahead"
_READS = (
    "aten::item",
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::is_nonzero",
    "aten::equal",
)


def suggest_host_waits(step: ProfiledStep) -> Suggestion | None:
    """Suggest to avoid reads of results, where the device runs dry after them.

    Without a wait the host goes on earlier by its time, so that no gap shrinks by more. Gaps that
    are told as code of the host are not told twice.
    """
    waits = step.calls[step.calls["waits"]] if len(step.calls) else step.calls
    gaps = host_gaps(step, ("DataLoader",))
    if (of_code := _advise_on_gap(step)) is not None:
        gaps = gaps.drop(index=of_code.gaps.index, errors="ignore")
    if waits.empty or gaps.empty:
        return None
    dry, saved_ms = _dry(gaps, waits, step.steps)
    used = waits[waits["in_used"]]
    if not step.enough(saved_ms) or used.empty:
        return None
    names = used.groupby("name").size().sort_values(ascending=False)
    main, times = names.index[0], names.iloc[0] / step.steps
    follow_ms, waits_per_step = gap_ms(dry, step.steps), len(used) / step.steps
    evidence = [
        fact("gaps that follow a wait of the host, per step", follow_ms, "ms", "kernels.start_ns"),
        fact("time of these waits, up to the gap after each", saved_ms, "ms", "api_calls"),
        fact("calls that wait for the device, per step", waits_per_step, "", "api_calls"),
        fact("most of them", f"{main} ({times:.4g} per step)", "", "api_calls.name"),
    ]
    if len(step.groups):
        operators = step.groups["op"]
        reads = sorted(set(operators[operators.isin(_READS)]))
        if reads:
            evidence.append(fact("operators that read results", ", ".join(reads), "", "kernels.op"))
    _, code = step.longest_gap(dry)
    how = _IN_JAX if step.is_jax else _IN_CUDA
    return Suggestion(
        cause=HOST_WAITS,
        what="lets the host wait for results, so that the device runs out of work",
        at_most_ms=saved_ms,
        evidence=tuple(evidence),
        where=str(main),
        stack=stack_of(code),
        remedy="read results of the device less often, or later",
        how=_IN_TORCH if step.is_torch else how,
    )


def _dry(gaps: pd.DataFrame, waits: pd.DataFrame, steps: int) -> tuple[pd.DataFrame, float]:
    """The gaps that a wait precedes or ends in, and the time of the waits up to the length of their
    gap, per step in ms.
    """
    begin, end = gaps["begin_ns"].to_numpy(np.int64), gaps["end_ns"].to_numpy(np.int64)
    ordered = waits.sort_values("end_ns")
    returned = ordered["end_ns"].to_numpy(np.int64)
    length = returned - ordered["start_ns"].to_numpy(np.int64)
    waited = np.append(0, np.cumsum(length))
    first = np.searchsorted(returned, begin - _NEAR_NS)
    last = np.searchsorted(returned, end)
    saved_ns = np.minimum(waited[last] - waited[first], end - begin)
    return gaps[last > first], float(saved_ns.sum()) / 1e6 / steps


host_waits = Cause(
    name=HOST_WAITS,
    suggest=suggest_host_waits,
)


# Work of a first use: modules are loaded, contexts and streams made, kernels compiled or chosen by
# timing.

FIRST_USE = "work of a first use"
_PREPARES = "preparation"
# Of calls that prepare for so long, a program does each once.
_STARTS_NS = 50_000_000
_LEAST_OF_GAP = 0.1  # that they take
# A launch takes microseconds. One that takes longer while the device is idle loads the kernel's
# module.
_LOADS_NS = 100_000


def suggest_first_use(step: ProfiledStep) -> Suggestion | None:
    """Suggest to profile after a warm-up, where the host prepares while nothing runs."""
    if step.is_capture:
        capture = fact("capture of a graph, per step", step.capture_ms, "ms", "api_calls")
        at_most_ms = min(step.capture_ms, step.idle_ms)
        return _suggestion("captures a graph, which a program does once", at_most_ms, capture)
    prepares = {}
    for idle in step.idle:
        name = (idle.reason or "").removeprefix(_CALL)
        if host_kind(name) == _PREPARES:
            prepares[name] = idle.time_ms
    contexts = in_gaps(step, context_calls(step))
    contexts_ms = float(contexts.sum())
    waits_ms, loads_ms = sum(prepares.values()), _loading_ms(step)
    around_ms = _around_ms(step)
    evidence = []
    if contexts_ms:
        calls = ", ".join(contexts.index[:3])
        what = f"idle time in {calls} of at least 50 ms, as those that make a context, per step"
        evidence.append(fact(what, contexts_ms, "ms", "api_calls"))
    if waits_ms:
        calls = ", ".join([*prepares][:3])
        evidence.append(fact(f"idle time in {calls}, per step", waits_ms, "ms", "api_calls"))
    if loads_ms:
        what = (
            "idle time in launches of at least 0.1 ms, as of kernels that are not loaded yet, per "
            "step"
        )
        evidence.append(fact(what, loads_ms, "ms", "api_calls"))
    if around_ms:
        what = "idle time around such calls of at least 50 ms, in the same gaps, per step"
        evidence.append(fact(what, around_ms, "ms", "kernels.start_ns, api_calls.duration_ns"))
    whole_ms = waits_ms + contexts_ms + loads_ms + around_ms
    if not step.enough(whole_ms):
        return None
    places = {next(iter(prepares), None): waits_ms, next(iter(contexts.index), None): contexts_ms}
    places["the first launch of a kernel"] = loads_ms
    where = max(places, key=lambda place: places[place])
    return _suggestion("prepares what is used for the first time", whole_ms, *evidence, where=where)


def _loading_ms(step: ProfiledStep) -> float:
    """Time in gaps of launches that take long. A launch of a graph takes its time in each step."""
    if step.calls.empty or "kind" not in step.calls:
        return 0.0
    calls = step.calls[step.calls["kind"].eq("launch")]
    calls = calls[~calls["name"].str.contains("Graph")]
    is_long = calls["end_ns"] - calls["start_ns"] >= _LOADS_NS
    return float(in_gaps(step, calls[is_long]).sum())


def _find_starting(step: ProfiledStep) -> pd.DataFrame:
    """The gaps in which calls make contexts, streams or modules for 50 ms or more, and for a tenth
    of the gap: libraries are loaded around them, and none of it comes again.
    """
    gaps, calls = host_gaps(step), step.calls
    if gaps.empty or calls.empty or "kind" not in calls:
        return gaps.iloc[:0]
    prepares = calls["kind"].eq(_PREPARES) & (calls["end_ns"] - calls["start_ns"] >= _STARTS_NS)
    long_calls = pd.concat([context_calls(step), calls[prepares]])
    gaps = gaps[gaps["end_ns"] - gaps["begin_ns"] >= _STARTS_NS]
    taken_ns = _overlaps_ns(gaps, long_calls)
    return gaps[taken_ns >= _LEAST_OF_GAP * (gaps["end_ns"] - gaps["begin_ns"])]


def _around_ms(step: ProfiledStep) -> float:
    """Time of such gaps outside calls that have a kind, per step; 0 if it is not enough."""
    gaps = _find_starting(step)
    if gaps.empty:
        return 0.0
    taken_ms = float(_overlaps_ns(gaps, step.calls).sum()) / 1e6 / step.steps
    around_ms = gap_ms(gaps, step.steps) - taken_ms
    return around_ms if step.enough(around_ms) else 0.0


def _overlaps_ns(gaps: pd.DataFrame, calls: pd.DataFrame) -> Ints:
    """Time of calls in each gap; calls at the same time count each."""
    starts, ends = (calls[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    times = []
    for gap in gaps.itertuples():
        inside = np.minimum(ends, gap.end_ns) - np.maximum(starts, gap.begin_ns)
        times.append(int(np.maximum(inside, 0).sum()))
    return np.array(times, np.int64)


def _suggestion(
    what: str, at_most_ms: float, *evidence: Evidence, where: str | None = None
) -> Suggestion:
    return Suggestion(
        cause=FIRST_USE,
        what=what,
        at_most_ms=at_most_ms,
        evidence=evidence,
        where=where,
        remedy="warm up before the steps that count, and profile later steps",
        how="run some steps first (torch.profiler.schedule(wait=1, warmup=3, active=3)); in a "
        "service run each shape "
        "once at the start; with CUDA, CUDA_MODULE_LOADING=EAGER loads all modules at the start",
    )


first_use = Cause(
    name=FIRST_USE,
    suggest=suggest_first_use,
)


# Compilation inside a step: torch.compile traces and compiles again, or leaves the compiled code at
# graph breaks.

COMPILATION = "compilation in the step"
# Functions that compile. Those of torch._dynamo and torch._inductor that run compiled code are no
# compilation, e.g. `eval_frame.py(1039): _fn` and `aot_autograd.py(1126): forward`.
_COMPILES = re.compile(
    r"(convert_frame|output_graph|compile_fx|aot_autograd|codecache|async_compile|graph|compiler|jit)\.py\(\d+\): "  # noqa: E501
    r"\w*(compile|transform|codegen|lower|dispatcher_function)\w*$"
    r"|triton_heuristics\.py\(\d+\): (benchmark_all_configs|autotune_to_one_config|precompile)"
)
# Ranges of torch's own clock around its compiler: `_compile.compile_inner (dynamo_timed)`.
_TIMED = re.compile(
    r"(compile|dispatcher_function|GraphLowering|benchmark_all_configs|codegen)\S* \(dynamo_timed\)"
)
_MOST_LOOKED_AT = 20  # gaps, the longest
_COMPILATION_NS = 50_000_000  # torch.compile takes seconds, Triton 0.1 s for a kernel
_REGION = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)")


def suggest_compilation(step: ProfiledStep) -> Suggestion | None:
    """Suggest to avoid recompilation, where the compiler runs in a gap of the device."""
    gaps = _find_compiling(step)
    spent_ms = gap_ms(gaps, step.steps)
    if not step.enough(spent_ms):
        return None
    _, code = step.longest_gap(gaps)
    what = "gaps in which the compiler runs, per step"
    evidence = [fact(what, spent_ms, "ms", "functions, kernels.start_ns")]
    kernels = gaps["kernel"].dropna().tolist() if code is None else []
    if kernels:
        evidence.append(fact("first kernel after it, of Triton", kernels[0], "", "kernels.name"))
    regions = _count_regions(step.groups)
    if regions:
        evidence.append(fact("compiled regions per step", regions, "", "kernels.op"))
    return Suggestion(
        cause=COMPILATION,
        what="compiles in the step",
        at_most_ms=spent_ms,
        evidence=tuple(evidence),
        where="torch.compile",
        stack=stack_of(code),
        remedy="warm up each shape once, and keep shapes the same or mark them dynamic",
        how="TORCH_LOGS=recompiles,graph_breaks names each place; torch._dynamo.mark_dynamic(x, "
        "0); "
        "torch.compile(..., dynamic=True); mode='default' instead of a search of kernels",
    )


def _count_regions(groups: pd.DataFrame) -> int:
    """Number of different compiled regions."""
    if groups.empty:
        return 0
    regions = groups["op"].dropna().astype(str).str.extract(_REGION)[0]
    return int(regions.nunique())


def _find_compiling(step: ProfiledStep) -> pd.DataFrame:
    """The gaps in which the compiler runs: by its functions or ranges; without call stacks, long
    ones before the first launch of a kernel that Triton compiled.
    """
    gaps = host_gaps(step)
    if gaps.empty:
        return gaps
    compiling = []
    longest = (gaps["end_ns"] - gaps["begin_ns"]).nlargest(_MOST_LOOKED_AT).index
    for row in gaps.loc[longest].itertuples():
        timed = isinstance(row.reason, str) and _TIMED.search(row.reason) is not None
        code = step.code_in(int(row.begin_ns), int(row.end_ns))
        if timed or _compiles(code) or (code is None and _precedes_triton(row)):
            compiling.append(row.Index)
    return gaps.loc[compiling]


def _precedes_triton(gap: Any) -> bool:
    """Whether a gap is as long as a compilation, before the first launch of a kernel of Triton."""
    first = isinstance(gap.kernel, str) and gap.kernel.startswith("triton_")
    return first and gap.end_ns - gap.begin_ns >= _COMPILATION_NS


def _compiles(code: HostCode | None) -> bool:
    if code is None:
        return False
    names = (*code.path, *(name for name, _ in code.own_ms))
    return any(_COMPILES.search(name) for name in names)


compilation = Cause(
    name=COMPILATION,
    suggest=suggest_compilation,
)
