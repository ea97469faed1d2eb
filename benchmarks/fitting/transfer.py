"""How far measuring one card tells the anomalies of another: a bound on what any rule over shapes could foresee.

cudnn_scope measured the same shapes with the same library on five cards, and on V100 with six releases of cuDNN. So the
measured curves of one card can be scored as a prediction of another's, like the model's curves. A rule that is learned
from some cards knows less of a shape than its measured times there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from curvescope.profiling.hardware.devices import get_device

from .anomalies import ANOMALIES, found_at_best, score, shapes, share
from .published import CURRENT_RELEASE, Measured, read_choices, read_v100_releases

_FALSE = 0.05  # the goal's share of false anomalies
# Releases that were measured in the same days as the current one, by their equal times; 7.6.4 was another run.
_SAME_RUN = ("7.5.0", "7.5.1", "7.6.0", "7.6.1")


def write_transfer_report(folder: Path) -> list[str]:
    """The section: what repeats, sibling boards and other architectures tell of an anomaly.

    Args:
        folder: of the published files.
    """
    releases = read_v100_releases(folder)
    others = [group for group in read_choices(folder) if group.device != "v100"]
    groups = [group for group in (*others, *releases) if group.release == CURRENT_RELEASE]
    lines = [
        "### What measurements of other cards tell", "",
        "A bound on any rule over shapes: here the prediction of a curve is not the model's, but the *measured* curve",
        "of the same shape with the same cuDNN elsewhere. *At best* is how many are found if the limit for the other",
        f"curve is chosen afterwards, so that {_FALSE:.0%} of the places without an anomaly are false.", "",
        "| curves of | anomaly | published | found | without | false | at best |", "|---|---|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    cases = {
        "V100, four other releases of cuDNN 7.5 and 7.6": [
            (truth, other) for truth in groups if truth.device == "v100" for other in releases
            if other.source == truth.source and other.release in _SAME_RUN
        ],
        "V100, cuDNN 7.6.4 (another run)": [
            (truth, other) for truth in groups if truth.device == "v100" for other in releases
            if other.source == truth.source and other.release not in (*_SAME_RUN, CURRENT_RELEASE)
        ],
        "another board of the same chip": _pairs(groups, same=True),
        "another architecture": _pairs(groups, same=False),
    }  # fmt: skip
    for title, pairs in cases.items():
        found = [_transferred(truth, other) for truth, other in pairs]
        scores = score(pd.concat(found)).set_index("anomaly")
        for anomaly in ANOMALIES:
            row = scores.loc[anomaly.name]
            best = sum(found_at_best(one, anomaly, _FALSE) for one in found)
            lines.append(
                f"| {title} | {anomaly.name} | {row.published} | {row.found}{share(row.found, row.published)} | "
                f"{row.quiet} | {row.false}{share(row.false, row.quiet)} | {best}{share(best, row.published)} |"
            )
    return [*lines, ""]


def _pairs(groups: Sequence[Measured], *, same: bool) -> list[tuple[Measured, Measured]]:
    def pairs() -> Iterator[tuple[Measured, Measured]]:
        for truth in groups:
            for other in groups:
                alike = get_device(truth.device).architecture == get_device(other.device).architecture
                if truth.source == other.source and truth.device != other.device and alike == same:
                    yield truth, other

    return list(pairs())


def _transferred(truth: Measured, other: Measured) -> pd.DataFrame:
    """Anomalies of the batch sizes that both have; the other's times are the prediction."""
    both = _curves(truth, "published_ms").merge(_curves(other, "modelled_ms"), on=["problem", "batch"])
    return shapes(both, ("problem",))


def _curves(group: Measured, column: str) -> pd.DataFrame:
    return pd.DataFrame({"problem": group.names, "batch": group.batches.astype(int), column: group.time_s * 1e3})


def write_publication_report(folder: Path) -> list[str]:
    """The section: how far two published times of the same card, network, mode and batch size differ.

    Args:
        folder: of the published files.
    """
    mxnet = pd.read_csv(folder / "mxnet_batch_sweeps.csv").rename(columns={"time_ms_per_batch": "time_ms"})
    hosts = pd.read_csv(folder / "networks.csv").rename(columns={"step": "mode"})
    hosts = hosts[hosts.gpu.isin(("Tesla K80 (GCE)", "Tesla K80 (EC2)"))]
    lines = [
        "## Two publications of the same steps", "",
        "The same card, network, mode and batch size, published twice. A model that does not know what else differs",
        "cannot be closer than about half of this.", "",
        "| what differs | n | median difference | mean | 90th percentile |", "|---|--:|--:|--:|--:|",
    ]  # fmt: skip
    for title, table, by in (
        ("K80, MXNet 0.9 with cuDNN 5.1 or MXNet 1.2 with cuDNN 7.0", mxnet, "source"),
        ("K80, TensorFlow 1.1 with cuDNN 5.1, on two providers' hosts", hosts, "gpu"),
    ):
        keys = ["network", "mode", "batch"] if by == "gpu" else ["gpu", "network", "mode", "batch"]
        both = table.pivot_table(index=keys, columns=by, values="time_ms").dropna()
        difference = (both.iloc[:, 0] / both.iloc[:, 1] - 1).abs()
        lines.append(
            f"| {title} | {len(both)} | {difference.median():.1%} | {difference.mean():.1%} | "
            f"{difference.quantile(0.9):.1%} |"
        )
    return [*lines, ""]
