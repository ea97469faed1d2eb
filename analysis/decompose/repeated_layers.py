"""Repeated layers are one term: layers whose names differ in one number, and which do the same
work.

`h.0.mlp.c_fc` to `h.11.mlp.c_fc` of one class, with equal operators on equal shapes, are
`h.*.mlp.c_fc`; if others of that pattern do other work, `h.1-11.attn`. Modules that a profiler
numbers are `BertLayer_*`. A layer that takes another time than the others stays by itself.
The experts of a mixture are one term whatever each of them does: a router gives them their tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from .terms import IDLE

Groups = Mapping[str, tuple[str, ...]]  # layers by the name of their group
# A path without its number, or without all its numbers: the texts between their places. A name may
# hold a `*` of its own, as TensorRT's `(Unnamed Layer* 76)` does, so none stands for a place.
Pattern = tuple[str, ...]
# by batch size: time of each layer (a column) in every step (a row)
Steps = Mapping[Any, pd.DataFrame]
# A layer deviates if at some batch size its median differs from that of its group by such a part of
# it, by so many standard errors, and by such a share of the step.
_DEVIATES = 0.25
_ERRORS = 8.0
_MATERIAL = 0.005
OPERATOR_COLUMNS = ["batch", "layer", "phase", "op", "arguments", "calls"]
_SHAPES = ("op", "name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_MOST_RUNS = 4
# A part of a path that is a number, or a class with the number of its call, as profilers name it,
# e.g. `Linear_3`.
_NUMBERED = re.compile(r"((?:[A-Z][A-Za-z0-9]*_)?)(\d+)")
# Numbers of a path of ranges or scopes, e.g. of `decoder/layer_3_token_12/mlp`.
_SCOPE = "/"
_NUMBER = re.compile(r"(?<![A-Za-z0-9.])\d+(?![A-Za-z0-9.])")
# The path of an expert: the text before its number, the number, and the text behind.
_EXPERT = re.compile(r"((?:.*\.)?experts\.)(\d+|\*)((?:\.|$).*)")
# The path of a module that holds the weights of all its experts, in one tensor.
_STACK = re.compile(r"(?:.*\.)?(?:experts|moe|mixture)", re.IGNORECASE)
_INSTRUCTION = re.compile(r"(?<=[a-z])\.\d+$")  # of `dot ynn_fusion.12`
_PART = re.compile(r"(?<![^.])\d+(?![^.])")
_BLOCK = re.compile(r"(?<![^.])\d+(?=\.)")  # with parts behind it


def find_repeated_layers(
    kernel_times: pd.DataFrame,
    operators: pa.Table,
    classes: Mapping[str, str],
    steps: Steps | None = None,
    kernels: Callable[[], pd.DataFrame] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Groups of two or more layers.

    `operators` has the columns `OPERATOR_COLUMNS`; without rows the kernels with their launch
    geometry say which work is equal. The times of each layer by step are by default the times of
    its kernels. `kernels` gives calls by name, by default of `kernel_times`.
    """
    steps = _steps(kernel_times) if steps is None else steps
    work: dict[str, Counter[Hashable]] = {}
    for layer in [name for times in steps.values() for name in times]:
        if layer and not pd.isna(layer):
            work[layer] = Counter()
    for layer in kernel_times["layer"].dropna().unique():
        work[layer] = Counter()
    if operators.num_rows:
        _count_operators(operators, work)
    else:
        named = kernel_times[kernel_times["name"] != IDLE] if kernels is None else kernels()
        _count_kernels(named, work)
    alike: dict[tuple[Pattern, str | None, frozenset[Any]], list[str]] = {}
    patterns: Counter[Pattern] = Counter()
    for layer in sorted(work, key=_numbers_of):
        for pattern in _patterns(layer):
            patterns[pattern] += 1
            kind = pattern, classes.get(layer), frozenset(work[layer].items())
            alike.setdefault(kind, []).append(layer)
    groups = _group_experts(work, classes)
    placed: set[str] = set()
    placed.update(*groups.values())
    for (pattern, *_), equal in sorted(alike.items(), key=lambda item: -len(item[1])):
        free = [layer for layer in equal if layer not in placed]
        if len(free) < 2:
            continue
        members = _alike_in_time(free, steps)
        if len(members) > 1:
            placed.update(members)
            name = _name_group(pattern, members, len(members) == patterns[pattern])
            _add_group(groups, name, members)
    return groups


def _count_operators(operators: pa.Table, work: dict[str, Counter[Hashable]]) -> None:
    """Add the calls of each layer's operators on equal shapes to its work."""
    for row in operators.to_pylist():
        if row["layer"] is not None:
            call = row["batch"], row["phase"], row["op"], row["arguments"]
            work.setdefault(row["layer"], Counter())[call] += row["calls"]


def _count_kernels(kernels: pd.DataFrame, work: dict[str, Counter[Hashable]]) -> None:
    """Add the calls of each layer's kernels of equal geometry to its work."""
    columns = ["layer", "batch", "phase", *(name for name in _SHAPES if name in kernels)]
    calls = kernels.groupby(columns, dropna=False)["calls"].sum()
    for (layer, *kernel), count in calls.items():
        if layer in work:
            values = [None if pd.isna(value) else _strip_numbers(value) for value in kernel]
            work[layer][tuple(values)] += int(count)


def _add_group(groups: dict[str, tuple[str, ...]], name: str, members: Sequence[str]) -> None:
    """Add a group under its name, or under its first member where another one has that name."""
    if name in groups:
        name = f"{members[0]}, …"
    groups[name] = tuple(members)


def _group_experts(layers: Iterable[str], classes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The experts of all mixtures whose paths differ in numbers, e.g. `*.mlp.experts.*.up`."""
    alike: dict[tuple[str, str, str | None], dict[str, str]] = {}
    for layer in sorted(layers, key=_numbers_of):
        match = _EXPERT.fullmatch(layer)
        if match:
            before, _, behind = match.groups()
            key = _PART.sub("*", before), behind, classes.get(layer)
            alike.setdefault(key, {})[layer] = before
    groups: dict[str, tuple[str, ...]] = {}
    for (pattern, behind, _), mixture_of in alike.items():
        mixtures = set(mixture_of.values())
        if len(mixtures) == 1:
            pattern = mixtures.pop()
        if len(mixture_of) > 1:
            _add_group(groups, f"{pattern}*{behind}", list(mixture_of))
    return groups


def _strip_numbers(value: Any) -> Any:
    """An entry of a kernel, without the number that XLA gives each instruction of a program."""
    if isinstance(value, str):
        return _INSTRUCTION.sub("", value)
    return value


def in_any_block(layer: str) -> str:
    """The path of a layer in all blocks of its kind, e.g. `h.*.mlp.0` of `h.3.mlp.0`."""
    return _BLOCK.sub("*", layer, count=1)


def is_stack_of_experts(layer: str) -> bool:
    """Whether a layer, or a group of layers, holds the weights of all experts of a mixture."""
    return _STACK.fullmatch(layer) is not None


def is_of_experts(layer: str) -> bool:
    """Whether a layer, or a group of layers, is of the experts of a mixture."""
    return _EXPERT.fullmatch(layer) is not None


def is_expert_of(layer: str, group: str) -> bool:
    """Whether a layer is one of a group of experts, e.g. `experts.3.up` of `experts.*.up`."""
    if not is_of_experts(group):
        return False
    pattern = re.escape(group).replace(r"\*", r"\d+")
    return re.fullmatch(pattern, layer) is not None


def _numbers_of(layer: str) -> list[tuple[int, str]]:
    """A path as a key whose order has 2 before 10."""
    key = []
    if _SCOPE in layer:
        for number in _NUMBER.findall(layer):
            key.append((int(number), ""))
        return [*key, (-1, layer)]
    for part in layer.split("."):
        numbered = _NUMBERED.fullmatch(part)
        if numbered:
            key.append((int(numbered[2]), numbered[1]))
        else:
            key.append((-1, part))
    return key


def _patterns(layer: str) -> Iterator[Pattern]:
    """A path without one of its numbers, for each; one of ranges or scopes without all of them, as
    a number of a layer may stand in it twice.
    """
    if _SCOPE in layer:
        pattern = tuple(_NUMBER.split(layer))
        if len(pattern) > 1:
            yield pattern
        return
    parts = layer.split(".")
    for index, part in enumerate(parts):
        numbered = _NUMBERED.fullmatch(part)
        if numbered:
            before = ".".join([*parts[:index], numbered[1]])
            behind = ".".join(["", *parts[index + 1 :]])
            yield before, behind


def _steps(kernel_times: pd.DataFrame) -> Steps:
    """Time of each layer's kernels in every profiled step, by batch size."""
    grouped = kernel_times.groupby(["batch", "step", "layer"], dropna=False)
    times = grouped["exclusive_ms"].sum().unstack("layer")
    return {batch: rows.fillna(0.0) for batch, rows in times.groupby("batch", dropna=False)}


def _alike_in_time(members: Sequence[str], steps: Steps) -> list[str]:
    deviates = np.zeros(len(members), bool)
    for times in steps.values():
        of_members = times.reindex(columns=list(members), fill_value=0.0).to_numpy(np.float64)
        usual = np.median(of_members, axis=0)
        spread = np.median(np.abs(of_members - usual), axis=0)
        error = 1.4826 * spread / np.sqrt(len(of_members))
        of_group = np.median(usual)
        away = np.abs(usual - of_group)
        whole = float(np.median(times.sum(axis=1)))
        is_far = (away > _DEVIATES * of_group) & (away > _ERRORS * error)
        deviates |= is_far & (away > _MATERIAL * whole)
    return [member for member, apart in zip(members, deviates, strict=True) if not apart]


def _name_group(pattern: Pattern, members: Sequence[str], every: bool) -> str:
    """The pattern with the numbers of the members, e.g. `h.1-11.attn`; `*` for all of them."""
    if _SCOPE in members[0]:
        return _name_scopes(pattern, members, every)
    if every:
        return "*".join(pattern)
    before, behind = map(len, pattern)
    numbers = []
    for member in members:
        end = len(member) - behind
        numbers.append(int(member[before:end]))
    return _runs(numbers).join(pattern)


def _runs(numbers: Sequence[int]) -> str:
    """Numbers as runs, e.g. `1-11`; the first, the second and the last of many."""
    runs: list[list[int]] = []
    for number in numbers:
        if not runs or number != runs[-1][-1] + 1:
            runs.append([])
        runs[-1].append(number)
    texts = []
    for run in runs:
        texts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    if len(texts) > _MOST_RUNS:
        texts = [*texts[:2], "…", texts[-1]]
    return ",".join(texts)


def _name_scopes(pattern: Pattern, members: Sequence[str], every: bool) -> str:
    """The pattern with the numbers of the members in each place; with `*` in a place where they
    differ and no layer of the pattern is missing.
    """
    numbers = [map(int, _NUMBER.findall(member)) for member in members]
    name = pattern[0]
    for column, text in zip(zip(*numbers, strict=True), pattern[1:], strict=True):
        different = sorted(set(column))
        name += "*" if every and len(different) > 1 else _runs(different)
        name += text
    return name


def with_groups(layers: pd.Series, names: Mapping[str, str]) -> pd.Series:
    """A column of layers with the name of the group in place of each layer that has one, see
    `group_of`.
    """
    codes, different = pd.factorize(layers)
    texts = [names.get(layer, layer) for layer in different]
    by_code = np.array([*texts, None], dtype=object)
    return pd.Series(by_code[codes], layers.index)


def group_of(groups: Groups) -> dict[str, str]:
    """The group of each repeated layer, by path."""
    return {layer: group for group, layers in groups.items() for layer in layers}


def classes_with(classes: Mapping[str, str], groups: Groups) -> dict[str, str]:
    """The class of each layer, and of each group with its number of layers, e.g.
    `Linear, 12 times`.
    """
    every = dict(classes)
    for group, layers in groups.items():
        parts = classes.get(layers[0]), f"{len(layers)} times"
        every[group] = ", ".join(filter(None, parts))
    return every
