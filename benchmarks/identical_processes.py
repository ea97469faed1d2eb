"""Identical processes taken for an unmodified step and a change of it: how often a claim is made
that is false.

Five variants of a step that differ in nothing run as an experiment on complete steps runs them:
five starts of all, each with two rounds. Every ordered pair of variants is then judged as the
unmodified step and a change. Any cause confirmed, or saving of 2 % proven, is false.

The same steps are judged once more with slow ones among them: every 20th takes five times as long,
from another first one in every process and batch size.

    python -m benchmarks.identical_processes --record    # some minutes, on a machine with nothing else to do
    python -m benchmarks.identical_processes             # judges what is kept, in the present rules
"""  # noqa: E501

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import nn
from torch.nn import functional

from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.verdicts.measurement import compare_rows, measure
from curvescope.analysis.verdicts.outcome import judge_all
from curvescope.analysis.verdicts.savings import savings
from curvescope.analysis.verdicts.words import Verdict
from curvescope.experiments.factor import Target
from curvescope.experiments.step_worker import StepWorker
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.protocol import EXPERIMENT
from curvescope.profiling.measure.visits import Empty, VisitPlan
from curvescope.profiling.recording.experiments import Experiment, FactorFacts, Scope, Stage

KEPT = Path(__file__).parent / "results" / "identical_processes.jsonl.gz"
BATCHES = (8, 16, 32)
VARIANTS, STARTS, ROUNDS = 5, 5, 2
CLAIM = 0.1  # of the step at the largest size: the anomaly that a cause is claimed for
MATERIAL = 0.02  # of a step: a smaller saving is not counted
CHANGE = "change"
SLOW_EVERY, SLOWER = 20, 5
DRAWS = 2  # of the first slow step


def _training(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        optimizer.step()
        return value

    return step


def convolutions(batch: int) -> Callable[[], object]:
    """A small convolutional network: its gradients take fresh memory in every step."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise((3, 32, 64, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 512), nn.Linear(512, 10))
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    return _training(model, lambda: functional.cross_entropy(model(images), labels))


def words(batch: int) -> Callable[[], object]:
    """A recurrent network over words: many short calls."""
    embedding, cells, head = nn.Embedding(2000, 128), nn.LSTM(128, 128), nn.Linear(128, 2000)
    tokens = torch.randint(2000, (21, batch))

    def loss() -> torch.Tensor:
        found = head(cells(embedding(tokens[:-1]))[0])
        return functional.cross_entropy(found.flatten(0, 1), tokens[1:].flatten())

    return _training(nn.ModuleList([embedding, cells, head]), loss)


def layers(batch: int) -> Callable[[], object]:
    """Wide linear layers, of which the optimizer's work is most at small sizes."""
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))
    inputs = torch.randn(16 * batch, 1024)
    return _training(model, lambda: model(inputs).square().mean())


KINDS = ("convolutions", "words", "layers")


class Judged(NamedTuple):
    """How many ordered pairs of one set of processes get a false claim."""

    pairs: int
    confirmed: int  # of a cause
    saved: int  # of a saving


def rows_of(kind: str) -> Iterator[dict[str, Any]]:
    """Steps of identical variants, started and visited as an experiment does it."""
    configuration = Configuration.of_step(f"{__spec__.name}:{kind}", "cpu")
    target, order = Target(configuration, BATCHES), random.Random(kind)
    for start in range(STARTS):
        workers = [StepWorker(target, None) for _ in range(VARIANTS)]
        try:
            for worker in workers:
                worker.warm_up()
            for round_ in range(start * ROUNDS, (start + 1) * ROUNDS):
                visits = list(itertools.product(range(VARIANTS), BATCHES))
                order.shuffle(visits)
                for variant, batch in visits:
                    found = workers[variant].visit(batch, VisitPlan(EXPERIMENT))
                    if isinstance(found, Empty):
                        raise SystemExit(f"{kind}, batch {batch}: {found.detail}")
                    place = {"kind": kind, "variant": variant, "batch": batch, "round": round_}
                    yield from (
                        {**place, "index": index, **row, "process": start}
                        for index, row in enumerate(found.unprofiled)
                    )
        finally:
            for worker in workers:
                worker.end()


def add_slow_steps(rows: pd.DataFrame, random_: random.Random) -> pd.DataFrame:
    """The same steps, every 20th of a process and batch size five times as long."""
    durations = rows["duration_ns"].copy()
    for _, steps in durations.groupby([rows["variant"], rows["batch"], rows["process"]]):
        slow = steps.index[random_.randrange(SLOW_EVERY) :: SLOW_EVERY]
        durations[slow] *= SLOWER
    return rows.assign(duration_ns=durations)


def judge(rows: pd.DataFrame) -> Judged:
    """Every ordered pair of the variants of one set, as the rules judge an experiment."""
    tested, facts = (
        excess(*BATCHES[-2:]),
        {CHANGE: FactorFacts(name=CHANGE, what=CHANGE, remedy=CHANGE)},
    )
    one = Experiment(
        number=0,
        stage=Stage.CONFIRM,
        scope=Scope.STEP,
        functional=tested.weights,
        functional_kind=tested.kind,
        batches=BATCHES,
        factors=(CHANGE,),
        rounds=(ROUNDS, ROUNDS),
        starts=STARTS,
        done=True,
    )
    confirmed = saved = 0
    pairs = list(itertools.permutations(sorted(rows["variant"].unique()), 2))
    for unmodified, changed in pairs:
        both = rows[rows["variant"].isin((unmodified, changed))]
        both = both.assign(
            experiment=0, factor=[CHANGE if v == changed else None for v in both["variant"]]
        )
        measured = [found for found, _ in measure(one, compare_rows(one, both), facts)]
        claims = {(one.functional, CHANGE): CLAIM * measured[0].times_ms[-1].value}
        outcomes = judge_all(measured, claims)
        confirmed += any(outcome.verdict == Verdict.CONFIRMED for outcome in outcomes)
        gains = [one.largest[1].value for one in savings(outcomes) if one.largest is not None]
        saved += any(gain >= MATERIAL for gain in gains)
    return Judged(len(pairs), confirmed, saved)


def main() -> None:
    """Record one more set if that is asked for, then judge all that are kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--record", action="store_true", help=f"record {', '.join(KINDS)} once more"
    )
    parser.add_argument("--file", type=Path, default=KEPT, help="where the steps are kept")
    args = parser.parse_args()
    if args.record:
        number = 1 + int(read(args.file)["set"].max()) if args.file.exists() else 0
        with gzip.open(args.file, "at") as file:
            for kind in KINDS:
                file.writelines(json.dumps({"set": number, **row}) + "\n" for row in rows_of(kind))
                print(f"recorded {kind}", flush=True)
    columns = ("set", "step", *2 * ("ordered pairs", "causes confirmed", "savings of 2 %"))
    print(f"| {' | '.join(columns)} |  (the last three with slow steps)")
    print("|--:|---|--:|--:|--:|--:|--:|--:|")
    for (number, kind), rows in read(args.file).groupby(["set", "kind"], sort=False):
        slow = Judged(0, 0, 0)
        for draw in range(DRAWS):
            drawn = judge(add_slow_steps(rows, random.Random(f"{draw}-{number}-{kind}")))
            slow = Judged(*map(sum, zip(slow, drawn, strict=True)))
        print(f"| {' | '.join(map(str, (number, kind, *judge(rows), *slow)))} |", flush=True)


def read(file: Path) -> pd.DataFrame:
    """The steps that are kept."""
    with gzip.open(file, "rt") as lines:
        return pd.DataFrame(map(json.loads, lines))


if __name__ == "__main__":
    main()
