"""What a real card took, as lines of a virtual card's configuration; measured.toml says from which
files.

Costs and spreads stand in measured.toml. Products are those of the campaign's stage `peaks`, and a
convolution is the list of the kernels that cuDNN ran for it in a recorded training step, of each
direction and batch size. A size that the host paces has its streams and launches too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from .spreads import SHARES

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
# From one launch to the next: what takes longer is other work of the host; of a kernel alone.
_LONGEST_LAUNCH_NS, _LAUNCH_NS = 30_000, 10_000


@lru_cache
def table() -> dict[str, Any]:
    """The cards that were measured."""
    return tomllib.loads(TABLE.read_text())


def cost_lines(key: str) -> list[str]:
    """The measured costs of a card; none where none was measured."""
    costs = table().get(key, {}).get("costs", {})
    return [f"cost {name} {cost['value']}" for name, cost in costs.items()]


def spread_lines() -> list[str]:
    """What varies on the H100, which stands for the other cards too."""
    spreads = table()["h100"]["spreads"]
    return [
        " ".join(map(str, ["spread", name, *chain(*zip(SHARES, one["factors"], strict=True))]))
        for name, one in spreads.items()
    ]


def device_lines(key: str) -> tuple[str, ...]:
    """The measured products and convolutions of a card, of any precision and size."""
    return _device_lines(key) if key in table() else ()


@lru_cache
def _device_lines(key: str) -> tuple[str, ...]:
    paced = table()[key]["paced"]
    return (
        *product_lines(key),
        *convolution_lines(recording_of(key)),
        *convolution_lines(ROOT / paced["recording"], paced["batch"]),
    )


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


def convolution_lines(folder: Path, paced: int | None = None) -> Iterator[str]:
    """`convolution DIRECTION` with the sizes of image, filters and result, then `kernel` lines.

    Args:
        folder: the recording.
        paced: the only batch size to read, whose kernels wait for their launches; None: all, whose
            kernels follow each other.
    """
    from curvescope.profiling.recording.store import open_recording

    recording = open_recording(folder)
    steps, kernels = recording.frame("steps"), recording.frame("kernels")
    if paced is not None:
        calls = recording.frame("api_calls")[["step", "correlation_id", "start_ns"]]
        calls = calls.rename(columns={"start_ns": "launched_ns"})
        kernels = kernels.merge(calls, on=["step", "correlation_id"])
    last = steps[steps["profiled"]].groupby("batch")["step"].max()
    written = set()
    for batch, step in last.items():
        if paced is not None and batch != paced:
            continue
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
                yield from _kernel_lines(part) if paced is None else _paced_lines(part)


def _paced_lines(kernels: Any) -> Iterator[str]:
    """`kernel` lines of kernels as they were launched: their time, their stream, and the time from
    one launch to the next.
    """
    kernels = kernels.sort_values("launched_ns")
    every_ns = kernels["launched_ns"].astype(float).diff().clip(1, _LONGEST_LAUNCH_NS)
    kernels = kernels.assign(every_ns=every_ns.fillna(every_ns.median()).fillna(_LAUNCH_NS))
    streams = {kernels["stream"].iloc[0]: 0}
    columns = ["duration_ns", "stream", "every_ns", *_PLACE, *_LIMITS, "name"]
    for ns, stream, every, *rest in kernels[columns].itertuples(index=False):
        number = streams.setdefault(stream, len(streams))
        yield " ".join(map(str, ["kernel", ns, number, round(every), *rest]))


def _kernel_lines(kernels: Any) -> Iterator[str]:
    """`kernel NS STREAM LAUNCH_NS GRID BLOCK REGISTERS SHARED NAME`, in the caller's stream; cuDNN
    takes two: the time in which no earlier one ran.
    """
    end_ns = 0
    for one in kernels[["start_ns", "duration_ns", *_PLACE, *_LIMITS, "name"]].itertuples(
        index=False
    ):
        own_end_ns = one.start_ns + one.duration_ns
        alone_ns = max(_LEAST_NS, own_end_ns - max(one.start_ns, end_ns))
        end_ns = max(end_ns, own_end_ns)
        geometry = " ".join(str(value) for value in one[2:-1])
        yield f"kernel {alone_ns} 0 0 {geometry} {one.name}"
