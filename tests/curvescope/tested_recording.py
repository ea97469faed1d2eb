"""A recording with a bend and a fixed cost whose causes were tested by experiment; all times are
made up.

The step has the times of AlexNet's fc6 alone on two cores (torch 2.13), which bends at 4, beside
straight layers, and a fixed cost of page faults that goes away with kept memory.
"""

import numpy as np

from curvescope.analysis.decompose.functionals import fixed_cost
from curvescope.experiments.factors import all_facts
from curvescope.profiling.recording.experiment_entries import record_experiment
from curvescope.profiling.recording.experiments import Scope, Stage
from curvescope.profiling.recording.store import RecordingWriter

from ..analysis.synthetic import sweep
from ..experiments.planted_experiments import FC6_MS, experiment, rows_of
from .recordings import META, rows_of_table

BATCHES = (1, 2, 4, 8)
GRID_MS = {2: 5.1, 3: 9.1, 4: 9.6, 5: 11.3, 6: 12.1, 7: 13.9, 8: 15.1}
FAULTS_MS = 30.0  # per step, at every batch size
FAULTS = 53_250


def layers(batch):
    """The kernels of one step, as `sweep` takes them."""
    moved = {"bytes_compulsory": 10**8}
    return [
        ("conv1", "forward", "jit_avx512_core", 4.0 + 2.0 * batch, moved),
        ("fc6", "forward", "mkl_sgemm", FC6_MS[None][batch], moved),
        ("fc6", "backward", "mkl_sgemm", 5.0 + 2.0 * batch, moved),
        (None, "optimizer", "add", FAULTS_MS, moved),
    ]


def step_ms(batch):
    """Time of a step."""
    return sum(time_ms for _, _, _, time_ms, _ in layers(batch)) + 1.0


def write_tested(path, **meta):
    """Write the recording; `meta` changes entries of `recording.json`."""
    random = np.random.default_rng(1)
    steps, kernels = sweep(
        step_ms, layers, random, batches=BATCHES, noise=0.003, drift=0.004, spikes=0.0
    )
    steps = steps.assign(
        cpu_time_ns=steps["duration_ns"] * 2,
        system_time_ns=int(2e6 * FAULTS_MS),
        page_faults=FAULTS,
        run_queue_wait_ns=0,
    )
    entries = {
        **META,
        "network": "alexnet",
        "device": {"name": "AMD EPYC 7B13", "kind": "cpu", "threads": 2},
        "torch_device": "cpu",
        "batches": list(BATCHES),
        "layer_classes": {"conv1": "Conv2d", "fc6": "Linear"},
        **meta,
    }
    with RecordingWriter(path, entries) as writer:
        writer.write("steps", rows_of_table("steps", steps))
        writer.write("kernels", rows_of_table("kernels", kernels))
        for one, facts, rows in _experiments():
            writer.write("experiments", rows_of_table("experiments", rows))
            record_experiment(writer, one, facts)
    return path


def _experiments():
    """Each experiment with the facts on its factors and its rows."""
    call, whole_step = all_facts(Scope.TERM), all_facts(Scope.STEP)
    alone = experiment(0, Stage.ALONE, ())
    yield alone, (), rows_of(alone, FC6_MS)
    grid = experiment(1, Stage.GRID, (), batches=tuple(GRID_MS))
    yield grid, (), rows_of(grid, {None: GRID_MS}, seed=1)
    names = ("onednn", "one_thread", "padded_batch", "channels_last")
    untested = {"channels_last": "no operand is an image"}
    changed = experiment(
        2, Stage.CONFIRM, names, untested=untested, notes=("1 of 3 operators was not rebuilt.",)
    )
    yield changed, [call[name] for name in names], rows_of(changed, FC6_MS, seed=2, noise=0.012)
    on_step = {"scope": Scope.STEP, "layer": None, "phase": None, "batches": BATCHES}
    whole = {None: step_ms, "kept_memory": lambda batch: step_ms(batch) - FAULTS_MS}
    fixed = fixed_cost(1, 2)
    kept = experiment(
        3,
        Stage.REMEDY,
        ("kept_memory",),
        functional=fixed.coefficients,
        functional_kind=fixed.kind,
        **on_step,
    )
    yield kept, [whole_step["kept_memory"]], rows_of(kept, whole, seed=3, noise=0.004)
    times = {None: step_ms, "no_onednn": step_ms}
    ran = experiment(4, Stage.REMEDY, ("no_onednn",), **on_step)
    yield (ran, [whole_step["no_onednn"]], rows_of(ran, times, seed=4, noise=0.004))
