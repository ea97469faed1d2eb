"""Rows of experiments with known times, and of the operators that they replay."""

from types import MappingProxyType

import numpy as np
import pandas as pd

from curvescope.analysis.verdicts.measurement import compare_rows, measure
from curvescope.analysis.verdicts.outcome import judge_steps, judge_terms
from curvescope.experiments.factors import all_facts
from curvescope.profiling.recording.experiments import Experiment, Scope, Stage
from curvescope.profiling.recording.operators import encode_arguments

FACTS = all_facts(Scope.TERM) | all_facts(Scope.STEP)

BEND_AT_4 = ((2, 2.0), (4, -3.0), (8, 1.0))
# Times of AlexNet's fc6 alone on two cores in ms (torch 2.13): as it is (MKL), and with one factor
# changed.
FC6_MS = {
    None: {1: 4.6, 2: 5.1, 4: 9.6, 8: 15.1},
    "onednn": {1: 5.3, 2: 6.9, 4: 7.4, 8: 8.6},
    "other_layout": {1: 5.3, 2: 9.8, 4: 9.8, 8: 10.5},
    "split_batch": {1: 4.8, 2: 9.4, 4: 18.7, 8: 36.8},
    "padded_batch": {1: 15.0, 2: 15.0, 4: 15.0, 8: 15.0},
    "one_thread": {1: 9.0, 2: 10.1, 4: 19.0, 8: 30.0},
}


def experiment(number=0, stage=Stage.CONFIRM, factors=("onednn",), **changed):
    """An experiment on fc6 forward, with its bend at 4."""
    values = {
        "scope": Scope.TERM,
        "functional": BEND_AT_4,
        "functional_kind": "bend",
        "batches": (2, 4, 8),
        "layer": "fc6",
        "phase": "forward",
        "done": True,
        **changed,
    }
    return Experiment(number=number, stage=stage, factors=tuple(factors), **values)


def experiment_on_steps(stage, factors, batches):
    """An experiment on the time of complete steps."""
    of_steps = {
        "scope": Scope.STEP,
        "functional": (),
        "functional_kind": "time",
        "layer": None,
        "phase": None,
    }
    return experiment(stage=stage, factors=factors, batches=batches, done=False, **of_steps)


def operator(batch, op, arguments=(), **others):
    """A row of the table `operators`."""
    entry = {
        "batch": batch,
        "layer": "fc",
        "phase": "forward",
        "op": op,
        "arguments": encode_arguments(arguments),
    }
    return {
        **entry,
        "calls": 1,
        "duration_ns": 1000,
        "kernels": None,
        "position": 0,
        "source": "torch",
        **others,
    }


def judge_all(measured, claims=MappingProxyType({})):
    """The outcome of every measurement, where the claims on complete steps are known."""
    return judge_steps(measured, judge_terms(measured), claims)


def outcomes_of(one, rows, facts, earlier=(), claims=None):
    """The outcomes of one experiment, beside those of earlier ones."""
    measured = [measurement for measurement, _ in measure(one, compare_rows(one, rows), facts)]
    return list(judge_all([*earlier, *measured], claims or {})[len(earlier) :])


def rows_of(one, times_ms, rounds=10, noise=0.02, per_visit=3, seed=0, slow=0.0):
    """Rows of the table `experiments`.

    `times_ms` has, by factor (None for none), the time at each batch size: a mapping, or a
    function. `noise` is the standard deviation of the logarithm of a run's time; in a share `slow`
    of the visits a third is added. Processes of complete steps start anew after every second round,
    or each, if the experiment has one after a start.
    """
    random, rows = np.random.default_rng(seed), []
    for round_ in range(rounds):
        for factor in (None, *one.factors):
            if factor in one.untested or (factor in FACTS and FACTS[factor].by_size):
                continue
            of_factor = times_ms[factor]
            for batch in one.batches if factor else one.unmodified:
                time_ms = of_factor(batch) if callable(of_factor) else of_factor[batch]
                time_ms *= 1.33 if slow and random.random() < slow else 1.0
                for index in range(per_visit):
                    duration_ns = round(time_ms * 1e6 * np.exp(noise * random.standard_normal()))
                    rows.append((one.number, factor, batch, round_, index, duration_ns))
    table = pd.DataFrame(
        rows, columns=["experiment", "factor", "batch", "round", "index", "duration_ns"]
    )
    return (
        table.assign(process=table["round"] // min(one.rounds[0], 2))
        if one.scope == Scope.STEP
        else table
    )
