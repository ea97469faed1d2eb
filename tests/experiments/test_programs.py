"""Experiments on a program as it is: what can be changed in it, and runs of it with a change."""

import importlib
import os
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from curvescope.base.errors import CurvescopeError
from curvescope.experiments import recorded_steps
from curvescope.experiments.budget import Budget
from curvescope.experiments.factor import Target
from curvescope.experiments.factors import COMMON, FACTORS
from curvescope.experiments.program_worker import (
    ProgramWorker,
    changes_of,
    fits_programs,
    variables_of,
)
from curvescope.profiling.collect.startup import program_changes
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.machine import check_same_machine, describe_machine
from curvescope.profiling.measure.protocol import EXPERIMENT
from curvescope.profiling.measure.visits import Empty, VisitPlan
from curvescope.profiling.recording.experiments import Scope, Stage
from curvescope.profiling.workload.program import Program

from ..tables import ask_each
from .planted_experiments import experiment_on_steps

KEPT = """
import os, sys, time
ms = 3 if "MALLOC_TRIM_THRESHOLD_" in os.environ else 7
for n in range(100_000):
    time.sleep(0.0005)
    print(f"step {n}: {ms * int(sys.argv[1])} ms", flush=True)
"""


def target_of(tmp_path, source):
    script = tmp_path / "train.py"
    script.write_text(source)
    program = Program((sys.executable, str(script), "{batch}"), step_line="step {n}: {ms} ms")
    return Target(Configuration.of_program(program, "batch", {}), (2, 4))


def test_a_factor_of_the_environment_runs_on_the_program(tmp_path):
    target = target_of(tmp_path, KEPT)
    runs = {
        name: ProgramWorker(target, name).visit(2, VisitPlan(EXPERIMENT)).unprofiled
        for name in (None, "kept_memory")
    }
    assert {name: {row["duration_ns"] for row in rows} for name, rows in runs.items()} == {
        None: {14_000_000},
        "kept_memory": {6_000_000},
    }
    processes = [{row["process"] for row in rows} for rows in runs.values()]
    assert [len(one) for one in processes] == [1, 1]
    assert processes[0] != processes[1]


def test_a_run_that_fails_is_a_result(tmp_path):
    found = ProgramWorker(target_of(tmp_path, "raise SystemExit('no data')"), None).visit(
        2, VisitPlan(EXPERIMENT)
    )
    assert isinstance(found, Empty)
    assert "no data" in found.detail


def test_every_change_in_a_programs_process_is_one_of_a_factor_and_the_other_way_round():
    made = {name for name, factor in FACTORS.items() if factor.is_made_in_programs}
    assert made == set(program_changes.NAMES)


def test_only_what_the_environment_or_a_hook_can_change_is_tried_on_a_program():
    budget = Budget(None, "cpu", 60.0, run_s=8.0)
    able = {name for name in COMMON if budget.fits(Scope.STEP, name)}
    assert able >= {
        "kept_memory",
        "fused_optimizer",
        "channels_last",
        "one_thread",
        "flush_denormal",
    }
    assert not able & {"inference_mode", "prepacked_linear", "other_layout", "cuda_graph"}
    assert not budget.fits(Scope.TERM, "kept_memory")
    assert not fits_programs(FACTORS["split_batch"])
    assert budget.fits(Scope.STEP, "loader_workers")
    assert not Budget(None, "cpu", 60.0).fits(Scope.STEP, "loader_workers")
    of_jax = Budget(None, "cpu", 60.0, run_s=8.0, framework="jax")
    assert {name for name in COMMON if of_jax.fits(Scope.STEP, name)} == {
        "kept_memory",
        "jax_one_thread",
        "jax_fast_math",
        "jax_tf32",
        "jax_without_jit",
    }


class Profiled:
    """A recorded program of two sizes, whose kernels are of the given phases."""

    def __init__(self, *phases):
        self.meta, self.phases = {}, phases

    def arrow(self, name, columns):
        rows = {"kernels": [{"phase": phase} for phase in self.phases]}.get(name, [])
        return pa.Table.from_pylist(rows, pa.schema([(column, pa.string()) for column in columns]))

    def rows(self, name, columns):
        return self.arrow(name, columns).to_pylist()


@pytest.mark.parametrize(
    ("phases", "fits"),
    [((None, "forward"), False), (("forward", "optimizer"), True), ((), True)],
)
def test_a_program_that_is_seen_to_infer_is_offered_no_form_of_an_optimizer(tmp_path, phases, fits):
    configuration = target_of(tmp_path, KEPT).configuration
    target = recorded_steps.target_of(Profiled(*phases), configuration, (2, 4))
    assert (COMMON["fused_optimizer"].reason_against(target) is None) is fits


def test_every_change_says_why_a_program_may_never_have_it():
    whys = {name: program_changes.why_not_made(name) for name in program_changes.NAMES}
    assert all(why.startswith("the program ") for why in whys.values())
    assert whys["fused_optimizer"] == "the program steps no optimizer of torch"


def test_a_change_that_a_program_never_had_did_not_run(tmp_path):
    """A program that infers was said to be measured with a fused optimizer."""
    found = ProgramWorker(target_of(tmp_path, KEPT), "kept_memory+loader_workers").visit(
        2, VisitPlan(EXPERIMENT)
    )
    assert isinstance(found, Empty)
    assert found.detail == "not made: the program iterates no DataLoader without workers"


def test_factors_that_are_changed_together_set_what_each_sets():
    name = "kept_memory+fused_optimizer+one_thread"
    assert variables_of(name) == {**variables_of("kept_memory"), "OMP_NUM_THREADS": "1"}
    assert changes_of(name) == ("fused_optimizer",)
    assert changes_of(None) == ()


def test_a_round_of_an_experiment_on_a_program_takes_a_run_for_each_variant_and_size():
    wanted = experiment_on_steps(Stage.CONFIRM, ["kept_memory"], (2, 4))
    curve = SimpleNamespace(
        conditions=(2, 4), points=[SimpleNamespace(time_ms=SimpleNamespace(value=1.0))] * 2
    )
    diagnosis = SimpleNamespace(curve=curve, terms=None, recorded=SimpleNamespace(groups={}))
    setup_s, round_s = Budget(diagnosis, "cpu", 600.0, run_s=8.0)._times_s(wanted)
    assert setup_s == 0.0
    assert 4 * 8.0 < round_s < 4 * 11.0


@pytest.fixture
def hooks(monkeypatch):
    """The hooks that a change registers, kept from the other tests of this process."""
    found = []
    registered = lambda hook: found.append(hook) or SimpleNamespace(remove=lambda: None)  # noqa: E731
    for module, name in (
        ("torch.optim.optimizer", "register_optimizer_step_pre_hook"),
        ("torch.nn.modules.module", "register_module_forward_pre_hook"),
    ):
        monkeypatch.setattr(importlib.import_module(module), name, registered)
    return found


def test_an_optimizer_is_fused_from_its_first_step_on(hooks):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], 0.1)
    refused = []
    made = []
    program_changes.apply(torch, ["fused_optimizer"], refused.append, made.append)
    (before_step,) = hooks
    before_step(optimizer)
    assert optimizer.param_groups[0]["fused"] is True
    assert optimizer.param_groups[0]["foreach"] is False
    before_step(optimizer)
    assert made == ["fused_optimizer"]
    before_step(torch.optim.SGD([nn.Parameter(torch.ones(2))], 0.1, fused=True))
    assert refused == ["SGD has fused=True already"]


@pytest.fixture
def loaded(monkeypatch):
    """Numbers of workers with which loaders begin to iterate, without any process of theirs."""
    found = []
    monkeypatch.setattr(DataLoader, "__iter__", lambda loader: found.append(loader.num_workers))
    return found


def test_a_loader_without_workers_gets_some_from_its_first_batch_on(loaded):
    made = []
    program_changes.apply(torch, ["loader_workers"], pytest.fail, made.append)
    iter_of = DataLoader.__iter__
    iter_of(DataLoader([1, 2, 3]))
    iter_of(DataLoader([1, 2, 3], num_workers=1))
    assert loaded == [len(os.sched_getaffinity(0)), 1]
    assert made == ["loader_workers"]


def test_a_loader_that_has_workers_or_reads_a_stream_is_left_as_it_is(loaded):
    class Stream(IterableDataset):
        """Each worker would read all of it again."""

        def __iter__(self):
            return iter(())

    made = []
    program_changes.apply(torch, ["loader_workers"], pytest.fail, made.append)
    DataLoader.__iter__(DataLoader(Stream()))
    DataLoader.__iter__(DataLoader([1, 2, 3], num_workers=1))
    assert loaded == [0, 1]
    assert made == []


def test_a_model_gets_its_images_channels_last(hooks):
    model, images = nn.Conv2d(3, 4, 3), torch.ones(2, 3, 8, 8)
    made = []
    program_changes.apply(torch, ["channels_last"], pytest.fail, made.append)
    (before_call,) = hooks
    (changed,) = before_call(model, (images,))
    assert made == ["channels_last"]
    assert changed.is_contiguous(memory_format=torch.channels_last)
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert model(images).is_contiguous(memory_format=torch.channels_last)


def test_a_program_without_images_refuses_channels_last(hooks):
    refused = []
    program_changes.apply(torch, ["channels_last"], refused.append, pytest.fail)
    hooks[0](nn.Linear(2, 2), ())
    assert refused == ["the program has no two-dimensional convolution"]


@ask_each(("program", "runs_again"), [(["train.py"], True), (None, False)])
def test_threads_that_a_program_sets_itself_are_no_other_device(program, runs_again):
    """A launcher, as torchrun, gives its processes one thread, and they have a Python of
    their own.
    """
    described = describe_machine("cpu")
    device = {**described.device, "threads": 64}
    versions = {**described.versions, "torch": "1.0"}
    meta = {"device": device, "versions": versions, "torch_device": "cpu", "program": program}
    if runs_again:
        assert check_same_machine(meta) == ()
    else:
        with pytest.raises(CurvescopeError, match="threads: 64 there"):
            check_same_machine(meta)
