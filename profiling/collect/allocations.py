"""Records the allocations of a profiled step, and which tensors are parameters, gradients and
optimizer state.

torch's allocators of all devices report each block to the profiler, a CPU's only the end of those
whose begin it has reported, in this session or an earlier one. They do not tell whose a block is:
the tensors that exist before the step, and the gradients and the optimizer's state when an
optimizer has run, do.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...base.standard_output import redirect_output
from ..attribution.memory_peak import GRADIENTS, INPUTS, PARAMETERS, STATE, Allocations, KnownTensor
from ..hardware.memory_usage import available_bytes
from .marks import optimizer_hooks

# A CPU's allocator prints this for each thousandth block that it does not know.
_UNKNOWN_BLOCK = b"Memory block of unknown size was allocated before"


@contextmanager
def without_notes() -> Iterator[None]:
    """Keep the allocator's notes from standard error, and nothing else; that comes when the block
    ends.
    """
    lines: list[bytes] = []
    try:
        with redirect_output(sys.stderr, 2) as lines:
            yield
    finally:
        os.write(2, b"".join(line for line in lines if _UNKNOWN_BLOCK not in line))


class Tensors:
    """The tensors on one device that the program holds before a step and in it; layers are modules
    by path.
    """

    def __init__(self, layers: Iterable[tuple[str, Any]], device: str) -> None:
        import torch

        self._device = torch.device(device)
        self._layers = {
            id(tensor): path or None
            for path, module in layers
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))
        }
        self.found: list[KnownTensor] = []
        self.available_bytes: int | None = None

    @contextmanager
    def note_tensors(self) -> Iterator[Tensors]:
        """Note the tensors that exist now, and gradients and state whenever an optimizer runs until
        the block ends.
        """
        import torch

        parameters = self._note_all()
        held = sum({tensor.address: tensor.size_bytes for tensor in self.found}.values())
        free = available_bytes(str(self._device))
        if free is not None:  # the step may also use what this process has already
            on_gpu = self._device.type != "cpu"
            self.available_bytes = free + (
                torch.cuda.memory_reserved(self._device) if on_gpu else held
            )

        def before_update(*_: Any) -> None:
            self._note_gradients(parameters)

        def after_update(optimizer: Any, *_: Any) -> None:
            self._note_state(optimizer)

        try:
            with optimizer_hooks(before_update, after_update):
                yield self
        finally:
            self._note_gradients(parameters)

    def _note_all(self) -> list[Any]:
        """Note all tensors, each by its last kind; returns the parameters."""
        import torch

        gc.collect()
        objects = gc.get_objects()
        tensors = [candidate for candidate in objects if issubclass(type(candidate), torch.Tensor)]
        parameters = [tensor for tensor in tensors if isinstance(tensor, torch.nn.Parameter)]
        for tensor in tensors:
            self._note(tensor, PARAMETERS if id(tensor) in self._layers else INPUTS, tensor)
        for candidate in objects:
            if issubclass(type(candidate), torch.optim.Optimizer):
                self._note_state(candidate)
        self._note_gradients(parameters)
        for parameter in parameters:
            self._note(parameter, PARAMETERS, parameter)
        return parameters

    def _note_gradients(self, parameters: Iterable[Any]) -> None:
        for parameter in parameters:
            if parameter.grad is not None:
                self._note(parameter.grad, GRADIENTS, parameter)

    def _note_state(self, optimizer: Any) -> None:
        for parameter, state in optimizer.state.items():
            for value in state.values() if isinstance(state, dict) else ():
                if hasattr(value, "untyped_storage"):
                    self._note(value, STATE, parameter)

    def _note(self, tensor: Any, kind: str, owner: Any) -> None:
        if type(tensor).__name__ == "FakeTensor":  # of torch.compile, which warns if it is asked
            return
        try:
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
            size = storage.nbytes()
            device = storage.device
        except Exception:  # e.g. a sparse tensor, or one without memory
            return
        if address and device == self._device:
            self.found.append(
                KnownTensor(time.time_ns(), address, size, kind, self._layers.get(id(owner)))
            )


def allocations_of(results: Any, tensors: Tensors, used: set[int] | None) -> Allocations:
    """The allocations on the tensors' device, from the result of a session of torch's profiler with
    `profile_memory`.

    `used` has the addresses of the storages that operators took; None if unknown.
    """
    import torch

    on_device = torch.device(str(tensors._device))
    rows = []
    events = list(results.experimental_event_tree())
    while events:
        event = events.pop()
        events += event.children
        if event.tag.name == "Allocation" and (block := event.extra_fields).device == on_device:
            totals = block.total_allocated, block.total_reserved
            rows.append(
                (event.start_time_ns, event.start_tid, block.alloc_size, block.ptr, *totals)
            )
    columns = np.array(sorted(rows, key=lambda row: row[0]), np.int64).reshape(-1, 6).T
    time_ns, thread, size, address, total, reserved = columns
    on_gpu = on_device.type != "cpu"
    return Allocations(
        time_ns,
        thread,
        size,
        address,
        total if on_gpu else None,
        reserved if on_gpu else None,
        tensors.found,
        used,
        tensors.available_bytes,
    )
