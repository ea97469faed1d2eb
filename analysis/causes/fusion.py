"""Causes in kernels that one kernel could replace: attention in several kernels, and pointwise
kernels in a row.

Only single profiles show them: a sweep has no experiment that rewrites a network, but compiling it.
"""

from __future__ import annotations

import re

import pandas as pd

from ...profiling.attribution.kernel_names import ELEMENTWISE, GEMM, GEMV, LAYOUT, SOFTMAX, family
from .case import Cause
from .single_profile import ProfiledStep, Suggestion, fact

# Attention in several kernels: the product of queries and keys, a scale, a mask, softmax, and the
# product with the values. Each writes all scores to memory, which one fused kernel never does.

ATTENTION_IN_PARTS = "attention in several kernels"
_SOFTMAX = re.compile(r"softmax", re.IGNORECASE)
_OTHER_SOFTMAX = re.compile(r"log_?softmax|cross_entropy|nll|topk|gating", re.IGNORECASE)
_PRODUCTS = re.compile(
    r"^(?:aten::)?(?:matmul|bmm|baddbmm|einsum)\b|^(?:Bmm|Baddbmm|Einsum)Backward", re.IGNORECASE
)
_BETWEEN = re.compile(
    r"^(?:aten::)?(?:mul|div|add|sub|masked_fill|where|dropout|native_dropout|to|_to_copy)_?$"
    r"|^(?:Mul|Div|Add|Sub|MaskedFill|Where|NativeDropout|Dropout|ToCopy)Backward\d",
    re.IGNORECASE,
)
_ATTENTION_LAYER = re.compile(r"attention|attn|mha|multihead", re.IGNORECASE)
_PRODUCTS_OF_ONE = 2  # batched products of one softmax in attention
_ROUTER = re.compile(r"top_?k", re.IGNORECASE)  # it picks experts by a softmax of its own
_ROUNDED = 1e-6  # calls per step of several steps are no whole numbers


def suggest_attention(step: ProfiledStep) -> Suggestion | None:
    """Suggest a fused kernel, where layers take a softmax between two batched products."""
    if step.on_host or step.groups.empty:
        return None
    attention = _attention(step.groups)
    is_product = attention["part"] == "product"
    scores, products = attention[~is_product], attention[is_product]
    softmax = scores[scores["part"] == "softmax"]
    scores_ms, products_ms = float(scores["ms"].sum()), float(products["ms"].sum())
    softmax_ms, calls = float(softmax["ms"].sum()), float(softmax["calls"].sum())
    if not step.enough(scores_ms):
        return None
    beside = "scaling, masking and conversion beside it, per step"
    evidence = (
        fact("softmax, per step", softmax_ms, "ms", "kernels.name"),
        fact("its calls per step", calls, "", "kernels"),
        fact(beside, scores_ms - softmax_ms, "ms", "kernels.op"),
        fact("batched products, per step", products_ms, "ms", "kernels.op"),
    )
    how = "an attention kernel of the framework, e.g. of cuDNN, that never writes the scores"
    if step.is_torch:
        how = (
            "torch.nn.functional.scaled_dot_product_attention(q, k, v); in transformers "
            "attn_implementation='sdpa'; need_weights=True or output_attentions=True prevents it"
        )
    return Suggestion(
        cause=ATTENTION_IN_PARTS,
        what="computes attention in several kernels, each of which writes all scores to memory",
        at_most_ms=scores_ms + products_ms - _least_ms(step, products),
        evidence=evidence,
        where=step.place_of(scores),
        remedy="compute attention in one kernel",
        how=how,
    )


def _attention(groups: pd.DataFrame) -> pd.DataFrame:
    """The kernels of attention in parts, with a column `part`: softmax, product or between.

    A layer and phase computes it so if it has two batched products for each softmax that is not a
    router's. Without operators the layer must be called attention, and all its products count.
    """
    name, op = groups["name"], groups["op"].fillna("").astype(str)
    of_family = name.map({text: family(str(text)) for text in name.unique()})
    texts = op.where(op != "", name.astype(str))
    softmax = of_family.eq(SOFTMAX) & texts.str.contains(_SOFTMAX)
    softmax &= ~texts.str.contains(_OTHER_SOFTMAX) & ~name.str.contains("LogSoftMax")
    layer = groups["layer"].fillna("").astype(str)
    by_name = op.eq("") & layer.str.contains(_ATTENTION_LAYER)
    is_matrix = of_family.isin([GEMM, GEMV])
    products = op.str.contains(_PRODUCTS) | by_name & is_matrix
    pointwise = of_family.isin([ELEMENTWISE, LAYOUT])
    between = pointwise & op.str.contains(_BETWEEN) | by_name & of_family.eq(ELEMENTWISE)
    part = pd.Series("between", groups.index).mask(softmax, "softmax").mask(products, "product")
    routes = (texts + name.astype(str)).str.contains(_ROUTER)
    place = [groups["layer"], groups["phase"]]

    def calls_of(rows: pd.Series, by: list[pd.Series] = place) -> pd.Series:
        return groups["calls"].where(rows, 0.0).groupby(by, dropna=False).transform("sum")

    # A router may run several kernels for one softmax, each of them once.
    routers = calls_of(routes, [*place, name]).groupby(place, dropna=False)
    calls = calls_of(softmax) - routers.transform("max")
    computes = calls > _ROUNDED
    computes &= calls_of(products) >= _PRODUCTS_OF_ONE * calls - _ROUNDED
    return groups.assign(part=part)[computes & (softmax | products | between)]


def _least_ms(step: ProfiledStep, products: pd.DataFrame) -> float:
    """The least time of the products by the highest roof; 0 if work or roof is unknown."""
    rates = [0.0]
    for roof in (*step.hardware.roofs, *step.hardware.other_precisions):
        if roof.level == "compute":
            rates.append(roof.per_s)
    best = max(rates)
    if not best:
        return 0.0
    flops = float(products["flops"].dropna().sum())
    least_ms = 1e3 * flops / best / max(step.steps, 1)
    return min(least_ms, float(products["ms"].sum()))


attention_in_parts = Cause(
    name=ATTENTION_IN_PARTS,
    suggest=suggest_attention,
)


# Pointwise kernels in a row: each reads and writes memory, where one kernel would do it once.

POINTWISE_IN_A_ROW = "pointwise kernels in a row"


def suggest_pointwise(step: ProfiledStep) -> Suggestion | None:
    """Suggest to compile the step, where unfused pointwise kernels follow each other."""
    rows = step.in_a_row
    if step.on_host or rows.empty:
        return None
    saved_ms = float((rows["ms"] - rows["least_ms"]).sum())
    if not step.enough(saved_ms):
        return None
    longest = rows.loc[rows["ms"].idxmax(), "what"]
    kernels, ms, runs = (float(rows[name].sum()) for name in ("kernels", "ms", "runs"))
    evidence = (
        fact("pointwise kernels and copies in a row, per step", kernels, "", "kernels"),
        fact("their time, per step", ms, "ms", "kernels.duration_ns"),
        fact("runs of two or more, per step", runs, "", "kernels.start_ns"),
        fact("most time", str(longest), "", "kernels.op"),
    )
    return Suggestion(
        cause=POINTWISE_IN_A_ROW,
        what="runs pointwise kernels one after another, each of which reads and writes memory",
        at_most_ms=saved_ms,
        evidence=evidence,
        factors=("compiled",),
    )


pointwise_in_a_row = Cause(
    name=POINTWISE_IN_A_ROW,
    suggest=suggest_pointwise,
)
