"""One recording of a comparison, prepared so that its times can be set beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from .cost_model.errors import Model, draw_errors_of_rows, model_curve, model_terms
from .decompose.curve import UNKNOWN as NO_BATCH
from .decompose.curve import Curve, cost_curve
from .decompose.marked import step_times
from .decompose.statistics import Floats
from .decompose.terms import IDLE, Terms, estimate_terms
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
    model: Model | None = None  # what predicted its times; None if they were measured
    # of modelled times: possible factors of each row of `kernel_times`, shape (replicates, rows)
    errors: Floats | None = None
    # of the first steps from one seed, None for one that is not finite; empty if unknown
    losses: tuple[float | None, ...] = ()

    def terms(self, kernel_times: pd.DataFrame) -> Terms:
        """The terms of rows of `kernel_times`, whose layers and phases may be others."""
        if self.errors is None:
            return estimate_terms(kernel_times, self.steps, statistic=self.curve.paces.statistic)
        return model_terms(kernel_times, self.errors[:, kernel_times.index])

    def longest_kernel(self, batch: int) -> str | None:
        """The kernel with most time at a batch size; None if none was recorded."""
        of_batch = self.kernel_times["batch"] == batch
        is_there = of_batch & (self.kernel_times["name"] != IDLE)
        times = self.kernel_times[is_there]
        if times.empty:
            return None
        return str(times.groupby("name")["exclusive_ms"].sum().idxmax())


def prepare_sides(
    names: Sequence[str],
    recordings: Sequence[Recording],
    steps: Sequence[pd.DataFrame] | None = None,
) -> list[Side]:
    """Prepare recordings, or a part of the steps of each, for comparison, with the columns by which
    rows are aligned.
    """
    if steps is None:
        steps = [recording.frame("steps") for recording in recordings]
    judged = [judge_steps(*pair) for pair in zip(recordings, steps, strict=True)]
    tables = [_step_times(*pair) for pair in zip(recordings, judged, strict=True)]
    models = []
    for recording in recordings:
        models.append(Model.of(recording.meta) if is_modelled(recording.meta) else None)
    errors = _draw_errors(tables, models)
    sides = []
    for place, recording in enumerate(recordings):
        made = side(
            names[place],
            recording.meta,
            judged[place],
            tables[place],
            recording.statistic,
            recording.frame("clocks"),
            models[place],
            errors[place],
        )
        sides.append(made)
    return sides


def _step_times(recording: Recording, steps: pd.DataFrame) -> pd.DataFrame:
    """Times in the steps; of modelled ones a row for each kernel with its work."""
    if is_modelled(recording.meta):
        keys = (*ALIGNMENT_COLUMNS, "start_ns")
        table = step_times(recording, steps, keys, by_instance=True).table
    else:
        table = step_times(recording, steps, ALIGNMENT_COLUMNS, (), by_instance=True).table
    return table.reset_index(drop=True)


def _draw_errors(
    tables: Sequence[pd.DataFrame], models: Sequence[Model | None]
) -> list[Floats | None]:
    """The errors of each modelled table; those of one model have the same for the same kernel."""
    drawn: list[Floats | None] = [None] * len(tables)
    for model in {model for model in models if model is not None}:
        places = [place for place, other in enumerate(models) if other == model]
        errors = draw_errors_of_rows([tables[place] for place in places], model)
        for place, of_table in zip(places, errors, strict=True):
            drawn[place] = of_table
    return drawn


def side(
    name: str,
    meta: Mapping[str, Any],
    steps: pd.DataFrame,
    kernel_times: pd.DataFrame = _NO_KERNELS,
    statistic: str = "median",
    clocks: pd.DataFrame | None = None,
    model: Model | None = None,
    errors: Floats | None = None,
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
    if errors is not None:
        curve = model_curve(model_terms(kernel_times, errors))
    elif not steps["profiled"].all():
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
    run = None if together is None else together["run"]
    losses = meta.get("losses") or ()
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
        run=run,
        model=model,
        errors=errors,
        losses=tuple(losses),
    )


def _main_precision(kernel_times: pd.DataFrame) -> str | None:
    """The precision of the products with most time, by the names of their kernels; None if no name
    says one.
    """
    names = kernel_times["name"]
    precisions = names.map({name: kernel_precision(str(name)) for name in names.unique()})
    times = kernel_times["exclusive_ms"].groupby(precisions).sum().drop(UNKNOWN, errors="ignore")
    if len(times):
        return str(times.idxmax())
    return None


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
    device = meta.get("device") or {}
    versions = meta.get("versions") or {}
    values = {key: meta.get(key) for key in _SETTINGS}
    values["times"] = "modelled" if is_modelled(meta) else "measured"
    values["protocol"] = (meta.get("protocol") or {}).get("name")
    for key in ("threads", "cuda", "cudnn"):
        values[f"device.{key}"] = device.get(key)
    for key, value in versions.items():
        if key != "curvescope":
            values[f"versions.{key}"] = value
    return {key: str(value) for key, value in values.items() if value is not None}
