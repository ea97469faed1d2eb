"""Profiles that others recorded, side by side: our advice, sums by hand over the file, and what
other tools say.

    python benchmarks/profile_advice.py [--peers PYTHON]   measures, into results/profile_advice.json,
    and prints the score
    python benchmarks/profile_advice.py --print            prints what is kept there

The score is over all profiles of profile_labels.toml, in which causes were written by hand, from
sums over the files alone. The advice was written with these profiles at hand: of others it is right
less often.

PYTHON is that of a virtual environment of its own, made with
`python -m venv peers && peers/bin/pip install HolisticTraceAnalysis nsys-ai`; TraceLens is imported
where PYTHONPATH has its repository. Sums by hand use json and sqlite3 alone.
"""  # noqa: E501

from __future__ import annotations

import argparse
import gzip
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

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROFILES = ROOT / "tests" / "data" / "profiles"
RESULTS = ROOT / "benchmarks" / "results" / "profile_advice.json"
LABELS = ROOT / "benchmarks" / "profile_labels.toml"
FILES = (
    "kineto_resnet50_w0_a.pt.trace.json.gz",
    "param_resnet.json.gz",
    "tl_h100_timesformer.json.gz",
    "tl_mi300_ddp_resnet18.json.gz",
    "tl_mi300_resnet_act.json.gz",
    "tl_b200_eager.json.gz",
    "tl_vllm_decode.json.gz",
    "hta_alexnet_trace.json.gz",
    "nsysai_h100_2gpu_1s.sqlite.gz",
    "pipit_cloverleaf.sqlite.gz",
    "hta_amd_mi250_kineto.json.gz",
    "hta_triton_example.json.gz",
    "parttrans_bs32.pt.trace.json.gz",
    "parttrans_bs128.pt.trace.json.gz",
    "tl_h100_bert_small.json.gz",
    "tl_mi300_bert_small.json.gz",
    "tl_sglang_capture_bs32.json.gz",
    "tl_sglang_decode.json.gz",
    "tl_torch_compile_triton.json.gz",
    "tl_vllm_piecewise_execution.json.gz",
)
# Profiles that were searched for and read after the advice had been written for those above.
FOUND = (
    "hta_gp100_steps.json.gz",
    "hta_nccl.json.gz",
    "hta_v100_allreduces.json.gz",
    "nsysai_mfu_2gpu.sqlite.gz",
    "pipit_saxpy.sqlite.gz",
    "switch_a100.json.gz",
    "tl_h100_owlv2.json.gz",
    "tl_mi210_gpu_only.json.gz",
    "tl_mi300_normalization.json.gz",
    "torchbench_copies.json.gz",
)
# Of a second search; most of its profiles have no licence, and are not kept here.
SECOND = ("aws_t4_managed.sqlite.gz",)
_SHOWN = (*FILES, *FOUND, *SECOND)
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
    """The document of `curvescope explain`."""
    command = [sys.executable, "-m", "curvescope", "explain", str(path), "--json"]
    document = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
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
    `small` those that may be said or not. A profile without `first` has nothing to say.
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


def measure(python: Path | None) -> dict[str, Any]:
    known = json.loads(RESULTS.read_text())["profiles"] if RESULTS.exists() else {}
    found: dict[str, Any] = {}
    for name in (*_SHOWN, *(name for name in labels() if name not in _SHOWN)):
        path = PROFILES / name
        found[name] = {"ours": ours(path)}
        if name in _SHOWN:
            said = peers(path, python) if python else known.get(name, {}).get("peers", {})
            found[name] |= {"by_hand": by_hand(path), "peers": said}
    results: dict[str, Any] = {"profiles": found}
    results["score"] = score(causes_of(results), labels())
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    return results


def score_lines(scored: Mapping[str, Any]) -> list[str]:
    """The score as a table of Markdown, with counts."""
    rows = [("what an expert says first, first", *scored["first"])]
    rows += [("nothing said where nothing is", *scored["nothing"])]
    rows += [("suggestions that are true", *scored["precision"])]
    rows += [("causes that are suggested", *scored["recall"])]
    lines = [
        "The advice was written with these profiles at hand: of others it is right less often."
    ]
    lines += ["", f"| of {scored['profiles']} profiles | right | of |", "|---|--:|--:|"]
    lines += [f"| {what} | {right} | {count} |" for what, right, count in rows]
    lines += ["", "| cause | true of suggested | suggested of true |", "|---|--:|--:|"]
    for cause, of_cause in scored["causes"].items():
        precision, recall = ("{} of {}".format(*of_cause[what]) for what in ("precision", "recall"))
        lines.append(f"| {cause} | {precision} | {recall} |")
    return lines


def figures() -> list[str]:
    """What the results say, as two sentences."""
    results = json.loads(RESULTS.read_text())
    rows = [results["profiles"][name] for name in _SHOWN]
    suggested = [row["ours"]["suggested"] for row in rows]
    first = sorted(found[0]["at_most_share"] for found in suggested if found)
    return [
        f"Of **{len(rows)}** profiles of others, `explain` suggests a change for **{len(first)}**.",
        f"The first suggestion saves at most **{median(first):.0%}** of the step, in the median "
        f"({first[0]:.0%} to {first[-1]:.0%}).",
    ]


def text() -> str:
    """All results: the score, ours, sums by hand over the whole file, and what other tools say.

    HTA is HolisticTraceAnalysis 0.5.0 (its temporal and idle time breakdown), nsys-ai is 0.3.0 (its
    skill `root_cause_matcher`), TraceLens is AMD's at commit 171dd747 (its GPU timeline).
    """
    results = json.loads(RESULTS.read_text())
    lines = [*score_lines(results["score"]), ""]
    for name in _SHOWN:
        row = results["profiles"][name]
        hand = row["by_hand"]
        lines += [f"## {name}", "", row["ours"]["headline"], ""]
        lines += ["| suggested | saves at most | where |", "|---|--:|---|"]
        lines += [
            f"| {one['do']} ({one['cause']}) | {one['at_most_ms']:.4g} ms "
            f"({one['at_most_share']:.0%}) | {(one['where'] or '').replace('|', '/')} |"
            for one in row["ours"]["suggested"]
        ] or ["| nothing | | |"]
        lines += [
            "",
            f"By hand: {hand['span_ms']:.5g} ms from the first to the last device work, "
            f"{hand['busy_ms']:.5g} ms busy, {hand['idle_share']:.0%} idle; longest gap "
            f"{hand['longest_gap_ms']:.4g} ms; copies from or to the host beside which nothing "
            f"runs {hand['copies_alone_ms']:.4g} ms.",
            "",
        ]
        lines += _said(row["peers"])
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers", type=Path, metavar="PYTHON", help="interpreter that has the other tools"
    )
    parser.add_argument("--print", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if args.print:
        print(text())
        return
    results = measure(args.peers)
    print("\n".join(score_lines(results["score"])))


if __name__ == "__main__":
    main()
