"""Parameters of described networks where images are stored channels last, as JAX and Keras do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .description import Description, Row

LEARNING_RATE, MOMENTUM, SEED = 1e-6, 0.9, 0  # of the training steps, as in `network_step`


def convert_shape(row: Row, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape here of a parameter that torch stores in `shape`."""
    if len(shape) == 4:
        return (*shape[2:], shape[1], shape[0])
    if row.op == "linear":
        return tuple(reversed(shape))
    return shape


def weights_of(description: Description, of_torch: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as NumPy arrays, by layer and name, from torch's by name; so are gradients."""
    import numpy as np

    made: dict[str, Any] = {}
    for row in description.rows:
        for name in row.parameters:
            array = np.asarray(of_torch[f"{row.layer}.{name}"])
            if row.op == "convolution" and array.ndim == 4:
                array = array.transpose(2, 3, 1, 0)
            elif row.op == "linear" and array.ndim == 2:
                flat = row.settings["before_flat"]
                if len(flat) == 3:  # flattened channels last
                    images = array.reshape(-1, *flat).transpose(0, 2, 3, 1)
                    array = images.reshape(len(array), -1)
                array = array.T
            made[f"{row.layer}.{name}"] = np.ascontiguousarray(array)
    return made


def padding_around(row: Row, extents: tuple[int, ...]) -> list[tuple[int, int]]:
    """Padding before and after each extent of an image, so that a pool's windows give its outputs.

    Torch may round their number up; then the last window reaches over the edge.
    """
    of = row.settings
    around = []
    windows = (extents, row.shape[1:], of["size"], of["stride"], of["padding"])
    for extent, outputs, size, stride, padding in zip(*windows, strict=True):
        after = max((outputs - 1) * stride + size - extent - padding, 0)
        around.append((padding, after))
    return around
