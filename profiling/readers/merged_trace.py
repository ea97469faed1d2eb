"""Traces that a tool merged from the traces of several ranks: which events are of which process.

Tools keep the numbers of processes apart: they add a multiple of a large number for each rank
(TraceLens), write the rank before them (SGLang: `[TP00] 1234`), or leave them as they are. Events
of a GPU stand under a process of their own, the number of the GPU: it is of the rank that launched
its work.
"""

from __future__ import annotations

import json
import re

import numpy as np

from ..attribution.columns import count_true, flags_of
from ..attribution.nesting import NONE, Ints
from .pytorch_events import PROCESS, Events

_CLEAR = 1.05  # launches of the likeliest process over those of the next, from which it is taken
_DIGITS = re.compile(r"(\d+)")
_COLLECTIVES = ("nccl", "rccl")


def list_rank_processes(events: Events) -> list[set[int]]:
    """The texts of each rank's processes, of its host and of its GPUs, in order; one entry for a
    trace of one.
    """
    hosts = sorted(events.processes or events.calling, key=lambda text: _order(events.texts[text]))
    if len(hosts) < 2:
        return [set(hosts)]
    ranks = [{host} for host in hosts]
    undecided = []
    for gpu in sorted(_processes(events, "device"), key=lambda text: _order(events.texts[text])):
        if gpu in hosts:
            continue
        owner = _find_alike(gpu, hosts, events)
        owner = _find_launcher(gpu, hosts, events) if owner is None else owner
        if owner is None:
            undecided.append(gpu)
        else:
            ranks[owner].add(gpu)
    # Ranks of one program launch alike: then the numbers of GPUs and of processes are in one order.
    without = [rank for rank in ranks if len(rank) == 1] or ranks
    for position, gpu in enumerate(undecided):
        without[position % len(without)].add(gpu)
    return ranks


def keep_processes(events: Events, kept: set[int], others: set[int]) -> None:
    """Leave out the events of other processes; a process that is no rank's keeps its events."""
    left_out = np.array(sorted(others - kept), np.int64)
    for group, pieces in events.pieces.items():
        for index, piece in enumerate(pieces):
            rows = ~np.isin(piece[PROCESS], left_out)
            events.pieces[group][index] = {name: column[rows] for name, column in piece.items()}


def communication_ms(events: Events, ranks: list[set[int]]) -> list[float]:
    """The sum of the durations of NCCL's and RCCL's kernels of each rank."""
    sums = [0.0] * len(ranks)
    for piece in events.pieces["device"]:
        names, code = np.unique(piece["name"], return_inverse=True)
        texts = [events.texts[name].lower() for name in names.tolist()]
        communicates = flags_of(texts, lambda text: text.startswith(_COLLECTIVES))[code]
        duration_ns = piece["end_ns"] - piece["start_ns"]
        for rank, processes in enumerate(ranks):
            rows = communicates & np.isin(piece[PROCESS], list(processes))
            sums[rank] += float(duration_ns[rows].sum()) / 1e6
    return sums


def _processes(events: Events, group: str) -> list[int]:
    processes = [np.unique(piece[PROCESS]) for piece in events.pieces[group]]
    if processes:
        return [text for text in np.unique(np.concatenate(processes)).tolist() if text != NONE]
    return []


def _order(text: str) -> list[tuple[bool, int, str]]:
    """Sort key that orders numbers in texts by value."""
    parts = _DIGITS.split(text)
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _find_alike(gpu: int, hosts: list[int], events: Events) -> int | None:
    """The one process whose text begins as the GPU's, e.g. with `[TP00]`; None without one."""
    prefix = _prefix(events.texts[gpu])
    alike = []
    for at, host in enumerate(hosts):
        if _prefix(events.texts[host]) == prefix:
            alike.append(at)
    if prefix and len(alike) == 1:
        return alike[0]
    return None


def _prefix(text: str) -> str:
    value = json.loads(text)
    if isinstance(value, str):
        return value.rpartition(" ")[0]
    return ""


def _find_launcher(gpu: int, hosts: list[int], events: Events) -> int | None:
    """The process that launched most of a GPU's work, by correlation ids and order; None if none
    clearly did.
    """
    work_ids, work_ns = _rows(events, "device", gpu)
    launched = []
    for host in hosts:
        ids, starts_ns = _rows(events, "calls", host)
        if not len(ids):
            launched.append(0)
            continue
        order = np.argsort(ids, kind="stable")
        at = np.searchsorted(ids[order], work_ids)
        nearest = order[np.minimum(at, len(order) - 1)]
        is_launch = (ids[nearest] == work_ids) & (starts_ns[nearest] <= work_ns)
        launched.append(count_true(is_launch))
    first, second = sorted(launched, reverse=True)[:2]
    if first > _CLEAR * second:
        return launched.index(first)
    return None


def _rows(events: Events, group: str, process: int) -> tuple[Ints, Ints]:
    """Correlation ids and starts of one process."""
    ids = [np.zeros(0, np.int64)]
    starts = [np.zeros(0, np.int64)]
    for piece in events.pieces[group]:
        rows = piece[PROCESS] == process
        ids.append(piece["correlation_id"][rows])
        starts.append(piece["start_ns"][rows])
    return np.concatenate(ids), np.concatenate(starts)
