"""The next experiment worth its time, from the diagnosis and the experiments made so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...profiling.recording.experiments import Experiment
from ...profiling.recording.store import Recording
from ..decompose.terms import Share

if TYPE_CHECKING:
    from ..decompose.anomalies import Diagnosis


def next_experiment(recording: Recording, time_left_s: float) -> Experiment | None:
    """The next experiment to run; None if nothing is left to test, or nothing of it fits the time.

    It looks at the entries and rows of earlier experiments: append the returned experiment to the entries of
    `recording.json`, run it, write its rows, open the recording anew and ask again.

    Args:
        recording: recording of a sweep, with the experiments made so far.
        time_left_s: seconds left for experiments.
    """
    raise NotImplementedError


def open_terms(diagnosis: Diagnosis) -> tuple[Share, ...]:
    """The terms of the largest anomaly that are large enough to matter and cannot yet be told from 0.

    Empty if there is no anomaly, or if such terms make less than a fifth of it.
    """
    raise NotImplementedError
