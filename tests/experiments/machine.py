"""A machine of known costs, which runs experiments on a recording without running anything."""

from dataclasses import replace

from curvescope.analysis.diagnosis.explain import explain, explain_again
from curvescope.experiments.plan import next_experiment
from curvescope.profiling.recording.experiment_entries import record_experiment
from curvescope.profiling.recording.experiments import FactorFacts, Scope
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from .planted_experiments import rows_of

FACTS = {
    "onednn": {
        "what": "products run through oneDNN instead of MKL",
        "remedy": "run {where} through oneDNN",
        "how": "so",
    },
    "kept_memory": {
        "what": "freed memory stays with the process",
        "remedy": "keep freed memory",
        "how": "MALLOC_…",
    },
    "one_thread": {
        "what": "the work runs on one thread",
        "remedy": "run {where} on one thread",
        "how": "OMP_…",
    },
    "cold_caches": {"what": "operands are evicted before each run", "brings_about": True},
    "replayed_operators": {"what": "operators run without the code between them", "partial": True},
}
FACTS = {name: FactorFacts(name=name, **facts) for name, facts in FACTS.items()}


class Machine:
    """Runs experiments on a recording.

    `costs` has, by (label of the term or "the step", factor or None), a function from batch size to
    ms. A factor that is missing there is untested; a term that is missing cannot run. `noise` is
    that of the logarithm of a run's time.
    """

    def __init__(self, path, costs, noise=0.01):
        self.path, self.costs, self.noise, self.made = path, costs, noise, []

    def label(self, experiment):
        """Label of what an experiment runs."""
        return (
            "the step"
            if experiment.scope == Scope.STEP
            else f"{experiment.layer} {experiment.phase}"
        )

    def run(self, seconds=60.0, most=30):
        """Run planned experiments, each as if it took a second, until the plan ends."""
        diagnosis = explain(open_recording(self.path))
        for second in range(most):
            recording = open_recording(self.path)
            if second:
                diagnosis = explain_again(diagnosis, recording)
            experiment = next_experiment(recording, seconds - second, diagnosis, seconds)
            if experiment is None:
                return self
            self.run_one(experiment)
        raise AssertionError(f"the plan did not end: {self.stages()}")

    def run_one(self, experiment):
        """Run one experiment and record it."""
        label = self.label(experiment)
        times = {name: self.costs.get((label, name)) for name in (None, *experiment.factors)}
        untested = {
            name: "it does not apply" for name, cost in times.items() if cost is None and name
        }
        done = replace(experiment, untested=untested, done=True)
        self.made.append(done)
        with RecordingWriter.extend(self.path) as writer:
            if times[None] is not None:
                rounds = experiment.rounds[0] * experiment.starts
                rows = rows_of(done, times, rounds, self.noise, seed=experiment.number)
                writer.write("experiments", rows.assign(start_ns=0))
            record_experiment(
                writer,
                done,
                [FACTS[n] for n in experiment.factors if n in FACTS and n not in untested],
            )

    def stages(self):
        """What ran: (label, stage, factors that could be changed)."""
        return [
            (
                self.label(one),
                one.stage,
                tuple(name for name in one.factors if name not in one.untested),
            )
            for one in self.made
        ]
