"""A network ready to step: model, data and optimizer on a device, and the operations of
one step.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..attribution import range_names
from ..collect.inductor import compile_module
from ..hardware.precisions import PRECISIONS
from ..recording.axis import BATCH, TOKENS, Axis
from .any_workload import AnyWorkload, FirstProfiled, Ranges
from .networks import Network

# So small that the loss of random data stays finite over any number of steps.
_LEARNING_RATE = 1e-6
_MOMENTUM = 0.9
_SEED = 0

# batch size to inputs and targets on the device
Feed = Callable[[int], tuple[tuple[Any, ...], Any]]


def check_precision(precision: str, device: str) -> None:
    """Refuse a precision that the device does not support, as TF32 on a CPU."""
    if device == "cpu" and not PRECISIONS[precision].on_cpu:
        raise CurvescopeError(
            f"--precision {precision} is a mode of CUDA devices; choose fp32, bf16 or fp16 on the "
            "CPU."
        )


@dataclass
class Workload(AnyWorkload):
    """One network on one device. A batch is created on first use and kept until `release`.

    Mode training is forward, backward and optimizer; forward is in inference mode. A compiled
    kernel may span layers, see `attribution.fused_kernels`.
    """

    network: Network
    device: str = "cpu"
    mode: str = "training"
    precision: str = "fp32"
    compiled: bool = False
    # of the model for the forward pass, e.g. data-parallel
    wrap: Callable[[Any], Any] | None = None
    # Loads the batch of each step, inside the step; None: one random batch stays on the device.
    feed: Feed | None = None
    # what `load` varies: the batch size, or the tokens per sample
    axis: Axis = field(default_factory=Axis)
    fixed: Mapping[str, int] = field(default_factory=dict)  # the other of these two
    halved: bool = False  # the two halves of a batch run in turn, and their gradients are added
    clock_ns: Callable[[], int] = time.monotonic_ns
    first_profiled: dict[int, FirstProfiled] = field(init=False, default_factory=dict)
    model: Any = field(init=False)
    _forward: Any = field(init=False)
    _optimizer: Any = field(init=False)
    _scaler: Any = field(init=False)
    _batch: tuple[int, Any, Any] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        torch = import_torch()
        check_precision(self.precision, self.device)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = (
            self.precision == "tf32"
        )
        torch.manual_seed(_SEED)
        self.model = self.network.build().to(self.device)
        trains = self.mode != "forward"
        self.model.train(trains)
        self._optimizer = None
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        if trains and not parameters:
            raise CurvescopeError(
                f"{self.network.name} has no parameter to train; measure it with `--mode forward`."
            )
        if self.mode == "training":
            self._optimizer = torch.optim.SGD(parameters, lr=_LEARNING_RATE, momentum=_MOMENTUM)
        scaled = self.precision == "fp16" and trains
        self._scaler = torch.amp.GradScaler("cuda" if self.cuda else "cpu", enabled=scaled)
        self._forward = compile_module(self.model) if self.compiled else self.model
        if self.wrap is not None:
            self._forward = self.wrap(self._forward)

    @property
    def name(self) -> str:
        return self.network.name

    @property
    def spec(self) -> dict[str, Any]:
        network = self.network
        is_users_model = ":" in self.network.name
        varies_tokens = TOKENS in (self.axis.name, *self.fixed)
        sequence_length = None
        if network.reads_text and not varies_tokens:
            sequence_length = network.input_shape[0]
        return {
            "network": network.name,
            "input_shape": list(network.input_shape) if is_users_model else None,
            "sequence_length": sequence_length,
            "mode": self.mode,
            "precision": self.precision,
            "compiled": self.compiled,
            "axis": self.axis.entry,
            "fixed": dict(self.fixed),
            "torch_device": self.device,
        }

    @property
    def loaded(self) -> int | None:
        if self._batch is None:
            return None
        return self._batch[0]

    def load(self, batch: int) -> None:
        if self.loaded == batch:
            return
        if self.feed is not None:
            self._batch = (batch, (), None)
            return
        import torch

        self._batch = None
        generator = torch.Generator(device=self.device).manual_seed(_SEED + batch)
        values = {BATCH: 1, **self.fixed, self.axis.name: batch}
        if TOKENS in values:
            network = self.network.with_sequence_length(values[TOKENS])
        else:
            network = self.network
        inputs, targets = network.sample(values[BATCH], self.device, generator)
        self._batch = (batch, inputs, targets)

    def trainables(self) -> list[Any]:
        states = [] if self._optimizer is None else self._optimizer.state.values()
        tensors = (value for state in states for value in state.values() if hasattr(value, "zero_"))
        return [*super().trainables(), *tensors]

    def try_step(self, batch: int) -> None:
        try:
            self.load(batch)
            self.time_step()
        except CurvescopeError:
            raise
        except Exception as error:  # any error of the user's model is reported to the user
            shape = (batch, *self.network.input_shape)
            raise CurvescopeError(
                f"{self.network.name} failed on an input of shape {shape} with "
                f"{type(error).__name__}: {error}. For your own model, check --input-shape and "
                "--mode."
            ) from error

    def release(self) -> None:
        import torch

        self._batch = None
        self.model.zero_grad(set_to_none=True)
        if self.cuda:
            torch.cuda.empty_cache()

    def _run(self, ranges: Ranges) -> object:
        import torch

        assert self._batch is not None, "load() a batch first"
        batch, inputs, targets = self._batch
        if self.feed is not None:
            with ranges(range_names.PHASE_RANGE + range_names.INPUT_PHASE):
                inputs, targets = self.feed(batch)
        parts = _halves(inputs, targets) if self.halved else [(inputs, targets, None)]
        if self.mode == "forward":
            with (
                torch.inference_mode(),
                ranges(range_names.PHASE_RANGE + "forward"),
                self._autocast(),
            ):
                outputs = [self._forward(*part) for part, _, _ in parts]
            return outputs if self.halved else outputs[0]
        losses = []
        for number, part in enumerate(parts):
            losses.append(self._add_gradients(ranges, *part, first=not number))
        if self.halved:
            loss = torch.stack([part_loss.detach() for part_loss in losses]).sum()
        else:
            loss = losses[0]
        if self._optimizer is not None:
            with ranges(range_names.PHASE_RANGE + "optimizer"):
                self._scaler.step(self._optimizer)
                self._scaler.update()
        return loss

    def _add_gradients(
        self,
        ranges: Ranges,
        inputs: tuple[Any, ...],
        targets: Any,
        share: float | None,
        *,
        first: bool,
    ) -> Any:
        """Run forward and backward; returns the loss, weighted by the share of these samples in the
        batch.
        """
        with ranges(range_names.PHASE_RANGE + "forward"):
            if first:
                self.model.zero_grad(set_to_none=True)
            with self._autocast():
                output = self._forward(*inputs)
                with ranges(range_names.LAYER_RANGE + "loss"):
                    loss = self.network.loss(output, targets)
        with ranges(range_names.PHASE_RANGE + "backward"):
            loss = loss if share is None else loss * share
            self._scaler.scale(loss).backward()
        return loss

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        import torch

        types = {"fp16": torch.float16, "bf16": torch.bfloat16}
        if self.precision not in types:
            return contextlib.nullcontext()
        return torch.autocast("cuda" if self.cuda else "cpu", types[self.precision])


def _halves(
    inputs: tuple[Any, ...], targets: Any
) -> list[tuple[tuple[Any, ...], Any, float | None]]:
    """Inputs, targets and share of samples of each half of a batch; one entry for a batch of one
    sample.
    """
    cut: list[Any]
    if targets is None:
        cut = [None, None]
    elif isinstance(targets, tuple):
        cut = _halve_all(targets)
    else:
        cut = list(targets.chunk(2))
    halves: list[tuple[tuple[Any, ...], Any, float | None]] = []
    for part, target in zip(_halve_all(inputs), cut, strict=False):
        halves.append((part, target, len(part[0]) / len(inputs[0])))
    return halves


def _halve_all(tensors: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return list(zip(*(tensor.chunk(2) for tensor in tensors), strict=True))
