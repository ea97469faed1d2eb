"""Rank of one process among many, from torchrun or Slurm, and its entry `distributed` in
`recording.json`.

Nodes are numbered in the order of their first rank; host names are not stored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...base.errors import CurvescopeError

META_KEY = "distributed"
RENDEZVOUS_FILE = "CURVESCOPE_RENDEZVOUS_FILE"  # in which the ranks of one machine find each other


@dataclass(frozen=True)
class RankInfo:
    """Rank of a process among the processes of a launch, and on its node."""

    rank: int
    world_size: int  # number of ranks
    local_rank: int  # rank on its node, which is the index of its GPU
    # number of its node, in the order of the nodes' first ranks; None if not known yet
    node: int | None = None

    def entry(self) -> dict[str, Any]:
        """The entry `distributed` of `recording.json`."""
        return asdict(self)


def rank_info_of(meta: Mapping[str, Any]) -> RankInfo | None:
    """Rank information of a recording; None without an entry.

    CurvescopeError: the entry is malformed.
    """
    entry = meta.get(META_KEY)
    if entry is None:
        return None
    try:
        info = RankInfo(*(int(entry[name]) for name in ("rank", "world_size", "local_rank")))
        return info if entry.get("node") is None else replace(info, node=int(entry["node"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CurvescopeError(f"`{META_KEY}` of recording.json is damaged ({error!r}).") from error


def find_launched_rank(environment: Mapping[str, str] = os.environ) -> RankInfo | None:
    """Rank information from the launcher of this process; None without one.

    CurvescopeError: half of it is there.

    A Slurm batch script itself is not a rank: SLURM_STEP_NUM_TASKS is set only under srun.
    """
    torchrun = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    slurm = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
    if "RANK" in environment or "WORLD_SIZE" in environment:
        names = torchrun
    elif int(environment.get("SLURM_STEP_NUM_TASKS") or 1) > 1:
        names = slurm
    else:
        return None
    try:
        return RankInfo(*(int(environment[name]) for name in names))
    except (KeyError, ValueError) as error:
        raise CurvescopeError(
            f"{', '.join(names)} are not all set to numbers ({error}): start it with torchrun or "
            "srun, or unset them."
        ) from error


def describe_rank(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The entry of `recording.json` for any process; empty if it is not a rank or the variables are
    inconsistent.

    The node is torchrun's GROUP_RANK or Slurm's SLURM_NODEID, which number nodes in the order of
    their first ranks.
    """
    try:
        info = find_launched_rank(environment)
    except (
        CurvescopeError
    ):  # nested launchers set only some of the variables; record without the entry
        return {}
    if info is None:
        return {}
    node = environment.get("GROUP_RANK", environment.get("SLURM_NODEID", ""))
    return {META_KEY: (replace(info, node=int(node)) if node.isdigit() else info).entry()}


def rendezvous(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Address and port of the rendezvous: MASTER_ADDR and MASTER_PORT, else the first node of the
    Slurm step.
    """
    address = environment.get("MASTER_ADDR")
    port = environment.get("MASTER_PORT")
    if address is None and (nodes := environment.get("SLURM_STEP_NODELIST")):
        address = first_host(nodes)
    if port is None and (job := environment.get("SLURM_JOB_ID")):
        # Jobs on one node get different ports; Linux assigns no ports below 32768 automatically.
        port = str(20_000 + int(job) % 12_000)
    if address is None or port is None:
        raise CurvescopeError(
            "The address of the rendezvous is unknown: set MASTER_ADDR and MASTER_PORT for every "
            "process."
        )
    return address, int(port)


def first_host(node_list: str) -> str:
    """The first host of a Slurm node list, e.g. gpu003 for `gpu[003-005,9],cpu1`."""
    match = re.match(r"([^\[,]*)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", node_list)
    assert match is not None
    return "".join(part or "" for part in match.groups())
