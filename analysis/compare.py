"""Compare recordings of one network (devices, versions, configurations) by layer, operator, kernel
family or kernel.

A change is a ratio of times to the first recording, with an interval. Step times are
compared twice: the time of all steps, which is paid, and the pace, the mean of the faster half. A
recording is slower where either is, and not slower where both are bounded. Recordings are
independent of each other, so their replicates are paired at random; of versions that were measured
together, replicates draw the same processes, and of one cost model the same errors. All changes of
step times form one family (Holm). Of rows few are tested first: layers, each in all blocks of its
kind, families of kernels, or operators of any shape; then the rows inside one that changed (Holm,
at 5 % each). Few profiled steps may be alike by chance: a row has at least the usual relative
spread of all rows. A row *follows the hardware* if its speed-up lies between the ratios of the
devices' compute and DRAM roofs. On two GPUs of one model, a significant change whose interval in
cycles contains 1 is said to be the clock's (nvbench judges in cycles, too).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ..base.errors import CurvescopeError
from ..base.grouping import COMPARE_BY
from ..profiling.attribution.kernel_names import ALGORITHMS, family, short_name
from ..profiling.hardware.limits import CEILING, PEAK, Hardware
from ..profiling.recording.store import RECORDING, STEP, TOGETHER
from .aligned_rows import OTHERS, align
from .change import Change, adjust_changes
from .decompose.averaged_steps import list_used_steps
from .decompose.curve import MODELLED, UNKNOWN, Curve
from .decompose.functionals import Condition
from .decompose.repeated_layers import in_any_block
from .decompose.statistics import FASTER_HALF, LEVEL, Estimate, Floats, estimate, moderate
from .decompose.terms import IDLE, Key, Terms, main_kernels
from .side import Side, side

LAYER, OPERATOR, FAMILY, KERNEL = COMPARE_BY
_Place = tuple[object, ...]
_STEM = re.compile(r"[<\d]")  # before the parameters in a kernel's name
# Devices reach different shares of their peaks: within this factor of a ratio of roofs a speed-up
# still follows it.
_SPARE = 1.1
# Share of the time of each of two profiles of one program that lies in what both have, at least.
_LEAST_IN_COMMON = 0.1
_FAILS = 0.02  # p of a growth that fails, of versions that are measured until the answer is known


@dataclass(frozen=True)
class ComparedLine:
    """One batch size, or one row at a batch size, over all recordings."""

    label: str  # name of the row
    times_ms: tuple[float | None, ...]  # one per recording; None if missing
    # one per recording after the base; None if either time is missing
    changes: tuple[Change | None, ...]
    # kernel family with the most time, one per recording; None if there is none
    families: tuple[str | None, ...] = ()
    # one per recording after the base: algorithm, hardware or clock, or empty
    remarks: tuple[str, ...] = ()
    # changes of the pace, of a step time; empty for a row
    pace_changes: tuple[Change | None, ...] = ()

    def tests(self, index: int) -> list[Change]:
        """The changes that tell whether a recording after the base is slower."""
        changes = (of_line[index] for of_line in (self.changes, self.pace_changes) if of_line)
        return [change for change in changes if change is not None]

    @property
    def is_real(self) -> bool:
        """Whether a change is significant."""
        return any(change is not None and change.real for change in self.changes)

    @property
    def largest_change_ms(self) -> float:
        """The largest difference to the base; a row that one recording lacks took no time there."""
        base = self.times_ms[0] or 0.0
        changes = [abs((time or 0.0) - base) for time in self.times_ms[1:]]
        return max(changes, default=0.0)


@dataclass(frozen=True)
class GrownLayer:
    """A layer that grew by more than a share of the step."""

    name: str  # name of the recording
    batch: str  # batch size
    label: str  # the layer, in all blocks of its kind
    growth: float  # its growth, as a share of the base's step
    at_least: float  # lower end of its 95 % interval


@dataclass(frozen=True)
class Comparison:
    """Everything `compare` shows."""

    sides: tuple[Side, ...]  # the recordings, the base first
    steps: tuple[ComparedLine, ...]  # a line per common batch size
    batch: int | None  # batch size of the rows; None if the profiles name none
    by: str  # layer, op, family or kernel
    rows: tuple[ComparedLine, ...]  # rows, largest change first
    # layers, each in all blocks of its kind, largest change first; empty if none is common
    layers: tuple[ComparedLine, ...]
    # one per recording after the base, by level: its roof over the base's, and the kind of both
    roof_ratios: tuple[dict[str, tuple[float, str]], ...]

    @property
    def unit(self) -> str:
        """What the times are of: steps, unless one of the recordings knows none."""
        if any(side.unit == RECORDING for side in self.sides):
            return RECORDING
        return STEP

    @property
    def together(self) -> bool:
        """Whether the recordings were measured in one run."""
        return were_measured_together(self.sides)

    @property
    def names_modelled(self) -> list[str]:
        """Names of the modelled recordings."""
        return [side.name for side in self.sides if side.settings["times"] == "modelled"]

    @property
    def is_modelled(self) -> bool:
        """Whether all recordings are modelled, so that intervals are the model's error alone."""
        return len(self.names_modelled) == len(self.sides)

    @property
    def names_profiled(self) -> list[str]:
        """Names of the recordings in which every step was profiled."""
        profiled = [side.name for side in self.sides if side.curve.profiled]
        return [name for name in profiled if name not in self.names_modelled]

    @property
    def unseen(self) -> list[str]:
        """Names of the recordings with profiled steps, but without device work."""
        names = []
        for compared in self.sides:
            times = compared.kernel_times
            if len(times) and (times["name"] == IDLE).all():
                names.append(compared.name)
        return names

    @property
    def differences(self) -> dict[str, tuple[str, ...]]:
        """Settings that differ between recordings: one value per recording."""
        differing = {}
        for name in dict.fromkeys(name for each in self.sides for name in each.settings):
            values = tuple(side.settings.get(name, "unknown") for side in self.sides)
            if len(set(values)) > 1:
                differing[name] = values
        return differing

    def regressions(self, over: float) -> list[tuple[str, str, Change]]:
        """Significant increases of step times above a share `over`: name of the recording, batch
        size, change.
        """
        level = _FAILS if self.together else LEVEL
        grown = []
        for name, batch, tests in self._tests():
            real = [change for change in tests if change.real and change.p_adjusted < level]
            largest = max(real, key=lambda change: change.growth, default=None)
            if largest is not None and largest.growth > over:
                grown.append((name, batch, largest))
        return grown

    def grown_layers(self, over: float) -> list[GrownLayer]:
        """Layers that grew certainly by more than a share of the step, where the time of the step
        does not rule it out.
        """
        level = _FAILS if self.together else LEVEL
        step = next((line for line in self.steps if line.label == str(self.batch)), None)
        if step is None or not step.times_ms[0]:
            return []
        grown = []
        for index, other in enumerate(self.sides[1:]):
            if all(change.bounds_of_growth[1] < over for change in step.tests(index)):
                continue
            for line in self.layers:
                change, before_ms = line.changes[index], line.times_ms[0]
                if change is None or before_ms is None or change.p_adjusted >= level:
                    continue
                share = before_ms / step.times_ms[0]
                growth = share * change.growth
                least = share * change.bounds_of_growth[0]
                if change.real and least > over:
                    grown.append(GrownLayer(other.name, step.label, line.label, growth, least))
        return grown

    def fails(self, over: float) -> bool:
        """Whether a step time, or a layer of the step, grew certainly by more than a share."""
        return bool(self.regressions(over) or self.grown_layers(over))

    def find_undecided(self, over: float) -> list[tuple[str, str, Change]]:
        """Where the measurement rules out neither a growth above a share nor its absence; as
        `regressions`.
        """
        failed = {(name, batch) for name, batch, _ in self.regressions(over)}
        failed |= {(layer.name, layer.batch) for layer in self.grown_layers(over)}
        left = []
        for name, batch, tests in self._tests():
            open_ = [change for change in tests if not change.decides(over)]
            if open_ and (name, batch) not in failed:
                left.append((name, batch, max(open_, key=lambda change: change.growth)))
        return left

    def _tests(self) -> Iterator[tuple[str, str, list[Change]]]:
        """The changes of each step time, by recording and batch size."""
        for line in self.steps:
            for index, other in enumerate(self.sides[1:]):
                if tests := line.tests(index):
                    yield other.name, line.label, tests


def compare(sides: Sequence[Side], by: str | None = None, batch: int | None = None) -> Comparison:
    """Compare every recording with the first; CurvescopeError if the batch size is not in all
    recordings.

    By default rows are layers if all recordings have one in common, else operators if all name
    them, else families; their batch size is the largest that all recordings profiled.
    """
    common = _common(sides)
    if not common:
        sizes = []
        for side in sides:
            of_side = ", ".join(map(str, side.curve.conditions))
            sizes.append(f"{side.name}: {of_side}")
        raise CurvescopeError(
            f"No batch size is common to all recordings ({'; '.join(sizes)}). "
            "Measure the same ones, or give --batch when importing."
        )
    if batch is not None and batch not in common:
        listed = ", ".join(map(str, common))
        raise CurvescopeError(f"Batch {batch} is not in every recording; common are {listed}.")
    profiled = _list_profiled(sides, common)
    chosen: Condition | None = batch
    if chosen is None and profiled:
        chosen = profiled[-1]
    by = by or _common_rows(sides)
    base, *others = sides
    ratios = tuple(_roof_ratios(base.hardware, other.hardware) for other in others)
    rows: tuple[ComparedLine, ...] = ()
    layers: tuple[ComparedLine, ...] = ()
    if chosen in profiled and chosen is not None:
        rows, groups = _rows(sides, by, chosen, ratios)
        if _common_rows(sides) == LAYER:
            layers = groups if by == LAYER else _rows(sides, LAYER, chosen, ratios)[1]
    return Comparison(
        sides=tuple(sides),
        steps=_steps(sides, common),
        batch=None if chosen == UNKNOWN else chosen,
        by=by,
        rows=rows,
        layers=layers,
        roof_ratios=ratios,
    )


def _list_profiled(sides: Sequence[Side], batches: Sequence[Any]) -> list[Any]:
    """The batch sizes with device work in all recordings: a step without any is not idle, and gets
    no row.
    """
    working = set(batches)
    for compared in sides:
        times = compared.kernel_times
        working &= set(times.loc[times["name"] != IDLE, "batch"])
    return [batch for batch in batches if batch in working]


def refuse_different(sides: Sequence[Side]) -> None:
    """Refuse recordings of different networks, and profiles of different devices or programs;
    CurvescopeError.

    A profile names no network: it is of another program if nearly no time is in layers, operators
    or kernels that both have. Recordings that were measured together are compared as they are.
    """
    if were_measured_together(sides):
        return
    if why := _other_network(sides) or _other_device(sides) or _other_program(sides):
        raise CurvescopeError(f"{why}: --different compares them nevertheless.")


def _other_network(sides: Sequence[Side]) -> str | None:
    named = [side.settings.get("network") for side in sides]
    if len({*named} - {None}) < 2:
        return None
    return f"These are of different networks ({_each(sides, named)})"


def _other_device(sides: Sequence[Side]) -> str | None:
    """Profiles tell a change of the program only on one device; recordings of ours name the
    network.
    """
    names = [side.hardware.name for side in sides]
    if len({*names} - {None}) < 2 or not _are_imported(sides):
        return None
    devices = f"These profiles are of different devices ({_each(sides, names)})"
    return f"{devices}, and do not tell whether the program is the same"


def _are_imported(sides: Sequence[Side]) -> bool:
    return all("imported_from" in side.settings for side in sides)


def _other_program(sides: Sequence[Side]) -> str | None:
    if not _are_imported(sides):
        return None
    base, *tables = (_busy(side) for side in sides)
    for other, table in zip(sides[1:], tables, strict=True):
        if base.empty or table.empty:  # nothing of the device was recorded: that is said
            continue
        common = min(_time_in_common(base, table), _time_in_common(table, base))
        if common < _LEAST_IN_COMMON:
            names = f"{sides[0].name} and {other.name}"
            return (
                f"{names} are of different programs: {common:.0%} of the time of one is in layers, "
                "operators or kernels that the other has"
            )
    return None


def _busy(side: Side) -> pd.DataFrame:
    """The kernel times of a side without idle time."""
    return side.kernel_times[side.kernel_times["name"] != IDLE]


def _time_in_common(table: pd.DataFrame, other: pd.DataFrame) -> float:
    """Share of the time that is in a layer, operator or kernel of the other."""
    shared = pd.Series(False, index=table.index)
    for column in ("layer", "op", "name"):
        if column in table and column in other:
            names = set(other[column].dropna())
            shared |= table[column].notna() & table[column].isin(names)
    time_ms = table["exclusive_ms"]
    total_ms = time_ms.sum()
    if total_ms:
        return float(time_ms[shared].sum() / total_ms)
    return 0.0


def _each(sides: Sequence[Side], values: Sequence[str | None]) -> str:
    named = zip(sides, values, strict=True)
    texts = [f"{side.name}: {value or 'unknown'}" for side, value in named]
    return "; ".join(texts)


def _common(sides: Sequence[Side]) -> list[Any]:
    measured = [set(side.curve.conditions) for side in sides]
    return sorted(set.intersection(*measured))


def were_measured_together(sides: Sequence[Side]) -> bool:
    """Whether all were measured in one run, by as many processes each."""
    runs = {(side.run, side.curve.rounds) for side in sides}
    return sides[0].run is not None and len(runs) == 1


def _list_paired(sides: Sequence[Side]) -> list[bool]:
    """Of each recording after the base, whether its replicates belong to the base's: of one run, or
    of one model.
    """
    base, *others = sides
    if were_measured_together(sides):
        return [True] * len(others)
    return [base.model is not None and other.model == base.model for other in others]


def is_decided(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], over: float, rounds_of_process: int
) -> bool:
    """Whether versions that are being measured together differ by more than a share, or not, at
    every batch size.

    The rows come from the `steps` tables so far, with the name of the version as `factor`; the
    base is the first name.
    """
    steps = pd.DataFrame(rows)
    steps = steps[~steps["profiled"]]
    meta = {TOGETHER: {"run": "", "rounds_of_process": rounds_of_process}}
    sides = []
    for name in names:
        of_name = steps[steps["factor"] == name].drop(columns="factor")
        sides.append(side(name, meta, of_name, statistic=FASTER_HALF))
    lines = _steps(sides, _common(sides))
    others = range(len(names) - 1)
    return all(_are_clear(line.tests(index), over) for line in lines for index in others)


def _are_clear(tests: Sequence[Change], over: float) -> bool:
    """Whether one test shows a growth over a share, or all rule it out."""
    decided = [change for change in tests if change.decides(over)]
    if any(change.growth > over for change in decided):
        return True
    return bool(tests) and len(decided) == len(tests)


def _common_rows(sides: Sequence[Side]) -> str:
    """The finest rows that all recordings may have."""
    tables = [side.kernel_times for side in sides]
    if set.intersection(*(set(table["layer"].dropna()) for table in tables)):
        return LAYER
    named = all("op" in table and table["op"].notna().any() for table in tables)
    return OPERATOR if named else FAMILY


def _steps(sides: Sequence[Side], common: Sequence[int]) -> tuple[ComparedLine, ...]:
    lines, paired = [], _list_paired(sides)
    has_pace = all(compared.curve.pace is not None for compared in sides)
    for batch in common:
        points = [(compared.curve.source(batch), batch) for compared in sides]
        times, changes = compare_points(points, paired)
        pace_changes: tuple[Change | None, ...] = ()
        if has_pace:
            paces = [(compared.curve.paces.source(batch), batch) for compared in sides]
            _, pace_changes = compare_points(paces, paired)
        lines.append(ComparedLine(str(batch), times, changes, pace_changes=pace_changes))
    marked = []
    for line, batch in zip(_adjust(lines), common, strict=True):
        clocks = _with_clocks(line, sides, batch)
        remarks = tuple(_clock_remark(change, *pair) for change, pair in clocks)
        marked.append(replace(line, remarks=remarks))
    return tuple(marked)


def compare_points(
    points: Sequence[tuple[Curve, int]], paired: Sequence[bool]
) -> tuple[tuple[float, ...], tuple[Change | None, ...]]:
    """The times of batch sizes, each on a curve, ms, and the changes of all but the first, whose p
    is not adjusted yet.

    `paired`: of each later point, whether its replicates belong to the replicates of the first.
    """
    times, replicates, rounds = [], [], []
    for curve, batch in points:
        point = curve.at(batch)
        times.append(point.time_ms.value)
        replicates.append(curve.replicates_ms[:, curve.conditions.index(batch)])
        is_modelled = curve.statistic == MODELLED
        rounds.append(curve.rounds if is_modelled else min(point.rounds, curve.rounds))
    of_means = all(curve.pace is not None for curve, _ in points)
    return tuple(times), _changes(times, replicates, rounds, paired, of_means=of_means)


def _with_clocks(
    line: ComparedLine, sides: Sequence[Side], batch: int
) -> Iterator[tuple[Change | None, tuple[float | None, float | None]]]:
    """Each change with the clocks of the base and of the other recording; None unless both are GPUs
    of one model.
    """
    base, *others = sides
    for change, other in zip(line.changes, others, strict=True):
        if base.hardware.name is not None and base.hardware.name == other.hardware.name:
            yield change, (base.clocks_hz.get(batch), other.clocks_hz.get(batch))
        else:
            yield change, (None, None)


def _clock_remark(change: Change | None, base_hz: float | None, other_hz: float | None) -> str:
    """Whether a significant change is none in cycles; empty if not."""
    if change is None or not change.real or not base_hz or not other_hz:
        return ""
    ratio = other_hz / base_hz
    if (ratio - 1) * (change.speedup - 1) <= 0 or not change.low <= ratio <= change.high:
        return ""
    word = "higher" if ratio > 1 else "lower"
    return f"only a {word} clock: {base_hz / 1e6:.0f} to {other_hz / 1e6:.0f} MHz"


def _changes(
    times: Sequence[float | None],
    replicates: Sequence[Floats | None],
    rounds: Sequence[int],
    paired: Sequence[bool],
    *,
    of_means: bool = False,
) -> tuple[Change | None, ...]:
    """Compare every later time with the first; p is not adjusted yet."""
    logs = _log_ratios(times, replicates, rounds, paired, of_means=of_means)
    return tuple(None if log is None else _change(log) for log in logs)


def _log_ratios(
    times: Sequence[float | None],
    replicates: Sequence[Floats | None],
    rounds: Sequence[int],
    paired: Sequence[bool],
    *,
    of_means: bool = False,
) -> tuple[Estimate | None, ...]:
    """The logarithm of the first time over every later one.

    `of_means`: whether the times are means of all steps, see `statistics.estimate`. `paired`:
    of each later time, whether its replicates belong to the replicates of the first.
    """
    logs: list[Estimate | None] = []
    base, drawn = times[0], replicates[0]
    for position, (other, others) in enumerate(
        zip(times[1:], replicates[1:], strict=True), start=1
    ):
        if not base or not other or drawn is None or others is None:
            logs.append(None)
            continue
        drawn_beside = others
        if not paired[position - 1]:
            drawn_beside = np.random.default_rng(position).permutation(others)
        smallest = np.finfo(float).tiny
        log_drawn = np.log(np.maximum(drawn, smallest))
        varied = log_drawn - np.log(np.maximum(drawn_beside, smallest))
        least = min(rounds[0], rounds[position])
        value = float(np.log(base / other))
        logs.append(estimate(value, varied, least, 1.0, of_mean=of_means))
    return tuple(logs)


def _change(log: Estimate) -> Change:
    with np.errstate(over="ignore"):  # where resamples have a time of 0, the ratio has no bound
        low, high = -np.inf, np.inf
        if np.isfinite(log.low):
            low, high = np.exp([log.low, log.high])
    value = float(np.exp(log.value))
    return Change(value, float(low), float(high), log.p)


def _adjust(lines: Sequence[ComparedLine]) -> tuple[ComparedLine, ...]:
    """Adjust p of all changes of times and paces together."""
    every = [change for line in lines for change in (*line.changes, *line.pace_changes)]
    adjusted = adjust_changes(every)
    listed = []
    for line in lines:
        of_step = tuple(next(adjusted) for _ in line.changes)
        of_pace = tuple(next(adjusted) for _ in line.pace_changes)
        listed.append(replace(line, changes=of_step, pace_changes=of_pace))
    return tuple(listed)


def _rows(
    sides: Sequence[Side], by: str, batch: int, ratios: Sequence[dict[str, tuple[float, str]]]
) -> tuple[tuple[ComparedLine, ...], tuple[ComparedLine, ...]]:
    """The rows at a batch size, and the groups that are tested first; largest change first."""
    terms, families = [], []
    for compared, keyed in zip(sides, _key_tables(sides, by, batch), strict=True):
        terms.append(compared.terms(keyed))
        is_used = keyed["step"].isin(list_used_steps(keyed))
        used = main_kernels(keyed[is_used], (batch,))
        families.append({place: family(str(name)) for place, (name,) in used.items()})

    def label(key: Key) -> str:
        return key.label_with(_class_of(sides, key.layer) if by == LAYER else None)

    group = _group_of(sides, by)
    lines = _lines_of(sides, terms, batch, label, families)
    groups = _lines_of(sides, [of_side.group_by(group) for of_side in terms], batch, label)
    adjusted = _adjust(list(groups.values()))
    of_group = dict(zip(groups, adjusted, strict=True))
    inside: dict[Key, list[Key]] = {}
    for key in lines:
        inside.setdefault(group(key), []).append(key)
    for place, keys in inside.items():
        adjusted = _adjust([lines[key] for key in keys])
        for key, line in zip(keys, adjusted, strict=True):
            lines[key] = _as_sure_as(of_group[place], line)
    rows = []
    for line in _largest_first(lines.values()):
        rows.append(replace(line, remarks=_remarks(line, ratios, sides, batch)))
    working = [line for key, line in of_group.items() if key.kind != IDLE]
    return tuple(rows), tuple(_largest_first(working))


def _largest_first(lines: Iterable[ComparedLine]) -> list[ComparedLine]:
    return sorted(lines, key=lambda line: -line.largest_change_ms)


def _key_tables(sides: Sequence[Side], by: str, batch: int) -> list[pd.DataFrame]:
    """The kernel times of a batch size, with the label of its row in place of the layer."""
    tables = [side.kernel_times[side.kernel_times["batch"] == batch] for side in sides]
    if by in (LAYER, OPERATOR):
        return align(tables, by == LAYER)
    if by == KERNEL and len(tables) == 2:
        tables = [*_with_former_names(*tables)]
    return [_name_groups(table, by) for table in tables]


def _group_of(sides: Sequence[Side], by: str) -> Callable[[Key], Key]:
    """The group of a row, which is tested before it."""
    layers: set[str] = set()
    for each in sides:
        layers.update(each.kernel_times["layer"].dropna())

    def group(key: Key) -> Key:
        name = key.layer
        if name is None or key.kind == IDLE:
            return key
        if by == LAYER and name not in layers:  # an operator outside layers
            return replace(key, layer=None)
        if by == LAYER:
            name = in_any_block(name)
        elif by == KERNEL:
            name = family(name.split(" → ")[0])
        else:
            name = name.split(" [")[0]
        return replace(key, layer=name, phase=None)

    return group


def _lines_of(
    sides: Sequence[Side],
    terms: Sequence[Terms],
    batch: int,
    label: Callable[[Key], str],
    families: Sequence[Mapping[tuple[str | None, str | None], str]] = (),
) -> dict[Key, ComparedLine]:
    """A line for each term of any recording; p is not adjusted yet."""
    paired = _list_paired(sides)
    rounds = [of_side.rounds[batch] for of_side in terms]
    times, logs = {}, []
    for key in dict.fromkeys(key for of_side in terms for key in of_side.keys):
        columns = [_column(of_side, key) for of_side in terms]
        times[key] = tuple(time for time, _ in columns)
        replicates = [drawn for _, drawn in columns]
        logs.append(_log_ratios(times[key], replicates, rounds, paired))
    fewest = [min(rounds[0], other) for other in rounds[1:]]
    changes = _with_usual_spread(logs, fewest)
    lines = {}
    for key, changed in zip(times, changes, strict=True):
        place = key.layer, key.phase
        of_key = tuple(of_side.get(place) for of_side in families)
        lines[key] = ComparedLine(label(key), times[key], changed, of_key)
    return lines


def _with_usual_spread(
    logs: Sequence[tuple[Estimate | None, ...]], rounds: Sequence[int]
) -> list[tuple[Change | None, ...]]:
    """The changes of all rows, each with at least the usual relative spread."""
    columns = []
    for of_rows, count in zip(zip(*logs, strict=True), rounds, strict=True):
        logs_of_column = [log for log in of_rows if log is not None]
        many = len(logs_of_column)
        spread = iter(moderate(logs_of_column, [count] * many, [1.0] * many))
        columns.append([None if log is None else _change(next(spread)) for log in of_rows])
    return list(zip(*columns, strict=True))


def _as_sure_as(group: ComparedLine, line: ComparedLine) -> ComparedLine:
    """A row of a group: it changed no surer than the group did."""
    changes: list[Change | None] = []
    for change, whole in zip(line.changes, group.changes, strict=True):
        if change is not None:
            p_group = 1.0 if whole is None else whole.p_adjusted
            change = replace(change, p_adjusted=max(change.p_adjusted, p_group))
        changes.append(change)
    return replace(line, changes=tuple(changes))


def _class_of(sides: Sequence[Side], layer: str | None) -> str | None:
    """The class of a layer, if all recordings that know one agree."""
    classes = set()
    for compared in sides:
        if layer is not None and layer in compared.layer_classes:
            classes.add(compared.layer_classes[layer])
    if len(classes) == 1:
        return classes.pop()
    return None


def _with_former_names(
    base: pd.DataFrame, other: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables, in which a kernel that was renamed or replaced has one name: the former one, and
    the new one.

    Two kernels that only one recording has are one if they have the same place (layer, phase and
    operator) and the same name up to its parameters, and else if each is alone at its place.
    """
    places = [_own_kernels(base, other), _own_kernels(other, base)]
    both: dict[str, str] = {}  # names of either recording, with the common one
    for key_of in (_by_name_and_place, _by_place):
        keyed = []
        for of_side in places:
            named: dict[_Place, set[str]] = {}
            for name, place in of_side:
                if name not in both:
                    named.setdefault(key_of(name, place), set()).add(name)
            single = {key: names for key, names in named.items() if len(names) == 1}
            keyed.append({key: names.pop() for key, names in single.items()})
        before, after = keyed
        for key in before.keys() & after.keys():
            change = f"{before[key]} → {after[key]}"
            if before[key] not in both and after[key] not in both:
                both[before[key]] = both[after[key]] = change
    first, second = (table.assign(name=table["name"].replace(both)) for table in (base, other))
    return first, second


def _own_kernels(table: pd.DataFrame, other: pd.DataFrame) -> set[tuple[str, _Place]]:
    """The kernels that the other recording lacks, each with its places."""
    is_shared = table["name"].isin(set(other["name"]))
    own = table[~is_shared]
    return {(row.name, _place(row)) for row in own.itertuples(index=False)}


def _by_name_and_place(name: str, place: _Place) -> _Place:
    return (_STEM.split(short_name(name))[0], *place)


def _by_place(_: str, place: _Place) -> _Place:
    return place


def _place(row: Any) -> _Place:
    parts = (row.layer, row.phase, getattr(row, "op", None))
    return tuple(None if pd.isna(part) else part for part in parts)


def _name_groups(kernel_times: pd.DataFrame, by: str) -> pd.DataFrame:
    """The exclusive times with the kernel, or its family and phase, in place of layer and phase."""
    names = kernel_times["name"].mask(kernel_times["name"] == IDLE, None)
    if by != FAMILY:
        return kernel_times.assign(layer=names, phase=None)
    families = {name: family(name) for name in names.dropna().unique()}
    return kernel_times.assign(layer=names.map(families))


def _column(terms: Terms, key: Key) -> tuple[float, Floats] | tuple[None, None]:
    if key not in terms.keys:
        return None, None
    column = terms.keys.index(key)
    return float(terms.values_ms[0, column]), terms.replicates_ms[:, 0, column]


def _roof_ratios(base: Hardware, other: Hardware) -> dict[str, tuple[float, str]]:
    """By level, the other's roof over the base's: of ceilings if both have them, else of peaks."""
    ratios = {}
    for level in ("compute", "DRAM"):
        for kind in (PEAK, CEILING):
            before = _roof(base, level, kind)
            after = _roof(other, level, kind)
            if before is not None and after is not None:
                ratios[level] = (after / before, kind)
    return ratios


def _roof(hardware: Hardware, level: str, kind: str) -> float | None:
    for roof in hardware.roofs:
        if roof.level == level and roof.kind == kind:
            return roof.per_s
    return None


def _remarks(
    line: ComparedLine,
    ratios: Sequence[dict[str, tuple[float, str]]],
    sides: Sequence[Side],
    batch: int,
) -> tuple[str, ...]:
    remarks = []
    before, *families = line.families
    base_ms, *times_ms = line.times_ms
    # Idle time, and what is different work in each recording, follow no roof.
    works = line.label != IDLE and not line.label.startswith(OTHERS)
    changes = _with_clocks(line, sides, batch)
    for after, time_ms, (change, clocks), ratio in zip(
        families, times_ms, changes, ratios, strict=True
    ):
        texts = []
        if before != after and before in ALGORITHMS and after in ALGORITHMS:
            texts.append(f"{before} → {after}")
        if change is not None and works:
            texts.append(_beside_hardware(change, ratio))
        if base_ms is None or time_ms is None:
            texts.append("only in one")
        if line.label != IDLE:
            texts.append(_clock_remark(change, *clocks))
        remarks.append("; ".join(filter(None, texts)))
    return tuple(remarks)


def _beside_hardware(change: Change, ratio: Mapping[str, tuple[float, str]]) -> str:
    """Whether a change is less, or more, than the roofs of both devices let expect."""
    values = sorted(value for value, _ in ratio.values())
    # of one device nothing follows from its roofs
    if len(values) != 2 or values == [1.0, 1.0]:
        return ""
    low, high = values
    if change.speedup < low / _SPARE:
        return "behind the hardware"
    return "ahead of the hardware" if change.speedup > high * _SPARE else ""
