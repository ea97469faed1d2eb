"""The recorded steps that experiments run again: how they are built, their memory and clocks."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from ..analysis.causes.context import OPERAND_COLUMNS, read_operands, weights_of
from ..profiling.attribution.kernel_precision import precisions_of_products
from ..profiling.collect.compilations import OWN
from ..profiling.measure.configuration import Configuration
from ..profiling.recording.store import Recording
from .factor import Target
from .step_worker import CUDA_CONTEXT_BYTES

if TYPE_CHECKING:
    import pyarrow as pa


def _most_bytes(recording: Recording, column: str) -> dict[int, int]:
    """The largest value of a column on memory in the unprofiled steps of each batch size that have
    one.
    """
    most: dict[int, int] = {}
    for row in recording.rows("steps", ["batch", column, "profiled"]):
        if row[column] and not row["profiled"]:
            most[row["batch"]] = max(most.get(row["batch"], 0), row[column])
    return most


def fullness(recording: Recording) -> dict[int, float]:
    """Share of a CUDA device's memory that a process of the steps takes, by batch size; empty if
    unknown.
    """
    capacity = (recording.meta.get("device") or {}).get("memory_bytes")
    if not capacity:
        return {}
    most = _most_bytes(recording, "peak_memory_bytes")
    most |= _most_bytes(recording, "reserved_memory_bytes")
    return {batch: (size + CUDA_CONTEXT_BYTES) / capacity for batch, size in most.items()}


def target_of(
    recording: Recording, configuration: Configuration, batches: tuple[int, ...]
) -> Target:
    """The steps of a recording at some batch sizes, as far as it describes them."""
    peaks = _most_bytes(recording, "peak_memory_bytes")
    largest = peaks.get(batches[-1]) if batches else None
    memory_shares = {batch: peak / largest for batch, peak in peaks.items()} if largest else {}
    operators = recording.arrow("operators", OPERAND_COLUMNS)
    kernels = recording.arrow("kernels", ["phase", "name"])
    # a program has no operators but its kernels
    phases = _names(operators["phase"]) or _names(kernels["phase"])
    clocks_hz = []
    for row in recording.rows("steps", ["batch", "sm_clock_hz"]):
        if row["sm_clock_hz"] and row["batch"] in batches:
            clocks_hz.append(row["sm_clock_hz"])
    code = _read_code(recording)
    compiled = [batch for batch, ran in code.items() if ran == OWN]
    return Target(
        configuration,
        batches,
        memory_shares,
        phases=phases,
        operators=_names(operators["op"]),
        precisions=precisions_of_products(_names(kernels["name"])),
        lowest_clock_hz=min(clocks_hz, default=None),
        weights=weights_of(read_operands(operators, {})),
        compiled_code={batch: code[batch] for batch in batches if batch in code},
        compiled_before=tuple(batch for batch in compiled if batch not in batches),
    )


def _names(column: pa.ChunkedArray) -> frozenset[str]:
    """The different names in a column."""
    return frozenset(filter(None, column.unique().to_pylist()))


def compiling_s(recording: Recording) -> float | None:
    """Expected seconds to compile the steps for all their batch sizes, by the times of their first
    steps. None if the user's step is not compiled, or no first step is known.

    The smallest size is compiled before any is measured, and with it the common part of all.
    """
    code, setups_s = _read_code(recording), recording.meta.get("setup_s") or {}
    own = sorted(batch for batch, ran in code.items() if ran == OWN and str(batch) in setups_s)
    of_further = [setups_s[str(batch)] for batch in own[1:] or own]
    return len(code) * median(of_further) if of_further else None


def _read_code(recording: Recording) -> dict[int, str]:
    """The kind of torch.compile's code that steps ran, by batch size, the first step first."""
    rows = recording.rows("steps", ["batch", "compiled_code"])
    code: dict[int, str] = {}
    for row in rows:
        if row["compiled_code"] is not None:
            code.setdefault(row["batch"], row["compiled_code"])
    return code
