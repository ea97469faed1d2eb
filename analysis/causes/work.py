"""Causes in how much work a term does: more of it, more often, in too large calls, of copies, or in
a slow call.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ...profiling.attribution.kernel_names import LAYOUT, read_name
from ..decompose.terms import OPTIMIZER
from .case import Case, Cause, Intervention, TermUses, Use, sum_ms, total
from .evidence import Claim, Strength, cite
from .single_profile import ProfiledStep, Suggestion, fact

# More work per sample: a layer's operators do more work, or others, than the batch size asks for.
#
# A time is work over rate, T = W·τ, so with ω the mean of W/b a functional Σ c·T is Σ c·(W − ωb)·τ,
# which is this cause, plus ω·Σ c·b·τ, the same work done more slowly, which is left to all other
# causes. W is FLOPs of the products, convolutions and attention of a term together, else the
# compulsory bytes of each operator. An operator that does not run at some sizes has no work there;
# one that runs at a single size needs none known: with a constant τ it is all work.
#
# Amount: exact, from shapes and recorded times; no experiment can tell more.

MORE_WORK = "more work per sample"
_REFUTATION_OF_MORE_WORK = (
    "The operators have other shapes, or run at other batch sizes, than recorded."
)
_LEAST_MORE = 0.01  # of the work at the largest size: what counts ask for beyond the smaller ones
_PRODUCT = re.compile(
    r"(?!.*upsample)[\w:]*(?:mm|linear|matmul|conv|attention|einsum|lstm|gru|rnn|cdist|mv|dot)\w*",
    re.IGNORECASE,
)


class _Part(NamedTuple):
    """The work of the products of a term, or of one other operator, by batch size."""

    name: str
    unit: str  # what its work is counted in; empty where it runs at one size, and needs no count
    work: Mapping[int, float]  # of sizes at which it runs
    times_ms: Mapping[int, float]
    more_ms: Mapping[int, float]  # the part of the functional that is more work per sample


def weights_of_work(term: TermUses) -> tuple[dict[int, float], float]:
    """The part of a term's functional that is more work per sample, as weights of the
    term's times.

    By batch size, empty if no work is known; and the time at the larger one whose work is known,
    ms.
    """
    parts = list(_parts(term))
    if not parts:
        return {}, 0.0
    weights = {}
    for size in term.functional.conditions:
        whole_ms = term.time_ms(size)
        if whole_ms:
            weights[size] = math.fsum(part.more_ms.get(size, 0.0) for part in parts) / whole_ms
    return weights, math.fsum(part.times_ms[term.after] for part in parts)


def weigh_more_work(case: Case) -> Claim | None:
    """Claim the exact part, if it differs from 0; an optimizer's work, which is constant, has a
    cause of its own, and so have sizes beyond the limit of what torch compiles.
    """
    value = case.share.work.value if case.share.work else None
    if case.runs_eagerly_at_some:  # which says why its operators are others
        return None
    if value is None or case.share.key.phase == OPTIMIZER or value.low <= 0 <= value.high:
        return None
    most = max(_parts(case), key=lambda part: math.fsum(part.more_ms.values()) * value.value)
    if not most.unit:
        sizes = " and ".join(map(str, most.work))
        detail = f"({most.name} runs at {sizes} only)"
        calls = _calls_of_operator(case, most.name)
        evidence = cite(f"calls of {most.name} per step", calls, "", "kernels.name")
    else:
        before, after = (most.work.get(batch) for batch in case.sides)
        ratio = f"{after / before:.3g} times" if before and after else "other"
        detail = f"({most.name}: {ratio} {most.unit} at {case.factor:.3g} times the size)"
        what = f"{most.unit} of {most.name} per step"
        evidence = cite(what, (before, after), "", "kernels.flops, bytes_compulsory")
    return Claim(
        MORE_WORK, value.value, Strength.FACT, (evidence,), _REFUTATION_OF_MORE_WORK, detail
    )


def asks_for_more(case: Case) -> bool:
    """Whether counts alone say that a term does more work than the smaller sizes ask for.

    Work that a larger size does instead of something else is no more work by its count.
    """
    asking_ms: list[float] = []
    of_all_ms: list[float] = []
    last = case.functional.last
    for part in _parts(case):
        if last not in part.work:
            return False
        of_all_ms += part.more_ms.values()
        if _count_more(case, part) > _LEAST_MORE * part.work[last]:
            asking_ms += part.more_ms.values()
    return math.fsum(asking_ms) > math.fsum(of_all_ms) / 2


def _count_more(case: Case, part: _Part) -> float:
    return case.evaluate(lambda batch: part.work.get(batch, 0.0))


def _calls_of_operator(case: Case, op: str) -> list[float]:
    return [math.fsum(use.calls for use in case.at(b) if use.op == op) for b in case.sides]


def _parts(term: TermUses) -> Iterator[_Part]:
    """The work of a term as far as it is known: of its products together, and of each other
    operator.
    """
    sizes = term.functional.conditions
    for name, uses in _groups(term.uses):
        times_ms = {size: sum_ms(uses, size) for size in sizes}
        ran = [size for size, time_ms in times_ms.items() if time_ms > 0]
        unit, work = _work(uses, ran)
        if work is None:
            continue
        per_sample = math.fsum(work[size] / size for size in ran) / len(sizes)
        missing = [term.coefficient(size) * size for size in sizes if size not in work]
        of_missing = math.fsum(missing) / len(ran)
        more_ms = {}
        for size in ran:
            weight = term.coefficient(size)
            in_proportion = per_sample * (weight * size + of_missing) / work[size]
            more_ms[size] = (weight - in_proportion) * times_ms[size]
        yield _Part(name, unit, work, times_ms, more_ms)


def find_replaced_products(case: Case) -> frozenset[str]:
    """The products that run at one of the two sizes only, where they replace each other.

    They do if both sizes have some, and these take as many FLOPs a sample.
    """
    products: list[set[str]] = []
    for batch in case.sides:
        ran = (use.op for use in case.at(batch) if use.op is not None)
        products.append(set(filter(_PRODUCT.fullmatch, ran)))
    changed = products[0] ^ products[1]
    flops_per_sample = []
    for batch in case.sides:
        flops = total(tuple(use for use in case.at(batch) if use.op in changed), "flops")
        flops_per_sample.append((flops or 0.0) / batch)
    before, after = flops_per_sample
    if not before or abs(after / before - 1) > _LEAST_MORE:
        return frozenset()
    return frozenset(changed)


def _groups(uses: Iterable[Use]) -> Iterator[tuple[str, list[Use]]]:
    groups: dict[str, list[Use]] = defaultdict(list)
    for use in uses:
        if use.op is not None:  # a kernel by another name may do the same work
            groups[use.op].append(use)
    products, of_products = [], []
    for op, of_op in list(groups.items()):
        if _PRODUCT.fullmatch(op) and total(tuple(of_op), "flops"):
            products.append(op)
            of_products += groups.pop(op)
    if products:
        yield " and ".join(products), of_products
    yield from groups.items()


def _work(uses: list[Use], ran: list[int]) -> tuple[str, Mapping[int, float] | None]:
    """Unit and work of a group of uses by batch size at which it ran; None if unknown at one of
    several.
    """
    if len(ran) == 1:
        return "", {ran[0]: 1.0}
    is_product = all(_PRODUCT.fullmatch(use.op or "") for use in uses)
    column, unit = ("flops", "FLOPs") if is_product else ("bytes_compulsory", "compulsory bytes")
    work = {}
    for batch in ran:
        amount = total(tuple(use for use in uses if use.batch == batch), column)
        if not amount:
            return unit, None
        work[batch] = amount
    return unit, work or None


more_work = Cause(
    name=MORE_WORK,
    weigh=weigh_more_work,
    intervention=Intervention(
        expected="With work in proportion to the batch size, the share goes away.",
        untested="it follows from the shapes of the operators",
    ),
)


# More calls: a layer runs the same kernels more often in a phase at the larger batch size; needs no
# model.
#
# Amount: the calls beyond the fewest at any batch size of the functional, each at the mean time of
# its kernel's there.

MORE_CALLS = "more calls"
# Calls beyond the fewest take at least this share of the term's time at the larger batch size.
_LEAST_SHARE_OF_MORE_CALLS = 0.1
_REFUTATION_OF_MORE_CALLS = (
    "With the smaller size's number of calls at both, the term keeps its value."
)


def weigh_more_calls(case: Case) -> Claim | None:
    """Claim the contribution of calls beyond the fewest."""
    names = case.common_names()
    if case.share.key.kind != "kernels" or not names:
        return None
    extra_ms = {}
    for batch in case.functional.conditions:
        extra_ms[batch] = math.fsum(_extra_ms(case, batch, name) for name in names)
    if extra_ms[case.after] < _LEAST_SHARE_OF_MORE_CALLS * case.time_ms(case.after):
        return None
    main = max(names, key=lambda name: _extra_ms(case, case.after, name))
    calls = [_calls_of_kernel(case, batch, main) for batch in case.sides]
    beyond = map(extra_ms.get, case.sides)
    evidence = (
        cite(f"calls of {main} per step", calls, "", "kernels.name"),
        cite("time of calls beyond the fewest", beyond, "ms", "kernels.duration_ns"),
    )
    amount = case.evaluate(extra_ms.__getitem__)
    return Claim(MORE_CALLS, amount, Strength.FACT, evidence, _REFUTATION_OF_MORE_CALLS)


def _extra_ms(case: Case, batch: int, name: str) -> float:
    """Time of a kernel's calls at a batch size beyond the fewest at any."""
    calls = {size: _calls_of_kernel(case, size, name) for size in case.functional.conditions}
    if not calls[batch]:
        return 0.0
    fewest = min(number for number in calls.values() if number)
    return case.time_ms(batch, name) * (1 - fewest / calls[batch])


def _calls_of_kernel(case: Case, batch: int, name: str) -> float:
    return math.fsum(use.calls for use in case.at(batch, name))


more_calls = Cause(
    name=MORE_CALLS,
    weigh=weigh_more_calls,
    intervention=Intervention(
        expected="With as many calls at all sizes, the term's share goes away.",
        untested="how often a step calls an operator is the program's or the library's choice",
    ),
)


# Size of one call: an operator costs more per sample in a large call than in two smaller ones: only
# tests tell.

CALL_SIZE = "size of one call"


def weigh_call_size(case: Case) -> Claim | None:  # noqa: ARG001 - see above
    """Claim nothing."""
    return None


call_size = Cause(
    name=CALL_SIZE,
    weigh=weigh_call_size,
    intervention=Intervention(
        expected="With the batch in two halves, one after the other, the larger sizes get faster.",
        term=("split_batch",),
        step=("split_batch",),
    ),
)


# Copies: an operator copies an operand before it works, as it is expanded, not contiguous or of
# another type.
#
# `torch.bmm` on a CPU copies a matrix that all samples share, once for each sample.

COPIES = "copies of operands"
_COPY = re.compile(r"(?!Mem)(.*(copy|clone|contiguous|nchw|nhwc|permute)|reorder\b)", re.IGNORECASE)
_LEAST_SHARE_OF_COPIES = 0.1  # of the term's time at one of the sizes


def weigh_copies(case: Case) -> Claim | None:
    """Claim the contribution of copying kernels."""
    if case.share.key.kind != "kernels" or case.share.key.phase == OPTIMIZER:
        return None
    copying = [use for use in case.uses if use.op is not None and _copies(use.name)]
    # A layer whose work is to copy has no operand that it copies before it.
    if all(_copies(use.op or "") for use in case.uses):
        return None
    sides = [sum_ms(copying, batch) for batch in case.sides]
    largest = 0.0
    for batch, time_ms in zip(case.sides, sides, strict=True):
        if time_ms:
            largest = max(largest, time_ms / case.time_ms(batch))
    if largest < _LEAST_SHARE_OF_COPIES:
        return None
    most = max(copying, key=lambda use: (use.batch == case.after, use.time_ms))
    inside = f" in {most.op}" if most.op != most.name else ""
    what = f"time of {most.name}{inside} and other copies per step"
    evidence = (cite(what, sides, "ms", "kernels.duration_ns"),)
    amount = math.fsum(use.share for use in copying)
    refutation = "Without the copies the term keeps its value."
    return Claim(COPIES, amount, Strength.SIGN, evidence, refutation)


def _copies(name: str) -> bool:
    """Whether a kernel or operator copies; many others name the layout that they work on, e.g.
    `nchw`.
    """
    return _COPY.match(name) is not None and read_name(name).family == LAYOUT


_LAYOUT = re.compile(
    r"nchwToNhwc|nhwcToNchw|batched_transpose|tensorTransformGeneric|SubTensorOpWithTransform|reorder",
    re.IGNORECASE,
)


def suggest_copies(step: ProfiledStep) -> Suggestion | None:
    """Suggest the memory format that the kernels want, where images are converted for them; on a
    CPU, operands that need no copy.
    """
    if step.on_host:
        return _suggest_fewer_copies(step)
    converting = step.select_kernels(lambda name: _LAYOUT.search(name) is not None)
    spent_ms = float(converting["ms"].sum())
    if not step.enough(spent_ms):
        return None
    calls = float(converting["calls"].sum())
    evidence = (
        fact("kernels that convert the layout, per step", spent_ms, "ms", "kernels.name"),
        fact("their calls per step", calls, "", "kernels"),
    )
    return Suggestion(
        cause=COPIES,
        what="converts images between memory formats",
        at_most_ms=spent_ms,
        evidence=evidence,
        where=step.place_of(converting),
        factors=("channels_last",),
    )


_COPYING = ("aten::copy_", "aten::_to_copy", "aten::clone", "aten::contiguous")


def _suggest_fewer_copies(step: ProfiledStep) -> Suggestion | None:
    copying = step.groups[step.groups["op"].isin(_COPYING) | step.groups["name"].isin(_COPYING)]
    spent_ms = float(copying["ms"].sum())
    if not step.enough(spent_ms):
        return None
    calls = float(copying["calls"].sum())
    evidence = (
        fact("operators that copy, per step", spent_ms, "ms", "kernels.op"),
        fact("their calls per step", calls, "", "kernels"),
    )
    return Suggestion(
        cause=COPIES,
        what="copies tensors to another layout, type or place",
        at_most_ms=spent_ms,
        evidence=evidence,
        where=step.place_of(copying),
        remedy="keep tensors as the operators read them",
        how="convert once, before the loop, what .to(), .float(), .contiguous() and .clone() "
        "convert in each step; images in channels_last",
    )


copies = Cause(
    name=COPIES,
    weigh=weigh_copies,
    suggest=suggest_copies,
    intervention=Intervention(
        expected="With operands that are stored as the operator reads them, the term's share goes "
        "away.",
        term=("stored_operands",),
        shared=("channels_last",),
    ),
)


# Slow library call: a library runs an operator at a lower rate at one batch size than at another.
#
# Rates are shares of the roofline's time, so a crossing of the ridge is no lower rate. Without
# roofs both FLOP per second and bytes per second must be lower.

SLOW_CALL = "slow library call"
# factors of terms that let another library, or other algorithms of it, compute the same
LIBRARIES = ("onednn", "no_onednn", "no_cudnn", "cublaslt", "cublaslt_list")
# Rates of the same kernel differ by some percent anyway.
_FALLEN = 0.9


def weigh_slow_call(case: Case) -> Claim | None:
    """Claim the time lost to lower rates, for kernels that run at both sizes."""
    if case.share.key.kind != "kernels" or case.is_switched:
        return None
    rates = _rates(case)
    if not rates or min(rates.values()) > _FALLEN:
        return None
    amount = sum(
        case.coefficient(batch) * case.time_ms(batch) * (1 - rate) for batch, rate in rates.items()
    )
    shares, times = map(rates.__getitem__, case.sides), map(case.time_ms, case.sides)
    evidence = (
        cite("rate, as a share of the best", shares, "1", "kernels.flops"),
        cite("time per step", times, "ms", "kernels.duration_ns"),
    )
    refutation = "Through another library the term keeps its value."
    return Claim(SLOW_CALL, amount, Strength.HINT, evidence, refutation)


def _rates(case: Case) -> dict[int, float]:
    """Rate at each batch size as a share of the best, the highest of what can be its limit; empty
    if unknown.
    """
    batches = case.functional.conditions
    if any(case.time_ms(batch) <= 0 for batch in batches):
        return {}
    compute, dram = case.hardware.roof("compute"), case.hardware.roof("DRAM")
    flops = {batch: total(case.at(batch), "flops") or 0.0 for batch in batches}
    moved = {batch: total(case.at(batch), "bytes_compulsory") or 0.0 for batch in batches}
    limits = [flops, moved]
    if compute is not None and dram is not None and all(moved.values()):
        roof_s = {}
        for batch in batches:
            roof_s[batch] = max(flops[batch] / compute.per_s, moved[batch] / dram.per_s)
        limits = [roof_s]
    shares: dict[int, float] = {}
    for ideal in limits:
        rates = {batch: size / case.time_ms(batch) for batch, size in ideal.items()}
        best = max(rates.values())
        if min(rates.values()) > 0:
            for batch, rate in rates.items():
                shares[batch] = max(shares.get(batch, 0.0), rate / best)
    return shares


slow_call = Cause(
    name=SLOW_CALL,
    weigh=weigh_slow_call,
    intervention=Intervention(
        expected="Through another library, or with operands stored in another order, the term's "
        "share goes away.",
        term=(*LIBRARIES, "other_layout", "channels_last"),
        step=("no_onednn", "channels_last", "other_layout"),
    ),
)
