"""One process of many: its rank, as torchrun or Slurm gives it, and what `recording.json` says of it.

A recording of one rank carries `distributed`: `rank`, `world_size`, `local_rank` and `node`, and where the clocks of
the ranks were held against each other, `clock` (see `clock_alignment`). Nodes are numbered in the order of their first
rank; a host's name is nowhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..errors import CurvescopeError

META_KEY = "distributed"


@dataclass(frozen=True)
class Place:
    """Where a process stands among the processes that step together.

    Attributes:
        rank: its number, from 0.
        world_size: how many there are.
        local_rank: its number on its node: the index of its GPU.
        node: number of its node, in the order of the nodes' first ranks; null where it is not known yet.
    """

    rank: int
    world_size: int
    local_rank: int
    node: int | None = None

    def entry(self, clock: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What `recording.json` holds under `distributed`."""
        return {**asdict(self), **({} if clock is None else {"clock": dict(clock)})}


def place_of(meta: Mapping[str, Any]) -> Place | None:
    """The place of a recording's process; null where it was alone or does not say.

    Raises:
        CurvescopeError: the entry is there and is not of the form above.
    """
    entry = meta.get(META_KEY)
    if entry is None:
        return None
    try:
        place = Place(*(int(entry[name]) for name in ("rank", "world_size", "local_rank")))
        return place if entry.get("node") is None else replace(place, node=int(entry["node"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CurvescopeError(f"`{META_KEY}` of recording.json is damaged ({error!r}).") from error


def launched_place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """The place that a launcher gave this process; null where it was started by hand.

    torchrun says it in RANK, WORLD_SIZE and LOCAL_RANK, srun in SLURM_PROCID, SLURM_STEP_NUM_TASKS and SLURM_LOCALID.
    A Slurm batch script itself is no rank: only what srun starts has SLURM_STEP_NUM_TASKS.

    Raises:
        CurvescopeError: some of the variables are there and others are not, or they are no numbers.
    """
    torchrun, slurm = ("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
    if "RANK" in environment or "WORLD_SIZE" in environment:
        names = torchrun
    elif int(environment.get("SLURM_STEP_NUM_TASKS") or 1) > 1:
        names = slurm
    else:
        return None
    try:
        return Place(*(int(environment[name]) for name in names))
    except (KeyError, ValueError) as error:
        raise CurvescopeError(
            f"{', '.join(names)} are not all set to numbers ({error}): start it with torchrun or srun, or unset them."
        ) from error


def describe_place(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The entry of `recording.json` for a process recorded as it is; none where it is no rank, or that is not sure.

    The node is torchrun's GROUP_RANK or Slurm's SLURM_NODEID, which count nodes in the order of their first ranks.
    """
    try:
        place = launched_place(environment)
    except CurvescopeError:  # a launcher of launchers sets some of the variables; recording goes on without
        return {}
    if place is None:
        return {}
    node = environment.get("GROUP_RANK", environment.get("SLURM_NODEID", ""))
    return {META_KEY: (replace(place, node=int(node)) if node.isdigit() else place).entry()}


def rendezvous(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Address and port at which the ranks meet: MASTER_ADDR and MASTER_PORT, else the first node of the Slurm step.

    Raises:
        CurvescopeError: neither is known.
    """
    address, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if address is None and (nodes := environment.get("SLURM_STEP_NODELIST")):
        address = first_host(nodes)
    if port is None and (job := environment.get("SLURM_JOB_ID")):
        # Jobs on one node get ports of their own; below 32768 Linux hands out none by itself.
        port = str(20_000 + int(job) % 12_000)
    if address is None or port is None:
        raise CurvescopeError("The ranks do not know where to meet: set MASTER_ADDR and MASTER_PORT on all of them.")
    return address, int(port)


def first_host(node_list: str) -> str:
    """The first host of a Slurm node list, as in `gpu[003-005,9],cpu1`: gpu003."""
    match = re.match(r"([^\[,]*)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", node_list)
    assert match is not None
    return "".join(part or "" for part in match.groups())
