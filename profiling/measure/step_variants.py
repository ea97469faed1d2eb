"""Experiments on complete steps: unprofiled steps with one factor changed at a time, in interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..recording.experiments import Experiment, record_experiment
from ..recording.store import Recording, RecordingWriter
from .experiment import Progress
from .step_factors import STEP_FACTORS


def run_step(
    recording: Recording,  # noqa: ARG001
    experiment: Experiment,
    writer: RecordingWriter,
    report: Callable[[Progress], object] = lambda _: None,  # noqa: ARG001
    clock_s: Callable[[], float] = time.monotonic,  # noqa: ARG001
) -> Experiment:
    """Run an experiment on complete steps and record its timed steps.

    Args:
        recording: recording whose steps are changed; its `recording.json` says how to build them.
        experiment: what to run, with scope `step`.
        writer: writer that extends the recording.
        report: receives the progress after every visit.
        clock_s: clock of the time limit.

    Returns:
        The experiment as recorded: factors that could not be changed, changed results and notes are filled in.

    Raises:
        CurvescopeError: the recording cannot be written.
        KeyboardInterrupt: passed on; the timed steps so far are recorded.
    """
    why = "experiments on complete steps cannot run yet"
    untested = {name: why if name in STEP_FACTORS else "there is no such factor" for name in experiment.factors}
    done = Experiment(**{**vars(experiment), "untested": untested, "done": True})
    record_experiment(writer, done)
    return done
