"""The experiments of a recording, one line per factor, as Markdown; fails if what should be there is missing.

Arguments: the recording, the file to write. The exit code is 1 if the recording has no operators, or if it has
something to test and no timed run of an experiment, so that a campaign says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from curvescope.analysis.diagnosis.explain import explain
from curvescope.experiments.confirming import describe
from curvescope.profiling.recording.experiments import Experiment, experiments_of
from curvescope.profiling.recording.store import Recording, open_recording


def table(recording: Recording) -> Iterator[str]:
    """The lines: every experiment as it is and with each factor, with the median at its largest batch size."""
    rows = recording.frame("experiments")
    yield f"{recording.count_rows('operators')} rows of operators, {len(rows)} timed runs of experiments."
    yield ""
    yield "| experiment | functional | factor | rounds | largest batch | median ms | untested, changed results |"
    yield "| --- | --- | --- | ---: | ---: | ---: | --- |"
    for experiment in experiments_of(recording.meta):
        own = rows[rows["experiment"] == experiment.number]
        for factor in (None, *experiment.factors):
            runs = own[own["factor"].isna() if factor is None else own["factor"] == factor]
            largest = experiment.batches[-1]
            last = runs.loc[runs["batch"] == largest, "duration_ns"]
            median = "" if last.empty else f"{float(last.median()) / 1e6:.4g}"
            said = _said(experiment, factor)
            cells = (describe(experiment), _functional(experiment), factor or "as it is", runs["round"].nunique())
            yield f"| {' | '.join(map(str, cells))} | {largest} | {median} | {said} |"


def _functional(experiment: Experiment) -> str:
    return f"{experiment.functional_kind} over {', '.join(str(batch) for batch, _ in experiment.functional)}"


def _said(experiment: Experiment, factor: str | None) -> str:
    if factor is None:
        return " ".join(experiment.notes)
    return experiment.untested.get(factor) or experiment.changed_results.get(factor, "")


def main() -> int:
    """Write the table and check it."""
    source, target = map(Path, sys.argv[1:])
    recording = open_recording(source)
    target.write_text("\n".join(table(recording)) + "\n")
    diagnosis = explain(recording)
    tested = ["experiments"] if diagnosis.explanations or diagnosis.fixed_cost else []
    missing = [name for name in ("operators", *tested) if not recording.count_rows(name)]
    if missing:
        print(f"{source} has no rows of {' and of '.join(missing)}")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
