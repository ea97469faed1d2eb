"""Causes in numbers: which values operands have, and in which precision."""

from __future__ import annotations

from ...profiling.attribution.kernel_precision import kernel_precision
from .case import Case, Cause, Intervention, TermOperands
from .evidence import Claim, Evidence, Strength, cite
from .single_profile import ProfiledStep, Suggestion, fact

# Values: the same kernels take longer for the numbers that a batch size has, denormal ones or
# indices. CPU only.
#
# The shares are those of one step. The amount is an upper bound.

VALUES = "values of the operands"
_REFUTATION = "With usual numbers in the operands the term keeps its value."
_MORE_DENORMAL = 0.01  # share of the elements
_LESS_DISTINCT = 0.1  # share of the indices


def weigh_values(case: Case) -> Claim | None:
    """Claim the time beyond that with the numbers of the fastest batch size."""
    if case.share.key.kind != "kernels" or case.hardware.kind != "cpu":
        return None
    amount = case.beyond_fastest(
        lambda batch, fastest: _differ(case.operands(batch), case.operands(fastest))
    )
    if not amount:
        return None
    denormals = [case.operands(batch).denormals for batch in case.sides]
    distinct = [case.operands(batch).distinct for batch in case.sides]
    evidence = []
    if any(denormals):
        what = "share of denormal numbers in operands and results"
        evidence.append(cite(what, denormals, "1", "operators.numbers"))
    if any(distinct):
        evidence.append(cite("share of distinct indices", distinct, "1", "operators.numbers"))
    if not evidence:
        return None
    return Claim(VALUES, amount, Strength.HINT, tuple(evidence), _REFUTATION)


def _differ(numbers: TermOperands, fastest: TermOperands) -> bool:
    """Whether the numbers at a batch size may be slower than those at the fastest one; False if
    unknown.
    """
    denormals = _difference(numbers.denormals, fastest.denormals)
    distinct = _difference(numbers.distinct, fastest.distinct)
    return denormals > _MORE_DENORMAL or abs(distinct) > _LESS_DISTINCT


def _difference(share: float | None, of_fastest: float | None) -> float:
    if share is None or of_fastest is None:
        return 0.0
    return share - of_fastest


values = Cause(
    name=VALUES,
    weigh=weigh_values,
    intervention=Intervention(
        expected=(
            "With usual numbers in the operands, or with denormal numbers flushed to 0, the term's "
            "share goes away."
        ),
        term=("usual_values", "flush_denormal"),
        step=("flush_denormal",),
    ),
)


# Precision: an operator of a term runs in another floating-point type at another batch size.

PRECISION = "precision"


def weigh_precision(case: Case) -> Claim | None:
    """Claim the time beyond that in the type of the fastest batch size."""
    if case.share.key.kind != "kernels":
        return None
    amount = case.beyond_fastest(lambda batch, fastest: bool(_find_change(case, batch, fastest)))
    changed = _find_change(case, case.before, case.after)
    if not amount or not changed:
        return None
    op = changed[0]
    before, after = (" and ".join(sorted(case.operands(batch).dtypes[op])) for batch in case.sides)
    evidence = Evidence(f"type of the operands of {op}", before, after, "", "operators.arguments")
    refutation = "In one precision at all sizes the term keeps its value."
    detail = f"(from {before} to {after})"
    return Claim(PRECISION, amount, Strength.FACT, (evidence,), refutation, detail)


def _find_change(case: Case, batch: int, other: int) -> list[str]:
    """The operators that have no type in common at two batch sizes."""
    types = case.operands(batch).dtypes
    others = case.operands(other).dtypes
    changed = []
    for op in types:
        if op in others and types[op].isdisjoint(others[op]):
            changed.append(op)
    return changed


_FASTER = 2.0  # peak of another precision over that of fp32, from which it is worth a word
_OTHERS = ("tf32", "bf16", "fp16")
_HALVES = ("bf16", "fp16")
_TORCH_FACTORS = {"tf32": "tf32", "bf16": "bf16_autocast"}
JAX_FACTORS = {"tf32": "jax_tf32"}


def suggest_precision(step: ProfiledStep) -> Suggestion | None:
    """Suggest a shorter type, where products compute in fp32 beside tensor cores that
    are faster.
    """
    if not step.is_torch and not step.is_jax:
        return _suggest_halves(step)
    fp32 = step.hardware.roof("compute", "fp32")
    roofs = [step.hardware.roof("compute", name) for name in _OTHERS]
    others = [roof for roof in roofs if roof is not None]
    products = step.select_kernels(lambda name: kernel_precision(name) == "fp32")
    spent_ms = float(products["ms"].sum())
    if fp32 is None or not others or spent_ms <= 0:
        return None if step.is_jax else _suggest_halves(step)
    if step.is_jax and len(step.select_kernels(lambda name: kernel_precision(name) == "tf32")):
        return None  # one setting of JAX allows TF32, and it is on: XLA chose each kernel
    # The bound is of the change that is proposed: TF32 before autocast, which changes more.
    fast = [roof for roof in others if roof.per_s >= _FASTER * fp32.per_s]
    best = fast[0] if fast else max(others, key=lambda roof: roof.per_s)
    saved_ms = spent_ms * (1 - fp32.per_s / best.per_s)
    if best.per_s < _FASTER * fp32.per_s or not step.enough(saved_ms):
        return None if step.is_jax else _suggest_halves(step)
    ratio = best.per_s / fp32.per_s
    evidence = (
        fact("products in fp32, per step", spent_ms, "ms", "kernels.name"),
        fact(f"peak of {best.precision} over that of fp32", ratio, "", "devices.toml"),
    )
    factor_of = JAX_FACTORS if step.is_jax else _TORCH_FACTORS
    names = {roof.precision for roof in fast}
    factors = tuple(factor for precision, factor in factor_of.items() if precision in names)
    return Suggestion(
        cause=PRECISION,
        what="computes products in fp32, beside tensor cores that take shorter types",
        at_most_ms=saved_ms,
        evidence=evidence,
        where=step.place_of(products),
        factors=factors,
        remedy=None if factors else "compute products in fp16 by autocast",
        how=None if factors else "with torch.autocast('cuda', torch.float16): and a GradScaler",
    )


def _suggest_halves(step: ProfiledStep) -> Suggestion | None:
    """Suggest half precision for products in fp32 and in TF32: of a program that no framework has
    one setting for, or where PyTorch has set TF32 already.
    """
    best = 0.0
    for name in _HALVES:
        half = step.hardware.roof("compute", name)
        best = max(best, half.per_s if half else 0.0)
    saved_ms = 0.0
    evidence = []
    of_name = step.groups["name"].map(lambda name: kernel_precision(str(name)))
    for name in ("fp32", "tf32"):
        roof = step.hardware.roof("compute", name)
        of_type_ms = float(step.groups.loc[of_name == name, "ms"].sum())
        if roof is None or not of_type_ms or best < _FASTER * roof.per_s:
            continue
        saved_ms += of_type_ms * (1 - roof.per_s / best)
        peak, ratio = f"peak of half precision over that of {name}", best / roof.per_s
        evidence += [
            fact(f"products in {name}, per step", of_type_ms, "ms", "kernels.name"),
            fact(peak, ratio, "", "devices.toml"),
        ]
    if not step.enough(saved_ms):
        return None
    longer = step.groups[of_name.isin(("fp32", "tf32"))]
    has_bf16 = step.hardware.roof("compute", "bf16") is not None
    factors = (_TORCH_FACTORS["bf16"],) if step.is_torch and has_bf16 else ()
    return Suggestion(
        cause=PRECISION,
        what="computes products in long types, beside tensor cores that take shorter ones",
        at_most_ms=saved_ms,
        evidence=tuple(evidence),
        where=step.place_of(longer),
        factors=factors,
        remedy=None if factors else "compute products in fp16 or bf16",
    )


precision = Cause(
    name=PRECISION,
    weigh=weigh_precision,
    suggest=suggest_precision,
    intervention=Intervention(
        expected="In one precision at all sizes, the term's share goes away.",
        step=("bf16_autocast",),
    ),
)
