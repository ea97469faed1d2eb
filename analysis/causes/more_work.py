"""More work than in proportion: a layer's operators do more work, or others, than the batch size asks for.

A time is work over rate, T = W·τ, so with ω the mean of W/b a functional Σ c·T is Σ c·(W − ωb)·τ, which is this cause,
plus ω·Σ c·b·τ, the same work done more slowly, which is left to all other causes. W is FLOPs of the products,
convolutions and attention of a term together, else the compulsory bytes of each operator. An operator that does not run
at some sizes has no work there; one that runs at a single size needs none known: with a constant τ it is all work.

Amount: exact, from shapes and recorded times; no experiment can tell more.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from ..decompose.terms import OPTIMIZER
from .case import Case, Claim, Intervention, Use, WorkPart, seen, total

CAUSE = "more work than in proportion"
INTERVENTION = Intervention(
    expected="With work in proportion to the batch size, the share goes away.",
    untested="it follows from the shapes of the operators",
)
_REFUTATION = "The operators have other shapes, or run at other batch sizes, than recorded."
_PRODUCT = re.compile(
    r"(?!.*upsample)[\w:]*(?:mm|linear|matmul|conv|attention|einsum|lstm|gru|rnn|cdist|mv|dot)\w*",
    re.IGNORECASE,
)


def weights_of_work(case: Case) -> tuple[dict[int, float], float]:
    """The part of a term's functional that is more work than in proportion, as weights of the term's times.

    By batch size, empty if no work is known; and the time at the larger one whose work is known, ms.
    """
    parts = case.work
    whole_ms = {batch: case.time_ms(batch) for batch in case.functional.conditions}
    weights = {
        b: math.fsum(part.more_ms.get(b, 0.0) for part in parts) / ms
        for b, ms in whole_ms.items()
        if ms
    }
    return weights if parts else {}, math.fsum(part.times_ms[case.after] for part in parts)


def weigh(case: Case) -> Claim | None:
    """Claim the exact part, if it differs from 0; an optimizer's work, which is constant, has a cause of its own."""
    value = case.share.work.value if case.share.work else None
    if value is None or case.share.key.phase == OPTIMIZER or value.low <= 0 <= value.high:
        return None
    most = max(case.work, key=lambda part: math.fsum(part.more_ms.values()) * value.value)
    before, after = (most.work.get(batch) for batch in case.sides)
    if not most.unit:
        detail = f"({most.name} runs at {' and '.join(map(str, most.work))} only)"
        evidence = seen(
            f"calls of {most.name} per step", _calls(case, most.name), "", "kernels.name"
        )
    else:
        ratio = f"{after / before:.3g} times" if before and after else "other"
        detail = f"({most.name}: {ratio} {most.unit} at {case.factor:.3g} times the size)"
        evidence = seen(
            f"{most.unit} of {most.name} per step",
            (before, after),
            "",
            "kernels.flops, bytes_compulsory",
        )
    return Claim(CAUSE, value.value, 1.0, (evidence,), _REFUTATION, detail)


def _calls(case: Case, op: str) -> list[float]:
    return [math.fsum(use.calls for use in case.at(b) if use.op == op) for b in case.sides]


def parts_of_work(case: Case) -> Iterator[WorkPart]:
    """What is known of the work of a term: of its products together, and of each other operator."""
    sizes = case.functional.conditions
    for name, uses in _groups(case.uses):
        times = {b: math.fsum(use.time_ms for use in uses if use.batch == b) for b in sizes}
        ran = [batch for batch, time_ms in times.items() if time_ms > 0]
        unit, work = _work(uses, ran)
        if work is None:
            continue
        per_sample = math.fsum(work[batch] / batch for batch in ran) / len(sizes)
        of_missing = math.fsum(case.coefficient(b) * b for b in sizes if b not in work) / len(ran)
        more = {
            b: (case.coefficient(b) - per_sample * (case.coefficient(b) * b + of_missing) / work[b])
            * times[b]
            for b in ran
        }
        yield WorkPart(name, unit, work, times, more)


def _groups(uses: Iterable[Use]) -> Iterator[tuple[str, list[Use]]]:
    groups: dict[str, list[Use]] = defaultdict(list)
    for use in uses:
        if use.op is not None:  # a kernel by another name may do the same work
            groups[use.op].append(use)
    products = [
        op
        for op, of_op in groups.items()
        if _PRODUCT.fullmatch(op) and total(tuple(of_op), "flops")
    ]
    if products:
        yield " and ".join(products), [use for op in products for use in groups.pop(op)]
    yield from groups.items()


def _work(uses: list[Use], ran: list[int]) -> tuple[str, Mapping[int, float] | None]:
    """Unit and work of a group of uses by batch size at which it ran; None if unknown at one of several."""
    if len(ran) == 1:
        return "", {ran[0]: 1.0}
    is_product = all(_PRODUCT.fullmatch(use.op or "") for use in uses)
    column, unit = ("flops", "FLOPs") if is_product else ("bytes_compulsory", "compulsory bytes")
    work = {batch: total(tuple(use for use in uses if use.batch == batch), column) for batch in ran}
    known = {batch: amount for batch, amount in work.items() if amount}
    return unit, known if ran and len(known) == len(ran) else None
