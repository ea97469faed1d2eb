"""What a recording can lose: one table of names, each with how much it matters and the sentence that users read.

Writers count by name (`RecordingWriter.count_lost`); `recording.json` keeps the sentence beside the count, so that a
recording can be read without this table, and old ones keep the sentences of their time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from ..errors import CurvescopeError


class Severity(Enum):
    """How much a count matters."""

    LOST = "lost"  # recorded data is gone: the recording is not complete
    PARTIAL = "partial"  # the source lacks something, or a fact about what was kept is unknown
    REPAIRED = "repaired"  # changed so that it can be used; nothing is gone


class Loss(NamedTuple):
    """One kind of lost data.

    Attributes:
        severity: how much it matters.
        sentence: what it means for the user.
    """

    severity: Severity
    sentence: str


_LOST, _PARTIAL, _REPAIRED = Severity.LOST, Severity.PARTIAL, Severity.REPAIRED
_UNWRITTEN = "that the disk did not take, or that no memory was left for; where the disk is full, at least so many"

LOSSES = {
    # The collector: ranges.
    "nvtx_dropped": Loss(_LOST, "ranges and marks that came faster than they could be written; each was dropped whole"),
    "nvtx_unnamed": Loss(_PARTIAL, "events whose name had no room (a million names or 64 MiB)"),
    "nvtx_unwritten": Loss(_LOST, f"ranges and marks {_UNWRITTEN}"),
    "nvtx_unsaved": Loss(
        _LOST,
        "ranges and marks still in memory when their process was killed or called os._exit or exec, or when the "
        "recording ended",
    ),
    "nvtx_unclosed": Loss(
        _PARTIAL, "ranges whose end was not recorded; the process was killed, or left them open; they are left out"
    ),
    "nvtx_unopened": Loss(
        _PARTIAL, "ends of ranges whose begin was not recorded, e.g. of those open when the process was forked"
    ),
    # The collector: GPU records, by table, and its files.
    "cupti_dropped": Loss(_LOST, "GPU records that CUPTI dropped; they came faster than they could be written"),
    "cupti_unsaved": Loss(
        _LOST,
        "buffers of GPU records, each of up to 4 MiB, still in memory when their process was killed or called os._exit "
        "or exec, or when the recording ended",
    ),
    "cupti_buffers_cut": Loss(_LOST, "buffers of GPU records that could not be read to their end"),
    "records_without_memory": Loss(_LOST, "buffers of GPU records whose rest was not read for want of memory"),
    "records_of_unknown_kind": Loss(_PARTIAL, "GPU records of a kind that Curvescope does not know"),
    "raw_buffers": Loss(_LOST, f"raw buffers of GPU records {_UNWRITTEN}"),
    **{
        table: Loss(_LOST, f"rows of the collector's table {table} {_UNWRITTEN}")
        for table in ("kernels", "copies", "sets", "allocations", "calls", "waits", "overheads", "devices", "contexts",
                      "environment", "clock", "facts")
    },
    "torn_bytes": Loss(_LOST, "bytes of chunks cut off in the middle, as a kill inside a write leaves them"),
    # Joining GPU work to ranges and steps.
    "device_work_without_launch": Loss(
        _PARTIAL, "kernels, copies and sets whose launch was not recorded; layer and phase unknown"
    ),
    "device_work_without_range": Loss(
        _PARTIAL, "kernels, copies and sets launched outside every range; layer and phase unknown"
    ),
    "device_work_without_operator": Loss(
        _PARTIAL, "kernels, copies and sets launched outside every operator; operator unknown"
    ),
    "device_work_outside_steps": Loss(_PARTIAL, "kernels, copies and sets that belong to no step; no step counts them"),
    "device_work_cut_by_steps": Loss(
        _REPAIRED, "kernels, copies and sets that reach into another step's time; the step cuts them off"
    ),
    "ranges_cut": Loss(_REPAIRED, "ranges that outlasted the range around them; their ends were cut to it"),
    "steps_cut": Loss(
        _REPAIRED, "step marks that begin before the step before ends and end after it; they were cut to begin there"
    ),
    "backward_without_forward": Loss(
        _PARTIAL, "backward nodes whose forward operator was not recorded; their layer is unknown"
    ),
    "negative_durations": Loss(_PARTIAL, "rows that end before they start; they have no duration"),
    "without_time": Loss(_PARTIAL, "kernels, copies and sets that the profiler gave no time; they have none here"),
    "ranges_unclosed": Loss(_PARTIAL, "ranges whose end was not recorded; they are left out"),
    "steps_without_batch": Loss(
        _PARTIAL, "steps of unknown batch size beside others whose batch size is known; `explain` leaves them out"
    ),
    # Sweeps.
    "profiles_out_of_memory": Loss(
        _PARTIAL, "profiled steps that did not fit the memory with the profiler; the unprofiled ones did"
    ),
    "primitives_outside_operators": Loss(
        _PARTIAL, "oneDNN calls that ran in no operator the profiler saw; their time is in idle"
    ),
    "primitives_without_time": Loss(
        _PARTIAL, "oneDNN calls without a timestamp; their time stays with their operator"
    ),
    "mkl_calls_not_placed": Loss(
        _PARTIAL, "MKL calls whose operator was not found; their time stays with the operator that made them"
    ),
    "kernels_without_operator": Loss(
        _PARTIAL, "device kernels without the operator that launched them; layer and phase are unknown"
    ),
    # Files of other profilers.
    "invalid_numbers": Loss(
        _PARTIAL, "NaN or infinite numbers, which JSON does not allow; events with one as their time are left out"
    ),
    "stray_commas": Loss(
        _REPAIRED, "lists or objects that end in a comma, which JSON does not allow; nothing was lost"
    ),
    "events_unreadable": Loss(_LOST, "events without a readable name, time, thread or id; they are left out"),
    "rows_unreadable": Loss(_LOST, "rows of the table that could not be read; they are left out"),
    "rows_of_other_kinds": Loss(
        _PARTIAL, "rows that are not a kernel, copy or set (e.g. page faults of unified memory); they are left out"
    ),
    "counter_ranges": Loss(
        _PARTIAL, "kernels replayed for counters, without a time of their own; they are left out"
    ),
    "graphs_without_kernels": Loss(
        _PARTIAL, "CUDA graphs recorded as a whole, without their kernels; record with `--cuda-graph-trace=node`"
    ),
    "metrics_averaged": Loss(_PARTIAL, "kernels whose metrics are the mean over their invocations"),
    "metrics_unreadable": Loss(
        _PARTIAL, "metrics whose value or unit could not be read; they are missing from their columns"
    ),
    "metrics_without_name": Loss(
        _PARTIAL,
        "values of metrics and events that the file numbers without naming them; export them by name with "
        "`nvprof --csv --print-gpu-trace -i FILE` and import that",
    ),
    "kernels_without_known_metric": Loss(
        _PARTIAL,
        "kernels with no metric that fills a column; record with `ncu --set roofline` or `nvprof "
        "--metrics dram_read_transactions,dram_write_transactions,flop_count_sp,achieved_occupancy`",
    ),
    "flops_partly_counted": Loss(
        _PARTIAL, "kernels whose measured FLOPs lack some precisions, which were not recorded"
    ),
}  # fmt: skip


def describe_lost(lost: Mapping[str, Any]) -> list[str]:
    """One line for each count of a recording's `lost`; those of old recordings have no severity."""
    return [
        f"{'Repaired' if entry.get('severity') == Severity.REPAIRED.value else 'Lost'}: {entry['count']} {name} "
        f"({entry['sentence'].rstrip('.')})."
        for name, entry in lost.items()
    ]


def loss(name: str) -> Loss:
    """The row of the table.

    Raises:
        CurvescopeError: the table has no such name.
    """
    if name not in LOSSES:
        raise CurvescopeError(
            f"No kind of lost data is called {name!r}: pass a sentence that says what it means, or add it to "
            "profiling/recording/lost.py."
        )
    return LOSSES[name]
