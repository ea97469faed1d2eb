"""One network in one way to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..workload.networks import Network, from_factory, get_network


@dataclass(frozen=True)
class Configuration:
    """One network in one way to run it; a sweep makes one recording of each.

    Attributes:
        network: name of a network, or `package.module:function`.
        input_shape: shape of one sample, for a function of the user; else None.
        sequence_length: tokens per sample, for networks that take text; None for the published number.
        device: `cpu` or `cuda:N`.
        mode: see `Workload`.
        precision: see `Workload`.
        compiled: see `Workload`.
        memory_limit_bytes: memory limit of each visit; None for no limit.
    """

    network: str
    input_shape: tuple[int, ...] | None = None
    sequence_length: int | None = None
    device: str = "cpu"
    mode: str = "training"
    precision: str = "fp32"
    compiled: bool = False
    memory_limit_bytes: int | None = None

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Configuration:
        """The configuration in a plan file."""
        shape = entry["input_shape"]
        entry = {"mode" if name == "kind" else name: value for name, value in entry.items()}  # "kind" until version 0.1
        return cls(**{**entry, "input_shape": None if shape is None else tuple(shape)})

    @property
    def label(self) -> str:
        """Name of the folder of its recording."""
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in self.network)
        return "_".join([name, self.mode, self.precision, *(["compiled"] if self.compiled else [])])

    def find_network(self) -> Network:
        """Look up the network.

        Raises:
            CurvescopeError: there is no such network.
        """
        if ":" in self.network:
            return from_factory(self.network, self.input_shape or ())
        return get_network(self.network, self.sequence_length)
