"""Names of lost data, each with its severity and a sentence, which `recording.json` keeps with the
count.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from ...base.errors import CurvescopeError


class Severity(Enum):
    """How much a count matters."""

    LOST = "lost"  # recorded data is gone: the recording is incomplete
    PARTIAL = "partial"  # the source lacks something, or a fact is unknown
    REPAIRED = "repaired"  # changed so that it can be used; nothing is gone


class Loss(NamedTuple):
    """One kind of lost data: its severity, and a sentence on the loss."""

    severity: Severity
    sentence: str


_UNWRITTEN = "could not be written (disk error or no memory); on a full disk, at least this many"
_UNSAVED = (
    "still with CUPTI when their process was killed or called os._exit or exec, or when the "
    "recording ended"
)
_WORK = "kernels, memcpy and memset"
_TABLES = (
    "kernels",
    "copies",
    "sets",
    "allocations",
    "calls",
    "waits",
    "overheads",
    "devices",
    "contexts",
)
_SMALL_TABLES = ("environment", "clock", "facts", "graph_nodes")
_ROOFLINE_METRICS = (
    "dram_read_transactions,dram_write_transactions,flop_count_sp,achieved_occupancy"
)

_LOST = {
    # The collector.
    "nvtx_dropped": "ranges and marks that came faster than they could be written, or on a "
    "full disk; each was dropped completely",
    "nvtx_unwritten": f"ranges and marks that {_UNWRITTEN}",
    "nvtx_unsaved": "ranges and marks that neither the file nor the memory of their process "
    "contains any more",
    "cupti_dropped": "GPU records that CUPTI dropped; they came faster than they could be written",
    "cupti_unsaved": f"buffers of GPU records, each less than 100 ms of GPU work, {_UNSAVED}",
    "cupti_unwritten": "GPU records that could not be written, e.g. on a full disk, and "
    "neither could their kinds",
    "cupti_unread": "buffers of GPU records that were thrown away unread, because 512 others "
    "waited to be written",
    "cupti_paused": "pauses for another client of CUPTI, e.g. torch's profiler; GPU work of "
    "that time is lost",
    "cupti_taken": "times that another client of CUPTI took the collector's place; GPU work "
    "after that is lost",
    "cupti_foreign": "buffers of another client of CUPTI that the collector got; their "
    "records are lost",
    "cupti_buffers_cut": "buffers of GPU records that could not be read to their end",
    "times_impossible": f"{_WORK} whose times CUPTI gave wrongly, hours away from when they "
    "were recorded",
    "records_without_memory": "buffers of GPU records that were not read to their end for "
    "lack of memory",
    "raw_buffers": f"raw buffers of GPU records that {_UNWRITTEN}",
    **{
        table: f"rows of the collector's table {table} that {_UNWRITTEN}"
        for table in (*_TABLES, *_SMALL_TABLES)
    },
    "chunk_folder_deleted": "times that the program deleted the folder of the recording's "
    "chunk files; what was in it is lost",
    "processes_outlived": "processes that still ran when the command ended; what they did "
    "after it is not recorded",
    "chunk_files_unreadable": "chunk files of processes that could not be read",
    "torch_windows_unreadable": "files of torch's operators that could not be read, e.g. cut off",
    "samples_unreadable": "files of sampled functions that could not be read, e.g. as the disk "
    "was full",
    "step_notes_unreadable": "files of the moments when steps ended that could not be read, "
    "e.g. cut off",
    "torn_bytes": "bytes of incomplete chunks, left by a kill during a write",
    "kernels_without_geometry": "kernels whose grid and block the profiler did not give; "
    "waves are unknown",
    # Files of other profilers.
    "events_unreadable": "events without a readable name, time, thread or id; they are left out",
    "rows_unreadable": "rows of the table that could not be read; they are left out",
    "nvprof_dropped": "records that nvprof dropped for lack of memory; record with a larger "
    "`--device-buffer-size`",
}
_PARTIAL = {
    # The collector.
    "nvtx_unnamed": "events without their name, after a million names or 64 MiB of names",
    "memory_not_shared": "parts of processes' memory that could not be shared: ranges in them "
    "are lost if their process is killed",
    "nvtx_unclosed": "ranges without a recorded end, e.g. because the process was killed; "
    "they are left out",
    "nvtx_unopened": "ends of ranges without a recorded begin, e.g. of ranges that were open "
    "during a fork",
    "records_of_unknown_kind": "GPU records of a kind that Curvescope does not know",
    # Joining GPU work to ranges and steps.
    "device_work_without_launch": f"{_WORK} whose launch was not recorded; layer and phase "
    "are unknown",
    "graph_work_without_capture": f"{_WORK} of CUDA graphs whose capture was not recorded, "
    "e.g. because it was before the recording; layer, phase and operator are those around "
    "the graph's launch",
    "device_work_without_range": f"{_WORK} launched outside every range; layer and phase are "
    "unknown",
    "device_work_without_operator": f"{_WORK} launched outside every operator; the operator "
    "is unknown",
    "device_work_outside_steps": f"{_WORK} that belong to no step; no step counts them",
    "backward_without_forward": "backward nodes whose forward operator was not recorded; the "
    "layer is unknown",
    "negative_durations": "rows that end before they start; they have no duration",
    "without_time": f"{_WORK} without a time in the profile",
    "ranges_unclosed": "ranges without a recorded end; they are left out",
    "steps_without_batch": "steps of unknown batch size beside others of known batch size; "
    "`explain` omits them",
    # Sweeps.
    "profiles_out_of_memory": "profiled steps that ran out of memory; the unprofiled steps did not",
    "primitives_outside_operators": "oneDNN calls outside every profiled operator; their time "
    "counts as idle",
    "primitives_without_time": "oneDNN calls without a timestamp; their time stays with their "
    "operator",
    "mkl_calls_not_placed": "MKL calls that match no operator; their time stays with the "
    "operator around them",
    "kernels_without_operator": "kernels whose launching operator is unknown; layer and phase "
    "are unknown",
    "kernels_without_counters": "kernels of counted steps that join no counted kernel by "
    "order, name and geometry",
    # Files of other profilers.
    "invalid_numbers": "numbers that are NaN or infinite, which JSON does not allow; events "
    "with such a time are left out",
    "rows_of_other_kinds": f"rows other than {_WORK}, e.g. page faults of unified memory; "
    "they are left out",
    "events_of_unknown_category": "events of a category that Curvescope does not know; they "
    "are left out",
    "counter_ranges": "kernels replayed for counters, without a time of their own; they are "
    "left out",
    "graphs_without_kernels": "CUDA graphs recorded without their kernels; record with "
    "`--cuda-graph-trace=node`",
    "metrics_averaged": "kernels whose metrics are the mean over their invocations",
    "metrics_unreadable": "metrics with an unreadable value or unit; they are missing from "
    "their columns",
    "metrics_without_name": "values of metrics and events that the file numbers without "
    "naming them; export them by name with `nvprof --csv --print-gpu-trace -i FILE` and "
    "import that",
    "kernels_without_known_metric": "kernels with no metric that fills a column; record with "
    f"`ncu --set roofline` or `nvprof --metrics {_ROOFLINE_METRICS}`",
    "rates_without_graph": "lines of a server's log of steps without a graph, at numbers of "
    "requests that also ran with one; the curve is of those with one",
    "rates_of_changing_load": "lines of a server's log in whose time the number of its "
    "requests changed; their rate is of no one size",
    "flops_partly_counted": "kernels whose measured FLOPs lack the precisions that were not "
    "recorded",
}
_REPAIRED = {
    "device_work_cut_by_steps": f"{_WORK} that reach into the time of another step; the step "
    "cuts them off",
    "ranges_cut": "ranges that ended after the range around them; they were cut at its end",
    "steps_cut": "step marks that begin before the previous step ends and end after it; they "
    "begin at that end now",
    "steps_without_work": "marked steps in which nothing was launched, and which end before "
    "the work of earlier ones; they are no steps of the mean",
    "steps_without_length": "steps that end when they begin, by the profile's clock; they "
    "last 1 ns now",
    "stray_commas": "lists or objects that end in a comma, which JSON does not allow; nothing "
    "was lost",
}
LOSSES: dict[str, Loss] = {}
for _severity, _sentences in (
    (Severity.LOST, _LOST),
    (Severity.PARTIAL, _PARTIAL),
    (Severity.REPAIRED, _REPAIRED),
):
    for _name, _sentence in _sentences.items():
        LOSSES[_name] = Loss(_severity, _sentence)


def describe_lost(lost: Mapping[str, Any], *, on_host: bool = False) -> list[str]:
    """One line for each count in a recording's `lost`; counts of old recordings have no severity.

    Where operators of the host are the work (`on_host`), they were lost, and no kernels.

    The name follows the sentence, or precedes one with a capital, of an old recording or a plugin.
    """
    lines = []
    for name, entry in lost.items():
        what = "Repaired" if entry.get("severity") == Severity.REPAIRED.value else "Lost"
        count = entry["count"]
        sentence = entry["sentence"].rstrip(".")
        if on_host:
            sentence = sentence.replace(_WORK, "operators")
        if sentence[:1].isupper() and sentence[1:2].islower():
            lines.append(f"{what}: {count} {name} ({sentence}).")
        else:
            number = "1 of these:" if count == 1 else str(count)  # the sentence is of many
            lines.append(f"{what}: {number} {sentence} ({name}).")
    return lines


def loss(name: str, sentence: str | None = None) -> Loss:
    """Severity and sentence of a count; a name that the table does not have needs a sentence, else
    CurvescopeError.
    """
    if name not in LOSSES and sentence is None:
        raise CurvescopeError(
            f"No kind of lost data is called {name!r}: pass a sentence that says what it means, "
            "or add it to profiling/recording/lost.py."
        )
    kind = LOSSES.get(name, Loss(Severity.PARTIAL, ""))
    return Loss(kind.severity, sentence or kind.sentence)
