"""Whether a library could do better for the products of an anomaly: what experiments on its term
show, and the command that also times what no experiment on one term can set.

A limit of a library's instructions holds for a whole process and is read once, so it would change
every other operator of the step too: `bench gemm --candidates` times products under it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...base.arguments import device_kind
from ...profiling.attribution.products import OF_MATRICES, Product, read_product
from ...profiling.recording.operators import decode_arguments
from ...profiling.recording.store import Recording
from ..causes.kernel_choice import ALGORITHM_SWITCH
from ..causes.work import LIBRARIES, SLOW_CALL
from ..decompose.repeated_layers import group_of
from ..decompose.statistics import Estimate
from ..verdicts.outcome import Outcome
from .explanation import Explanation
from .result import Diagnosis

_OF_LIBRARIES = (SLOW_CALL, ALGORITHM_SWITCH)


@dataclass(frozen=True)
class LibraryChoice:
    """The default of the libraries for a term in isolation, beside the best that they offer."""

    batch: int
    ratio: Estimate  # time of the default over that of the best
    ways: int  # number of ways that were timed, the default included
    best: Outcome
    rounds: int


def library_choice(outcomes: Iterable[Outcome]) -> LibraryChoice | None:
    """What the experiments on a term show of the libraries; None without one, or if no way is
    faster at any batch size by its interval.

    Of the sizes of the experiment that counts at which the default loses most. Ways that change the
    results do not count.
    """
    ran = []
    for outcome in outcomes:
        if outcome.factor in LIBRARIES and outcome.gains and outcome.changed_results is None:
            ran.append(outcome)
    ways = len(ran) + 1
    choices = []
    for outcome in ran:
        for batch, gain in zip(outcome.batches, outcome.gains, strict=True):
            if 0 < gain.low <= gain.high < 1:
                choices.append(LibraryChoice(batch, _ratio(gain), ways, outcome, outcome.rounds))
    return max(choices, key=lambda choice: choice.ratio.low, default=None)


def _ratio(gain: Estimate) -> Estimate:
    """Time over changed time, of the share that the change saves."""
    value, low, high = (1 / (1 - share) for share in (gain.value, gain.low, gain.high))
    return Estimate(value, low, high, gain.p)


def candidates_command(recording: Recording, diagnosis: Diagnosis) -> str | None:
    """The command that times the candidates of the library for the longest product of the first
    answer that is, or may be, about a library; None without one.
    """
    for answer in diagnosis.answers:
        if answer.where is not None and _is_of_library(answer):
            command = _command(recording, diagnosis, answer)
            if command is not None:
                return command
    return None


def _is_of_library(answer: Explanation) -> bool:
    """Whether a library's choice causes the anomaly, or may do so."""
    if answer.cause in _OF_LIBRARIES:
        return True
    if answer.cause is not None:
        return False
    for total in answer.causes:
        for term in total.terms:
            if term.claim is not None and term.claim.cause in _OF_LIBRARIES:
                return True
    return False


def _command(recording: Recording, diagnosis: Diagnosis, answer: Explanation) -> str | None:
    key = next(share.key for share in answer.shares if share.label == answer.where)
    groups = group_of(diagnosis.recorded.groups)
    columns = ["layer", "phase", "op", "batch", "arguments", "duration_ns"]
    rows = []
    for row in recording.arrow("operators", columns).to_pylist():
        layer = groups.get(row["layer"] or "", row["layer"])
        is_product = row["op"] in OF_MATRICES and row["batch"] in answer.functional.conditions
        if is_product and (layer, row["phase"]) == (key.layer, key.phase):
            rows.append(row)
    if not rows:
        return None
    longest = max(rows, key=lambda row: row["duration_ns"] or 0)
    product = _read_product(longest)
    if product is None:
        return None
    sizes = set()
    for row in rows:
        other = _read_product(row) if row["op"] == longest["op"] else None
        if other is not None and (other.m, other.k) == (product.m, product.k):
            sizes.add(other.n)
    axes = product._asdict()
    axes["n"] = ",".join(map(str, sorted(sizes)))
    precision = axes.pop("precision")
    named = " ".join(f"--axis {name}={value}" for name, value in axes.items())
    device = device_kind(recording.meta)
    return f"curvescope bench gemm --candidates --device {device} --precision {precision} {named}"


def _read_product(row: Mapping[str, Any]) -> Product | None:
    return read_product(row["op"], decode_arguments(row["arguments"]))
