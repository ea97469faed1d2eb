"""Every "at most" is a bound: it is at least the sum by hand, over the events of the file alone, of
the time that it names, and no evidence is more than the file has.
"""

import gzip
import json
import re
import sqlite3

import numpy as np
import pytest

from curvescope.analysis.diagnosis.suggested import advise
from curvescope.experiments.factors import all_facts
from curvescope.profiling.recording.experiments import Scope
from curvescope.profiling.recording.store import KERNEL, open_recording

from ...shared import PROFILES

TRACES = sorted(path.name for path in PROFILES.glob("*.json.gz"))
EXPORTS = sorted(path.name for path in PROFILES.glob("*.sqlite.gz"))
QUICK = ("hta_alexnet_trace.json.gz", "tl_h100_bert_small.json.gz", "pipit_saxpy.sqlite.gz")

ALLOCATES = re.compile(
    r"^(cu|cuda|hip)(Malloc|Free|HostAlloc|Mem(Alloc|Free|Create|Map|Unmap|Release|SetAccess))"
)
PREPARES = re.compile(r"ModuleLoad|LibraryLoad|StreamCreate|EventCreate|FuncGetAttributes")
FETCHES = re.compile(r"DataLoader|(next|get|load)[_ ]?(batch|data)", re.IGNORECASE)
COPIES = re.compile(r"^(HtoD|DtoH|Memcpy (HtoD|DtoH)|MEMCPY)")
MANAGED = re.compile(r"managed")
COLLECTIVES = re.compile(r"nccl|rccl", re.IGNORECASE)
LAYOUTS = re.compile(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)
SOFTMAX = re.compile(r"softmax_warp_forward|cunn_SoftMaxForward<")
CONTEXT_NS = 50e6  # a longer allocation makes a context
COPY_KINDS = {1: "HtoD", 2: "DtoH", 11: "HtoD managed", 12: "DtoH managed"}  # of CUPTI
_WITH_IDLE = re.compile(r"idle|time of the optimizer")


def union(spans):
    """Spans as disjoint ones, in order."""
    merged = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def common_ms(first, second):
    """Time in both of two sets of spans."""
    edges = sorted(
        edge
        for number, spans in enumerate((union(first), union(second)))
        for start, end in spans
        for edge in ((start, 1, number), (end, -1, number))
    )
    inside, before, total = [0, 0], 0, 0
    for at, change, number in edges:
        total += (at - before) * (inside[0] and inside[1])
        inside[number] += change
        before = at
    return total / 1e6


class File:
    """Device work, calls and ranges of a file, by json or sqlite3 alone; times in ns."""

    def __init__(self, name, folder):
        self.device, self.calls, self.ranges = [], [], []  # start, end, name, correlation
        if name.endswith(".sqlite.gz"):
            self._read_export(PROFILES / name, folder / "export.sqlite")
        else:
            self._read_trace(PROFILES / name)

    def _read_trace(self, path):
        for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
            category, args = str(event.get("cat", "")).lower(), event.get("args") or {}
            if event.get("ph") != "X" or "ts" not in event or "dur" not in event:
                continue
            start = round(1e3 * float(event["ts"]))
            row = (start, start + round(1e3 * float(event["dur"])), str(event["name"]))
            row = (*row, args.get("correlation"))
            if category == "kernel" or category.endswith(("memcpy", "memset")):
                self.device.append(row)
            elif category == "runtime" or category.endswith(("_runtime", "_driver")):
                self.calls.append(row)
            elif category in ("user_annotation", "cpu_op", "operator"):
                self.ranges.append(row)

    def _read_export(self, path, copy):
        copy.write_bytes(gzip.decompress(path.read_bytes()))
        with sqlite3.connect(copy) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            texts = dict(database.execute("SELECT id, value FROM StringIds"))
            for kind, name in (
                ("KERNEL", "demangledName"),
                ("MEMCPY", "copyKind"),
                ("MEMSET", "NULL"),
            ):
                if (table := f"CUPTI_ACTIVITY_KIND_{kind}") in tables:
                    rows = database.execute(
                        f"SELECT start, end, {name}, correlationId FROM {table}"
                    )
                    names = texts if kind == "KERNEL" else COPY_KINDS
                    self.device += [(a, b, names.get(text, kind), at) for a, b, text, at in rows]
            for kind in ("RUNTIME", "DRIVER"):
                if (table := f"CUPTI_ACTIVITY_KIND_{kind}") in tables:
                    rows = database.execute(
                        f"SELECT start, end, nameId, correlationId FROM {table}"
                    )
                    self.calls += [(a, b, texts.get(text, ""), at) for a, b, text, at in rows]
            if "NVTX_EVENTS" in tables:
                rows = database.execute(
                    "SELECT start, end, text, textId FROM NVTX_EVENTS WHERE end IS NOT NULL"
                )
                self.ranges += [(a, b, t or texts.get(i, ""), None) for a, b, t, i in rows]

    def of_calls(self, matches, least_ns=0.0, most_ns=np.inf):
        """Calls whose names match, of some length."""
        return [
            (start, end)
            for start, end, name, _ in self.calls
            if matches.search(name) and least_ns <= end - start < most_ns
        ]

    def idle(self, windows):
        """The gaps between device work in some windows, up to the launch of what follows; after it
        the host is not what the device waits for.
        """
        launched = {}
        for _, end, _, correlation in self.calls:
            if correlation is not None:
                launched[correlation] = max(end, launched.get(correlation, end))
        work = sorted(self.device)
        gaps = []
        for low, high in windows:
            reached = low
            for start, end, _, correlation in work:
                if end <= low or start >= high:
                    continue
                until = min(start, launched.get(correlation, start))
                if until > reached:
                    gaps.append((reached, min(until, high)))
                reached = max(reached, end)
        return gaps

    def alone_ms(self, matches, windows):
        """Time in some windows in which device work runs, and all of it has names that match."""
        edges = [(low, 0, 1) for low, _ in windows] + [(high, 0, -1) for _, high in windows]
        for start, end, name, _ in self.device:
            which = 1 if matches.search(name) else 2
            edges += [(start, which, 1), (end, which, -1)]
        inside, before, total = [0, 0, 0], 0, 0
        for at, which, change in sorted(edges):
            total += (at - before) * (inside[0] > 0 and inside[1] > 0 and not inside[2])
            inside[which] += change
            before = at
        return total / 1e6


def copies_beside_ms(file, windows):
    """Copies in which nothing else runs, or less where those of one direction take longer than the
    rest of the steps.
    """
    alone = file.alone_ms(COPIES, windows)
    longer = max(
        common_ms(windows, [(a, b) for a, b, text, _ in file.device if kind in text])
        for kind in ("HtoD", "DtoH")
    )
    return min(alone, sum(high - low for low, high in windows) / 1e6 - longer)


# What each cause names, by hand: at least as much must be its bound.
NAMED = {
    "copies from and to the host": lambda file, windows, _: copies_beside_ms(file, windows),
    "migration of managed memory": lambda file, windows, _: file.alone_ms(MANAGED, windows),
    "exposed communication": lambda file, windows, _: file.alone_ms(COLLECTIVES, windows),
    "copies of operands": lambda file, windows, _: file.alone_ms(LAYOUTS, windows),
    "attention in several kernels": lambda file, windows, _: file.alone_ms(SOFTMAX, windows),
    "launch- or host-bound": lambda _file, _windows, idle: sum(
        (end - start) / 1e6 for start, end in idle if end - start <= 1e6
    ),
}


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in (*TRACES, *EXPORTS)
    ],
)
def test_no_bound_is_less_than_the_time_it_names(name, imported_profile, tmp_path):
    recording = open_recording(imported_profile(name))
    if not recording.count_rows("kernels") or recording.work != KERNEL:
        return  # nothing of a device to be idle
    found = advise(recording, all_facts(Scope.STEP, "cuda"))
    file, step = File(name, tmp_path), found.step
    steps = recording.frame("steps")
    used = steps[steps["step"].isin(found.breakdown.used)]
    windows = [(row.start_ns, row.start_ns + row.duration_ns) for row in used.itertuples()]
    idle = file.idle(windows)
    by_hand = {
        "memory pressure": file.of_calls(ALLOCATES, 0.0, CONTEXT_NS),
        "work of a first use": file.of_calls(PREPARES),
        "waiting for input": [(a, b) for a, b, text, _ in file.ranges if FETCHES.search(text)],
    }
    told = {one.suggestion.cause: one.suggestion for one in found.advised}
    for cause in NAMED.keys() & told.keys():
        least_ms = NAMED[cause](file, windows, idle) / step.steps
        assert told[cause].at_most_ms >= 0.97 * least_ms, cause
    # Long ones make a context, or are pressure like the others.
    long_ms = common_ms(idle, file.of_calls(ALLOCATES, CONTEXT_NS)) / step.steps
    if long_ms > 0.03 * step.time_ms:
        both = ("memory pressure", "work of a first use")
        assert sum(told[cause].at_most_ms for cause in both if cause in told) >= 0.97 * long_ms
    for cause, spans in by_hand.items():
        least_ms = common_ms(idle, spans) / step.steps
        if least_ms > 0.03 * step.time_ms:
            assert told[cause].at_most_ms >= 0.97 * least_ms, cause
    device_ms = sum(end - start for start, end, *_ in file.device) / 1e6
    calls_ms = sum(end - start for start, end, *_ in file.calls) / 1e6
    for cause, suggestion in told.items():
        assert 0 < suggestion.at_most_ms <= step.time_ms
        for fact in suggestion.evidence:
            if fact.unit != "ms" or fact.what.startswith("capture of a graph"):
                continue
            most_ms = step.time_ms
            if fact.table.startswith("kernels.") and not _WITH_IDLE.search(fact.what):
                most_ms = device_ms / step.steps if "start_ns" not in fact.table else most_ms
            if fact.table == "api_calls":
                most_ms = min(most_ms, calls_ms / step.steps)
            assert fact.after <= 1.001 * most_ms, (cause, fact.what)
            if fact.what.startswith("idle time in allocations"):
                names = {text for *_, text, _ in file.calls if ALLOCATES.search(text)}
                assert (
                    fact.after
                    <= 1.001
                    * sum(
                        common_ms(windows, file.of_calls(re.compile(f"^{re.escape(text)}$")))
                        for text in names
                    )
                    / step.steps
                )
            if fact.what.startswith("calls of "):
                called = fact.what.removeprefix("calls of ").removesuffix(", per step")
                count = sum(text == called for *_, text, _ in file.calls)
                assert fact.after * step.steps <= count
