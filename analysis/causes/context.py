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
from ..decompose.averaged_steps import Samples, durations_ms, list_used_steps
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
_OF_FACTS = ["name", "exclusive_ms", "calls", "bytes_compulsory"]
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
    steps = kernel_times[[name for name in ("step", "averaged") if name in kernel_times]]
    sweep = {}
    for batch in {*batches, *of_batch.dropna().unique()}:
        sweep[int(batch)] = list_used_steps(steps[of_batch == batch])
    used = {batch: sweep[batch] for batch in batches}
    rows = kernel_times[kernel_times["step"].isin(_flat(used.values()))]
    graphs = graph_batches(kernel_times, recorded.steps, recorded.api_calls)
    gather = _Facts(recorded)
    facts = {}
    for batch, steps in used.items():
        own = rows.loc[rows["batch"] == batch, _OF_FACTS]
        facts[batch] = gather.of_batch(batch, steps, own, graphs.get(batch))
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
    sizes = term.functional.conditions
    first, middle, last = (term.time_ms(size) / size for size in sizes)
    if min(first, middle, last) <= 0:
        return False
    if term.main_kernel(sizes[0]) == term.main_kernel(sizes[1]):
        return False
    below = math.log(middle / first)
    above = math.log(last / middle)
    return abs(below) > _FAR_MORE * abs(above)


def count_faults(operators: pa.Table, names: Mapping[str, str]) -> dict[int, dict[Key, float]]:
    """Page faults in one step by batch size and term, in the group of a repeated layer that `names`
    has.

    From columns `batch`, `layer`, `phase` and `page_faults` of `operators`; without batch sizes
    that were not counted.
    """
    faults: dict[int, dict[Key, float]] = {}
    counted = operators.filter(pc.is_valid(operators["page_faults"]))
    for row in counted.to_pylist():
        key = _key_of(row, names)
        of_batch = faults.setdefault(row["batch"], {})
        of_batch[key] = of_batch.get(key, 0.0) + row["page_faults"]
    return faults


def _key_of(operator: Mapping[str, Any], names: Mapping[str, str]) -> Key:
    layer = names.get(operator["layer"] or "", operator["layer"])
    return Key.of(layer, operator["phase"], KERNELS)


def read_operands(
    operators: pa.Table, names: Mapping[str, str]
) -> dict[int, dict[Key, TermOperands]]:
    """The operands of each term, by batch size, from `OPERAND_COLUMNS`; `names` has the groups of
    repeated layers.
    """
    members = Counter(names.values())
    calls: dict[int, dict[Key, list[Mapping[str, Any]]]] = {}
    for row in operators.to_pylist():
        terms = calls.setdefault(row["batch"], {})
        of_term = terms.setdefault(_key_of(row, names), [])
        of_term.append(row)
    operands: dict[int, dict[Key, TermOperands]] = {}
    for batch, terms in calls.items():
        of_batch: dict[Key, TermOperands] = {}
        for key, rows in terms.items():
            layer = key.layer or ""
            of_batch[key] = _read_term(layer, rows, members.get(layer, 0))
        operands[batch] = of_batch
    return operands


def weights_of(operands: Mapping[int, Mapping[Key, TermOperands]]) -> tuple[str, ...]:
    """Names of all parameters that products multiply by, each once."""
    names: dict[str, None] = {}
    for of_batch in operands.values():
        for term in of_batch.values():
            names |= dict.fromkeys(term.weights)
    return tuple(names)


def _read_term(layer: str, calls: Sequence[Mapping[str, Any]], members: int) -> TermOperands:
    """The operands of the calls of one term, whose layer stands for so many."""
    dtypes: dict[str, set[str]] = {}
    weights: Counter[str] = Counter()
    denormals, distinct = _Mean(), _Mean()
    for row in calls:
        op, arguments = row["op"], row["arguments"]
        types = [dtype for dtype in _DTYPE.findall(arguments) if dtype in _FLOATING]
        if types:
            of_op = dtypes.setdefault(op, set())
            of_op.add(TORCH_DTYPES[types[0]])
        if row["numbers"] is None:
            continue
        duration_ns = row["duration_ns"] or 1
        numbers = decode_numbers(row["numbers"])
        denormals.add(duration_ns, numbers.denormals)
        distinct.add(duration_ns, numbers.distinct)
        if op.removeprefix("aten::") in PRODUCTS:
            for name in dict.fromkeys(_matrices(arguments, numbers)):
                weights[name] += duration_ns
    return TermOperands(
        {op: frozenset(names) for op, names in dtypes.items()},
        tuple(name for name, _ in weights.most_common()),
        denormals.value,
        distinct.value,
        tokens_of(layer, calls, members),
    )


class _Mean:
    """The mean of the known shares over the times beside them; None if none is known."""

    def __init__(self) -> None:
        self._total = 0.0
        self._total_ns = 0

    def add(self, duration_ns: int, share: float | None) -> None:
        """Add a share, None where it is unknown, of a call that took so long."""
        if share is not None:
            self._total += duration_ns * share
            self._total_ns += duration_ns

    @property
    def value(self) -> float | None:
        """The mean so far."""
        if not self._total_ns:
            return None
        return self._total / self._total_ns


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
        of_term = slowed.setdefault(key, {})
        of_term[int(row.batch)] = _slow_down(row, row.own_ms)
    amounts = rows.drop(columns=["layer", "phase"])
    amounts["error_ms"] **= 2
    whole = amounts.groupby("batch").sum()
    whole["error_ms"] **= 0.5
    communication = Key(None, None, COMMUNICATION)
    for row in whole.reset_index().itertuples():
        of_all = slowed.setdefault(communication, {})
        of_all[int(row.batch)] = _slow_down(row, row.shared_ms)
    return slowed


def _slow_down(row: Any, time_ms: float) -> SlowDown:
    """The slow-down of a row, of which so much is in the time of the term."""
    expected_ms, excess_ms = float(row.expected_ms), float(row.excess_ms)
    error_ms = 0.0
    if excess_ms:
        error_ms = abs(float(row.error_ms) * time_ms / excess_ms)
    return SlowDown(float(time_ms), float(error_ms), expected_ms, excess_ms)


def _uses(rows: pd.DataFrame, used: Mapping[int, list[int]]) -> dict[Key, list[Use]]:
    """The launches of each term and batch size, per step, one entry for each kind of launch."""
    if "op" not in rows:
        rows = rows.assign(op=None)
    keys = [*_TERM, "batch", "name", "op", *_GEOMETRY, *_SIZES]
    products = {name: _product(rows, columns) for name, columns in _GEOMETRY.items()}
    rows = rows.assign(**products)
    kinds = rows.groupby(keys, dropna=False, sort=False, observed=True).ngroup().to_numpy()
    grouped = rows.groupby(kinds)  # by number: an index of ten keys would take longer than the sums
    sums = grouped[["exclusive_ms", "calls", *_WORK]].sum(min_count=1)
    counted_all = grouped[_COUNTED].count().eq(grouped.size(), axis=0)
    sums[_COUNTED] = sums[_COUNTED].where(counted_all)
    firsts = rows[keys].iloc[np.unique(kinds, return_index=True)[1]]
    uses: dict[Key, list[Use]] = {}
    for row in firsts.reset_index(drop=True).join(sums).to_dict("records"):
        known: dict[str, Any] = {}
        for column, value in row.items():
            known[str(column)] = None if pd.isna(value) else value
        batch = int(known["batch"])
        key = Key.of(known["layer"], known["phase"], known["kind"])
        of_term = uses.setdefault(key, [])
        of_term.append(_use_of(known, batch, len(used[batch])))
    return uses


def _use_of(row: Mapping[str, Any], batch: int, steps: int) -> Use:
    """One kind of launch, from its sums over so many steps; None in a row is unknown."""
    numbers: dict[str, Any] = {}
    for column in (*_GEOMETRY, *_SIZES):
        value = row[column]
        numbers[column] = None if value is None else int(value)
    for column in _WORK:
        value = row[column]
        numbers[column] = None if value is None else float(value) / steps
    time_ms = float(row["exclusive_ms"]) / steps
    return Use(
        batch=batch,
        name=str(row["name"]),
        op=row["op"],
        time_ms=time_ms,
        share=time_ms,
        calls=float(row["calls"]) / steps,
        **numbers,
    )


def _product(rows: pd.DataFrame, columns: tuple[str, ...]) -> Any:
    nullable = rows[list(columns)].astype("Float64")
    numbers = nullable.astype("float64")
    return numbers.prod(axis=1, skipna=False).to_numpy()


class _Facts:
    """Gathers facts about batch sizes from the steps and the calls of the host, read once."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._steps = select_used_steps(recorded.steps)
        self._calls: CallsOfHost | None = None
        if recorded.api_calls is not None:
            self._calls = CallsOfHost(recorded.api_calls)

    def of_batch(
        self, batch: int, used: list[int], rows: pd.DataFrame, graph: tuple[int, bool] | None
    ) -> BatchFacts:
        """The facts about a batch size, of the steps used and their rows of exclusive times."""
        recorded = self._recorded
        steps = self._steps[self._steps["batch"] == batch]
        timed = steps[~steps["profiled"].astype(bool)]
        is_idle = rows["name"] == IDLE
        idle, kernels = rows[is_idle], rows[~is_idle]
        clock_hz, reasons = mean_clock(steps, recorded.clocks)
        graph_batch, graph_marked = graph or (None, False)
        host: dict[str, HostCalls] = {}
        if self._calls is not None:
            profiled = steps[steps["step"].isin(used)]
            host = self._calls.count_inside(profiled)
        return BatchFacts(
            timed_ms=durations_ms(timed),
            idle_ms=float(idle["exclusive_ms"].sum()) / len(used),
            kernel_ms=float(kernels["exclusive_ms"].sum()) / len(used),
            kernel_calls=float(kernels["calls"].sum()) / len(used),
            host=host,
            peak_memory_bytes=_largest(steps, "peak_memory_bytes"),
            allocator_retries=_largest(steps, "allocator_retries"),
            sm_clock_hz=clock_hz,
            throttle_reasons=reasons,
            kernel_bytes=float(rows["bytes_compulsory"].sum()) / len(used),
            host_use=_host_use(timed),
            graph_batch=graph_batch,
            graph_marked=graph_marked,
            compiled_code=_text(steps, "compiled_code"),
            term_faults=recorded.term_faults.get(batch),
            operands=recorded.operands.get(batch, {}),
            paced=_find_paced(recorded.paced, used),
        )


def _find_paced(rows: pd.DataFrame, used: Sequence[int]) -> dict[Key, Paced]:
    """The kernels of each term that wait for their launches, per step."""
    inside = rows[rows["step"].isin(used)]
    if inside.empty:
        return {}
    paced = {}
    for (layer, phase), of_term in inside.groupby(_TERM[:2], dropna=False):
        key = Key.of(layer, phase, KERNELS)
        paced[key] = mean_paced(of_term, len(used))
    return paced


def _host_use(timed: pd.DataFrame) -> MeanHostUse | None:
    if timed.empty or not set(_HOST_USE) <= set(timed.columns):
        return None
    means = []
    for name in _HOST_USE:
        values = timed[name].astype("Float64")
        mean = values.mean(skipna=False)
        means.append(None if pd.isna(mean) else float(mean))
    cpu, system, faults, wait = means
    if cpu is None or system is None or faults is None:
        return None
    if wait is not None:
        wait /= 1e6
    return MeanHostUse(cpu / 1e6, system / 1e6, faults, wait)


class CallsOfHost:
    """The API calls of a recording, in order of their starts."""

    def __init__(self, api_calls: pd.DataFrame) -> None:
        complete = api_calls["duration_ns"].notna() & api_calls["start_ns"].notna()
        timed = api_calls[complete]
        start_ns = timed["start_ns"].to_numpy(np.int64)
        self._order = np.argsort(start_ns, kind="stable")
        self._start_ns = start_ns[self._order]
        self._time_ms = timed["duration_ns"].to_numpy(np.float64) / 1e6
        kind_of = {name: host_kind(name) for name in timed["name"].unique()}
        self._kind = timed["name"].map(kind_of).to_numpy(object)

    def count_inside(self, steps: pd.DataFrame) -> dict[str, HostCalls]:
        """Calls of each kind inside the steps, per step; 0 for kinds without calls."""
        pieces = [np.zeros(0, np.int64)]
        for row in steps.itertuples():
            begin = int(row.start_ns)
            end = begin + int(row.duration_ns)
            first, last = np.searchsorted(self._start_ns, [begin, end])
            pieces.append(self._order[first:last])
        inside = np.unique(np.concatenate(pieces))
        if not len(inside):
            return {}
        kind, time_ms = self._kind[inside], self._time_ms[inside]
        calls = {}
        for wanted, _ in HOST_KINDS:
            of_kind = time_ms[kind == wanted]
            sum_ms = float(of_kind.sum())
            calls[wanted] = HostCalls(len(of_kind) / len(steps), sum_ms / len(steps))
        return calls


def _text(rows: pd.DataFrame, column: str) -> str | None:
    """The first value of a column that every step of a batch size shares; None if unknown."""
    values = _list_known(rows, column)
    return None if values.empty else str(values.iloc[0])


def _largest(rows: pd.DataFrame, column: str) -> float | None:
    values = _list_known(rows, column)
    return None if values.empty else float(values.max())


def _list_known(rows: pd.DataFrame, column: str) -> pd.Series:
    """What a column has; nothing where there is no such column."""
    return rows.get(column, pd.Series(dtype=object)).dropna()


def mean_clock(
    steps: pd.DataFrame, clocks: pd.DataFrame | None
) -> tuple[float | None, frozenset[str]]:
    """Mean SM clock of the steps of a batch size, and what held it down during its visits.

    The clock is the one that the steps themselves counted. Without it, samples inside steps count;
    on a CPU also those between them, where a GPU is idle and its clock another one.
    """
    counted = _list_known(steps, "sm_clock_hz")
    clock_hz = float(counted.mean()) if len(counted) else None
    throttled = _list_known(steps, "throttle_reasons")
    reasons = reasons_in(map(str, throttled))
    if clocks is None or clocks.empty or steps["start_ns"].isna().any():
        return clock_hz, reasons
    taken = clocks["start_ns"].to_numpy(np.int64)
    of_gpu = np.zeros(len(taken), bool)
    if "device" in clocks:
        of_gpu = clocks["device"].notna().to_numpy(bool)
    begins = steps["start_ns"].to_numpy(np.int64)
    ends = begins + steps["duration_ns"].to_numpy(np.int64)
    in_step = np.zeros(len(taken), bool)
    for begin, end in zip(begins, ends, strict=True):
        in_step |= (begin <= taken) & (taken <= end)
    in_visit = np.zeros(len(taken), bool)
    for visit in steps.groupby("round").indices.values():
        begin, end = begins[visit].min(), ends[visit].max()
        in_visit |= (begin <= taken) & (taken <= end)
    throttled = _list_known(clocks[in_visit], "throttle_reasons")
    reasons |= reasons_in(map(str, throttled))
    of_interest = in_step | in_visit & ~of_gpu
    sampled = _list_known(clocks[of_interest], "sm_clock_hz")
    if clock_hz is None and len(sampled):
        clock_hz = float(sampled.mean())
    return clock_hz, reasons
