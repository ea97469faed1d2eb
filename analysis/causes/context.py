"""What the stages of a diagnosis read of a recording, and what causes examine of it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...profiling.attribution.cupti_names import HOST_KINDS, host_kind
from ...profiling.hardware.clocks import reasons_in
from ...profiling.hardware.limits import Hardware
from ...profiling.recording.axis import Axis
from ...profiling.recording.disturbed import Disturbances, select_used_steps
from ...profiling.recording.operand_numbers import CallNumbers, decode_numbers
from ...profiling.recording.operators import (
    PRODUCTS,
    TORCH_DTYPES,
    TensorArgument,
    decode_arguments,
)
from ...profiling.recording.store import STEP
from ..decompose.averaged_steps import Samples, list_used_steps
from ..decompose.functionals import BEND, OUTLIER, Functional
from ..decompose.launches import Paced, mean_paced
from ..decompose.pace import Pace
from ..decompose.served_steps import ServedSteps
from ..decompose.slow_steps import SlowSteps
from ..decompose.source_lines import Lines
from ..decompose.terms import COMMUNICATION, IDLE, KERNELS, Key
from ..decompose.waiting import Waiting
from ..verdicts.measurement import Measurement
from .blocks import Block, find_blocks
from .case import BatchFacts, HostCalls, MeanHostUse, SlowDown, TermOperands, TermUses, Use
from .expert_tokens import tokens_of
from .kernel_choice import graph_batches

_GEOMETRY = {"blocks": ("grid_x", "grid_y", "grid_z"), "threads": ("block_x", "block_y", "block_z")}
_SIZES = ("registers_per_thread", "shared_memory_bytes")
_WORK = ("flops", "bytes_compulsory", "dram_bytes", "sm_cycles")
_COUNTED = ["dram_bytes", "sm_cycles"]  # every kernel has them, unless its counters are unknown
_TERM = ["layer", "phase", "kind"]
OPERAND_COLUMNS = ["batch", "layer", "phase", "op", "arguments", "duration_ns", "numbers", "calls"]
_DTYPE = re.compile(r'"dtype":"([^"]+)"')
_FLOATING = [name for name, dtype in TORCH_DTYPES.items() if "float" in dtype]
# of a bend: the change of a sample's time at the smaller sizes over that at the larger ones, from
# which on a switch of kernels is looked for there
_FAR_MORE = 2.0
_HOST_USE = ("cpu_time_ns", "system_time_ns", "page_faults", "run_queue_wait_ns")


def _no_times() -> pd.DataFrame:
    return pd.DataFrame({"batch": [], "step": [], "name": []})


@dataclass(frozen=True)
class Recorded:
    """What the stages of a diagnosis read of a recording; None or empty where there is nothing."""

    steps: pd.DataFrame
    api_calls: pd.DataFrame | None = None
    clocks: pd.DataFrame | None = None
    hardware: Hardware = field(default_factory=lambda: Hardware(None, None))
    measured: tuple[Measurement, ...] = ()  # of experiments
    waits_for_time: bool = False  # whether the time for experiments was up before all were made
    layer_classes: Mapping[str, str] = field(default_factory=dict)  # class of each layer, by path
    axis: Axis = field(default_factory=Axis)  # for words
    kernel_times: pd.DataFrame = field(default_factory=_no_times)  # exclusive times in the steps
    statistic: str = "median"  # of the steps that a time is, one of `STATISTICS`
    slow_downs: pd.DataFrame | None = None  # result of `communication.slow_downs`
    # result of `count_faults`
    term_faults: Mapping[int, Mapping[Key, float]] = field(default_factory=dict)
    # result of `read_operands`
    operands: Mapping[int, Mapping[Key, TermOperands]] = field(default_factory=dict)
    # of marked steps, see `marked.Marked.settle`
    sampled: tuple[Sequence[Key], Mapping[int, Samples]] | None = None
    # repeated layers that are one term
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    disturbances: Disturbances | None = None
    lines: Lines = field(default_factory=dict)  # result of `source_lines.main_lines`
    unit: str = STEP  # what the steps are, see `Recording.unit`
    jumps: tuple[tuple[int, int], ...] = ()  # see `Curve.jumps`
    slow: tuple[SlowSteps, ...] = ()
    # result of `launches.find_paced_kernels`
    paced: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["step"]))
    # For words on the choice of the steps:
    served: ServedSteps | None = None  # None of a recording that is of no inference server
    waiting: Waiting | None = None  # where disturbances prevail
    pace: Pace | None = None
    gpus: int = 1  # number of GPUs that worked
    processes: int | None = None  # of a sweep, in which timed steps ran

    @property
    def in_one_process(self) -> bool:
        """Whether one process made all rounds, or all but one."""
        return self.processes in (1, 2)


@dataclass(frozen=True)
class Examined:
    """What causes examine of some batch sizes, for every functional over them."""

    facts: Mapping[int, BatchFacts]
    # launches of each term at all these batch sizes; the share of each is its time
    uses: Mapping[Key, Sequence[Use]]
    slow_downs: Mapping[Key, Mapping[int, SlowDown]]
    hardware: Hardware
    blocks: Mapping[Key, Block] = field(default_factory=dict)


def examine(batches: Iterable[int], recorded: Recorded) -> Examined:
    """Gather what causes examine of some batch sizes, each with a profiled step."""
    kernel_times = recorded.kernel_times
    of_batch = kernel_times["batch"]
    sweep = {}
    for batch in {*batches, *of_batch.dropna().unique()}:
        sweep[int(batch)] = list_used_steps(kernel_times[of_batch == batch])
    used = {batch: sweep[batch] for batch in batches}
    rows = kernel_times[kernel_times["step"].isin(_flat(used.values()))]
    graphs = graph_batches(kernel_times, recorded.steps, recorded.api_calls)
    facts = {}
    for batch, steps in used.items():
        facts[batch] = _facts(batch, steps, rows, recorded, graphs.get(batch))
    slow_downs = {} if recorded.slow_downs is None else _slow_downs(recorded.slow_downs)
    blocks = find_blocks(kernel_times, _flat(sweep.values()))
    return Examined(facts, _uses(rows, used), slow_downs, recorded.hardware, blocks)


def _flat(steps: Iterable[Iterable[int]]) -> list[int]:
    return [step for of_batch in steps for step in of_batch]


def find_uses(functional: Functional, key: Key, examined: Examined) -> TermUses:
    """The kernels of one term at the batch sizes of a functional; `examined` may be of further
    ones.
    """
    coefficients = dict(functional.coefficients)
    uses = []
    for use in examined.uses.get(key, ()):
        if use.batch in coefficients:
            uses.append(replace(use, share=coefficients[use.batch] * use.share))
    before = min(functional.conditions) if functional.kind == OUTLIER else functional.at
    term = TermUses(functional=functional, before=before, after=functional.last, uses=tuple(uses))
    if functional.kind == BEND and _changes_below(term):
        first, middle, _ = functional.conditions
        return replace(term, before=first, after=middle)
    return term


def _changes_below(term: TermUses) -> bool:
    """Whether a bend changes between its two smaller sizes: other kernels run at the smallest, and
    the time of a sample changes by far the most there.
    """
    first, middle, last = term.functional.conditions
    rates = {batch: term.time_ms(batch) / batch for batch in term.functional.conditions}
    if min(rates.values()) <= 0 or term.main_kernel(first) == term.main_kernel(middle):
        return False
    left = abs(math.log(rates[middle] / rates[first]))
    right = abs(math.log(rates[last] / rates[middle]))
    return left > _FAR_MORE * right


def count_faults(operators: pa.Table, names: Mapping[str, str]) -> dict[int, dict[Key, float]]:
    """Page faults in one step by batch size and term, in the group of a repeated layer that `names`
    has.

    From columns `batch`, `layer`, `phase` and `page_faults` of `operators`; without batch sizes
    that were not counted.
    """
    faults: dict[int, dict[Key, float]] = {}
    for row in operators.filter(pc.is_valid(operators["page_faults"])).to_pylist():
        layer = names.get(row["layer"] or "", row["layer"])
        of_batch, key = faults.setdefault(row["batch"], {}), Key.of(layer, row["phase"], KERNELS)
        of_batch[key] = of_batch.get(key, 0.0) + row["page_faults"]
    return faults


def read_operands(
    operators: pa.Table, names: Mapping[str, str]
) -> dict[int, dict[Key, TermOperands]]:
    """The operands of each term, by batch size, from `OPERAND_COLUMNS`; `names` has the groups of
    repeated layers.
    """
    members = Counter(names.values())
    calls: dict[int, dict[Key, list[Mapping[str, Any]]]] = {}
    for row in operators.to_pylist():
        key = Key.of(names.get(row["layer"] or "", row["layer"]), row["phase"], KERNELS)
        calls.setdefault(row["batch"], {}).setdefault(key, []).append(row)
    operands: dict[int, dict[Key, TermOperands]] = {}
    for batch, terms in calls.items():
        operands[batch] = {}
        for key, rows in terms.items():
            layer = key.layer or ""
            operands[batch][key] = _read_term(layer, rows, members.get(layer, 0))
    return operands


def weights_of(operands: Mapping[int, Mapping[Key, TermOperands]]) -> tuple[str, ...]:
    """Names of all parameters that products multiply by, each once."""
    terms = (term for of_batch in operands.values() for term in of_batch.values())
    return tuple(dict.fromkeys(name for term in terms for name in term.weights))


def _read_term(layer: str, calls: Sequence[Mapping[str, Any]], members: int) -> TermOperands:
    """The operands of the calls of one term, whose layer stands for so many."""
    dtypes: dict[str, set[str]] = {}
    weights: Counter[str] = Counter()
    numbers_of: list[tuple[int, CallNumbers]] = []
    for row in calls:
        types = [dtype for dtype in _DTYPE.findall(row["arguments"]) if dtype in _FLOATING]
        if types:
            dtypes.setdefault(row["op"], set()).add(TORCH_DTYPES[types[0]])
        if row["numbers"] is None:
            continue
        duration_ns, numbers = row["duration_ns"] or 1, decode_numbers(row["numbers"])
        numbers_of.append((duration_ns, numbers))
        if row["op"].removeprefix("aten::") in PRODUCTS:
            parameters = dict.fromkeys(_matrices(row["arguments"], numbers), duration_ns)
            weights += Counter(parameters)
    return TermOperands(
        {op: frozenset(names) for op, names in dtypes.items()},
        tuple(name for name, _ in weights.most_common()),
        _mean((duration_ns, numbers.denormals) for duration_ns, numbers in numbers_of),
        _mean((duration_ns, numbers.distinct) for duration_ns, numbers in numbers_of),
        tokens_of(layer, calls, members),
    )


def _mean(shares: Iterable[tuple[int, float | None]]) -> float | None:
    """The mean of the known shares over the times beside them; None if none is known."""
    total, total_ns = 0.0, 0
    for duration_ns, share in shares:
        if share is not None:
            total += duration_ns * share
            total_ns += duration_ns
    return total / total_ns if total_ns else None


def _matrices(arguments: str, numbers: CallNumbers) -> Iterator[str]:
    """Names of the parameters among the operands of a call that are matrices."""
    for index, argument in enumerate(decode_arguments(arguments)):
        operand = numbers.operands.get(index)
        is_matrix = isinstance(argument, TensorArgument) and len(argument.shape) == 2
        if is_matrix and operand is not None and operand.parameter is not None:
            yield operand.parameter


def _slow_downs(rows: pd.DataFrame) -> dict[Key, dict[int, SlowDown]]:
    """By term and batch size: of every layer and phase, and of communication as a whole."""
    slowed: dict[Key, dict[int, SlowDown]] = {}
    for row in rows.itertuples():
        key = Key.of(row.layer, row.phase, KERNELS)
        slowed.setdefault(key, {})[int(row.batch)] = _slow_down(row, row.own_ms)
    squared = rows.drop(columns=["layer", "phase"]).assign(error_ms=rows["error_ms"] ** 2)
    whole = squared.groupby("batch").sum()
    whole["error_ms"] **= 0.5
    key = Key(None, None, COMMUNICATION)
    for row in whole.reset_index().itertuples():
        slowed.setdefault(key, {})[int(row.batch)] = _slow_down(row, row.shared_ms)
    return slowed


def _slow_down(row: Any, time_ms: float) -> SlowDown:
    """The slow-down of a row, of which so much is in the time of the term."""
    error_ms = abs(row.error_ms * time_ms / row.excess_ms) if row.excess_ms else 0.0
    return SlowDown(float(time_ms), float(error_ms), float(row.expected_ms), float(row.excess_ms))


def _uses(rows: pd.DataFrame, used: Mapping[int, list[int]]) -> dict[Key, list[Use]]:
    rows = rows if "op" in rows else rows.assign(op=None)
    keys = [*_TERM, "batch", "name", "op", *_GEOMETRY, *_SIZES]
    table = rows.assign(**{name: _product(rows, columns) for name, columns in _GEOMETRY.items()})
    grouped = table.groupby(keys, dropna=False, sort=False, observed=True)
    sums = grouped[["exclusive_ms", "calls", *_WORK]].sum(min_count=1)
    sums[_COUNTED] = sums[_COUNTED].where(grouped[_COUNTED].count().eq(grouped.size(), axis=0))
    uses: dict[Key, list[Use]] = {}
    for key, (exclusive_ms, calls, *work) in zip(
        sums.index, sums.itertuples(index=False), strict=True
    ):
        layer, phase, kind, batch, name, op, *geometry = key
        n = len(used[int(batch)])
        sizes: dict[str, int | None] = {}
        for column, value in zip((*_GEOMETRY, *_SIZES), geometry, strict=True):
            sizes[column] = None if pd.isna(value) else int(value)
        amounts: dict[str, float | None] = {}
        for column, value in zip(_WORK, work, strict=True):
            amounts[column] = None if pd.isna(value) else float(value) / n
        use = Use(
            batch=int(batch),
            name=str(name),
            op=None if pd.isna(op) else str(op),
            time_ms=float(exclusive_ms) / n,
            share=float(exclusive_ms) / n,
            calls=float(calls) / n,
            **sizes,
            **amounts,  # type: ignore[arg-type]
        )
        uses.setdefault(Key.of(layer, phase, kind), []).append(use)
    return uses


def _product(rows: pd.DataFrame, columns: tuple[str, ...]) -> Any:
    return (
        rows[list(columns)]
        .astype("Float64")
        .astype("float64")
        .prod(axis=1, skipna=False)
        .to_numpy()
    )


def _facts(
    batch: int,
    used: list[int],
    rows: pd.DataFrame,
    recorded: Recorded,
    graph: tuple[int, bool] | None,
) -> BatchFacts:
    steps = select_used_steps(recorded.steps)
    of_batch = steps[steps["batch"] == batch]
    timed = of_batch[~of_batch["profiled"].astype(bool)]
    mine = rows[rows["batch"] == batch]
    idle = mine["name"] == IDLE
    clock_hz, reasons = mean_clock(of_batch, recorded.clocks)
    graph_batch, graph_marked = graph or (None, False)
    return BatchFacts(
        timed_ms=timed["duration_ns"].to_numpy(np.float64) / 1e6,
        idle_ms=float(mine.loc[idle, "exclusive_ms"].sum()) / len(used),
        kernel_ms=float(mine.loc[~idle, "exclusive_ms"].sum()) / len(used),
        kernel_calls=float(mine.loc[~idle, "calls"].sum()) / len(used),
        host=_host_calls(of_batch[of_batch["step"].isin(used)], recorded.api_calls),
        peak_memory_bytes=_largest(of_batch, "peak_memory_bytes"),
        allocator_retries=_largest(of_batch, "allocator_retries"),
        sm_clock_hz=clock_hz,
        throttle_reasons=reasons,
        kernel_bytes=float(mine["bytes_compulsory"].sum()) / len(used),
        host_use=_host_use(timed),
        graph_batch=graph_batch,
        graph_marked=graph_marked,
        compiled_code=_text(of_batch, "compiled_code"),
        term_faults=recorded.term_faults.get(batch),
        operands=recorded.operands.get(batch, {}),
        paced=_find_paced(recorded.paced, used),
    )


def _find_paced(rows: pd.DataFrame, used: Sequence[int]) -> dict[Key, Paced]:
    """The kernels of each term that wait for their launches, per step."""
    inside = rows[rows["step"].isin(used)]
    if inside.empty:
        return {}
    by_term = inside.groupby(["layer", "phase"], dropna=False)
    return {
        Key.of(layer, phase, KERNELS): mean_paced(of_term, len(used))
        for (layer, phase), of_term in by_term
    }


def _host_use(timed: pd.DataFrame) -> MeanHostUse | None:
    if timed.empty or not set(_HOST_USE) <= set(timed.columns):
        return None
    means = {name: timed[name].astype("Float64").mean(skipna=False) for name in _HOST_USE}
    cpu, system, faults, wait = (None if pd.isna(mean) else float(mean) for mean in means.values())
    if cpu is None or system is None or faults is None:
        return None
    return MeanHostUse(cpu / 1e6, system / 1e6, faults, None if wait is None else wait / 1e6)


def _text(rows: pd.DataFrame, column: str) -> str | None:
    """The first value of a column that every step of a batch size shares; None if unknown."""
    values = rows[column].dropna() if column in rows else pd.Series(dtype=object)
    return None if values.empty else str(values.iloc[0])


def _largest(rows: pd.DataFrame, column: str) -> float | None:
    values = rows[column].dropna() if column in rows else pd.Series(dtype=float)
    return None if values.empty else float(values.max())


def _host_calls(steps: pd.DataFrame, api_calls: pd.DataFrame | None) -> dict[str, HostCalls]:
    """Calls of each kind inside the steps, per step; 0 for kinds without calls."""
    if api_calls is None or api_calls.empty or steps.empty:
        return {}
    timed = api_calls[api_calls["duration_ns"].notna() & api_calls["start_ns"].notna()]
    start = timed["start_ns"].to_numpy(np.int64)
    inside = np.zeros(len(timed), dtype=bool)
    for row in steps.itertuples():
        inside |= (start >= int(row.start_ns)) & (start < int(row.start_ns) + int(row.duration_ns))
    calls = timed[inside]
    if calls.empty:
        return {}
    kinds = {name: host_kind(name) for name in set(calls["name"])}
    kind = calls["name"].map(kinds)
    time_ms = calls["duration_ns"].astype("float64") / 1e6
    return {
        wanted: HostCalls(
            float((kind == wanted).sum()) / len(steps),
            float(time_ms[kind == wanted].sum()) / len(steps),
        )
        for wanted, _ in HOST_KINDS
    }


def mean_clock(
    steps: pd.DataFrame, clocks: pd.DataFrame | None
) -> tuple[float | None, frozenset[str]]:
    """Mean SM clock of the steps of a batch size, and what held it down during its visits.

    The clock is the one that the steps themselves counted. Without it, samples inside steps count;
    on a CPU also those between them, where a GPU is idle and its clock another one.
    """
    none = pd.Series(dtype=object)
    counted, texts = (
        steps.get(name, none).dropna() for name in ("sm_clock_hz", "throttle_reasons")
    )
    clock_hz, reasons = (
        (float(counted.mean()) if len(counted) else None),
        reasons_in(map(str, texts)),
    )
    if clocks is None or clocks.empty or steps["start_ns"].isna().any():
        return clock_hz, reasons
    taken = clocks["start_ns"].to_numpy(np.int64)
    of_gpu = (
        clocks["device"].notna().to_numpy(bool)
        if "device" in clocks
        else np.zeros(len(taken), bool)
    )
    begins = steps["start_ns"].to_numpy(np.int64)
    ends = begins + steps["duration_ns"].to_numpy(np.int64)
    in_visit, in_step = np.zeros(len(taken), bool), np.zeros(len(taken), bool)
    for begin, end in zip(begins, ends, strict=True):
        in_step |= (begin <= taken) & (taken <= end)
    for visit in steps.groupby("round").indices.values():
        in_visit |= (begins[visit].min() <= taken) & (taken <= ends[visit].max())
    sampled = clocks.loc[in_step | in_visit & ~of_gpu, "sm_clock_hz"].dropna()
    reasons |= reasons_in(map(str, clocks.loc[in_visit, "throttle_reasons"].dropna()))
    return float(sampled.mean()) if clock_hz is None and len(sampled) else clock_hz, reasons
