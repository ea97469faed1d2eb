"""What a real card took, as lines of a virtual card's configuration; measured.toml says from which
files.

Costs stand in measured.toml. Products are those of the campaign's stage `peaks`, and a convolution
is the list of the kernels that cuDNN ran for it in a recorded training step, of each direction and
batch size.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("measured.toml")
# A backward pass is that of the data and then that of the weights, which begins with the first
# kernel of this name.
_OF_WEIGHTS = "wgrad"
_OF_PYTORCH = "at::native"
_PLACE = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
_LIMITS = ["registers_per_thread", "shared_memory_bytes"]
_LEAST_NS = 1200  # of a kernel that ran beside the one before it


@lru_cache
def table() -> dict[str, Any]:
    """The cards that were measured."""
    return tomllib.loads(TABLE.read_text())


def cost_lines(key: str) -> list[str]:
    """The measured costs of a card; none where none was measured."""
    costs = table().get(key, {}).get("costs", {})
    return [f"cost {name} {cost['value']}" for name, cost in costs.items()]


def device_lines(key: str) -> tuple[str, ...]:
    """The measured products and convolutions of a card, of any precision and size."""
    return _device_lines(key) if key in table() else ()


@lru_cache
def _device_lines(key: str) -> tuple[str, ...]:
    return (*product_lines(key), *convolution_lines(key))


def stage_rows(key: str, name: str) -> list[dict[str, Any]]:
    """The rows of a table of the campaign on a real card, of all its stages."""
    evidence = json.loads((ROOT / table()[key]["evidence"]).read_text())
    assert evidence["virtual"] is False
    return [row for stage in evidence["stages"] for row in stage["tables"].get(name, [])]


def recording_of(key: str) -> Path:
    """The recorded training steps of a network on a real card."""
    return ROOT / str(table()[key]["recording"])


def product_lines(key: str) -> Iterator[str]:
    """`product PRECISION EXTENT NS CLOCK_HZ`: square products in a queue, less the gap between two
    of them.
    """
    gap_ns = table()[key]["costs"]["gap_ns"]["value"]
    for row in stage_rows(key, "peaks"):
        kind, shape, *_, precision = row["problem"].split()
        if kind == "gemm":
            extent, clock_hz = shape.split("x")[0], row["clock_mhz"] * 1e6
            yield f"product {precision} {extent} {row['us'] * 1e3 - gap_ns:.0f} {clock_hz:.0f}"


def convolution_lines(key: str) -> Iterator[str]:
    """`convolution DIRECTION` with the sizes of image, filters and result, then `kernel` lines."""
    from curvescope.profiling.recording.store import open_recording

    recording = open_recording(recording_of(key))
    steps, kernels = recording.frame("steps"), recording.frame("kernels")
    last = steps[steps["profiled"]].groupby("batch")["step"].max()
    written = set()
    for batch, step in last.items():
        of_step = kernels[(kernels["step"] == step) & ~kernels["name"].str.contains(_OF_PYTORCH)]
        of_step = of_step.sort_values("start_ns")
        forward = of_step[of_step["op"] == "aten::conv2d"]
        for layer, of_layer in forward.groupby("layer", sort=False):
            image, filters, _ = of_layer["op_shapes"].iloc[0].split(", ")
            backward = of_step[(of_step["layer"] == layer) & (of_step["phase"] == "backward")]
            of_weights = backward["name"].str.contains(_OF_WEIGHTS, case=False).cummax()
            parts = {
                "fprop": of_layer,
                "dgrad": backward[~of_weights],
                "wgrad": backward[of_weights],
            }
            result = backward["op_shapes"].iloc[0]
            assert image.split("x")[0] == str(batch)
            for direction, part in parts.items():
                sizes = " ".join(f"{image}x{filters}x{result}".split("x"))
                line = f"convolution {direction} {sizes}"
                if line in written or part.empty:  # the first layer has no gradient of its image
                    continue
                written.add(line)
                yield line
                yield from _kernel_lines(part)


def _kernel_lines(kernels: Any) -> Iterator[str]:
    """`kernel NS GRID BLOCK REGISTERS SHARED NAME`; cuDNN takes two streams: the time in which no
    earlier one ran.
    """
    end_ns = 0
    for one in kernels[["start_ns", "duration_ns", *_PLACE, *_LIMITS, "name"]].itertuples(
        index=False
    ):
        own_end_ns = one.start_ns + one.duration_ns
        alone_ns = max(_LEAST_NS, own_end_ns - max(one.start_ns, end_ns))
        end_ns = max(end_ns, own_end_ns)
        geometry = " ".join(str(value) for value in one[2:-1])
        yield f"kernel {alone_ns} {geometry} {one.name}"
