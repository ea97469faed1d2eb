"""Input pipelines: batches that stay on the device, come from host memory, or from a
user's loader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from .network_step import Feed
from .networks import Network, load_function

RESIDENT = "resident"  # one random batch that stays on the device: steps load no input
HOST = "host"  # one random batch in (pinned) host memory, copied to the device in every step
_SEED = 0


def make_feed(
    source: str, network: Network, device: str, rank: int, world_size: int
) -> Feed | None:
    """Create the input pipeline that `--input` names, for one of several ranks; None for a resident
    batch.

    The source is resident, host, or `package.module:function`, a function of batch size, rank and
    world size that returns an iterable of (inputs, targets); an exhausted one is created again.
    """
    if source == RESIDENT:
        return None
    if source == HOST:
        return _from_host(network, device)
    load = load_function("--input", source, "resident, host, or package.module:function")
    batches: dict[int, Iterator[Any]] = {}

    def feed(batch: int) -> tuple[tuple[Any, ...], Any]:
        for _ in range(2):
            if batch not in batches:
                batches[batch] = iter(load(batch, rank, world_size))
            for inputs, targets in batches[batch]:
                inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
                return tuple(_to(device, tensor) for tensor in inputs), _to(device, targets)
            del batches[batch]
        raise CurvescopeError(f"--input {source}: the loader returned no batch of {batch} samples.")

    return feed


def _from_host(network: Network, device: str) -> Feed:
    torch = import_torch()
    batches: dict[int, tuple[tuple[Any, ...], Any]] = {}

    def feed(batch: int) -> tuple[tuple[Any, ...], Any]:
        if batch not in batches:
            batches.clear()
            generator = torch.Generator().manual_seed(_SEED + batch)
            inputs, targets = network.sample(batch, "cpu", generator)
            pinned = tuple(_pin_memory(device, tensor) for tensor in inputs)
            batches[batch] = pinned, _pin_memory(device, targets)
        inputs, targets = batches[batch]
        return tuple(_to(device, tensor) for tensor in inputs), _to(device, targets)

    return feed


def _pin_memory(device: str, tensor: Any) -> Any:
    if device != "cpu" and tensor is not None:
        return tensor.pin_memory()
    return tensor


def _to(device: str, tensor: Any) -> Any:
    """Copy to the device even if the tensor is there already, because every step of a real job gets
    fresh memory.
    """
    if tensor is None:
        return tensor
    return tensor.to(device, non_blocking=True, copy=True)
