"""The processes of one launch: they connect, and exchange objects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..recording.rank_info import RENDEZVOUS_FILE, RankInfo, rendezvous
from .machine import machine_identity


class ProcessGroup:
    """All processes of a launch; a context manager that connects this process to the others."""

    def __init__(self, rank_info: RankInfo, timeout_s: float) -> None:
        self.rank_info, self._timeout = rank_info, timedelta(seconds=timeout_s)
        self.nodes: list[int] = []  # of every rank
        self.groups: dict[int, Any] = {}  # of torch, of the first so many ranks

    def __enter__(self) -> ProcessGroup:
        import_torch()
        import torch.distributed as dist

        rank = self.rank_info.rank
        world_size = self.rank_info.world_size
        if (file := os.environ.get(RENDEZVOUS_FILE)) is not None:
            where, store = f"in {file}", dist.FileStore(file, world_size)  # type: ignore[attr-defined]
        else:
            address, port = rendezvous()
            os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
            where = f"at {address}:{port}"
            store = None
        try:
            # Commands and results go over Gloo; the data of a step goes over the group of its
            # devices.
            dist.init_process_group(
                "gloo", store=store, rank=rank, world_size=world_size, timeout=self._timeout
            )
        except Exception as error:  # torch raises several types if the rendezvous fails
            raise CurvescopeError(
                f"Rank {rank} could not connect to the others {where} "
                f"({str(error).splitlines()[0]}). Start all {world_size} processes, with the same "
                "MASTER_ADDR and MASTER_PORT."
            ) from error
        self.nodes = number_nodes(self.gather(machine_identity()))
        self.rank_info = replace(self.rank_info, node=self.nodes[rank])
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        import torch.distributed as dist

        if (
            kind is None
        ):  # after an error the other ranks may have ended, and waiting for them would hang
            dist.destroy_process_group()

    def check_size(self, devices: Sequence[int]) -> None:
        """Refuse more devices than there are processes."""
        if max(devices) > self.rank_info.world_size:
            raise CurvescopeError(
                f"{max(devices)} devices are requested, but the launch has "
                f"{counted(self.rank_info.world_size, 'process', 'processes')}: start more, or "
                "request fewer with --devices."
            )

    @property
    def order(self) -> list[int]:
        """All ranks, grouped by node: a visit of n devices runs on the first n."""
        return sorted(range(self.rank_info.world_size), key=lambda rank: (self.nodes[rank], rank))

    def rank_among(self, devices: int) -> RankInfo | None:
        """Rank of this process among the first `devices` ranks of `order`; None if it is not one of
        them.
        """
        members = self.order[:devices]
        if self.rank_info.rank not in members:
            return None
        return replace(self.rank_info, rank=members.index(self.rank_info.rank), world_size=devices)

    def make_groups(self, devices: Sequence[int], backend: str) -> None:
        """Create the torch process group of each number of devices; all ranks must do so in the
        same order.
        """
        import torch.distributed as dist

        for count in devices:
            self.groups[count] = dist.new_group(
                self.order[:count], timeout=self._timeout, backend=backend
            )

    def broadcast(self, value: Any) -> Any:
        """Rank 0's object, on every rank."""
        import torch.distributed as dist

        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def gather(self, value: Any) -> list[Any]:
        """The objects of all ranks, by rank."""
        import torch.distributed as dist

        gathered: list[Any] = [None] * self.rank_info.world_size
        dist.all_gather_object(gathered, value)
        return gathered


def number_nodes(identities: Sequence[str]) -> list[int]:
    """The node of every rank, numbered in the order of their first ranks."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(identity, len(numbers)) for identity in identities]
