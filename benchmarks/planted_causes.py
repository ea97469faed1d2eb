"""Planted causes: does `diagnose` find the right layer and confirm the right cause in steps that
really have one?

Each run measures a step of benchmarks/planted_steps.py through `curvescope.diagnose`, in a process
of its own that knows nothing of what is planted. The size of the effect is set by the depth of the
network around it, and then measured without Curvescope: F of the step with the planted cause minus
F of the same step without it, as a share of the step. A run counts only if that effect is at least
5 % and F of the step itself at least half of it: otherwise the machine does not show what was
planted, or the rest of the step cancels it, and "no anomaly" is the right answer.

- *Layer right*: the answer on the largest anomaly (on the fixed cost, if that was planted or there
  is no anomaly) names the planted layer. Causes of no layer, e.g. a busy neighbour, are right on
  the step as a whole and not counted here.
- *Cause confirmed*: of that answer's anomaly, a cause that is true of what was planted is confirmed
  for at least 10 %; it *leads* if the answer names it. Every network has a fixed cost of its own,
  which may be the larger part of the answer.
- *Wrong cause*: any cause confirmed for at least 10 % of any anomaly or of the fixed cost that is
  not true of the step. That weights are read and Python runs in every step is true of every
  network's fixed cost.

With nothing planted, a step runs `batch` equal parts one after the other, as with accumulated
gradients. Its time is proportional to the batch by construction, so every functional is 0, the
fixed cost too: any confirmed cause is wrong. Steps of pure waiting, and of one product in double
precision, cannot be made faster: any saving of 2 % is a false one.

    python benchmarks/planted_causes.py [--runs 8] [--null 200] [--still 100] [--cases ...]

Results go to benchmarks/results/planted_causes.jsonl as they come, and the table of all kept runs is
printed at the end. Interrupted, the same command goes on where it was.
"""

# ruff: noqa: E501 - rows of a table
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.evidence import markdown  # noqa: E402

KEPT = Path(__file__).parent / "results" / "planted_causes.jsonl"
# The same runs elsewhere: where, and their file.
OTHERS = {
    "Machines on which AlexNet's steps varied by 10 to 25 %, or tests ran on the other core": (
        KEPT.with_name("planted_causes_disturbed.jsonl")
    ),
    "Two cores of an AMD EPYC, 2026-11-25": KEPT.with_name("planted_causes_later.jsonl"),
    "Two noisy cores of an AMD EPYC, 2026-11-27, sweeps of 60 s": KEPT.with_name(
        "planted_causes_rounds.jsonl"
    ),
    "Two cores of an AMD EPYC, 2026-11-29, the mean of all steps": KEPT.with_name(
        "planted_causes_all_steps.jsonl"
    ),
}
EFFECTS = (0.05, 0.1, 0.2, 0.5)
SWEEP_S, EXPERIMENTS_S = 60.0, 90.0
STILL_S = 30.0
NULL_VALUES = (1, 2, 4)
NULL_NETWORKS = ("convolution", "perceptron", "encoder", "bag", "recurrent")
STILL = ("waiting", "product")  # steps that no change makes faster
MOST_DEPTH = 40
LEAST_EFFECT = 0.05
FIXED = "fixed cost"
LEAST = 0.1  # of an anomaly: a smaller confirmed cause leads no answer of `diagnose`
# Every network reads its weights and runs Python between its operators, so these are true of every
# fixed cost.
NATURAL = ("weights read every step", "launch- or host-bound")
_LONGEST_S = 220.0
_ROUNDS = 15
_KEPT_LINES = 12  # of an error, so that its place is known
_SHOWN = 3  # shares of an anomaly that are kept


@dataclass(frozen=True)
class Case:
    """A planted cause.

    Attributes:
        make: function of planted_steps.
        what: what is planted, in words.
        values: batch sizes, or values of `axis`.
        functional: bend, excess or fixed cost, that the planted cause changes.
        conditions: its batch sizes.
        layers: layers that are right; empty if the cause belongs to no layer.
        causes: causes that are true of it.
        axis: axis of the values.
        threads: number of threads of torch.
        experiments_s: time limit of the experiments, seconds.
    """

    make: str
    what: str
    values: tuple[int, ...]
    functional: str
    conditions: tuple[int, ...]
    layers: frozenset[str]
    causes: frozenset[str]
    axis: str = "batch"
    threads: int = 1
    experiments_s: float = EXPERIMENTS_S


def _case(
    make: str,
    what: str,
    values: Sequence[int],
    functional: str,
    conditions: Sequence[int],
    layers: str,
    causes: str,
    **more: Any,
) -> Case:
    named = [frozenset(filter(None, text.split("|"))) for text in (layers, causes)]
    return Case(make, what, tuple(values), functional, tuple(conditions), *named, **more)


SLOW, SWITCH, FAULTS, TILES = (
    "slow library call",
    "algorithm switch",
    "page faults",
    "wave and tile quantisation",
)
WORK, VALUES, COPIES = (
    "more work per sample",
    "values of the operands",
    "copies of operands",
)
CASES = {
    case.make: case
    for case in (
        _case("slow_product", "a product that MKL runs slowly from 2 rows on", (1, 2, 4), "bend", (1, 2, 4), "head", f"{SLOW}|{SWITCH}"),
        _case("tied_decoder", "weights stored in the slow order", (1, 2, 4), "bend", (1, 2, 4), "decoder", f"{SLOW}|{SWITCH}"),
        _case("switched_convolution", "a convolution that goes to NNPACK at 16", (4, 8, 16), "excess", (8, 16), "embed", f"{SWITCH}|size of one call"),
        _case("own_switch", "a layer that runs other operators from 16 on", (4, 8, 16), "excess", (8, 16), "special", f"{SWITCH}|{WORK}"),
_case("few_rows", "distances that are slow up to 25 rows; padding is faster", (16, 32, 64), "bend", (16, 32, 64), "nearest", f"{TILES}|{SWITCH}"),
        _case("fresh_memory", "memory mapped anew from 16 on", (4, 8, 16), "excess", (8, 16), "gather", FAULTS),
        _case("fresh_memory_always", "memory mapped anew in every step", (4, 8, 16), "fixed cost", (4, 8), "gather", FAULTS),
        _case("outgrown_cache", "a working set that outgrows the cache", (4, 16, 64), "excess", (16, 64), "scale", "cache capacity"),
        _case("idle_threads", "3 items for 2 threads", (2, 3, 4), "bend", (2, 3, 4), "best", "idle threads", threads=2),
        _case("threads_begin", "additions that two threads share from 32,769 elements on", (16, 32, 64), "excess", (32, 64), "special", "start of threads", threads=2),
        _case("denormal_values", "an exponential with denormal results from 16 on", (4, 8, 16), "excess", (8, 16), "special", VALUES),
        _case("shared_matrix", "a matrix that is copied for each sample", (4, 8, 16), "excess", (8, 16), "special", COPIES),
        _case("other_precision", "a product in fp16 from 16 on", (4, 8, 16), "excess", (8, 16), "special", f"precision|{SWITCH}|{WORK}"),
        _case("odd_length", "a Fourier transform of prime length", (48, 56, 61, 64), "excess", (56, 61), "mixing", TILES, axis="tokens"),
        _case("host_work", "work in Python in every step", (4, 8, 16), "fixed cost", (4, 8), "", "launch- or host-bound"),
        _case("busy_neighbour", "a busy neighbour on the core from 8 on", (2, 4, 8), "excess", (4, 8), "", "CPU contention"),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Score:
    """What counts of one run.

    Attributes:
        layer: whether the layer is right; None if the cause belongs to none.
        confirmed: whether a right cause is confirmed.
        leads: whether the answer names it.
        wrong: confirmed causes that are not true.
    """

    layer: bool | None
    confirmed: bool
    leads: bool
    wrong: tuple[str, ...]


def score(case: Case | None, record: dict[str, Any]) -> Score:
    """The score of one run; without a case, of one with nothing planted.

    Args:
        case: what was planted.
        record: what `describe` returned.
    """
    right = case.causes if case else frozenset()
    natural = {
        (label, cause)
        for label, cause in record["confirmed"]
        if case and label.startswith(FIXED) and cause in NATURAL
    }
    found = {(label, cause) for label, cause in record["confirmed"]} - natural
    wrong = tuple(sorted({cause for _, cause in found} - right))
    if case is None:
        return Score(None, False, False, wrong)
    answer = leading(case, record)
    if answer is None:
        return Score(False if case.layers else None, False, False, wrong)
    confirmed = any(
        label == answer["label"] and cause in right for label, cause in record["confirmed"]
    )
    leads = answer["verdict"] == "confirmed" and answer["cause"] in right
    layer = answer["layer"] in case.layers if case.layers else None
    return Score(layer, confirmed, leads, wrong)


def leading(case: Case, record: dict[str, Any]) -> dict[str, Any] | None:
    """The answer that counts: on the largest anomaly, or on the fixed cost if there is none or if
    that was planted.
    """
    answers = record["answers"]
    if case.functional == FIXED:
        answers = [one for one in answers if one["kind"] == FIXED]
    return answers[0] if answers else None


def describe(diagnosis: Any) -> dict[str, Any]:
    """What a diagnosis found, as JSON: the answers, and every confirmed cause with its
    functional.
    """
    from curvescope.analysis.render.answer_words import sentence

    answers = []
    for answer in diagnosis.answers:
        agreeing = [s for s in answer.shares if s.value.value * answer.value.value > 0]
        named = [s for s in agreeing if s.label == answer.where]
        if answer.where is None:  # of the complete step: the layer with the largest share
            named = sorted((s for s in agreeing if s.key.layer), key=lambda s: -abs(s.value.value))
        answers.append(
            {
                "kind": answer.functional.kind,
                "label": answer.functional.label,
                "ms": answer.value.value,
                "where": answer.where,
                "layer": named[0].key.layer if named else None,
                "cause": answer.cause,
                "verdict": str(answer.verdict),
                "sentence": sentence(answer),
            }
        )
    confirmed = [
        (explanation.functional.label, total.cause)
        for explanation in diagnosis.answers
        for total in explanation.causes
        if total.verdict == "confirmed"
        and abs(total.amount) >= LEAST * abs(explanation.value.value)
    ]
    shares = {
        f"{explanation.functional.label} {share.label}": _values(share.value)
        for explanation in diagnosis.answers
        for share in explanation.shares[:_SHOWN]
    }
    tried = [_tried(outcome) for outcome in diagnosis.outcomes]
    curve = {str(point.condition): _values(point.time_ms) for point in diagnosis.curve.points}
    tested = {
        one.tested.label: [*_values(one.tested_value), one.p_adjusted] for one in diagnosis.findings
    }
    return {
        "curve_ms": curve,
        "tested": tested,
        "answers": answers,
        "confirmed": confirmed,
        "shares": shares,
        "experiments": tried,
        "saves": [
            [saving.factor, *_values(saving.largest[1])] for saving in diagnosis.remedies.helping
        ],
        "changes_tried": len(diagnosis.remedies.attempts),
    }


def _values(estimate: Any) -> list[float]:
    return [float(one) for one in (estimate.value, estimate.low, estimate.high)]


def _tried(outcome: Any) -> str:
    """One line on what an experiment found for one factor, or for what runs as it is."""
    of, taken, value = outcome.experiment, outcome.taken, outcome.value
    words = [
        of.scope,
        of.layer or "",
        of.stage,
        of.functional_kind,
        outcome.factor or "as it is",
        outcome.verdict,
    ]
    number = taken if outcome.factor else value
    if number is not None:
        words.append(f"{number.value:.3f} [{number.low:.3f}, {number.high:.3f}] n={outcome.rounds}")
    return " ".join(filter(None, [*words, outcome.reason and f"({outcome.reason})"]))


def times_ms(steps: dict[Any, Callable[[], object]]) -> dict[Any, float]:
    """Times of steps from interleaved rounds: the median of the faster half of the rounds."""
    times: dict[Any, list[float]] = {key: [] for key in steps}
    for _ in range(_ROUNDS + 1):
        for key, step in steps.items():
            began_s = time.perf_counter()
            step()
            times[key].append(1e3 * (time.perf_counter() - began_s))
    return {key: median(sorted(found[1:])[: _ROUNDS // 2 + 1]) for key, found in times.items()}


@dataclass(frozen=True)
class Effect:
    """What was planted, measured without Curvescope.

    Attributes:
        planted_ms: F of the step with the planted cause minus F of the step without it, without its
            sign.
        whole_ms: F of the step with the planted cause, positive where it has the sign of the
            planted part.
        step_ms: the time of the step that the effect is a share of: the last one, of a fixed cost
            the first.
    """

    planted_ms: float
    whole_ms: float
    step_ms: float

    def shows(self) -> bool:
        """Whether the step shows what was planted."""
        return (
            self.planted_ms >= LEAST_EFFECT * self.step_ms and self.whole_ms >= self.planted_ms / 2
        )


def effect_at(case: Case, depth: int) -> Effect:
    """Measure what is planted."""
    from curvescope.analysis.decompose import functionals

    make = getattr(_steps(), case.make)
    of_kind = {
        "bend": functionals.bend,
        "excess": functionals.excess,
        "fixed cost": functionals.fixed_cost,
    }
    functional = of_kind[case.functional](*case.conditions)
    steps = {
        (value, planted): make(value, depth, planted)
        for value in case.conditions
        for planted in (1, 0)
    }
    found = times_ms(steps)
    for step in steps.values():
        getattr(step, "close", lambda: None)()
    with_it, without = (
        sum(weight * found[value, planted] for value, weight in functional.coefficients)
        for planted in (1, 0)
    )
    base = case.conditions[0] if case.functional == "fixed cost" else case.conditions[-1]
    sign = 1 if with_it >= without else -1
    return Effect(sign * (with_it - without), sign * with_it, found[base, 1])


def depth_for(case: Case, effect: float) -> int:
    """Number of blocks that makes the planted effect this share of the step."""
    if case.make == "busy_neighbour":  # it takes that share of the core
        return max(1, round(100 * effect))
    small, large = effect_at(case, 1), effect_at(case, 4)
    block_ms = max((large.step_ms - small.step_ms) / 3, 1e-3)
    return max(
        1, min(MOST_DEPTH, 1 + round((small.planted_ms / effect - small.step_ms) / block_ms))
    )


def _steps() -> Any:
    from benchmarks import planted_steps

    return planted_steps


def run_one(name: str, effect: float, number: int) -> dict[str, Any]:
    """Measure and diagnose one step in this process; `name` is a case, or a network with nothing
    planted.
    """
    import torch

    import curvescope
    from curvescope.profiling.measure.protocol import Protocol

    torch.manual_seed(number)
    case = CASES.get(name)
    began_s = time.monotonic()
    if case:
        make, values, axis = getattr(_steps(), case.make), case.values, case.axis
        depth = depth_for(case, effect)
        planted = effect_at(case, depth)
        truth = {
            **asdict(planted),
            "effect": planted.planted_ms / planted.step_ms,
            "shows": planted.shows(),
        }
        if not planted.shows():
            return {"depth": depth, **truth, "seconds": time.monotonic() - began_s}
        protocol = Protocol("planted", (8, 16), 1, (1, 4), 0.04, 2, SWEEP_S)
    else:
        make, values, axis, truth = getattr(_steps(), f"{name}_parts"), NULL_VALUES, "batch", {}
        depth = 1 + number % 3
        protocol = Protocol("planted", (8, 16), 1, (1, 4), 0.03, 2, SWEEP_S)
    with tempfile.TemporaryDirectory() as folder:
        found = curvescope.diagnose(
            make,
            values,
            device="cpu",
            axis=axis,
            fixed={"depth": depth},
            protocol=protocol,
            experiments_s=case.experiments_s
            if case
            else STILL_S
            if name in STILL
            else EXPERIMENTS_S,
            output=Path(folder, "run"),
        )
        described = describe(found)
    return {"depth": depth, **truth, **described, "seconds": time.monotonic() - began_s}


def run(name: str, effect: float | None, number: int) -> dict[str, Any]:
    """Measure one step in a process of its own."""
    case = CASES.get(name)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(
            case.threads if case else 1 + number // 2 % 2 if name in STILL else 1
        ),
        # Threads that wait without a core often share one afterwards, so a step takes one of two
        # times, as long as it pleases the system. What nothing makes faster has the default, as
        # users do.
        **({} if name in STILL else {"OMP_WAIT_POLICY": "passive"}),
        _steps_nice(): str(os.nice(0)),
    }
    began_s = time.monotonic()
    key = {"name": name, "target": effect, "number": number}
    words = [sys.executable, __file__, "--one", json.dumps(key)]
    load = os.getloadavg()[0]
    try:
        done = subprocess.run(
            words,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {**key, "error": f"it took more than {_LONGEST_S:.0f} s", "load": load}
    if done.returncode:
        return {**key, "error": done.stderr.strip().splitlines()[-_KEPT_LINES:], "load": load}
    return {
        **key,
        **json.loads(done.stdout.splitlines()[-1]),
        "wall_s": time.monotonic() - began_s,
        "load": load,
    }


def _steps_nice() -> str:
    return "PLANTED_NICE"  # planted_steps.NICE, without importing torch


def kept_runs(path: Path) -> list[dict[str, Any]]:
    """The runs so far, without a last line that an interruption cut off."""
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        path.write_text("".join(whole))
    return [json.loads(line) for line in whole]


def missing(
    kept: Sequence[dict[str, Any]],
    cases: Sequence[str],
    effects: Sequence[float],
    runs: int,
    null: int,
    still: int = 0,
) -> list[tuple[str, float | None, int]]:
    """Name, target effect and number of the runs that are not kept yet, in the order to run them.

    Cases and networks take turns, so that whatever time there is, all have about as many runs.
    """
    wanted: list[tuple[str, float | None, int]] = [
        (name, effects[number % len(effects)], number) for number in range(runs) for name in cases
    ]
    wanted += [(NULL_NETWORKS[number % len(NULL_NETWORKS)], None, number) for number in range(null)]
    wanted += [(STILL[number % len(STILL)], None, number) for number in range(still)]
    done = {(one["name"], one["target"], one["number"]) for one in kept if "error" not in one}
    return [one for one in wanted if one not in done]


def counting(kept: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that count: those that ended well, and whose step shows what was planted."""
    return [one for one in kept if "error" not in one and one.get("shows", True)]


class Tally(NamedTuple):
    """Runs that count, and what became of them."""

    steps: int  # with a planted cause
    confirmed: int  # whose right cause is confirmed
    leads: int  # and led the answer
    wrong: int  # in which a wrong cause is confirmed
    nulls: int  # sweeps of nothing
    null_wrong: int  # in which a cause is confirmed
    wrong_causes: tuple[str, ...]


def tally(kept: Sequence[dict[str, Any]]) -> Tally:
    """Count runs by what they confirmed."""
    whole = counting(kept)
    scores = [score(CASES[run["name"]], run) for run in whole if run["name"] in CASES]
    nulls = [score(None, run) for run in whole if run["name"] in NULL_NETWORKS]
    wrong_causes = {cause for one in (*scores, *nulls) for cause in one.wrong}
    return Tally(
        len(scores),
        sum(one.confirmed for one in scores),
        sum(one.leads for one in scores),
        sum(bool(one.wrong) for one in scores),
        len(nulls),
        sum(bool(one.wrong) for one in nulls),
        tuple(sorted(wrong_causes)),
    )


def figures() -> list[str]:
    """What the kept runs say, as three sentences."""
    counts = tally(kept_runs(KEPT))
    return [
        f"The right cause was confirmed in **{_share(counts.confirmed, counts.steps)}** of the "
        "steps with a planted cause.",
        f"A wrong cause was confirmed in **{_share(counts.wrong, counts.steps)}** of them.",
        "With nothing planted, a cause was confirmed in "
        f"**{_share(counts.null_wrong, counts.nulls)}** of the sweeps.",
    ]


MACHINES_HEAD = ("machine", "right cause confirmed", "wrong cause", "nothing planted: a cause")


def rows_of_machines() -> list[list[str]]:
    """The same counts of all files of runs."""
    tallies = {
        "One or two cores of an Intel Xeon, load 0.3 to 2.7, 2026-11-23": tally(kept_runs(KEPT))
    }
    tallies |= {where: tally(kept_runs(path)) for where, path in OTHERS.items()}
    return [
        [
            where,
            f"{counts.confirmed} of {counts.steps}",
            f"{counts.wrong} of {counts.steps}",
            f"{counts.null_wrong} of {counts.nulls}",
        ]
        for where, counts in tallies.items()
    ]


HEAD = (
    "planted",
    "right cause",
    "runs",
    "effects",
    "layer right",
    "confirmed",
    "leads",
    "wrong confirmed",
    "seconds",
)


def rows(kept: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A row for each planted cause."""
    table = []
    whole = counting(kept)
    for name, case in CASES.items():
        runs = [run for run in whole if run["name"] == name]
        if runs:
            table.append(_row(case, runs))
    return table


def _row(case: Case, runs: Sequence[dict[str, Any]]) -> list[str]:
    scores = [score(case, run) for run in runs]
    effects = [run["effect"] for run in runs]
    layers = [one.layer for one in scores if one.layer is not None]
    wrong = sorted({cause for one in scores for cause in one.wrong})
    count = str(sum(bool(one.wrong) for one in scores))
    return [
        case.what,
        _joined(sorted(case.causes)),
        str(len(runs)),
        f"{min(effects):.0%} to {max(effects):.0%}",
        f"{sum(layers)} of {len(layers)}" if layers else "no layer",
        str(sum(one.confirmed for one in scores)),
        str(sum(one.leads for one in scores)),
        f"{count} ({_joined(wrong)})" if wrong else count,
        f"{median(run['wall_s'] for run in runs):.0f}",
    ]


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.1%})" if whole else "not measured"


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names)


def machine() -> dict[str, Any]:
    """Facts of this machine and its software."""
    from curvescope.profiling.hardware.host import describe_environment

    host = describe_environment()
    return {
        "cpu": host["host"]["cpu"],
        "cores": host["host"]["usable_cores"],
        "python": host["host"]["python"],
        **{name: host["versions"][name] for name in ("torch", "curvescope")},
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> int:
    """Run what is missing, and print the table of all runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated (default: all)")
    parser.add_argument(
        "--effects",
        default=",".join(map(str, EFFECTS)),
        help="shares of the step (default %(default)s)",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=0,
        metavar="N",
        help="runs of each case, over the effects in turn",
    )
    parser.add_argument(
        "--null", type=int, default=0, metavar="N", help="sweeps with nothing planted"
    )
    parser.add_argument(
        "--still",
        type=int,
        default=0,
        metavar="N",
        help="sweeps of steps that nothing makes faster",
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start nothing after this time"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=KEPT,
        metavar="FILE",
        help="where runs are kept (default: %(default)s)",
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        key = json.loads(args.one)
        print(json.dumps(run_one(key["name"], key["target"], key["number"])))
        return 0
    cases, effects = args.cases.split(","), [float(effect) for effect in args.effects.split(",")]
    if unknown := set(cases) - set(CASES):
        parser.error(f"--cases {', '.join(sorted(unknown))}: choose from {', '.join(CASES)}")
    if args.runs and (
        waiting := [name for name in cases if CASES[name].threads > len(os.sched_getaffinity(0))]
    ):
        parser.error(
            f"{', '.join(waiting)}: its threads need a processor each; leave it out by --cases, or "
            "give more"
        )
    kept, began_s, facts = kept_runs(args.results), time.monotonic(), machine()
    for name, effect, number in missing(kept, cases, effects, args.runs, args.null, args.still):
        if time.monotonic() - began_s > args.seconds:
            break
        found = {**run(name, effect, number), "machine": facts}
        kept.append(found)
        with args.results.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(summary(found), file=sys.stderr, flush=True)
    print(*markdown(HEAD, rows(kept)), sep="\n")
    return 0


def summary(record: dict[str, Any]) -> str:
    """One line on a run."""
    if "error" in record:
        return f"{record['name']} {record['number']}: {record['error']}"
    case = CASES.get(record["name"])
    if not record.get("shows", True):
        return (
            f"{record['name']} {record['number']} {record['effect']:.1%}: the step does not show "
            "what was planted"
        )
    found = score(case, record)
    effect = f" {record['effect']:.1%}" if case else ""
    answers = (
        "; ".join(
            f"{a['label']}: {a['layer']}, {a['cause']} {a['verdict']}" for a in record["answers"]
        )
        or "no anomaly"
    )
    if record["name"] in STILL:
        return (
            f"{record['name']} {record['number']}: {record['changes_tried']} changes tried, saving "
            f"{record['saves'] or 'nothing'}"
        )
    return (
        f"{record['name']} {record['number']}{effect}: layer {found.layer}, confirmed "
        f"{found.confirmed}, wrong {', '.join(found.wrong) or 'none'} ({record['wall_s']:.0f} s): "
        f"{answers}"
    )


if __name__ == "__main__":
    sys.exit(main())
