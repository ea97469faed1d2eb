"""Where the remaining error lies: signed errors by mechanism and card, on cards left out of the fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from curvescope.analysis.cost_model.problems import NARROW

_LEAST_SHARE = 0.05  # of the error of its kind that a mechanism must make to be listed
_SMALL_IMAGE = 7
_BATCHES = ((1, 8), (16, 64), (128, np.inf))  # published batch sizes are powers of two


def write_remaining_report(operators: pd.DataFrame, steps: pd.DataFrame) -> list[str]:
    """The section: operators by algorithm and shape, what is common to the cards, and steps by network and batch size.

    Args:
        operators: rows of `compare`, of cards that were left out of the fit.
        steps: result of `compare_sweeps`.
    """
    rows = operators.assign(
        error=np.log(operators.predicted_ms / operators.measured_ms), shape=[*map(_shape, operators.itertuples())]
    )
    cards = sorted(rows.device.unique())
    lines = [
        "## Where the remaining error lies", "",
        "Signed: + is predicted too slow, - too fast. The median over rows of the logarithm of predicted over measured",
        "time, each card left out of the fit. A sign that all cards share belongs to the model; one that changes",
        "belongs to a card or its library. *Share*: of the sum of absolute errors of the kind; mechanisms that make",
        f"less than {_LEAST_SHARE:.0%} are not listed.", "",
        f"| kind | algorithm | shape | n | share | mean error | {' | '.join(cards)} |",
        "|---|---|---|--:|--:|--:|" + "--:|" * len(cards),
    ]  # fmt: skip
    for kind, of_kind in rows.groupby("kind"):
        error = (of_kind.predicted_ms / of_kind.measured_ms - 1).abs()
        shares = error.groupby([of_kind.algorithm, of_kind["shape"]]).sum().sort_values(ascending=False) / error.sum()
        for (algorithm, shape), share in shares[shares >= _LEAST_SHARE].items():
            part = of_kind[(of_kind.algorithm == algorithm) & (of_kind["shape"] == shape)]
            lines.append(
                f"| {kind} | {algorithm} | {shape} | {len(part)} | {share:.0%} | {error[part.index].mean():.1%} | "
                f"{_signed(part.error[part.device == card] for card in cards)} |"
            )
    lines += ["", *_common_to_cards(rows)]
    lines += [
        "Steps of whole networks:", "",
        "| GPU | framework | network | mode | n | " + " | ".join(map(_range, _BATCHES)) + " |",
        "|---|---|---|---|--:|" + "--:|" * len(_BATCHES),
    ]  # fmt: skip
    steps = steps.assign(error=np.log(steps.modelled_ms / steps.published_ms))
    for key, part in steps.groupby(["gpu", "framework", "network", "mode"]):
        by_batch = (part.error[part.batch.between(least, most)] for least, most in _BATCHES)
        lines.append(f"| {' | '.join(key)} | {len(part)} | {_signed(by_batch)} |")
    return [*lines, ""]


def _range(batches: tuple[float, float]) -> str:
    least, most = batches
    return f"batch {least:g} and more" if most == np.inf else f"batch {least:g} to {most:g}"


def _signed(groups: Iterable[pd.Series]) -> str:
    return " | ".join(f"{errors.median():+.0%}" if len(errors) else "" for errors in groups)


def _shape(row: object) -> str:
    """What sets the mechanism of an operator apart; the problem is named as by `convolution_names`."""
    kind, problem = row.kind, row.problem  # type: ignore[attr-defined]
    if kind == "product":
        width = "narrow" if row.error_kind == NARROW else "wide"  # type: ignore[attr-defined]
        return f"{width}, {'transposed' if 'T' in problem else 'as it is'}"
    w, h, _, _, r, s, stride = map(int, problem.split("x"))
    kernel = f"{r}×{s}" if r * s <= 9 else "larger kernels"
    strided = f", stride {stride}" if stride > 1 else ""
    return f"{kernel}{strided}{', small images' if max(w, h) <= _SMALL_IMAGE else ''}"


def _common_to_cards(rows: pd.DataFrame) -> list[str]:
    """How small errors would be without what other cards' errors tell of a row's."""
    error, kinds = rows.error, rows.kind
    of_card = error.groupby([rows.kind, rows.device]).transform("median")
    rest = error - of_card
    keys = ["kind", "problem", "batch"]
    by_shape = rows.assign(rest=rest).groupby(keys).rest
    of_shape = pd.Series(np.nan, rows.index)
    for _, part in by_shape:
        for index in part.index:
            of_shape[index] = part.drop(index).median()  # of other cards
    known = of_shape.notna()
    lines = [
        "What would be left if a part of the error were known: a card's own median, or the median error of the same",
        "shape and batch size on the other cards, after theirs. The first says what one measurement of a card brings,",
        "the second how much of the error is one of shapes:", "",
        "| kind | n | median and mean error | without the card's | without the shape's | without both |",
        "|---|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    for kind, part in rows[known].groupby(kinds[known]):
        at = part.index
        of_both: Sequence[pd.Series] = (error[at], rest[at], error[at] - of_shape[at], rest[at] - of_shape[at])
        cells = (np.expm1(one).abs() for one in of_both)
        lines.append(
            f"| {kind} | {len(part)} | " + " | ".join(f"{c.median():.1%} and {c.mean():.1%}" for c in cells) + " |"
        )
    return [*lines, ""]
