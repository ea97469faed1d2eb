"""One recording of a comparison, prepared so that its times can be set beside others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ..base.errors import CurvescopeError
from ..base.words import UNKNOWN
from ..profiling.attribution.kernel_precision import kernel_precision
from ..profiling.hardware.limits import Hardware, hardware_of
from ..profiling.recording.disturbed import with_set_aside
from ..profiling.recording.store import STEP, TOGETHER, Recording, is_modelled, unit_of
from .aligned_rows import ALIGNMENT_COLUMNS
from .causes.context import mean_clock
from .decompose.curve import UNKNOWN as NO_BATCH
from .decompose.curve import Curve, cost_curve
from .decompose.marked import step_times
from .decompose.terms import IDLE, estimate_terms
from .decompose.warm_up import judge_steps

_NO_KERNELS = pd.DataFrame(columns=["name", "layer", "phase", "batch", "step", "exclusive_ms"])
_SETTINGS = ("network", "mode", "precision", "compiled", "graphed", "imported_from")


@dataclass(frozen=True, kw_only=True)
class Side:
    """One recording in a comparison."""

    name: str
    hardware: Hardware  # limits of its device
    curve: Curve  # its cost curve; that of the profiled steps if no step ran unprofiled
    steps: pd.DataFrame  # its `steps` table
    kernel_times: pd.DataFrame  # exclusive times that `kernel_times` returns
    settings: Mapping[str, str]  # configuration as text: network, precision, versions
    # class of each layer, by path; empty if unknown
    layer_classes: Mapping[str, str] = field(default_factory=dict)
    # mean SM clock by batch size; empty on a CPU, whose cores differ, and if unknown
    clocks_hz: Mapping[Any, float] = field(default_factory=dict)
    unit: str = STEP  # what the times are of, see `Recording.unit`
    # the run in which it was measured together with others; None alone. Its rounds are processes
    # then.
    run: str | None = None

    def longest_kernel(self, batch: int) -> str | None:
        """The kernel with most time at a batch size; None if none was recorded."""
        is_there = (self.kernel_times["batch"] == batch) & (self.kernel_times["name"] != IDLE)
        times = self.kernel_times[is_there]
        if times.empty:
            return None
        return str(times.groupby("name")["exclusive_ms"].sum().idxmax())


def prepare_side(name: str, recording: Recording, steps: pd.DataFrame) -> Side:
    """Prepare a recording, or a part of its steps, for comparison, with the columns by which rows
    are aligned.
    """
    steps = judge_steps(recording, steps)
    times = step_times(recording, steps, ALIGNMENT_COLUMNS, (), by_instance=True).table
    return side(name, recording.meta, steps, times, recording.statistic, recording.frame("clocks"))


def side(
    name: str,
    meta: Mapping[str, Any],
    steps: pd.DataFrame,
    kernel_times: pd.DataFrame = _NO_KERNELS,
    statistic: str = "median",
    clocks: pd.DataFrame | None = None,
) -> Side:
    """Prepare a recording for comparison, from its `recording.json` and tables; CurvescopeError if
    it has no step.
    """
    if steps.empty:
        raise CurvescopeError(
            f"{name} has no step: there is nothing to compare. Record or import one with steps."
        )
    together = meta.get(TOGETHER)
    if together is not None:
        # the process is the unit of resampling, and what disturbs is seen by visit
        steps = with_set_aside(steps)
        steps = steps.assign(round=steps["round"] // together["rounds_of_process"])
    has_batch = steps["batch"].notna()
    if has_batch.any():
        steps = steps[has_batch]
        kernel_times = kernel_times[kernel_times["batch"].notna()]
    else:
        steps, kernel_times = steps.assign(batch=NO_BATCH), kernel_times.assign(batch=NO_BATCH)
    if not steps["profiled"].all():
        curve = cost_curve(steps, statistic)
    elif kernel_times.empty:
        raise CurvescopeError(
            f"{name} has no step that is timed: there is nothing to compare. Record or import one "
            "with the times of its kernels."
        )
    else:
        curve = estimate_terms(kernel_times, steps).curve(steps)
    stated = meta.get("precision") or _main_precision(kernel_times)
    hardware = hardware_of({**meta, "precision": stated})
    return Side(
        name=name,
        hardware=hardware,
        curve=curve,
        steps=steps,
        kernel_times=kernel_times,
        settings=_settings(meta),
        layer_classes=meta.get("layer_classes") or {},
        clocks_hz=_clocks(hardware, steps, clocks),
        unit=unit_of(meta),
        run=None if together is None else together["run"],
    )


def _main_precision(kernel_times: pd.DataFrame) -> str | None:
    """The precision of the products with most time, by the names of their kernels; None if no name
    says one.
    """
    names = kernel_times["name"]
    precisions = names.map({name: kernel_precision(str(name)) for name in names.unique()})
    times = kernel_times["exclusive_ms"].groupby(precisions).sum().drop(UNKNOWN, errors="ignore")
    return str(times.idxmax()) if len(times) else None


def _clocks(
    hardware: Hardware, steps: pd.DataFrame, clocks: pd.DataFrame | None
) -> dict[Any, float]:
    means: dict[Any, float] = {}
    for batch, of_batch in steps.groupby("batch") if hardware.kind != "cpu" else ():
        hertz, *_ = mean_clock(of_batch, clocks)
        if hertz is not None:
            means[batch] = hertz
    return means


def _settings(meta: Mapping[str, Any]) -> dict[str, str]:
    """Settings that may explain a difference, as text; unknown ones are left out."""
    device, versions = meta.get("device") or {}, meta.get("versions") or {}
    values = {key: meta.get(key) for key in _SETTINGS}
    values["times"] = "modelled" if is_modelled(meta) else "measured"
    values["protocol"] = (meta.get("protocol") or {}).get("name")
    for key in ("threads", "cuda", "cudnn"):
        values[f"device.{key}"] = device.get(key)
    for key, value in versions.items():
        if key != "curvescope":
            values[f"versions.{key}"] = value
    return {key: str(value) for key, value in values.items() if value is not None}
