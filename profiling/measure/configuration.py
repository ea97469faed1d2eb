"""One network in one way to run it."""

from __future__ import annotations

from dataclasses import dataclass

from ..workload.networks import Network, from_factory, get_network


@dataclass(frozen=True)
class Setting:
    """One network in one way to run it: what one recording of a sweep holds.

    Attributes:
        network: a name, or `package.module:function`.
        input_shape: shape of one sample, for a function of the user's; else null.
        sequence_length: tokens of one sample, for networks that read text; null for the published number.
        device: `cpu` or `cuda:N`.
        mode: see `Workload`.
        precision: see `Workload`.
        compiled: see `Workload`.
        memory_limit_bytes: cap of the memory of each visit; null for none.
    """

    network: str
    input_shape: tuple[int, ...] | None = None
    sequence_length: int | None = None
    device: str = "cpu"
    mode: str = "training"
    precision: str = "fp32"
    compiled: bool = False
    memory_limit_bytes: int | None = None

    @property
    def label(self) -> str:
        """Name of its folder."""
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in self.network)
        return "_".join([name, self.mode, self.precision, *(["compiled"] if self.compiled else [])])

    def find_network(self) -> Network:
        """The network it names.

        Raises:
            CurvescopeError: there is none.
        """
        if ":" in self.network:
            return from_factory(self.network, self.input_shape or ())
        return get_network(self.network, self.sequence_length)
