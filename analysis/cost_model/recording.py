"""Records modelled steps: the model's kernels for a GPU, in the tables of every recording."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ...base.errors import CurvescopeError
from ...base.masking import without_secrets
from ...base.numbers import quantity
from ...profiling.hardware.devices import Device, get_device
from ...profiling.recording.axis import MODES
from ...profiling.recording.remote_store import AnyPath
from ...profiling.recording.store import MODEL, RecordingWriter
from .choice import Library, get_library
from .constants import constants_for, load_fitted
from .frameworks import FRAMEWORKS, Framework
from .launches import ModelledGpu
from .networks import CONTEXT_BYTES, Operations, Step, estimate_step
from .problems import Floats

# Default library by architecture: the library of the published times.
_USUAL_LIBRARY = {
    "kepler": "cudnn5",
    "maxwell": "cudnn5",
    "pascal": "cudnn5.1",
    "volta": "cudnn7",
    "turing": "cudnn7.6",
    "ampere": "cudnn8",
    "ada": "cudnn8",
    "hopper": "cudnn8",
    "blackwell": "cudnn8",
}
_KERNEL_COLUMNS = ("name", "start_ns", "duration_ns", "device", "stream", "step", "phase", "layer", "op", "flops",
                   "bytes_compulsory", "source")  # fmt: skip
_STEP_COLUMNS = ("step", "batch", "round", "index", "mode", "start_ns", "duration_ns", "profiled",
                 "peak_memory_bytes")  # fmt: skip


def machine_for(device: Device) -> ModelledGpu:
    """The GPU with the constants of its architecture, see `constants_for`; CurvescopeError if the
    model has none.
    """
    _check(device)
    fitted = load_fitted().constants
    return ModelledGpu(device, constants_for(device.architecture, fitted))


def usual_library(device: Device) -> str:
    """The default library of a GPU; CurvescopeError if the model has no constants for its
    architecture.
    """
    _check(device)
    return _USUAL_LIBRARY[device.architecture]


def _check(device: Device) -> None:
    if device.architecture not in _USUAL_LIBRARY:
        libraries = ", ".join(_USUAL_LIBRARY)
        raise CurvescopeError(
            f"The cost model has no constants for {device.architecture} GPUs such as "
            f"{device.name}: choose one of {libraries} (`curvescope doctor --list devices`)."
        )


def model_steps(
    operations: Operations,
    name: str,
    batches: Sequence[int],
    device: Device,
    library: Library,
    kind: str,
    framework: Framework = FRAMEWORKS["torch"],
    precision: str = "fp32",
) -> Step:
    """Model the steps at every batch size, as `estimate_step`; CurvescopeError if one does not fit
    the memory.
    """
    machine = machine_for(device)
    step = estimate_step(
        operations, batches, machine, library, kind, framework=framework, precision=precision
    )
    if not step.fits.all():
        _refuse_memory(step, name, device)
    return step


def _refuse_memory(step: Step, name: str, device: Device) -> NoReturn:
    first = int(np.argmin(step.fits))
    batch = int(step.batches[first])
    needs = quantity(step.memory_bytes[first] + CONTEXT_BYTES, "B")
    has = quantity(device.memory_bytes, "B")
    advice = "Choose smaller ones."
    if step.fits.any():
        fitting = step.batches[step.fits]
        advice = f"Of these batch sizes {int(fitting.max())} is the largest that fits."
    raise CurvescopeError(
        f"The memory model says that {name} at batch {batch} needs {needs} without workspace, "
        f"and {device.name} has {has}. {advice}"
    )


def record_model(
    path: AnyPath,
    network: str,
    operations: Operations,
    batches: Sequence[int],
    device_name: str,
    library_name: str | None = None,
    kind: str = "training",
    framework_name: str = "torch",
    what_if: Mapping[str, float] | None = None,
    precision: str = "fp32",
) -> Step:
    """Write the modelled steps as a recording of source `model`; CurvescopeError if it cannot model
    or write them.

    Each batch size has one unprofiled and one profiled step of exactly the same duration: a model
    has no noise. Its error is added when the recording is read, by `uncertainty`. `what_if` has
    changed facts of the GPU, e.g. sm_count.
    """
    if kind not in MODES:
        modes = ", ".join(MODES)
        raise CurvescopeError(f"--mode {kind}: choose one of {modes}.")
    facts = dict(what_if or {})
    device = get_device(device_name).with_facts(facts)
    library = get_library(library_name or usual_library(device))
    if framework_name not in FRAMEWORKS:
        names = ", ".join(FRAMEWORKS)
        raise CurvescopeError(f"Unknown framework {framework_name!r}: choose from {names}.")
    framework = FRAMEWORKS[framework_name]
    step = model_steps(operations, network, batches, device, library, kind, framework, precision)
    labels = ["modelled", library.name, f"{framework_name} rules"]
    if precision != "fp32":
        labels.append(precision)
    for name, value in facts.items():
        labels.append(f"what if {name} were {value:,.0f}")
    joined = ", ".join(labels)
    label = f"{device.name} ({joined})"
    device_meta: dict[str, Any] = {"recording_type": MODEL, "name": label, "key": device.key}
    if facts:
        device_meta["what_if"] = facts
    meta = {
        "recording_type": MODEL,
        "recorder": MODEL,
        "argv": without_secrets(sys.argv[1:]),
        "network": network,
        "mode": kind,
        "precision": precision,
        "batches": [int(batch) for batch in batches],
        "protocol": {"name": "modelled, nothing was measured", "statistic": "median"},
        "device": device_meta,
        "library": library.name,
        "framework": framework_name,
        "versions": {"curvescope": version("curvescope")},
    }
    with RecordingWriter(path, meta) as writer:
        kernels, steps = _tables(step, kind)
        writer.write("kernels", kernels)
        writer.write("steps", steps)
    return step


def _tables(step: Step, kind: str) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """The columns of `kernels` and `steps`: at every batch size an unprofiled step, then a profiled
    one.
    """
    # both of shape (terms, batches)
    times_s = np.stack([term.time_s for term in step.terms])
    workspaces = np.stack([term.workspace_bytes for term in step.terms])
    durations = _nanoseconds(times_s)
    kernels_s = durations.sum(axis=0) * 1e-9
    walls = _nanoseconds(step.wall_s(kernels_s)).tolist()
    peaks = step.memory_bytes + workspaces.max(axis=0)
    kernels: list[tuple[Any, ...]] = []
    steps: list[tuple[Any, ...]] = []
    start_ns = 0
    for i, wall in enumerate(walls):
        batch, peak = int(step.batches[i]), int(peaks[i])
        for profiled in (False, True):
            visit = batch, 0, int(profiled), kind
            steps.append((len(steps), *visit, start_ns, wall, profiled, peak))
            start_ns += wall
        number = len(steps) - 1
        kernels += _kernels(step, i, durations[:, i], number, start_ns - wall, wall)
    return _columns(_KERNEL_COLUMNS, kernels), _columns(_STEP_COLUMNS, steps)


def _nanoseconds(time_s: Floats) -> npt.NDArray[np.int64]:
    return np.rint(time_s * 1e9).astype(np.int64)


def _kernels(
    step: Step, i: int, durations: npt.NDArray[np.int64], number: int, start_ns: int, wall_ns: int
) -> Iterator[tuple[Any, ...]]:
    """The kernels of the step at one batch size, with that number and start."""
    ends = start_ns + np.cumsum(durations)
    is_forward = [term.phase == "forward" for term in step.terms]
    forward_ns = durations[is_forward].sum()
    for term, end, duration in zip(step.terms, ends.tolist(), durations.tolist(), strict=True):
        start, stream = end - duration, 0
        if term.phase == "optimizer" and step.beside_s[i] > 0:
            # An update that runs beside the passes has a stream of its own, from the backward pass
            # on.
            offset = min(forward_ns, wall_ns - duration)
            start, stream = start_ns + int(offset), 1
        place = number, term.phase, term.layer, term.op
        flops = None
        if term.flops is not None:
            flops = int(term.flops[i])
        moved = int(term.bytes_compulsory[i])
        yield term.kernel[i], start, duration, 0, stream, *place, flops, moved, MODEL


def _columns(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    columns = zip(*rows, strict=True)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}
