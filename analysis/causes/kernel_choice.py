"""Causes in which kernels run: a switch of algorithm, the last wave or tile, a captured graph,
another roof.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...profiling.attribution.kernel_names import ALGORITHMS, architecture, read_name, short_name
from ...profiling.recording.experiments import Wave
from ..decompose.terms import COMMUNICATION, IDLE, KERNELS
from .case import Case, Cause, Intervention, Use, sum_counted, sum_ms, total
from .evidence import Claim, Evidence, Strength, cite
from .work import find_replaced_products

# Algorithm switch: a layer runs the same work by different kernels at the larger batch size; needs
# no model. The kernels of an operator that runs at one size only are more work, and no switch, but
# for a product that another product replaces.

ALGORITHM_SWITCH = "algorithm switch"
# A library's helper kernels vary; a switch takes at least this share of the term's time on one
# side.
_LEAST_OF_TERM = 0.1
_MANY_LAUNCHES = 20  # of one kernel in a term, in a step
_REFUTATION = "With the smaller size's algorithm forced at both, the term keeps its value."


def weigh_algorithm_switch(case: Case) -> Claim | None:
    """Claim the contribution of kernels that run at one size only, and do work of both sizes."""
    replaced = find_replaced_products(case)
    uses = [use for use in case.uses if use.op in replaced or _runs_at_both(case, use.op)]
    alike = replace(case, uses=tuple(uses))
    if case.share.key.kind != KERNELS or not all(map(alike.at, case.sides)):
        return None
    common = set(alike.common_names())
    switched = [use for use in alike.uses if use.name not in common]
    times, is_large = [], False
    for batch in case.sides:
        time_ms = sum_ms(switched, batch)
        times.append(time_ms)
        is_large |= time_ms >= _LEAST_OF_TERM * case.time_ms(batch) > 0
    if not is_large:
        return None
    main = [alike.main_kernel(batch) for batch in case.sides]
    families = [read_name(name or "").family for name in main]
    if not alike.is_switched:
        strength = Strength.HINT
    elif families[0] != families[1] and set(families) <= ALGORITHMS:
        strength = Strength.FACT
    else:
        strength = Strength.SIGN
    evidence = [
        cite("kernel with the most time", main, "", "kernels.name"),
        cite("its family", families, "", "kernels.name"),
        cite("time of kernels that run only at this size", times, "ms", "kernels.duration_ns"),
    ]
    written_for = [architecture(name or "") for name in main]
    if len(set(written_for)) > 1 and all(written_for):
        evidence.append(cite("architecture in its name", written_for, "", "kernels.name"))
    amount = math.fsum(use.share for use in switched)
    before, after = (_with_launches(alike, batch) for batch in case.sides)
    detail = f"from {before} to {after}" if before != after else None
    return Claim(ALGORITHM_SWITCH, amount, strength, tuple(evidence), _REFUTATION, detail)


def _runs_at_both(case: Case, op: str | None) -> bool:
    """Whether an operator runs at both sizes; one that is not known may."""
    if op is None:
        return True
    return all(any(use.op == op for use in case.at(batch)) for batch in case.sides)


def _with_launches(case: Case, batch: int) -> str:
    """The short name of the kernel with the most time, and how often it runs, if that is many
    times.
    """
    name = case.main_kernel(batch) or ""
    launches = math.fsum(use.calls for use in case.at(batch, name))
    often = f" ({launches:,.0f} times)" if launches >= _MANY_LAUNCHES else ""
    return short_name(name) + often


class LastingChange(NamedTuple):
    """A batch size that runs other kernels from some round of the sweep on."""

    batch: int
    round: int  # the first one with the new kernels
    new: str  # short names of the kernels with the most time among those that came and went
    old: str


def find_lasting_changes(kernel_times: pd.DataFrame, steps: pd.DataFrame) -> list[LastingChange]:
    """The batch sizes whose times are of two algorithms.

    A library that chooses an algorithm when memory is short keeps it for the life of the process.

    Args:
        kernel_times: exclusive times of the kernels of a GPU.
        steps: the recorded steps.
    """
    if kernel_times.empty or "round" not in steps:
        return []
    round_of_step = steps.set_index("step")["round"]
    kernels = kernel_times[kernel_times["kind"] == KERNELS]
    kernels = kernels.assign(round=kernels["step"].map(round_of_step))
    changes = []
    for batch, rows in kernels.groupby("batch"):
        times = rows.groupby(["name", "round"])["exclusive_ms"].sum().unstack(fill_value=0.0)
        change = _find_change(times / times.sum())
        if change is not None:
            changes.append(LastingChange(batch, *change))
    return changes


def _find_change(shares: pd.DataFrame) -> tuple[int, str, str] | None:
    """The first round from which on kernels run that did not before, in place of others; their
    names.

    `shares` has the share of each kernel in the time of a round.
    """
    table = np.nan_to_num(shares.to_numpy(np.float64))
    for place, first in enumerate(shares.columns[1:], 1):
        earlier, later = table[:, :place], table[:, place:]
        new, old = ~earlier.any(axis=1), ~later.any(axis=1)
        least_new = later[new].sum(axis=0).min()
        least_old = earlier[old].sum(axis=0).min()
        if min(least_new, least_old) >= _LEAST_OF_TERM:
            return first, _longest_name(shares[new]), _longest_name(shares[old])
    return None


def _longest_name(shares: pd.DataFrame) -> str:
    return short_name(shares.sum(axis=1).idxmax())


algorithm_switch = Cause(
    name=ALGORITHM_SWITCH,
    weigh=weigh_algorithm_switch,
    intervention=Intervention(
        expected=(
            "With the same library at all sizes, with algorithms chosen in another way, or with "
            "larger sizes in pieces of the size before the switch, the term's share goes away."
        ),
        term=("no_nnpack", "cudnn_benchmark", "deterministic", "before_switch"),
        step=("no_nnpack", "cudnn_benchmark", "deterministic"),
        # Another library at all batch sizes removes a switch between two; a padded batch runs as
        # the larger one.
        shared=("onednn", "no_onednn", "no_cudnn", "cublaslt", "cublaslt_list", "padded_batch"),
    ),
)


# Wave and tile quantisation: the last wave of blocks, or the padding of tiles, costs more at one
# size than the other.
#
# A grid runs in waves of SMs x blocks per SM. The empty share of the last wave, 1 -
# waves/ceil(waves), is wasted time, and so are blocks that grow faster than the batch. Modelled:
# all blocks of a kernel take equally long.

QUANTISATION = "wave and tile quantisation"
# Of a model's time at the larger size. A prediction within 5 % is as good as models get.
_FITS = 0.10
_MISSED, _MISSED_BY_ROOFS = 0.30, 0.50  # beyond it a prediction says nothing
# With more waves the tail is under 3 % of the time, too little for a verdict.
_MOST_WAVES = 32
# Of further batch sizes, as a factor on the largest: they have to fit the memory. The second only
# where the first tells nothing, as of 9 samples just past a wave of 8.
_MOST_SIZES = (2, 3)


def weigh_quantisation(case: Case) -> Claim | None:
    """Claim the empty part of last waves, and blocks beyond proportional growth."""
    claimed = predicted = measured = 0.0
    evidence: list[Evidence] = []
    for name, low, high in _in_waves(case):
        before_ms, after_ms = case.time_ms(case.before, name), case.time_ms(case.after, name)
        padding = _padding(case, name)
        full = case.coefficient(case.after) * after_ms * (1 - _tail(high))
        claimed += _empty_share(case, name)
        claimed += full * padding
        predicted += before_ms * math.ceil(high) / math.ceil(low)
        measured += after_ms
        evidence += _evidence(name, low, high, padding)
    if not evidence or measured <= 0 or not claimed:
        return None
    miss = abs(predicted - measured) / measured
    what = "time at the larger size: predicted by ceil(waves), recorded"
    evidence.append(Evidence(what, predicted, measured, "ms", "model; kernels.duration_ns"))
    if miss >= _MISSED:
        return None
    strength = Strength.SIGN if miss <= _FITS else Strength.HINT
    refutation = (
        "A size that fills the last wave (grid a multiple of SMs x blocks per SM) still shows the "
        "excess."
    )
    return Claim(QUANTISATION, claimed, strength, tuple(evidence), refutation)


def fillings(case: Case) -> tuple[Wave, ...]:
    """Where the last wave ends, of the kernel for whose empty part most is claimed; empty where its
    grids do not tell.

    Blocks are taken for a constant number in each of ceil(batch x rate) rows. Of the rates that
    give the recorded grids, the largest says what certainly still fits a wave, the smallest what
    certainly takes one more.
    """
    fillings = (_fillings(case, most * case.functional.last) for most in _MOST_SIZES)
    return next(filter(None, fillings), ())


def _fillings(case: Case, most_samples: int) -> tuple[Wave, ...]:
    names = [name for name, *_ in _in_waves(case)]
    name = max(names, key=lambda name: abs(_empty_share(case, name)), default=None)
    if name is None:
        return ()
    blocks = {}
    for batch in case.functional.conditions:
        largest = _largest(case.at(batch, name))
        if largest is not None and largest.blocks:
            blocks[batch] = largest.blocks
    per_row = math.gcd(*blocks.values())
    most, least = [], []
    for batch, size in blocks.items():
        rows = size // per_row
        most.append(Fraction(rows, batch))
        least.append(Fraction(rows - 1, batch))
    most_rate, least_rate = min(most, default=Fraction(0)), max(least, default=Fraction(0))
    if least_rate >= most_rate or not least_rate:
        return ()
    filled_waves, missing = [], 0.0
    for batch, size in blocks.items():
        uses = case.at(batch, name)
        waves = _waves(case, uses)
        if waves is None:
            continue
        whole, of_wave = math.ceil(waves), round(size / waves)
        rows = whole * of_wave // per_row
        rows_of_next = (whole + 1) * of_wave // per_row
        filled = math.floor(rows / most_rate)
        beyond = math.floor(rows / least_rate) + 1
        last = min(math.floor(rows_of_next / most_rate), most_samples)
        if batch < filled and beyond < last:
            filled_waves.append(Wave(batch, filled, beyond, last, whole - waves))
        elif batch < filled:
            missing += abs(sum(use.share * _tail(waves) for use in uses))
    # Without most of the empty part, nothing is told of the rest either.
    return tuple(filled_waves) if missing <= abs(_empty_share(case, name)) else ()


def _in_waves(case: Case) -> Iterator[tuple[str, float, float]]:
    """Kernels at both sizes whose blocks run in few waves, with the waves at the smaller and at the
    larger size.
    """
    for name in case.common_names():
        low, high = (_waves(case, case.at(batch, name)) for batch in case.sides)
        if low is None or high is None or min(low, high) > _MOST_WAVES:
            continue
        if not _is_persistent(case, name):
            yield name, low, high


def _empty_share(case: Case, name: str) -> float:
    """Contribution of the empty part of a kernel's last waves."""
    return sum(use.share * _tail(_waves(case, (use,))) for use in case.uses if use.name == name)


def _largest(uses: tuple[Use, ...]) -> Use | None:
    return max(uses, key=lambda use: use.time_ms, default=None)


def _waves(case: Case, uses: tuple[Use, ...]) -> float | None:
    """Waves of the largest launch; None if the launch configuration or the device is unknown."""
    use, hardware = _largest(uses), case.hardware
    if use is None or hardware.sm_count is None:
        return None
    if use.blocks is None or use.threads is None or use.registers_per_thread is None:
        return None
    shared_bytes = use.shared_memory_bytes or 0
    per_sm = hardware.blocks_per_sm(use.threads, use.registers_per_thread, shared_bytes)
    return None if per_sm is None else use.blocks / (hardware.sm_count * per_sm)


def _is_persistent(case: Case, name: str) -> bool:
    """Whether a kernel fills the SMs with the same blocks at both sizes; they take tiles in turn,
    not waves.
    """
    blocks = {use.blocks for batch in case.sides for use in case.at(batch, name)}
    same = blocks.pop() if len(blocks) == 1 else None
    return bool(same and case.hardware.sm_count and same % case.hardware.sm_count == 0)


def _tail(waves: float | None) -> float:
    return 0.0 if waves is None else 1 - waves / math.ceil(waves)


def _padding(case: Case, name: str) -> float:
    """Share of the blocks at the larger size beyond proportional growth from the smaller size; 0
    without any.
    """
    before, after = (
        sum((use.blocks or 0) * use.calls for use in case.at(batch, name)) for batch in case.sides
    )
    return max(0.0, 1 - case.factor * before / after) if after else 0.0


def _evidence(name: str, low: float, high: float, padding: float) -> list[Evidence]:
    label, tile = short_name(name), read_name(name).tile
    if tile is not None:
        label = f"{label} (tile {tile[0]}x{tile[1]})"
    where = "kernels.grid_x, block_x, registers_per_thread"
    evidence = [Evidence(f"waves of {label}", low, high, "waves", where)]
    if padding > 0:
        what = "blocks beyond proportional growth"
        evidence.append(Evidence(what, 0.0, padding, "of blocks", "kernels.grid_x"))
    return evidence


quantisation = Cause(
    name=QUANTISATION,
    weigh=weigh_quantisation,
    intervention=Intervention(
        expected=(
            "More samples take no longer until the last wave of blocks is full, and then a whole "
            "wave longer; with sizes padded to the next multiple, the odd ones get faster."
        ),
        term=("filled_wave", "padded_batch"),
        step=("padded_batch",),
    ),
)


# Graph padding: a step replays the CUDA graph captured for a larger batch size, and computes its
# empty rows.
#
# An inference server captures graphs for some sizes, which marks tell; else the largest size whose
# steps run the same kernels in the same grids stands for it. Modelled: a graph of the exact size
# lies on the line between captured ones.

GRAPH_PADDING = "graph padding"
_REPLAY = re.compile(r"(?:cuda|cu|hip)GraphLaunch")
_GRID = ["name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
# least share of the time in equal kernels: what runs outside of the graph depends on the batch
_SAME = 0.8
_Kernels = dict[tuple[object, ...], float]  # times by name, grid, block and calls per step


def weigh_graph_padding(case: Case) -> Claim | None:
    """Claim the time beyond the line between captured sizes."""
    batches = case.functional.conditions
    if case.share.key.kind not in (KERNELS, COMMUNICATION):
        return None
    captured: dict[int, int] = {}
    times: dict[int, list[float]] = {}
    for batch in batches:
        size = case.facts[batch].graph_batch
        if size is None:
            return None
        captured[batch] = size
        times.setdefault(size, []).append(case.time_ms(batch))
    nodes = []
    for size, times_ms in sorted(times.items()):
        nodes.append((size, math.fsum(times_ms) / len(times_ms)))
    if len(nodes) < 2 or all(size == batch for batch, size in captured.items()):
        return None
    exact = {}
    for batch, size in captured.items():
        exact[batch] = case.time_ms(batch) if batch == size else _on_line(nodes, batch)
    amount = case.evaluate(lambda batch: case.time_ms(batch) - exact[batch])
    if not amount:
        return None
    what = "batch size that the replayed graph was captured for"
    strength, where = Strength.FACT, "steps.graph_batch"
    if not all(case.facts[batch].graph_marked for batch in batches):
        what += ", at least"
        strength, where = Strength.SIGN, "kernels.name, grid_x; api_calls.name"
    empty = (1 - batch / captured[batch] for batch in case.sides)
    on_line = map(exact.get, case.sides)
    evidence = (
        cite(what, map(captured.get, case.sides), "", where),
        cite("share of it that is empty", empty, "1", where),
        cite("time on the line between captured sizes", on_line, "ms", "model"),
    )
    refutation = "With a graph that is captured for the batch size itself, the excess is as large."
    return Claim(GRAPH_PADDING, amount, strength, evidence, refutation)


def _on_line(nodes: list[tuple[int, float]], batch: int) -> float:
    """Time at a batch size on the line between its neighbours."""
    neighbours = (pair for pair in pairwise(nodes) if batch <= pair[1][0])
    (low, low_ms), (high, high_ms) = next(neighbours, nodes[-2:])
    beyond_ms = (high_ms - low_ms) * (batch - low) / (high - low)
    return max(0.0, low_ms + beyond_ms)


def graph_batches(
    kernel_times: pd.DataFrame, steps: pd.DataFrame, api_calls: pd.DataFrame | None
) -> Mapping[int, tuple[int, bool]]:
    """The batch size of the graph that the steps of each batch size replay, and whether marks tell
    it.

    Empty if no graph is replayed.
    """
    graphs: dict[int, tuple[int, bool]] = {}
    if "graph_batch" in steps and steps["graph_batch"].notna().any():
        marked = steps[steps["graph_batch"].notna() & steps["batch"].notna()]
        for batch, size in marked.groupby("batch")["graph_batch"].max().items():
            graphs[int(batch)] = max(int(size), int(batch)), True
        return graphs
    names = () if api_calls is None else api_calls["name"].unique()
    if not any(_REPLAY.match(str(name)) for name in names):
        return {}
    work = kernel_times[kernel_times["name"] != IDLE]
    grouped = work.groupby(["batch", *_GRID], dropna=False, observed=True)
    sums = grouped[["exclusive_ms", "calls"]].sum()
    steps_of = work.groupby("batch")["step"].nunique()
    kernels: dict[int, _Kernels] = {}
    for (batch, *grid), exclusive_ms, calls in sums.itertuples():
        launch = ("" if pd.isna(value) else value for value in grid)
        per_step = round(float(calls) / steps_of[batch], 3)
        kernels.setdefault(int(batch), {})[(*launch, per_step)] = float(exclusive_ms)
    for batch, own in kernels.items():
        alike = [size for size in kernels if size >= batch and _are_equal(own, kernels[size])]
        graphs[batch] = max(alike), False
    return graphs


def _are_equal(first: _Kernels, other: _Kernels) -> bool:
    """Whether two batch sizes run the same kernels, in the same grids, for most of their time."""
    return _has_most(first, other) and _has_most(other, first)


def _has_most(kernels: _Kernels, others: _Kernels) -> bool:
    common_ms = math.fsum(time_ms for key, time_ms in kernels.items() if key in others)
    return common_ms >= _SAME * math.fsum(kernels.values())


graph_padding = Cause(
    name=GRAPH_PADDING,
    weigh=weigh_graph_padding,
    intervention=Intervention(
        expected="With a graph that is captured for the batch size itself, the excess goes away.",
        untested="no factor changes the batch sizes that a server captures",
    ),
)


# Roof change: a term passes the ridge of the roofline between the two sizes, so another limit
# determines its time.
#
# Amount: the functional of the roofline's time, max(FLOPs/compute roof, bytes/DRAM roof), scaled to
# the smaller size's.

ROOF_CHANGE = "roof change"


def weigh_roof_change(case: Case) -> Claim | None:
    """Claim the change that the roofline predicts."""
    compute, dram = case.hardware.roof("compute"), case.hardware.roof("DRAM")
    if compute is None or dram is None or case.share.key.kind != "kernels":
        return None
    ridge = compute.per_s / dram.per_s
    batches = case.functional.conditions
    column, what = "bytes_compulsory", "compulsory"
    if all(sum_counted(case.at(batch), "dram_bytes") for batch in batches):
        column, what = "dram_bytes", "measured"
    intensity, roof_ms = {}, {}
    for batch in batches:
        flops, size = total(case.at(batch), "flops"), total(case.at(batch), column)
        if not flops or not size:
            return None
        intensity[batch] = flops / size
        roof_ms[batch] = 1e3 * max(flops / compute.per_s, size / dram.per_s)
    low, high = intensity[case.before], intensity[case.after]
    if (low < ridge) == (high < ridge):
        return None
    scale = case.time_ms(case.before) / roof_ms[case.before]
    amount = sum(
        coefficient * scale * roof_ms[batch] for batch, coefficient in case.functional.coefficients
    )
    predicted, recorded = scale * roof_ms[case.after], case.time_ms(case.after)
    miss = abs(predicted - recorded) / recorded if recorded > 0 else 1.0
    if miss >= _MISSED_BY_ROOFS:
        return None
    per = f"FLOPs per {what} byte (ridge {ridge:.3g})"
    prediction = "time at the larger size: predicted by the roofline, recorded"
    model = f"model ({compute.kind}s); kernels.duration_ns"
    evidence = (
        Evidence(per, low, high, "FLOP/B", f"kernels.flops, {column}"),
        Evidence(prediction, predicted, recorded, "ms", model),
    )
    strength = Strength.SIGN if miss <= _FITS else Strength.HINT
    refutation = "At sizes on one side of the ridge, the excess is as large."
    return Claim(ROOF_CHANGE, amount, strength, evidence, refutation)


roof_change = Cause(
    name=ROOF_CHANGE,
    weigh=weigh_roof_change,
    intervention=Intervention(
        expected="At sizes on one side of the ridge, the excess goes away.",
        untested="no factor changes the FLOPs or the bytes of a kernel",
    ),
)
