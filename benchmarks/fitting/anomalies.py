"""Anomalies of published cost curves by name, and how many of them the model finds.

Most curves have a fixed cost, which alone makes every excess negative and every curve of time per sample concave-up:
a model that knows nothing else has these signs right. So the score counts only what no fixed cost can make, each kind
apart: how many published ones the model has too (found), and how many it has that were not published (false).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from curvescope.analysis.cost_model.problems import Flags, Floats

EFFECT = 0.05  # an excess or a curvature below this share of the step is not judged
_JUMP = 2.5  # of a single operator's time, for twice the batch


@dataclass(frozen=True)
class Anomaly:
    """A kind of anomaly.

    Attributes:
        name: its name.
        functional: excess or curvature.
        sign: sign of the functional.
        least: least size of the functional, as `shapes` gives it.
    """

    name: str
    functional: str
    sign: int
    least: float

    def found(self, sizes: Floats | pd.Series) -> Flags:
        """Whether functionals of these sizes are such an anomaly."""
        return np.asarray(self.sign * sizes > self.least)


ANOMALIES = (
    Anomaly("concave-down", "curvature", -1, EFFECT),
    Anomaly("positive excess", "excess", 1, EFFECT),
    Anomaly(f"jump over {_JUMP}", "excess", 1, 1 - 2 / _JUMP),  # T(2b) - 2 T(b), as a share of T(2b)
)


def shapes(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Every excess of two adjacent batch sizes and every log2 curvature.

    Args:
        rows: columns of `keys`, which name a curve, batch, published_ms and modelled_ms.
        keys: columns that name a curve.

    Returns:
        Columns of `keys`, functional (excess or curvature), at, doubled (whether the batch sizes are doubled),
        published, modelled: an excess as a share of the larger step, a curvature as a share of the time per sample.
    """
    found = []
    for key, curve in rows.groupby(list(keys), sort=True):
        curve = curve.sort_values("batch")
        batches = curve.batch.astype(int).tolist()
        both = curve[["published_ms", "modelled_ms"]].to_numpy(np.float64)
        times = dict(zip(batches, both, strict=True))
        for small, large in pairwise(batches):
            sizes = 1 - large / small * times[small] / times[large]
            found.append((*key, "excess", small, large == 2 * small, *sizes))
        for before, at, after in zip(batches, batches[1:], batches[2:], strict=False):
            if at == 2 * before and after == 2 * at:
                bends = times[after] / after - 2 * times[at] / at + times[before] / before
                found.append((*key, "curvature", at, True, *(bends * at / times[at])))
    return pd.DataFrame(found, columns=[*keys, "functional", "at", "doubled", "published", "modelled"])


def score(found: pd.DataFrame, by: Sequence[str] = (), anomalies: Sequence[Anomaly] = ANOMALIES) -> pd.DataFrame:
    """How many anomalies the model finds, and how many it claims where none was published.

    Args:
        found: result of `shapes`.
        by: columns to score apart.
        anomalies: kinds to score.

    Returns:
        Columns of `by`, anomaly, published (number of anomalies), found, quiet (number of places without), false.
    """
    lines = []
    for anomaly in anomalies:
        rows = found[(found.functional == anomaly.functional) & found.doubled]
        judged = rows.assign(is_one=anomaly.found(rows.published), said=anomaly.found(rows.modelled))
        for key, part in judged.groupby(list(by)) if by else [((), judged)]:
            said, is_one = part.said, part.is_one
            lines.append(
                (*key, anomaly.name, is_one.sum(), (said & is_one).sum(), (~is_one).sum(), (said & ~is_one).sum())
            )
    return pd.DataFrame(lines, columns=[*by, "anomaly", "published", "found", "quiet", "false"])


def found_at_best(found: pd.DataFrame, anomaly: Anomaly, false_share: float) -> int:
    """Number of published anomalies that are found at the best limit: the lowest one that keeps false ones few.

    The limit is chosen after the fact, so no rule that has to choose it beforehand finds more.

    Args:
        found: result of `shapes`.
        anomaly: the kind.
        false_share: greatest share of places without one where it is claimed.
    """
    rows = found[(found.functional == anomaly.functional) & found.doubled]
    is_one, strength = anomaly.found(rows.published), anomaly.sign * rows.modelled.to_numpy(np.float64)
    quiet = np.sort(strength[~is_one])[::-1]
    allowed = int(false_share * len(quiet))
    return int((strength[is_one] > quiet[allowed]).sum()) if len(quiet) else int(is_one.sum())


def share(part: int, whole: int) -> str:
    """E.g. ` (5%)`; empty of nothing."""
    return f" ({part / whole:.0%})" if whole else ""
