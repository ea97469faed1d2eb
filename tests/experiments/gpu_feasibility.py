"""Whether the plan can confirm and refute each cause on a GPU: an 80 GB card, the default time,
steps of known costs.

Each sweep has its cause at the cause's own thresholds. In one world the factors of the cause remove
it, in the other nothing does; what an experiment takes is what the plan expects of it, with starts
of 6 s. `python -m tests.experiments.gpu_feasibility` writes the table that the documentation shows.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from curvescope.analysis.causes import interventions
from curvescope.analysis.diagnosis.explain import explain, explain_again
from curvescope.analysis.verdicts.words import Verdict
from curvescope.base.arguments import default_experiments_s
from curvescope.experiments.factors import factor_of
from curvescope.experiments.plan import _situation, candidates
from curvescope.profiling.hardware.limits import hardware_of
from curvescope.profiling.recording.experiment_entries import record_experiment
from curvescope.profiling.recording.experiments import Scope
from curvescope.profiling.recording.operators import TensorArgument
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ..analysis.causes.planted_causes import Plan
from ..curvescope.recordings import write_planted
from .planted_experiments import operator, rows_of

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "gpu_feasibility.json"
DEFAULT_S = default_experiments_s("cuda")
GB = 10**9
DEVICE = {"name": "NVIDIA H100 80GB HBM3", "kind": "cuda", "memory_bytes": 80 * GB}
H100 = hardware_of({"device": DEVICE})
TERM, STEP = "conv3 backward", "the step"
Cost = Callable[[int], float]


@dataclass(frozen=True)
class Scenario:
    """A sweep with one cause."""

    cause: str  # name of the cause
    at: str  # its thresholds here, in words
    plan: Plan  # the sweep; its term is `TERM`
    term_ms: Cost  # time of the term alone, by batch size
    # Times by factor where the cause is right, of the term or of the step.
    removing: Mapping[str, Cost] = field(default_factory=dict)
    # Time of the term alone where it is wrong, if that differs at the sizes that were not recorded.
    wrong: Cost | None = None
    dtype: Callable[[int], str] = lambda _: "float"  # type of the term's operands, by batch size

    def step_ms(self, batch: int) -> float:
        """Time of the complete step."""
        others = self.plan.first(batch)[1] + self.plan.idle_ms(batch) + self.plan.optimizer_ms
        others += self.plan.copies_ms(batch) if self.plan.copies_ms else 0.0
        return float((self.plan.kernel(batch)[1] + others) * self.plan.slow(batch))


def step_of(kernel: Cost, other_ms: float = 7.0) -> Cost:
    """Time of a step with this term, and otherwise as planted."""
    return lambda b: kernel(b) + 2.0 * b + other_ms


def from_16_on(above: float) -> Cost:
    """3 ms per sample, and more at the largest size."""
    return lambda b: (3.0 if b < 16 else above) * b


line, doubled, switched = map(from_16_on, (3.0, 6.0, 7.0))


def _switch(batch: int) -> Any:
    kernels = (
        "cudnn::winograd_nonfused::winogradForwardData4x4<float, float>",
        "implicit_convolve_sgemm",
    )
    return kernels[batch >= 16], switched(batch), {}


def _waves(batch: int) -> Any:
    grid = {
        "grid_x": 16 * batch,
        "grid_y": 1,
        "grid_z": 1,
        "block_x": 256,
        "block_y": 1,
        "block_z": 1,
    }
    return (
        "sgemm_128x64_nn",
        in_waves(batch),
        {**grid, "registers_per_thread": 255, "shared_memory_bytes": 0},
    )


def in_waves(batch: int) -> float:
    return 30.0 * math.ceil(16 * batch / 132)


def _plan(**changed: Any) -> Plan:
    return Plan(hardware=H100, **changed)


def _last(value: float, usual: float) -> Cost:
    return lambda b: value if b == 16 else usual


def full(batch: int) -> float:
    return 0.86 * 80 * GB * batch / 16


SCENARIOS = (
    Scenario(
        "algorithm switch",
        "another kernel from batch 16 on",
        _plan(kernel=_switch),
        switched,
        {"before_switch": line},
    ),
    Scenario(
        "wave and tile quantisation",
        "0.48, 0.97 and 1.94 waves on 132 SMs",
        _plan(kernel=_waves),
        in_waves,
        wrong=lambda b: 30.0 * max(1.0, b / 8),
    ),
    Scenario(
        "memory pressure",
        "another kernel at 86 % of 80 GB",
        _plan(kernel=_switch, peak_memory_bytes=full),
        switched,
        {"smaller_memory": step_of(lambda b: 7.0 * b)},
    ),
    Scenario(
        "memory pressure",
        "60 ms of cudaMalloc and cudaFree at 86 % of 80 GB",
        _plan(allocation_ms=_last(60.0, 0.0), idle_ms=_last(65.0, 2.0), peak_memory_bytes=full),
        line,
        {"smaller_memory": lambda b: step_of(line)(b) + 63.0 * b / 16},
    ),
    Scenario(
        "launch- or host-bound",
        "65 ms of idle at batch 16",
        _plan(idle_ms=_last(65.0, 2.0)),
        line,
        {"cuda_graph": step_of(line, 5.0)},
    ),
    Scenario(
        "cache capacity",
        "40 and 80 MB of 50 MB of L2",
        _plan(
            kernel=lambda b: (
                "vectorized_elementwise_kernel",
                doubled(b),
                {"bytes_compulsory": 5_000_000 * b},
            )
        ),
        doubled,
        {"cold_caches": lambda b: 6.0 * b},
    ),
    Scenario(
        "throttling",
        "1.2 GHz at batch 16, 1.7 GHz below",
        _plan(clock_hz=_last(1.2e9, 1.7e9), slow=_last(1.7 / 1.2, 1.0)),
        lambda b: line(b) * (1.7 / 1.2 if b == 16 else 1.0),
        {"locked_clock": lambda b: step_of(line)(b) * 1.7 / 1.14},
    ),
    Scenario(
        "slow library call",
        "half of the rate at batch 16",
        _plan(kernel=lambda b: ("sgemm_128x64_nn", doubled(b), {"flops": 10**10 * b})),
        doubled,
        {"cublaslt": line},
    ),
    Scenario(
        "copies of operands",
        "60 ms of copies at batch 16",
        _plan(
            kernel=lambda b: ("sgemm_128x64_nn", line(b), {"op": "aten::mm", "flops": 10**9 * b}),
            copies_ms=_last(60.0, 1.0),
        ),
        lambda b: line(b) + (60.0 if b == 16 else 1.0),
        {"stored_operands": line},
    ),
    Scenario(
        "precision",
        "fp32 at batch 16, bf16 below",
        _plan(kernel=lambda b: ("sgemm_128x64_nn", doubled(b), {})),
        doubled,
        {"bf16_autocast": step_of(line), "before_switch": line},
        dtype=lambda b: "float" if b == 16 else "c10::BFloat16",
    ),
    Scenario(
        "weights read every step",
        "40 MB of weights in 50 MB of L2",
        _plan(
            kernel=lambda b: (
                "sgemm_128x64_nn",
                0.013 + 0.001 * b,
                {"flops": 10**7 * b, "bytes_compulsory": 40_000_000},
            ),
            first=lambda b: ("sgemm_128x32_nn", 0.001 * b, {}),
            idle_ms=lambda _: 0.001,
            optimizer_ms=0.001,
        ),
        lambda b: 0.013 + 0.001 * b,
        {"warm_caches": lambda b: 0.001 + 0.001 * b},
    ),
    Scenario(
        "optimizer work",
        "20 ms of every step",
        _plan(optimizer_ms=20.0),
        line,
        {"no_update": step_of(line, 2.0), "fused_optimizer": step_of(line, 4.0)},
    ),
)


@dataclass(frozen=True)
class Decided:
    """What decided on a cause."""

    scope: str | None  # `term` or `step`; None if nothing did
    factor: str | None  # name of the factor
    seconds: float  # expected time of all experiments until then


def decide(scenario: Scenario, path: Path, *, right: bool) -> Decided:
    """Run the plan until the cause is confirmed or, in the other world, refuted, or the default
    time is over.
    """
    write_planted(path, scenario.plan, device=DEVICE)
    with RecordingWriter.extend(path) as writer:
        operands = {b: [TensorArgument((b, 8), scenario.dtype(b))] for b in (4, 8, 16)}
        rows = [
            operator(b, "aten::mm", of_b, layer="conv3", phase="backward")
            for b, of_b in operands.items()
        ]
        writer.write("operators", columns_of(rows))
    wanted = Verdict.CONFIRMED if right else Verdict.REFUTED
    diagnosis, used_s = explain(open_recording(path)), 0.0
    functional = next(one.functional for one in _targets(diagnosis) if _claims(one, scenario.cause))
    while used_s < DEFAULT_S:
        recording = open_recording(path)
        diagnosis = explain_again(diagnosis, recording)
        if (found := _decisive(diagnosis, functional, scenario.cause, wanted)) is not None:
            return Decided(found.experiment.scope, found.factor, round(used_s))
        situation = _situation(recording, DEFAULT_S - used_s, diagnosis)
        experiment = next(candidates(situation), None)
        if experiment is None:
            break
        used_s += situation.budget.shortest_s(experiment)
        _run(path, scenario, experiment, right=right)
    return Decided(None, None, round(used_s))


def _targets(diagnosis: Any) -> list[Any]:
    return [*diagnosis.explanations, *filter(None, [diagnosis.fixed_cost])]


def _claims(target: Any, cause: str) -> bool:
    """Whether a cause claims some of an anomaly; an unproven slow call is none of its causes all
    the same.
    """
    claims = (term.claims[cause].amount for term in target.terms if cause in term.claims)
    return any(amount * target.value.value > 0 for amount in claims)


def _decisive(diagnosis: Any, functional: Any, cause: str, wanted: Verdict) -> Any:
    """The outcome of the cause's factors that gives the wanted verdict on an anomaly; None without
    one.
    """
    (target,) = (one for one in _targets(diagnosis) if one.functional == functional)
    verdicts = {total.cause: total.verdict for total in target.causes}
    said = verdicts.get(cause, Verdict.REFUTED)  # a refuted cause is none of them
    of_cause = (
        *interventions()[cause].term,
        *interventions()[cause].step,
        *interventions()[cause].shared,
    )
    tested = [one for one in diagnosis.outcomes if one.experiment.functional == functional.weights]
    found = [one for one in tested if one.factor in of_cause and one.verdict == wanted]
    return (
        min(found, key=lambda one: of_cause.index(one.factor), default=None)
        if said == wanted
        else None
    )


def _run(path: Path, scenario: Scenario, experiment: Any, *, right: bool) -> None:
    """Record the rows of an experiment in a world."""
    of_step = experiment.scope == Scope.STEP
    usual = scenario.step_ms if of_step else scenario.term_ms
    if not right and scenario.wrong and not of_step:
        usual = scenario.wrong
    untested = {}
    for name in experiment.factors:
        factor = factor_of(name)
        why = "there is none" if factor is None else factor.refusal("cuda")
        if factor is not None and factor.by_size and not experiment.waves:
            why = "no waves"
        if name == "cudnn_benchmark" and not of_step:
            why = "the same kernels ran"  # PyTorch keeps its plan of the unmodified call
        if why is not None:
            untested[name] = why
    done = replace(experiment, untested=untested, done=True)
    changed = scenario.removing if right else {}
    times = {name: changed.get(name, usual) for name in (None, *experiment.factors)}
    facts = [
        factor_of(name).facts(experiment.scope, "cuda:0")
        for name in experiment.factors
        if name not in untested
    ]
    with RecordingWriter.extend(path) as writer:
        rounds = experiment.rounds[0] * experiment.starts
        writer.write("experiments", rows_of(done, times, rounds, 0.01).assign(start_ns=0))
        record_experiment(writer, done, facts)


def table(scenario: Scenario) -> dict[str, Any]:
    """One row of the table: what confirms and what refutes the cause, and when."""
    with tempfile.TemporaryDirectory() as folder:
        worlds = {
            name: asdict(decide(scenario, Path(folder, name), right=name == "confirmed"))
            for name in ("confirmed", "refuted")
        }
    return {"cause": scenario.cause, "at": scenario.at, **worlds}


if __name__ == "__main__":
    RESULT.write_text(json.dumps([table(one) for one in SCENARIOS], indent=1) + "\n")
    sys.stdout.write(RESULT.read_text())
