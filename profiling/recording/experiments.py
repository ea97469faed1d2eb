"""Experiments of a recording: what each one runs, as entries of `recording.json`.

The verdict is computed from the rows of the table `experiments` whenever it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ...base.words import Word

TIME_IS_UP = "the time for experiments was up"  # reason for what is untested
# kind of an experiment that tests no functional of T, but T itself at each batch size
TIME = "time"
_TOGETHER = "+"  # between the names of factors that are changed together


PADDED_BATCH = "padded_batch"  # the factor that runs a size as the next multiple
# Blocked kernels of CPUs take 8 or 16 fp32 lanes (AVX2, AVX-512), tensor cores of GPUs sizes of 8
# in 16 bits, and tiles of products are 16 or 32 rows at least.
MULTIPLES = (8, 16, 32)


def choose_multiple(batches: Sequence[int]) -> int | None:
    """The multiple that batch sizes are padded to: the smallest that does not divide one of them;
    else None.
    """
    for multiple in MULTIPLES:
        if any(batch % multiple for batch in batches):
            return multiple
    return None


def pad(batch: int, multiple: int | None) -> int:
    """The next multiple of a batch size; itself without a multiple."""
    return batch if multiple is None else -(-batch // multiple) * multiple


def members(name: str) -> tuple[str, ...]:
    """The factors that a name of a factor stands for: several if they are changed together."""
    return tuple(name.split(_TOGETHER))


def name_together(names: Iterable[str]) -> str:
    """The name of factors that are changed together."""
    return _TOGETHER.join(names)


class Stage(Word):
    """Stages of the experiments on one anomaly."""

    ALONE = "alone"  # the term's operators over the functional's batch sizes, without a change
    GRID = "grid"  # the same over more batch sizes around the functional's
    SCREEN = "screen"  # a few rounds for each of many factors
    CONFIRM = "confirm"  # fresh rounds for the factors that the screen suggests
    REMEDY = "remedy"  # the complete step, unprofiled, with the factors that helped


class Scope(Word):
    """What an experiment runs."""

    TERM = "term"  # the operators of one term, alone
    STEP = "step"  # complete steps


@dataclass(frozen=True)
class Wave:
    """Where the last wave of a kernel's blocks ends, of one batch size."""

    batch: int  # the batch size
    filled: int  # the largest batch size that certainly takes as many waves
    beyond: int  # the smallest that certainly takes one more
    last: int  # the largest that certainly takes one more
    empty: float  # empty share of the last wave of the batch size

    def cost(self) -> dict[int, float]:
        """What the empty share costs, as weights of times by batch size.

        If blocks run in waves, `filled` takes as long as the batch size, `beyond` a wave longer,
        and `last` as long as `beyond`. What `filled` takes more is taken off, and from the wave
        what further samples cost there. So a time that grows with the samples costs nothing or
        less, also where it begins to grow at `filled`.
        """
        growth = self.empty * (self.beyond - self.filled) / (self.last - self.beyond)
        return {
            self.batch: 1.0,
            self.filled: -1.0 - self.empty,
            self.beyond: self.empty + growth,
            self.last: -growth,
        }


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment."""

    number: int  # number of the experiment, from 0; the column `experiment` of its rows
    stage: Stage  # stage of the experiment
    scope: Scope  # what it runs
    # coefficients of the tested functional of T, as (batch size, coefficient)
    functional: tuple[tuple[int, float], ...]
    functional_kind: str  # excess, bend, outlier, or fixed cost; `TIME` without one
    batches: tuple[int, ...]  # batch sizes to run, increasing
    # names of the factors to change, one at a time. Every round also runs without a change. A name
    # of a complete step may stand for several, see `members`
    factors: tuple[str, ...] = ()
    # layer of the term; None for work outside layers, and for complete steps
    layer: str | None = None
    phase: str | None = None  # phase of the term; None without a phase, and for complete steps
    rounds: tuple[int, int] = (5, 25)  # minimum and maximum number of rounds, after each start
    starts: int = 1  # how often all processes of complete steps start anew, at most
    # seconds of the run; after the minimum number of rounds, a round starts only if it is expected
    # to end within them
    time_limit_s: float | None = None
    # reason by name, for factors that could not be changed
    untested: Mapping[str, str] = field(default_factory=dict)
    # differences by name, for factors that change the results beyond rounding
    changed_results: Mapping[str, str] = field(default_factory=dict)
    # further observations of the runner, e.g. operators that could not be rebuilt; one sentence
    # each
    notes: tuple[str, ...] = ()
    done: bool = False  # whether the experiment ran to its end, with the minimum number of rounds
    # number of seconds after which no round starts, even below the minimum number; None for no
    # deadline
    deadline_s: float | None = None
    # further functionals of the same term that its batch sizes test, as (kind, coefficients)
    also: tuple[tuple[str, tuple[tuple[int, float], ...]], ...] = ()
    # the layer that runs for a term of repeated layers; None for other terms
    member: str | None = None
    members: int = 1  # number of layers that the term stands for
    # further batch sizes that run unmodified, for a factor `by_size`; see `Wave`
    waves: tuple[Wave, ...] = ()
    # of complete steps: seconds until the first step of each batch size had run, by name of the
    # factor; "" for the unmodified steps
    setup_s: Mapping[str, float] = field(default_factory=dict)
    # of complete steps: most memory that these first steps took, by name as for `setup_s`; without
    # the names where it is unknown
    memory_bytes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Experiment:
        """The experiment in an entry of `recording.json`; unknown names are left out."""
        names = {field.name for field in fields(cls)}
        values = {name: value for name, value in entry.items() if name in names}
        values["stage"] = Stage(entry["stage"])
        values["scope"] = Scope(entry["scope"])
        values["functional"] = _coefficients(entry["functional"])
        values["waves"] = tuple(Wave(**wave) for wave in entry.get("waves", ()))
        also = [(str(kind), _coefficients(weights)) for kind, weights in entry.get("also", ())]
        values["also"] = tuple(also)
        for name in ("batches", "factors", "rounds", "notes"):
            if name in values:
                values[name] = tuple(values[name])
        return cls(**values)

    @property
    def unmodified(self) -> tuple[int, ...]:
        """The batch sizes that run unmodified, increasing."""
        further = (size for wave in self.waves for size in (wave.filled, wave.beyond, wave.last))
        return tuple(sorted({*self.batches, *further}))

    def to_entry(self) -> dict[str, Any]:
        """The experiment as an entry of `recording.json`."""
        return asdict(self)

    def by_functional(self) -> Iterator[Experiment]:
        """The same experiment as a test of each of its functionals alone, with the batch sizes that
        one needs.
        """
        if not self.also:
            yield self
            return
        for kind, functional in ((self.functional_kind, self.functional), *self.also):
            batches = tuple(sorted(batch for batch, _ in functional))
            yield replace(
                self, functional=functional, functional_kind=kind, batches=batches, also=()
            )


def _coefficients(entry: Iterable[Any]) -> tuple[tuple[int, float], ...]:
    return tuple((int(batch), float(weight)) for batch, weight in entry)


@dataclass(frozen=True, kw_only=True)
class FactorFacts:
    """The change of a factor, for readers of a recording; an entry of `factors` in
    `recording.json`, by scope.

    The verdict depends on the last four; where a recording lacks one, it is false.
    """

    name: str  # short name, e.g. `onednn`
    # the change as a clause without a subject's name, e.g. "products run through oneDNN instead of
    # MKL"
    what: str
    # an instruction, e.g. "run {where} through oneDNN"; {where} is the layer or "the step". None if
    # the change is an experiment only, e.g. cold caches
    remedy: str | None = None
    # instructions to set it, e.g. the environment variables or the call; None as for `remedy`
    how: str | None = None
    # the same for steps that compute gradients; None if `how` is for these too
    how_training: str | None = None
    # whether batch sizes run at nearly the same size, which removes every bend, or through another
    # library, which may be slower at all of them: it proves something only if a batch size becomes
    # faster
    levels: bool = False
    # whether it brings its cause about at the batch sizes without the anomaly, all but the largest,
    # instead of removing it
    brings_about: bool = False
    # whether it removes a part of its cause only: it confirms the cause and cannot refute it
    partial: bool = False
    # whether it changes nothing but the batch size: what it removes follows from unmodified runs at
    # further batch sizes, see `Experiment.waves`
    by_size: bool = False


def experiments_of(meta: Mapping[str, Any]) -> tuple[Experiment, ...]:
    """The experiments of a recording, by its `recording.json`."""
    return tuple(Experiment.from_entry(entry) for entry in meta.get("experiments", ()))


def factors_of(meta: Mapping[str, Any], scope: str) -> dict[str, FactorFacts]:
    """The facts on the factors that experiments of one scope changed, by name: a step's are set
    unlike a layer's.
    """
    names = {field.name for field in fields(FactorFacts)}
    facts = {}
    for factor, entry in meta.get("factors", {}).get(scope, {}).items():
        values = {name: value for name, value in entry.items() if name in names}
        facts[factor] = FactorFacts(**values)
    return facts
