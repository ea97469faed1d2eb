"""Experiments on a finished recording: plan one, run it, record it, and again while
time is left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..base.arguments import default_experiments_s, device_kind
from ..base.errors import CurvescopeError
from ..base.masking import mask_text
from ..profiling.hardware.register import register
from ..profiling.measure.loop import Progress
from ..profiling.recording.experiment_entries import record_experiment, why_not_replayed
from ..profiling.recording.experiments import TIME, Experiment, Scope, Stage, experiments_of
from ..profiling.recording.named_code import check_recorded_code
from ..profiling.recording.remote_store import AnyPath, RemotePath
from ..profiling.recording.store import Recording, RecordingWriter, open_recording

if TYPE_CHECKING:
    from ..analysis.diagnosis.result import Diagnosis
    from .runner import Watch

_STAGES = {
    Stage.ALONE: "in isolation",
    Stage.GRID: "finer grid",
    Stage.SCREEN: "screen",
    Stage.CONFIRM: "confirm",
    Stage.REMEDY: "remedy",
}
_STAGES_OF_TIMES = {
    Stage.SCREEN: "what commonly helps",
    Stage.CONFIRM: "what led, on fresh rounds",
    Stage.REMEDY: "what helps, together",
}
_UNTIL_NEXT_LOOK = 1.5  # rounds until the next look, as a factor on those so far
_LOOKS_AT_THE_END = 2
_REASON_LENGTH = 300  # characters of an error's message in an entry


def confirm(
    recording: Recording | str | os.PathLike[str] | RemotePath,
    seconds: float | None = None,
    report: Callable[[Progress], object] = lambda _: None,
    clock_s: Callable[[], float] = time.monotonic,
    run_its_code: bool = False,
) -> Recording:
    """Test by experiment why the anomalies of a recording and its fixed cost are there, on the
    recording's machine.

    Every experiment is recorded as it runs, so an interruption keeps everything before it. A
    failing experiment costs only itself: its entry says why. Calling this again continues where the
    experiments ended.

    Args:
        recording: recording of a sweep, or its folder or URL.
        seconds: time limit, None for 90 s, on a GPU 180 s.
        report: function that receives the progress.
        clock_s: clock of the time limit.
        run_its_code: whether code runs that the recording names and this user did not, see
            `check_code`.

    Returns:
        The recording with its experiments; `explain` and `show_diagnosis` read them.

    Raises:
        CurvescopeError: the recording has nothing to run again, was made on another device, names
            code of somebody else, or cannot be extended.
        KeyboardInterrupt: passed on; finished experiments are recorded.
    """
    from ..analysis.diagnosis.explain import explain, explain_again
    from .plan import next_experiment, rest
    from .runner import Watch

    opened = recording if isinstance(recording, Recording) else open_recording(recording)
    if (why := why_not_replayed(opened)) is not None:
        raise CurvescopeError(f"{opened.path} {why}.")
    if seconds is None:
        seconds = default_experiments_s(device_kind(opened.meta))
    check_recorded_code(opened.path, opened.meta, run_its_code)
    differences = _differences(opened)
    began_s = clock_s()
    report(Progress(0.0, seconds, "choosing the first experiment"))
    diagnosis = explain(opened)
    # What follows the last one, to see what is left to test and to answer, takes as long each.
    ends_s = began_s + seconds - _LOOKS_AT_THE_END * (clock_s() - began_s)
    with register(f"experiments on {opened.path}"), RecordingWriter.extend(opened.path) as writer:
        recorded = {entry["number"] for entry in writer.meta.get("experiments", ())}
        while clock_s() < ends_s:
            # Tables that experiments do not change are read once.
            opened = opened.with_meta(writer.meta)
            report(Progress(clock_s() - began_s, seconds, "choosing the next experiment"))
            diagnosis = explain_again(diagnosis, opened)
            experiment = next_experiment(opened, ends_s - clock_s(), diagnosis, seconds)
            if experiment is None or experiment.number in recorded:  # the latter would never end
                break
            recorded.add(experiment.number)
            experiment = replace(experiment, notes=(*experiment.notes, *differences))
            record_experiment(writer, experiment)
            label = describe(experiment)

            def note(progress: Progress, label: str = label) -> None:
                report(Progress(clock_s() - began_s, seconds, f"{label}: {progress.doing}"))

            report(Progress(clock_s() - began_s, seconds, label))
            _run(opened, experiment, diagnosis, writer, Watch(report=note, clock_s=clock_s))
        opened = opened.with_meta(writer.meta)
        left = rest(opened, explain_again(diagnosis, opened))
        writer.update(experiments_wait_for_time=bool(left.of), experiments_rest=left.entry)
    return open_recording(opened.path)


def _run(
    recording: Recording,
    experiment: Experiment,
    diagnosis: Diagnosis,
    writer: RecordingWriter,
    watch: Watch,
) -> None:
    """Run one experiment; an error is recorded as the reason why its factors are untested."""
    from .replay.run import run_term
    from .step_variants import run_step

    decided = _Decided(experiment, diagnosis, device_kind(recording.meta))
    try:
        run = run_term if experiment.scope == Scope.TERM else run_step
        run(recording, experiment, writer, replace(watch, enough=decided))
    except Exception as error:  # of any library, on any operator: the other experiments still run
        message = str(error).strip() or type(error).__name__
        why = mask_text(message.splitlines()[0][:_REASON_LENGTH].rstrip("."))
        now = next(
            stored for stored in experiments_of(writer.meta) if stored.number == experiment.number
        )
        untested = {**dict.fromkeys(now.factors, why), **now.untested}
        record_experiment(
            writer,
            replace(now, untested=untested, notes=(*now.notes, f"It failed: {why}."), done=True),
        )


class _Decided:
    """Whether the rows so far decide an experiment that confirms; it looks at half as many rounds
    more.
    """

    def __init__(self, experiment: Experiment, diagnosis: Diagnosis, device: str) -> None:
        from .factors import all_facts

        self._experiment, self._looked = experiment, 0
        self._facts = all_facts(experiment.scope, device)
        self._claims = diagnosis.claims

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        import pandas as pd

        from ..analysis.verdicts.outcome import is_settled

        rounds = rows[-1]["round"] + 1 if rows else 0
        if self._experiment.stage != Stage.CONFIRM or rounds < _UNTIL_NEXT_LOOK * self._looked:
            return False
        self._looked = rounds
        return is_settled(self._experiment, pd.DataFrame(rows), self._claims, self._facts)


def describe(experiment: Experiment) -> str:
    """What an experiment runs, in a few words, e.g. `fc6 forward, screen`."""
    from ..analysis.decompose.terms import work_label

    if experiment.functional_kind == TIME:
        return _STAGES_OF_TIMES[experiment.stage]
    what = (
        work_label(experiment.layer, experiment.phase)
        if experiment.scope == Scope.TERM
        else "the step"
    )
    return f"{what}, {_STAGES.get(experiment.stage, experiment.stage)}"


def _differences(recording: Recording) -> tuple[str, ...]:
    from ..profiling.measure.machine import check_same_machine

    try:
        return check_same_machine(recording.meta)
    except CurvescopeError as error:
        raise CurvescopeError(f"Nothing of {recording.path} can run again here. {error}") from None


def confirm_with_bars(path: AnyPath, seconds: float, run_its_code: bool = False) -> Recording:
    """Run experiments with a progress bar; see `confirm`.

    After Ctrl-C, a line names the kept data.
    """
    from ..analysis.render import terminal

    with terminal.progress_bars(44) as bars:
        task = bars.add_task("choosing the next experiment", total=seconds)

        def report(progress: Progress) -> None:
            bars.update(
                task,
                completed=progress.elapsed_s,
                total=progress.expected_s,
                description=progress.doing,
            )

        try:
            return confirm(path, seconds, report, run_its_code=run_its_code)
        except KeyboardInterrupt:
            bars.console.print("Interrupted. Finished experiments are kept, and this reads them:")
            terminal.print_commands(bars.console, f"curvescope explain {path}")
            raise
