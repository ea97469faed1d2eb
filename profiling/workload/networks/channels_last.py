"""Parameters of described networks where images are stored channels last, as JAX and Keras do."""

from __future__ import annotations

from .description import Row

LEARNING_RATE, MOMENTUM, SEED = 1e-6, 0.9, 0  # of the training steps, as in `network_step`


def convert_shape(row: Row, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape here of a parameter that torch stores in `shape`."""
    if len(shape) == 4:
        return (*shape[2:], shape[1], shape[0])
    if row.op == "linear":
        return tuple(reversed(shape))
    return shape


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
