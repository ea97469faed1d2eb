"""The processes of one launch: how they meet, talk to each other, and hold their clocks against each other."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from ..errors import CurvescopeError
from ..recording.rank_info import Place, rendezvous
from ..workload.network_step import import_torch
from .clock_alignment import EXCHANGES, Reading, clock_identity, number_nodes, read_clock


class Team:
    """This process and the others of its launch, which can be talked to once it is entered.

    Attributes:
        place: of this process in the launch.
        nodes: node of every rank.
    """

    def __init__(self, place: Place, timeout_s: float) -> None:
        self.place, self._timeout = place, timedelta(seconds=timeout_s)
        self.nodes: list[int] = []
        self._groups: dict[int, Any] = {}

    def __enter__(self) -> Team:
        import_torch()
        import torch.distributed as dist

        address, port = rendezvous()
        os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
        place = self.place
        try:
            # What the ranks say to each other goes over Gloo; what a step moves, over the group of its devices.
            dist.init_process_group("gloo", rank=place.rank, world_size=place.world_size, timeout=self._timeout)
        except Exception as error:  # torch's several errors of a rendezvous
            raise CurvescopeError(
                f"Rank {place.rank} did not meet the others at {address}:{port} ({str(error).splitlines()[0]}). Start "
                f"all {place.world_size} processes, with the same MASTER_ADDR and MASTER_PORT."
            ) from error
        identities: list[Any] = [None] * place.world_size
        dist.all_gather_object(identities, clock_identity())
        self.nodes = number_nodes(identities)
        self.place = replace(place, node=self.nodes[place.rank])
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        import torch.distributed as dist

        if kind is None:  # else the others may be gone, and waiting for them would hang
            dist.destroy_process_group()

    def check_size(self, devices: Sequence[int]) -> None:
        """Refuse more devices than there are processes.

        Raises:
            CurvescopeError: there are fewer.
        """
        if max(devices) > self.place.world_size:
            raise CurvescopeError(
                f"{max(devices)} devices are asked for, and the launch has {self.place.world_size} processes: start "
                "more, or ask for fewer with --devices."
            )

    @property
    def order(self) -> list[int]:
        """All ranks, those of one node together: the first n are the n devices of a visit."""
        return sorted(range(self.place.world_size), key=lambda rank: (self.nodes[rank], rank))

    def place_among(self, devices: int) -> Place | None:
        """The place of this process among the first so many devices; null if it is none of them."""
        members = self.order[:devices]
        if self.place.rank not in members:
            return None
        return replace(self.place, rank=members.index(self.place.rank), world_size=devices)

    def make_groups(self, devices: Sequence[int], backend: str) -> None:
        """Make the process groups of these numbers of devices; all ranks do it in the same order."""
        import torch.distributed as dist

        for count in devices:
            self._groups[count] = dist.new_group(self.order[:count], timeout=self._timeout, backend=backend)

    def group(self, devices: int) -> Any:
        """The process group of the first so many devices."""
        return self._groups[devices]

    def tell(self, what: Any) -> Any:
        """Rank 0's object, on every rank."""
        import torch.distributed as dist

        told = [what]
        dist.broadcast_object_list(told, src=0)
        return told[0]

    def gather(self, what: Any) -> list[Any]:
        """The objects of all ranks, in order."""
        import torch.distributed as dist

        gathered: list[Any] = [None] * self.place.world_size
        dist.all_gather_object(gathered, what)
        return gathered

    def read_clocks(self) -> Reading | None:
        """Hold the clock of every node against rank 0's; returns that of this process's node, null on rank 0's."""
        import torch
        import torch.distributed as dist

        first = {node: self.nodes.index(node) for node in sorted(set(self.nodes)) if node}
        found: dict[int, Reading] = {}
        buffer = torch.zeros(1, dtype=torch.int64)
        for node, other in first.items():
            if self.place.rank == 0:

                def ask(other: int = other) -> int:
                    dist.send(buffer, other)
                    dist.recv(buffer, other)
                    return int(buffer)

                found[node] = read_clock(ask)
            elif self.place.rank == other:
                for _ in range(EXCHANGES):
                    dist.recv(buffer, 0)
                    buffer.fill_(time.monotonic_ns())
                    dist.send(buffer, 0)
        told: dict[int, Reading] = self.tell(found)
        return told.get(self.nodes[self.place.rank])
