"""Measures a workload with progress on standard error, for the command `diagnose` and for
`curvescope.diagnose`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .analysis.render import terminal
from .base.arguments import (
    CUDA_EXPERIMENTS_S,
    FAST_TOTAL_S,
    LEAST_EXPERIMENTS_S,
    PROBE_SHARE,
    TOTAL_S,
    default_experiments_s,
    duration_text,
    total_s,
)
from .base.counted import counted
from .base.errors import CurvescopeError
from .base.sizes import list_sizes
from .base.torch_runtime import load_torch, pick_device
from .profiling.measure.protocol import PROTOCOLS, Protocol, get_protocol
from .profiling.recording.axis import Axis, axis_of
from .profiling.recording.remote_store import AnyPath, as_path

_FAST_S = FAST_TOTAL_S - LEAST_EXPERIMENTS_S  # for rounds of fast steps

if TYPE_CHECKING:
    from .analysis.diagnosis.result import Diagnosis
    from .profiling.measure.sites.site import SweptSite
    from .profiling.measure.stopping import StoppingRule
    from .profiling.measure.sweep import Precise


def diagnose(
    make_step: Callable[..., Callable[[], object]],
    batches: Sequence[int] = (1, 2, 4, 8, 16, 32),
    *,
    module: Any = None,
    device: str | None = None,
    axis: str = "batch",
    fixed: Mapping[str, int] | None = None,
    cuda_graph: bool = False,
    name: str | None = None,
    protocol: Protocol | str = "default",
    time_limit_s: float | None = None,
    experiments_s: float | None = None,
    curvature: str = "log2",
    output: str | Path | None = None,
    probe: float = PROBE_SHARE,
) -> Diagnosis:
    """Measure a step of your own over batch sizes, explain its cost curve, and test the causes by
    experiment.

    The recording is in `runs/DATE_NAME`, or in `output`; its path is printed on standard error.
    `curvescope explain` reads it later.

    Args:
        make_step: function of a batch size that returns a function that runs one step. The step is
            your model, data, loss, optimizer, precision and compilation. If it has a method
            `close`, this is called when another batch size follows.
        batches: batch sizes, or values of another axis, increasing.
        module: torch module whose layers are named; default: the attribute `module` of the step or
            of `make_step`. Without a module, kernels have operators and no layers. Experiments run
            in other processes, which know this module only if it is a variable of the file that
            defines `make_step`.
        device: `cpu`, `cuda` or `cuda:N`; default: the one that the step uses.
        axis: name of the argument of `make_step` that `batches` are for, e.g. tokens. Any name but
            batch is passed by name.
        fixed: values of other arguments of `make_step`, by name.
        cuda_graph: whether a step of each batch size is captured as a CUDA graph and its replays
            are measured.
        name: name of the recording; default: the name of the function.
        protocol: name of a protocol, e.g. quick, or a `Protocol`.
        time_limit_s: seconds to measure; None for the protocol's own.
        experiments_s: time limit of the experiments after it, seconds; 0 for none. None: the rest
            of 140 s after measuring, of 80 s where steps take under 20 ms, and on a GPU 180 s. With
            another time limit, in proportion. `confirm` makes more of them later.
        curvature: axis of curvatures: log2, linear or throughput.
        output: folder to create for the recording.
        probe: share of the time to measure in which sizes between `batches` are probed for jumps; 0
            for none.

    Raises:
        CurvescopeError: `make_step` returns no step, no batch size can be measured, a value is out
            of range, or the step cannot be a CUDA graph.
    """
    from .analysis.diagnosis.explain import explain
    from .profiling.measure.graphed_steps import GraphedSteps
    from .profiling.measure.sites.process import Rounds
    from .profiling.recording.store import new_recording_path, open_recording
    from .profiling.workload.own_step import OwnStep

    _check(make_step, batches)
    how = get_protocol(protocol) if isinstance(protocol, str) else protocol
    if time_limit_s is not None:
        how = replace(how, time_limit_s=time_limit_s)
    load_torch()
    steps = OwnStep(
        make_step,
        None if device is None else pick_device(device),
        name=name,
        module=module,
        axis=Axis(axis),
        fixed=fixed,
    )
    workload = GraphedSteps(steps) if cuda_graph else steps
    path = new_recording_path(workload.name) if output is None else as_path(str(output))
    site = Rounds(workload)
    measure(site, sorted(set(batches)), how, path, lambda _: experiments_s, probe_share=probe)
    return explain(open_recording(path), curvature)


def _check(make_step: object, batches: Sequence[int]) -> None:
    """Refuse arguments that `diagnose` cannot measure."""
    from .profiling.workload.own_step import refuse_while_importing

    refuse_while_importing()
    if not callable(make_step):
        raise CurvescopeError(
            f"make_step is {make_step!r}: give a function that takes a batch size."
        )
    if not batches or not all(map(_is_count, batches)):
        raise CurvescopeError(f"batches={batches!r}: give whole numbers, at least 1.")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def measure(
    site: SweptSite,
    values: Sequence[int],
    protocol: Protocol,
    path: AnyPath,
    experiments_s_of: Callable[[str], float | None],
    precise: Precise = lambda _: False,
    probe_share: float = 0.0,
    *,
    complete: bool = False,
) -> None:
    """Measure one curve in this process and record it, then run experiments; with the curve so far
    on stderr.

    Args:
        site: the place whose steps are measured.
        values: values of its axis, increasing.
        protocol: how to measure.
        path: folder to create for the recording.
        experiments_s_of: gives the time limit of the experiments on a device, seconds; 0 for none,
            None for what measuring leaves, see `base.arguments.total_s`.
        precise: whether the rows of `steps` so far are precise enough; asked after each round.
        probe_share: share of the time in which sizes between the values are probed; a published
            protocol has no probes.
        complete: whether rounds visit every value until the end of the protocol, whatever is
            decided by then.

    Raises:
        CurvescopeError: see `run_sweep`.
        KeyboardInterrupt: passed on; the measured data is kept.
    """
    from .analysis.render.live import LiveCurve
    from .experiments.confirming import confirm_with_bars
    from .experiments.focusing import Focused, all_fast, choose_rule
    from .profiling.hardware.neighbours import find_neighbours
    from .profiling.hardware.register import register
    from .profiling.measure.sites.site import ONE_VISIT
    from .profiling.measure.stopping import Complete, Until
    from .profiling.measure.sweep import run_sweep
    from .profiling.recording.store import open_recording

    site.begin(values, protocol, path)
    spec = site.spec
    device, limit_s = spec["torch_device"], protocol.time_limit_s
    experiments_s = experiments_s_of(device)
    if experiments_s is None and limit_s is None:
        experiments_s = default_experiments_s(device)
    ends_s = time.monotonic() + (total_s(device, limit_s) if limit_s else math.inf)
    fixed = "".join(f", {name} {value}" for name, value in spec["fixed"].items())
    messages = terminal.console(stderr=True)
    messages.print(
        f"Measuring {spec['network']} ({spec['mode']} step), {axis_of(spec).name} "
        f"{list_sizes(values)}{fixed}, "
        f"on {_device_of(site)}: "
        f"{_duration(device, limit_s, experiments_s, protocol)}, into {path}."
    )
    # Fast steps need less of the usual time, but for those of a program: its runs take it.
    is_kept = site.facts().kept != ONE_VISIT
    is_usual = limit_s == PROTOCOLS["default"].time_limit_s and is_kept
    if complete:
        rule: StoppingRule[int] = Complete[int].of(protocol)
    else:
        rule = choose_rule(protocol, path, _FAST_S if is_usual else math.inf)

    def deciding() -> str | None:
        return rule.deciding if isinstance(rule, Focused) else None

    if (neighbours := find_neighbours(device)) is not None:
        messages.print(neighbours.sentence, style="yellow")
    with (
        register(f"{spec['network']} into {path}"),
        LiveCurve(protocol.statistic, axis_of(spec), deciding, _then(experiments_s)) as view,
    ):
        try:
            probe_s = 0.0 if protocol.is_fixed else probe_share * (limit_s or 0.0)
            run_sweep(
                site,
                values,
                protocol,
                path,
                view.report,
                Until(rule, precise),
                probe_s=probe_s,
            )
        except KeyboardInterrupt:
            view.console.print("Interrupted. The measured data is kept, and this reads it:")
            terminal.print_commands(view.console, f"curvescope explain {path}")
            raise
    if experiments_s is None:
        recorded = open_recording(path).arrow("steps", ["batch", "profiled", "duration_ns"])
        on_gpu = device != "cpu"
        if is_usual and not on_gpu and all_fast(recorded.to_pylist()):
            ends_s -= TOTAL_S - FAST_TOTAL_S
        experiments_s = max(ends_s - time.monotonic(), 0.0)
        if on_gpu:
            experiments_s = min(experiments_s, CUDA_EXPERIMENTS_S)
    if experiments_s:
        try:
            confirm_with_bars(path, experiments_s)
        except CurvescopeError as error:  # the curve is explained without experiments
            messages.print(f"No experiments: {error}", style="yellow")


def _device_of(site: SweptSite) -> str:
    """The device in words; a framework of a program may have told another GPU."""
    from .profiling.hardware.host import describe_device

    name = site.spec["torch_device"]
    here = describe_device(name)
    device = site.machine_entry({"device": here, "versions": {}})["device"]
    is_here = device["kind"] == here["kind"]
    return f"{device['name']} ({name})" if is_here else str(device["name"])


def _duration(
    device: str,
    limit_s: float | None,
    experiments_s: float | None,
    protocol: Protocol,
) -> str:
    """The duration of a run, in words."""
    then = _then(experiments_s)
    if limit_s is None:
        sweep = f"{counted(protocol.rounds[0], 'round')} without a time limit"
    else:
        sweep = f"what fits {duration_text(limit_s)}, the largest first"
        if experiments_s is None:
            then = f"experiments, at most {duration_text(total_s(device, limit_s))} in all"
    return f"{sweep}, then {then}" if then else sweep


def _then(experiments_s: float | None) -> str:
    """The part after the sweep, in words."""
    if experiments_s is None:
        return "experiments"
    return f"up to {duration_text(experiments_s)} of experiments" if experiments_s else ""
