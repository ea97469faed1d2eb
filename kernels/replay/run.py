"""Experiments on one term alone: its operator calls run with one factor changed at a time, in interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ...profiling.measure.experiment import Progress
from ...profiling.recording.experiments import Experiment, record_experiment
from ...profiling.recording.store import Recording, RecordingWriter


def run_term(
    recording: Recording,  # noqa: ARG001
    experiment: Experiment,
    writer: RecordingWriter,
    report: Callable[[Progress], object] = lambda _: None,  # noqa: ARG001
    clock_s: Callable[[], float] = time.monotonic,  # noqa: ARG001
) -> Experiment:
    """Run an experiment on the operator calls of one term and record its timed runs.

    Args:
        recording: recording with the calls in its table `operators`.
        experiment: what to run, with scope `term`.
        writer: writer that extends the recording.
        report: receives the progress after every visit.
        clock_s: clock of the time limit.

    Returns:
        The experiment as recorded: factors that could not be changed, changed results and notes are filled in.

    Raises:
        CurvescopeError: the recording's device is missing here, or the recording cannot be written.
        KeyboardInterrupt: passed on; the timed runs so far are recorded.
    """
    why = "experiments on a term alone cannot run yet"
    done = replace(experiment, untested=dict.fromkeys(experiment.factors, why), notes=(why,), done=True)
    record_experiment(writer, done)
    return done
