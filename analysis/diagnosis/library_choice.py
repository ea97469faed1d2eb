"""Whether a library could do better for the products of an anomaly: what experiments on its term
show, and the command that also times what no experiment on one term can set.

A limit of a library's instructions holds for a whole process and is read once, so it would change
every other operator of the step too: `bench gemm --candidates` times products under it alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...base.arguments import device_kind
from ...profiling.hardware.precisions import PRECISIONS
from ...profiling.recording.operators import TORCH_DTYPES, TensorArgument, decode_arguments
from ...profiling.recording.store import Recording
from ..causes.kernel_choice import ALGORITHM_SWITCH
from ..causes.work import LIBRARIES, SLOW_CALL
from ..decompose.repeated_layers import group_of
from ..decompose.statistics import Estimate
from ..verdicts.outcome import Outcome
from .explanation import Explanation
from .result import Diagnosis

_OF_LIBRARIES = (SLOW_CALL, ALGORITHM_SWITCH)
_PRODUCTS = ("aten::linear", "aten::addmm", "aten::mm")
# Those of which `bench gemm` has candidates, by the stored type.
_PRECISIONS = {PRECISIONS[name].torch_dtype: name for name in ("fp64", "fp32", "fp16", "bf16")}


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
    ran = [
        outcome
        for outcome in outcomes
        if outcome.factor in LIBRARIES and outcome.gains and outcome.changed_results is None
    ]
    choices = [
        LibraryChoice(batch, _ratio(gain), len(ran) + 1, outcome, outcome.rounds)
        for outcome in ran
        for batch, gain in zip(outcome.batches, outcome.gains, strict=True)
        if math.isfinite(gain.high) and 0 < gain.low <= gain.high < 1
    ]
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
    claims = (term.claim for total in answer.causes for term in total.terms)
    return answer.cause is None and any(
        claim is not None and claim.cause in _OF_LIBRARIES for claim in claims
    )


def _command(recording: Recording, diagnosis: Diagnosis, answer: Explanation) -> str | None:
    share = next(
        share_of_term for share_of_term in answer.shares if share_of_term.label == answer.where
    )
    groups = group_of(diagnosis.recorded.groups)
    columns = ["layer", "phase", "op", "batch", "arguments", "duration_ns"]
    rows = [
        row
        for row in recording.arrow("operators", columns).to_pylist()
        if row["op"] in _PRODUCTS
        and groups.get(row["layer"] or "", row["layer"]) == share.key.layer
        and row["phase"] == share.key.phase
        and row["batch"] in answer.functional.conditions
    ]
    if not rows:
        return None
    longest = max(rows, key=lambda row: row["duration_ns"] or 0)
    product = _product(longest)
    if product is None:
        return None
    alike = [
        made
        for row in rows
        if row["op"] == longest["op"] and (made := _product(row)) is not None
        if (made["m"], made["k"]) == (product["m"], product["k"])
    ]
    sizes = ",".join(map(str, sorted({alike_product["n"] for alike_product in alike})))
    axes = {**product, "n": sizes}
    precision = axes.pop("precision")
    named = " ".join(f"--axis {name}={value}" for name, value in axes.items())
    device = device_kind(recording.meta)
    return f"curvescope bench gemm --candidates --device {device} --precision {precision} {named}"


def _product(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The extents of a product of rows with a matrix, as `bench gemm` names them; None if it is of
    another form.
    """
    tensors = (
        argument
        for argument in decode_arguments(row["arguments"])
        if isinstance(argument, TensorArgument)
    )
    matrices = [tensor for tensor in tensors if len(tensor.shape) > 1]
    if len(matrices) != 2 or len(matrices[1].shape) != 2:
        return None
    x, weight = matrices
    precision = _PRECISIONS.get(TORCH_DTYPES.get(weight.dtype, ""))
    rows, columns = weight.shape
    if precision is None:
        return None
    if row["op"] == "aten::linear":
        m, k, is_transposed = rows, columns, True
    else:
        m, k = columns, rows
        is_transposed = weight.strides == (1, rows) and columns > 1
    transpose = "TN" if is_transposed else "NN"
    n = math.prod(x.shape[:-1])
    return {"m": m, "n": n, "k": k, "transpose": transpose, "precision": precision}
