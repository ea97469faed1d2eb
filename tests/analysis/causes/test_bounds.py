"""Every "at most" is a bound: it is at least the sum by hand, over the events of the file alone, of
the time that it names, and no evidence is more than the file has.
"""

import gzip
import json
import re
import sqlite3

import numpy as np
import pytest

from curvescope.analysis.causes import catalogue
from curvescope.analysis.diagnosis.suggested import advise
from curvescope.experiments.factors import all_facts
from curvescope.profiling.recording.experiments import Scope
from curvescope.profiling.recording.store import KERNEL, open_recording

from ...shared import PROFILES
from ...tables import grade
from .test_suggestions import FIRST_SHOWN

TRACES = sorted(path.name for path in PROFILES.glob("*.json.gz"))
EXPORTS = sorted(path.name for path in PROFILES.glob("*.sqlite.gz"))
QUICK = ("pipit_saxpy.sqlite.gz",)
# Those that show a cause first, which CI asks too.
SHOWING = {*FIRST_SHOWN.values()} & {*TRACES, *EXPORTS}

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
FP32 = re.compile(r"sgemm|scudnn|f32f32_f32f32")
POINTWISE = re.compile(r"at::native::(vectorized_|unrolled_)?elementwise_kernel")
OPTIMIZER = re.compile(r"Optimizer\.step")
# Operators whose kernels are no part of a network that a compiler fuses.
OUTSIDE = re.compile(r"Optimizer|AccumulateGrad|distributed", re.IGNORECASE)
WAITS = re.compile(r"Synchronize")
LONG_NS = 20_000  # of a gap
NEAR_NS = 200_000  # between a wait and a gap that follows from it
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
    """Device work, calls and ranges of a file, by json or sqlite3 alone; times in ns.

    A row is start, end, name and correlation, of device work also its device and stream.
    """

    def __init__(self, name, folder):
        self.device, self.calls, self.ranges = [], [], []
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
                self.device.append((*row, (args.get("device"), args.get("stream"))))
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
                        f"SELECT start, end, {name}, correlationId, deviceId, streamId FROM {table}"
                    )
                    names = texts if kind == "KERNEL" else COPY_KINDS
                    self.device += [
                        (a, b, names.get(text, kind), at, place) for a, b, text, at, *place in rows
                    ]
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
        work = sorted(self.device, key=lambda row: row[:2])
        gaps = []
        for low, high in windows:
            reached = low
            for start, end, _, correlation, _ in work:
                if end <= low or start >= high:
                    continue
                until = min(start, launched.get(correlation, start))
                if until > reached:
                    gaps.append((reached, min(until, high)))
                reached = max(reached, end)
        return gaps

    def alone_ms(self, matches, windows):
        """Time in some windows in which device work runs, and all of it has names that match."""
        return self.time_of(lambda row: matches.search(row[2]), windows)

    def time_of(self, picks, windows):
        """The same of work that is picked by its row."""
        edges = [(low, 0, 1) for low, _ in windows] + [(high, 0, -1) for _, high in windows]
        for row in self.device:
            which = 1 if picks(row) else 2
            edges += [(row[0], which, 1), (row[1], which, -1)]
        inside, before, total = [0, 0, 0], 0, 0
        for at, which, change in sorted(edges):
            total += (at - before) * (inside[0] > 0 and inside[1] > 0 and not inside[2])
            inside[which] += change
            before = at
        return total / 1e6

    def launched_in(self, matches):
        """The correlations of calls that begin in ranges whose names match."""
        spans = np.array(union([(a, b) for a, b, text, _ in self.ranges if matches.search(text)]))
        if not len(spans):
            return set()
        begins = np.array([start for start, *_ in self.calls])
        at = np.searchsorted(spans[:, 0], begins, side="right") - 1
        inside = (at >= 0) & (begins < spans[at, 1])
        return {call[3] for call, is_in in zip(self.calls, inside, strict=True) if is_in}


def optimizer_ms(file, windows, idle):
    """Time in which nothing but work that an optimizer launched runs, and idle time in its
    ranges.
    """
    mine = file.launched_in(OPTIMIZER)
    ranges = [(a, b) for a, b, text, _ in file.ranges if OPTIMIZER.search(text)]
    return file.time_of(lambda row: row[3] in mine, windows) + common_ms(idle, ranges)


def pointwise_ms(file, windows, _idle):
    """What one kernel instead of each run of pointwise ones saves, if it takes as long as the
    shortest; of the device on which that is most.
    """
    outside = file.launched_in(OUTSIDE)
    by_stream = {}
    for row in sorted(file.device, key=lambda row: row[:2]):
        if any(low <= row[0] < high for low, high in windows):
            by_stream.setdefault(tuple(row[4]), []).append(row)
    saved = {}
    for (device, _), rows in by_stream.items():
        run = []
        for start, end, name, correlation, _ in [*rows, (0, 0, "end", None, None)]:
            if POINTWISE.search(name) and correlation not in outside:
                run.append(end - start)
                continue
            if len(run) > 1:
                saved[device] = saved.get(device, 0) + sum(run) - min(run)
            run = []
    return max(saved.values(), default=0) / 1e6


def longest_gap_ms(file, _windows, idle):
    """The longest time in which the device waits for the host, and hardly a call or a fetch is."""
    calls = [(start, end) for start, end, *_ in file.calls]
    fetches = [(a, b) for a, b, text, _ in file.ranges if FETCHES.search(text)]
    busy = union(calls + fetches)
    for start, end in sorted(idle, key=lambda gap: gap[0] - gap[1]):
        length_ms = (end - start) / 1e6
        if common_ms([(start, end)], busy) < 0.1 * length_ms:
            return length_ms
    return 0.0


def waits_ms(file, _windows, idle):
    """For each gap the waits that end in it or shortly before, up to its length."""
    waits = sorted((end, end - start) for start, end, name, _ in file.calls if WAITS.search(name))
    total = 0
    for start, end in idle:
        if end - start > LONG_NS:
            near = sum(length for ended, length in waits if start - NEAR_NS <= ended < end)
            total += min(near, end - start)
    return total / 1e6


def copies_beside_ms(file, windows):
    """Copies in which nothing else runs, or less where those of one direction take longer than the
    rest of the steps.
    """
    alone = file.alone_ms(COPIES, windows)
    longer = max(
        common_ms(windows, [(a, b) for a, b, text, *_ in file.device if kind in text])
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
    "optimizer work": optimizer_ms,
    "pointwise kernels in a row": pointwise_ms,
    "host code in one gap": longest_gap_ms,
    "host waits for the device": waits_ms,
}


def test_every_cause_that_suggests_has_its_sum():
    others = {"memory pressure", "work of a first use", "waiting for input", "precision"}
    # No stored profile shows it: test_first_words.py makes one.
    made = {"compilation in the step"}
    causes = (*catalogue._OF_TERMS, *catalogue.OF_PROFILES)
    suggesting = {cause.name for cause in causes if cause.suggest is not None}
    assert suggesting == NAMED.keys() | others | made


def check_precision(file, windows, suggestion, steps):
    """A shorter type saves what its peak says, of all time in which only products in fp32 run."""
    peaks = [fact.after for fact in suggestion.evidence if fact.what.endswith("that of fp32")]
    least_ms = sum(file.alone_ms(FP32, windows) * (1 - 1 / peak) for peak in peaks) / steps
    assert suggestion.at_most_ms >= 0.97 * least_ms


@pytest.mark.parametrize("name", grade([*TRACES, *EXPORTS], quick=QUICK, in_ci=SHOWING))
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
    if "precision" in told:
        check_precision(file, windows, told["precision"], step.steps)
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
