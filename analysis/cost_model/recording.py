"""Records modelled steps: the model's kernels for a GPU, in the tables of every recording."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

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

# Default library by architecture: the library of the published times.
_USUAL_LIBRARY = {
    "kepler": "cudnn5", "maxwell": "cudnn5", "pascal": "cudnn5.1", "volta": "cudnn7", "turing": "cudnn7.6",
    **dict.fromkeys(("ampere", "ada", "hopper", "blackwell"), "cudnn8"),
}  # fmt: skip
_KERNEL_COLUMNS = ("name", "start_ns", "duration_ns", "device", "stream", "step", "phase", "layer", "op", "flops",
                   "bytes_compulsory", "source")  # fmt: skip
_STEP_COLUMNS = (
    "step",
    "batch",
    "round",
    "index",
    "mode",
    "start_ns",
    "duration_ns",
    "profiled",
    "peak_memory_bytes",
)


def machine_for(device: Device) -> ModelledGpu:
    """The GPU with the constants of its architecture, see `constants_for`; CurvescopeError if the
    model has none.
    """
    _check(device)
    return ModelledGpu(device, constants_for(device.architecture, load_fitted().constants))


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
        needs_bytes = step.memory_bytes[~step.fits][0] + CONTEXT_BYTES
        fitting = [int(batch) for batch in step.batches[step.fits]]
        raise CurvescopeError(
            f"The memory model says that {name} at batch {int(step.batches[~step.fits][0])} needs "
            f"{quantity(needs_bytes, 'B')} without workspace, and {device.name} has "
            f"{quantity(device.memory_bytes, 'B')}. "
            + (
                f"Of these batch sizes {max(fitting)} is the largest that fits."
                if fitting
                else "Choose smaller ones."
            )
        )
    return step


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
    """Write the modelled steps as a recording of source `model`; CurvescopeError for what it cannot
    model or write.

    Each batch size has one unprofiled and one profiled step of exactly the same duration: a model
    has no noise. Its error is added when the recording is read, by `uncertainty`. `what_if` has
    changed facts of the GPU, e.g. sm_count.
    """
    if kind not in MODES:
        raise CurvescopeError(f"--mode {kind}: choose one of {', '.join(MODES)}.")
    device = get_device(device_name).with_facts(what_if or {})
    library = get_library(library_name or usual_library(device))
    if framework_name not in FRAMEWORKS:
        raise CurvescopeError(
            f"Unknown framework {framework_name!r}: choose from {', '.join(FRAMEWORKS)}."
        )
    framework = FRAMEWORKS[framework_name]
    step = model_steps(operations, network, batches, device, library, kind, framework, precision)
    labels = ["modelled", library.name, f"{framework_name} rules"]
    labels += [precision] if precision != "fp32" else []
    labels += [f"what if {name} were {value:,.0f}" for name, value in (what_if or {}).items()]
    meta = {
        "recording_type": MODEL,
        "recorder": MODEL,
        "argv": without_secrets(sys.argv[1:]),
        "network": network,
        "mode": kind,
        "precision": precision,
        "batches": [int(batch) for batch in batches],
        "protocol": {"name": "modelled, nothing was measured", "statistic": "median"},
        "device": {
            "recording_type": MODEL,
            "name": f"{device.name} ({', '.join(labels)})",
            "key": device.key,
            **({"what_if": dict(what_if)} if what_if else {}),
        },
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
    durations = np.rint(np.stack([term.time_s for term in step.terms]) * 1e9).astype(
        np.int64
    )  # (terms, batches)
    wall_ns = np.rint(step.wall_s(durations.sum(axis=0) * 1e-9) * 1e9).astype(np.int64)
    peaks = step.memory_bytes + np.max([term.workspace_bytes for term in step.terms], axis=0)
    kernels: list[tuple[Any, ...]] = []
    steps: list[tuple[Any, ...]] = []
    start_ns = 0
    for i, (batch, wall) in enumerate(zip(step.batches, wall_ns.tolist(), strict=True)):
        for profiled in (False, True):
            number = len(steps)
            steps.append(
                (
                    number,
                    int(batch),
                    0,
                    int(profiled),
                    kind,
                    start_ns,
                    wall,
                    profiled,
                    int(peaks[i]),
                )
            )
            if profiled:
                starts = start_ns + np.cumsum(durations[:, i]) - durations[:, i]
                # An update that runs beside the passes has a stream of its own, from the backward
                # pass on.
                beside = [
                    int(term.phase == "optimizer" and step.beside_s[i] > 0) for term in step.terms
                ]
                forward_ns = durations[[term.phase == "forward" for term in step.terms], i].sum()
                starts = np.where(
                    beside, start_ns + np.minimum(forward_ns, wall - durations[:, i]), starts
                )
                kernels += [
                    (term.kernel[i], start, duration, 0, stream, number, term.phase, term.layer, term.op,
                     None if term.flops is None else int(term.flops[i]), int(term.bytes_compulsory[i]), MODEL)
                    for term, start, duration, stream in zip(
                        step.terms, starts.tolist(), durations[:, i].tolist(), beside, strict=True)
                ]  # fmt: skip
            start_ns += wall
    return _columns(_KERNEL_COLUMNS, kernels), _columns(_STEP_COLUMNS, steps)


def _columns(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
