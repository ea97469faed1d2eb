"""Max pools of cudnn_scope, each predicted from the ReLU before it and the slowdown of pools on other cards."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from curvescope.analysis.cost_model.constants import ARCHITECTURES
from curvescope.profiling.hardware.devices import get_device

from .published import CUDNN_SCOPE_CARDS

_POOL, _RELU = "CUDNN_POOLING_MAX", "CUDNN_ACTIVATION_RELU"
_LEAST_IMAGES = 32  # below, a launch takes as long as the bytes
# The pool reads the tensor that the ReLU read and wrote, and writes a quarter of it.
_BYTES_OF_RELU = (1 + 1 / 4) / 2


def read_pools(folder: Path) -> pd.DataFrame:
    """ResNet-50's 3x3 pool of stride 2 and the ReLU of its input, timed by cuDNN 7.6.

    Args:
        folder: of the published files.

    Returns:
        Columns device, n (images), pool_ms, relu_ms.
    """
    table = pd.read_csv(folder / "cudnn_other_layers.csv", dtype={"cudnn": str})
    table = table[table.cudnn.isin(("7.6.1", "7.6.3")) & table.algo.isin((_POOL, _RELU)) & (table.n >= _LEAST_IMAGES)]
    times = table.pivot_table(index=["card", "n"], columns="algo", values="time_ms", aggfunc="last").reset_index()
    return pd.DataFrame(
        {
            "device": times.card.map(CUDNN_SCOPE_CARDS),
            "n": times.n.astype(int),
            "pool_ms": times[_POOL],
            "relu_ms": times[_RELU],
        }
    )


def predict_pools(pools: pd.DataFrame) -> pd.DataFrame:
    """Predict each card's pools from its ReLUs and the slowdown of the cards nearest in age, without its own pools.

    Args:
        pools: result of `read_pools`.

    Returns:
        The columns of `pools`, and slowdown (from other cards: the median of the nearest architecture) and
        predicted_ms.
    """
    age = pools.device.map(lambda device: ARCHITECTURES.index(get_device(device).architecture))
    own = pools.pool_ms / pools.relu_ms / _BYTES_OF_RELU
    frames = []
    for device, part in pools.groupby("device"):
        others = pools.device != device
        distance = (age[others] - age[part.index[0]]).abs()
        slowdown = float(own[others][distance == distance.min()].median())
        frames.append(part.assign(slowdown=slowdown, predicted_ms=part.relu_ms * _BYTES_OF_RELU * slowdown))
    return pd.concat(frames)


def write_pool_report(folder: Path) -> list[str]:
    """The section on max pools.

    Args:
        folder: of the published files.
    """
    rows = predict_pools(read_pools(folder))
    rows = rows.assign(
        error=rows.predicted_ms / rows.pool_ms - 1, alone=_BYTES_OF_RELU * rows.relu_ms / rows.pool_ms - 1
    )
    lines = [
        "### Max pools, each card left out", "",
        "ResNet-50's 3×3 pool of stride 2, cuDNN 7.6, 32 to 1024 images: predicted from the card's own ReLU by the",
        "bytes and the slowdown of pools on the other cards nearest in age. *By bytes* takes no slowdown. It is one",
        "shape, forward; gradients of pools are not published.", "",
        "| GPU | n | slowdown | median | mean | bias | by bytes: bias |", "|---|--:|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    for device, part in [*rows.groupby("device"), ("all", rows)]:
        error = part.error.abs()
        slowdown = f"{part.slowdown.iloc[0]:.2f}" if device != "all" else ""
        lines.append(
            f"| {device} | {len(part)} | {slowdown} | {error.median():.1%} | {error.mean():.1%} | "
            f"{part.error.median():+.1%} | {part.alone.median():+.1%} |"
        )
    return [*lines, ""]
