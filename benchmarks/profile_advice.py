"""Profiles that others recorded, side by side: our advice, sums by hand over the file, and what
other tools say.

    python benchmarks/profile_advice.py [--peers PYTHON] [--elsewhere FOLDER]
        measures, into results/profile_advice.json, and prints the score and what it changes
    python benchmarks/profile_advice.py --print
        prints what is kept there

The score is over all profiles of profile_labels.toml, in which causes were written by hand, from
sums over the files alone. Profiles with an origin there are not in this repository: FOLDER has
them, under their names in the labels. They were labelled after the advice had been written.

PYTHON is that of a virtual environment of its own, made with
`python -m venv peers && peers/bin/pip install HolisticTraceAnalysis nsys-ai tqdm orjson`; TraceLens
is imported where PYTHONPATH has its repository: the index has no package of it. Sums by hand use
json and sqlite3 alone.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from curvescope.cli import main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROFILES = ROOT / "tests" / "data" / "profiles"
RESULTS = ROOT / "benchmarks" / "results" / "profile_advice.json"
LABELS = ROOT / "benchmarks" / "profile_labels.toml"
_HTA = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
trace = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
row = trace.get_temporal_breakdown(visualize=False).iloc[0]
said = {name: float(row[f"{name}_pctg"]) for name in ("idle_time", "compute_time", "non_compute_time")}
said["span_ms"] = float(row["kernel_time(us)"]) / 1e3
idle = trace.get_idle_time_breakdown(ranks=[0], visualize=False)[0]
said["idle"] = {str(k): float(v) / 1e3 for k, v in idle.groupby("idle_category")["idle_time"].sum().items()}
print(json.dumps(said))
"""  # noqa: E501
_TRACELENS = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from TraceLens import TreePerfAnalyzer
rows = TreePerfAnalyzer.from_file(sys.argv[1]).get_df_gpu_timeline()
print(json.dumps(dict(zip(rows["type"], map(float, rows["time ms"])))))
"""
_NOT_HOST = ("kernel", "gpu_memcpy", "gpu_memset")


_HOST = {
    "launch- or host-bound",
    "host code in one gap",
    "waiting for input",
    "work of a first use",
    "memory pressure",
    "host waits for the device",
    "compilation in the step",
}
_COPIES = "copies from and to the host"
_COMMUNICATION = "exposed communication"
# What a finding of nsys-ai can stand for: any of these causes. Others name no cause.
_MEANT = {
    "GPU Bubbles": _HOST,
    "Small Kernel Overhead": {"launch- or host-bound", "pointwise kernels in a row"},
    "Excessive Synchronization": {"host waits for the device"},
    "Synchronous Memcpy": {_COPIES},
    "Pageable Memory": {_COPIES},
    "Excessive H2D": {_COPIES},
    "Continuous H2D": {_COPIES},
    "H2D Transfer Spike": {_COPIES},
    "NCCL Serialization": {_COMMUNICATION},
    "Inefficient NCCL": {_COMMUNICATION},
    "Layer NCCL": {_COMMUNICATION},
    "Compute-Communication": {_COMMUNICATION},
}
VERSIONS = {"HTA": "0.5.0", "TraceLens": "171dd747", "nsys-ai": "0.3.0"}
_COUNTED = {
    "what an expert says first, first": "first",
    "nothing said where nothing is": "nothing",
    "suggestions that are true": "precision",
    "causes that are suggested": "recall",
}
_PARTS = ("first", "nothing", "precision")  # what `score_parts` counts
_LEAST_PART = 0.05  # of the time, as of a labelled cause
_SUMMED = (".json.gz", ".sqlite.gz")  # profiles that `by_hand` and other tools read


def device_events(path: Path) -> list[tuple[float, float, str]]:
    """Start and end in ms, and kind (kernel, HtoD, DtoH or other), of all device work
    of a profile.
    """
    if ".sqlite" in path.name:
        with tempfile.NamedTemporaryFile(suffix=".sqlite") as copy:
            Path(copy.name).write_bytes(gzip.decompress(path.read_bytes()))
            with sqlite3.connect(copy.name) as database:
                kernels = database.execute(
                    "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL"
                ).fetchall()
                copies = database.execute(
                    "SELECT start, end, copyKind FROM CUPTI_ACTIVITY_KIND_MEMCPY"
                ).fetchall()
        kinds = {1: "HtoD", 2: "DtoH", 11: "HtoD", 12: "DtoH"}  # 11 and 12: managed memory
        rows = [(start, end, "kernel") for start, end in kernels]
        rows += [(start, end, kinds.get(kind, "other")) for start, end, kind in copies]
        return sorted((start / 1e6, end / 1e6, kind) for start, end, kind in rows)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    found = []
    for event in events:
        if event.get("ph") == "X" and str(event.get("cat", "")).lower() in (
            *_NOT_HOST,
            "memcpy",
            "memset",
        ):
            name = event["name"]
            kind = next(
                (kind for kind in ("HtoD", "DtoH") if kind in name),
                "other" if "Mem" in name[:3] else "kernel",
            )
            found.append((event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3, kind))
    return sorted(found)


def by_hand(path: Path) -> dict[str, Any]:
    """Sums over the whole file: time from the first to the last device work, busy time, longest
    gap, copies alone.
    """
    events = device_events(path)
    first, last = events[0][0], max(end for _, end, _ in events)
    busy, reached, longest = 0.0, first, 0.0
    for start, end, _ in events:
        longest = max(longest, start - reached)
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    edges = sorted(
        edge
        for start, end, kind in events
        for edge in ((start, 1, kind in ("HtoD", "DtoH")), (end, -1, kind in ("HtoD", "DtoH")))
    )
    alone, running, copying, before = 0.0, 0, 0, first
    for at, change, copies in edges:
        alone += (at - before) * (running > 0 and running == copying)
        running, copying, before = running + change, copying + change * copies, at
    return {
        "span_ms": last - first,
        "busy_ms": busy,
        "idle_share": 1 - busy / (last - first),
        "longest_gap_ms": longest,
        "copies_alone_ms": alone,
    }


def ours(path: Path) -> dict[str, Any]:
    """The document of `curvescope explain`, in this process: to start one takes longer."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(["explain", str(path), "--json"])
    if status:
        raise SystemExit(f"curvescope explain {path}: exit code {status}")
    document = json.loads(out.getvalue())
    kept = ("cause", "do", "at_most_ms", "at_most_share", "where")
    return {
        "headline": document["headline"],
        "suggested": [{name: one[name] for name in kept} for one in document["suggested"]],
    }


def peers(path: Path, python: Path) -> dict[str, Any]:
    """What HolisticTraceAnalysis says of a trace, and nsys-ai of an export; an error in
    its words.
    """
    if ".sqlite" not in path.name:
        return {
            name: _of_trace(script, path, python)
            for name, script in (("HTA", _HTA), ("TraceLens", _TRACELENS))
        }
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "profile.sqlite"
        copy.write_bytes(gzip.decompress(path.read_bytes()))
        command = [python.parent / "nsys-ai", "skill", "run", "root_cause_matcher", copy]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line.strip() for line in done.stdout.splitlines()]
    found = [
        f"{line[2:]}: {after.removeprefix('Evidence: ')}"
        for line, after in pairwise(lines)
        if after.startswith("Evidence: ")
    ]
    return {"nsys-ai": found or _error(done.stderr)}


def _of_trace(script: str, path: Path, python: Path) -> dict[str, Any] | str:
    """What a script says of a trace whose flows from host to device are as the profiler writes
    them.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "trace.json.gz"
        copy.write_bytes(gzip.compress(json.dumps(with_flows(path)).encode()))
        command = [python, "-c", script, copy]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout or "").strip().splitlines()
    said = lines and not done.returncode
    return dict(json.loads(lines[-1])) if said else _error(done.stderr)


def with_flows(path: Path) -> dict[str, Any]:
    """The document of a trace with flows from launches to device work: our excerpts lack what
    TraceLens needs.
    """
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    events = document["traceEvents"]
    if any(event.get("cat") == "ac2g" for event in events):
        return document
    flows = []
    for event in events:
        if "correlation" not in event.get("args", {}):
            continue
        kind = str(event.get("cat", "")).lower()
        phase = "f" if kind in (*_NOT_HOST, "memcpy", "memset") else "s"
        same = {name: event[name] for name in ("pid", "tid", "ts")}
        flow = {"ph": phase, "id": event["args"]["correlation"], "cat": "ac2g", "name": "ac2g"}
        flows.append({**flow, **same, **({"bp": "e"} if phase == "f" else {})})
    return {**document, "traceEvents": [*events, *flows]}


def _error(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1][:200]


def labels() -> dict[str, dict[str, list[str]]]:
    """By profile the causes in it.

    `first` are those that an expert names first, one or another; `also` the others that are true;
    `small` those that may be said or not. A profile without `first` has nothing to say; one with
    an `origin` is not in this repository.
    """
    return tomllib.loads(LABELS.read_text())


def score(
    suggested: Mapping[str, Sequence[str]], labelled: Mapping[str, Mapping[str, Sequence[str]]]
) -> dict[str, Any]:
    """How the suggested causes of each profile, in order, agree with its labels."""
    said: Counter[str] = Counter()
    right: Counter[str] = Counter()
    there: Counter[str] = Counter()
    found: Counter[str] = Counter()
    firsts = quiet = 0
    for name, label in labelled.items():
        first, also = label.get("first", []), label.get("also", [])
        causes, true = suggested[name], {*first, *also}
        counted = [cause for cause in causes if cause not in label.get("small", [])]
        said.update(counted)
        right.update(true.intersection(counted))
        there.update({*also, *([cause for cause in first if cause in causes] or first[:1])})
        found.update(true.intersection(causes))
        firsts += bool(first) and bool(causes) and causes[0] in first
        quiet += not first and not counted
    speaking = sum(bool(label.get("first")) for label in labelled.values())
    return {
        "profiles": len(labelled),
        "first": [firsts, speaking],
        "nothing": [quiet, len(labelled) - speaking],
        "precision": [right.total(), said.total()],
        "recall": [found.total(), there.total()],
        "causes": {
            cause: {
                "precision": [right[cause], said[cause]],
                "recall": [found[cause], there[cause]],
            }
            for cause in sorted({*said, *there})
        },
    }


def causes_of(results: Mapping[str, Any]) -> dict[str, list[str]]:
    """The suggested causes of each profile, in order, of the results."""
    return {
        name: [one["cause"] for one in row["ours"]["suggested"]]
        for name, row in results["profiles"].items()
    }


def score_groups(results: Mapping[str, Any]) -> dict[str, Any]:
    """The score of all profiles, of those from elsewhere, and of each other tool beside ours."""
    suggested = causes_of(results)
    known = {name: label for name, label in labels().items() if name in suggested}
    elsewhere = {name: label for name, label in known.items() if "origin" in label}
    return {
        "all": score(suggested, known),
        "elsewhere": score(suggested, elsewhere),
        "peers": {peer: _beside(peer, results, known) for peer in ("HTA", "TraceLens", "nsys-ai")},
    }


def _beside(peer: str, results: Mapping[str, Any], labelled: Mapping[str, Any]) -> dict[str, Any]:
    """How another tool's parts of the time agree with the labels, and ours of the same profiles."""
    told = {
        name: row["peers"][peer]
        for name, row in results["profiles"].items()
        if peer in row.get("peers", {})
    }
    # A string says why there is no answer.
    said = {name: meant_parts(peer, one) for name, one in told.items() if not isinstance(one, str)}
    causes = causes_of(results)
    of_same = {name: [{cause} for cause in causes[name]] for name in said}
    return {
        "reads": [len(said), len(told)],
        "theirs": score_parts(said, labelled),
        "ours": score_parts(of_same, labelled),
    }


def meant_parts(peer: str, told: Any) -> list[set[str]]:
    """What another tool says of a profile: for each part of the time that counts, or finding, the
    causes that it can stand for; the largest part first.
    """
    if peer == "nsys-ai":
        means = ([_MEANT[key] for key in _MEANT if line.startswith(key)] for line in told)
        return [meant[0] for meant in means if meant]
    if peer == "HTA":
        parts = {
            "idle": (told["idle_time"] / 100, _HOST),
            "other device work": (told["non_compute_time"] / 100, {_COMMUNICATION, _COPIES}),
        }
    else:
        whole = told["total_time"]
        parts = {
            "idle": (told["idle_time"] / whole, _HOST),
            "communication": (told["exposed_comm_time"] / whole, {_COMMUNICATION}),
            "copies": (told["exposed_memcpy_time"] / whole, {_COPIES}),
        }
    large = [part for part in parts.values() if part[0] >= _LEAST_PART]
    return [meant for _, meant in sorted(large, key=lambda part: -part[0])]


def score_parts(
    said: Mapping[str, Sequence[set[str]]], labelled: Mapping[str, Mapping[str, Sequence[str]]]
) -> dict[str, list[int]]:
    """As `score`, of parts that are right where they can stand for a cause that is there."""
    firsts = speaking = quiet = right = counted = 0
    for name, parts in said.items():
        label = labelled[name]
        first = set(label.get("first", ()))
        true = first.union(label.get("also", ()))
        judged = [part for part in parts if part & true or not part <= set(label.get("small", ()))]
        right += sum(bool(part & true) for part in judged)
        counted += len(judged)
        speaking += bool(first)
        firsts += bool(parts) and bool(parts[0] & first)
        quiet += not first and not judged
    return {
        "first": [firsts, speaking],
        "nothing": [quiet, len(said) - speaking],
        "precision": [right, counted],
    }


def measure(python: Path | None, elsewhere: Path | None) -> dict[str, Any]:
    """Our advice on every labelled profile, beside sums by hand and other tools.

    What is not at hand stays as it was stored.
    """
    kept = json.loads(RESULTS.read_text())["profiles"] if RESULTS.exists() else {}
    found: dict[str, Any] = {}
    for name, label in labels().items():
        folder = elsewhere if "origin" in label else PROFILES
        path = None if folder is None else folder / name
        if path is None or not path.exists():
            found |= {name: kept[name]} if name in kept else {}
            continue
        row: dict[str, Any] = {"ours": ours(path)}
        if name.endswith(_SUMMED):
            told = peers(path, python) if python else kept.get(name, {}).get("peers", {})
            row["peers"] = told
            if folder == PROFILES:  # of others the sums stand beside their labels
                row["by_hand"] = by_hand(path)
        found[name] = row
    results: dict[str, Any] = {"profiles": found}
    results["score"] = score_groups(results)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    return results


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What a change of a cause does to the score: counts that differ, then suggestions."""
    lines = []
    for what in ("first", "nothing", "precision", "recall"):
        old, new = (found["score"]["all"][what] for found in (before, after))
        if old != new:
            lines.append(f"{what}: {old[0]} of {old[1]} before, {new[0]} of {new[1]} now")
    old_causes, new_causes = causes_of(before), causes_of(after)
    for name, causes in new_causes.items():
        if name not in old_causes:
            lines.append(f"{name}: new")
        elif causes != old_causes[name]:
            said = (", ".join(some) or "nothing" for some in (old_causes[name], causes))
            lines.append("{}: {} -> {}".format(name, *said))
    return lines or ["nothing changes"]


def score_lines(scored: Mapping[str, Any]) -> list[str]:
    """The score as tables of Markdown, with counts."""
    lines = ["The advice was written with some of these profiles at hand; those from elsewhere"]
    lines += ["were labelled afterwards.", ""]
    lines += ["| | all | from elsewhere |", "|---|--:|--:|"]
    for what, key in _COUNTED.items():
        both = ("{} of {}".format(*scored[group][key]) for group in ("all", "elsewhere"))
        lines.append("| {} | {} | {} |".format(what, *both))
    lines += ["", "| cause | true of suggested | suggested of true |", "|---|--:|--:|"]
    for cause, counts in scored["all"]["causes"].items():
        precision, recall = ("{} of {}".format(*counts[what]) for what in ("precision", "recall"))
        lines.append(f"| {cause} | {precision} | {recall} |")
    return [*lines, "", *peer_lines(scored["peers"])]


def peer_lines(scored: Mapping[str, Any]) -> list[str]:
    """Other tools beside ours, each on the profiles that it reads, as a table of Markdown."""
    lines = ["| (ours) | reads | first | quiet | true |", "|---|--:|--:|--:|--:|"]
    for peer, both in scored.items():
        theirs, same = both["theirs"], both["ours"]
        name = "HolisticTraceAnalysis" if peer == "HTA" else peer
        cells = [f"{name} {VERSIONS[peer]}", "{} of {}".format(*both["reads"])]
        for what in _PARTS:
            ours_of_all = str(same[what][0])
            if theirs[what][1] != same[what][1]:  # each says another number of things
                ours_of_all += f" of {same[what][1]}"
            cells.append("{} of {} ({})".format(*theirs[what], ours_of_all))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def figures() -> list[str]:
    """What the results say, as sentences."""
    results = json.loads(RESULTS.read_text())
    suggested = [row["ours"]["suggested"] for row in results["profiles"].values()]
    first = sorted(found[0]["at_most_share"] for found in suggested if found)
    scored, elsewhere = results["score"]["all"], results["score"]["elsewhere"]
    return [
        f"Of **{len(suggested)}** labelled profiles, `explain` suggests a change for "
        f"**{len(first)}**. The first saves at most **{median(first):.0%}** of the step "
        f"(median; {first[0]:.0%} to {first[-1]:.0%}).",
        "What an expert says first comes first in **{} of {}**, ".format(*scored["first"])
        + "from elsewhere in {} of {}; ".format(*elsewhere["first"])
        + "**{} of {}** suggestions are true, ".format(*scored["precision"])
        + "from elsewhere {} of {}.".format(*elsewhere["precision"]),
    ]


def peer_table() -> list[str]:
    """Other tools beside ours, of the stored results."""
    return peer_lines(json.loads(RESULTS.read_text())["score"]["peers"])


def text() -> str:
    """All results: the score, ours, sums by hand over the whole file, and what other tools say.

    HTA is HolisticTraceAnalysis (its temporal and idle time breakdown), of nsys-ai the skill
    `root_cause_matcher` is asked, of TraceLens, AMD's, the GPU timeline.
    """
    results = json.loads(RESULTS.read_text())
    lines = [*score_lines(results["score"]), ""]
    for name, row in results["profiles"].items():
        lines += [f"## {name}", "", row["ours"]["headline"], ""]
        lines += ["| suggested | saves at most | where |", "|---|--:|---|"]
        lines += [
            f"| {one['do']} ({one['cause']}) | {one['at_most_ms']:.4g} ms "
            f"({one['at_most_share']:.0%}) | {(one['where'] or '').replace('|', '/')} |"
            for one in row["ours"]["suggested"]
        ] or ["| nothing | | |"]
        if "by_hand" in row:
            hand = row["by_hand"]
            lines += [
                "",
                f"By hand: {hand['span_ms']:.5g} ms from the first to the last device work, "
                f"{hand['busy_ms']:.5g} ms busy, {hand['idle_share']:.0%} idle; longest gap "
                f"{hand['longest_gap_ms']:.4g} ms; copies from or to the host beside which nothing "
                f"runs {hand['copies_alone_ms']:.4g} ms.",
            ]
        lines += ["", *_said(row.get("peers", {})), ""]
    return "\n".join(lines).rstrip() + "\n"


_MOST_SAID = 7  # findings of nsys-ai that are shown


def _said(told: dict[str, Any]) -> list[str]:
    hta, lens, others = (told.get(name) for name in ("HTA", "TraceLens", "nsys-ai"))
    lines = []
    if isinstance(hta, dict):
        idle = ", ".join(f"{name} {ms:.4g} ms" for name, ms in hta["idle"].items())
        lines += [
            f"HTA: idle {hta['idle_time']:.0f} %, compute {hta['compute_time']:.0f} %, other "
            f"device work {hta['non_compute_time']:.0f} % of {hta['span_ms']:.5g} ms; idle by "
            f"category: {idle}.",
            "",
        ]
    elif hta:
        lines += [f"HTA: {hta}", ""]
    if isinstance(lens, dict):
        lines += [
            f"TraceLens: busy {lens['busy_time']:.5g} of {lens['total_time']:.5g} ms, exposed "
            f"communication {lens['exposed_comm_time']:.4g} ms, exposed copies "
            f"{lens['exposed_memcpy_time']:.4g} ms.",
            "",
        ]
    elif lens:
        lines += [f"TraceLens: {lens}", ""]
    if isinstance(others, list):
        more = [f"and {len(others) - _MOST_SAID} further"] if len(others) > _MOST_SAID else []
        lines += ["nsys-ai:", "", *(f"- {line}" for line in [*others[:_MOST_SAID], *more]), ""]
    elif others:
        lines += [f"nsys-ai: {others}", ""]
    return lines


def run() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers", type=Path, metavar="PYTHON", help="interpreter that has the other tools"
    )
    parser.add_argument(
        "--elsewhere", type=Path, metavar="FOLDER", help="profiles that are not in this repository"
    )
    parser.add_argument("--print", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if args.print:
        print(text())
        return
    before = json.loads(RESULTS.read_text())
    results = measure(args.peers, args.elsewhere)
    print("\n".join([*score_lines(results["score"]), "", *differences(before, results)]))


if __name__ == "__main__":
    run()
