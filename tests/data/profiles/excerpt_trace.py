"""Take an excerpt of a trace of the PyTorch profiler: some categories of events, and what readers
need of them.

python excerpt_trace.py TRACE.json.gz EXCERPT.json.gz [CATEGORY,CATEGORY...] [FIRST_US LAST_US]

Files, users, hosts and sizes of the machine's memory are left out; of Python functions the name of
the file stays, and those under 0.2 ms go.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

CATEGORIES = "kernel,gpu_memcpy,gpu_memset,cuda_runtime,cuda_driver,cpu_op,user_annotation,python_function,Trace"  # noqa: E501
ARGUMENTS = {
    "correlation",
    "External id",
    "external id",
    "stream",
    "device",
    "bytes",
    "grid",
    "block",
    "Sequence number",
    *("Fwd thread id", "Input Dims", "Input type", "Concrete Inputs", "graph node id", "graph id"),
    "Python id",
    "Python parent id",
    "Collective name",
    "Group size",
    "dtype",
    "In msg nelems",
    "Out msg nelems",
}
DOCUMENT = {"schemaVersion", "deviceProperties", "baseTimeNanoseconds", "distributedInfo"}
DEVICE = {"id", "name", "computeMajor", "computeMinor", "numSms"}
SHORT_US = 200.0
_FOLDERS = re.compile(r"^(?:\.{0,2}/)?(?:[^()/]*/)+")


def excerpt(source: Path, target: Path, categories: str, first_us: float, last_us: float) -> None:
    kept = set(categories.lower().split(","))
    document = json.loads(gzip.decompress(source.read_bytes()))
    events = [
        plain(event)
        for event in document["traceEvents"]
        if is_wanted(event, kept, first_us, last_us)
    ]
    facts = {name: value for name, value in document.items() if name in DOCUMENT}
    facts["deviceProperties"] = [
        {name: value for name, value in device.items() if name in DEVICE}
        for device in document.get("deviceProperties", [])[:1]
    ]
    if task := document.get("metadata", {}).get("current_task"):
        facts["metadata"] = {"current_task": task}
    if "distributedInfo" in facts:
        told = facts["distributedInfo"]
        facts["distributedInfo"] = {
            name: told[name] for name in ("backend", "rank", "world_size") if name in told
        }
    text = json.dumps({**facts, "traceEvents": events}, separators=(",", ":"))
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def is_wanted(event: dict[str, Any], kept: set[str], first_us: float, last_us: float) -> bool:
    is_wanted_kind = event.get("ph") == "X" and str(event.get("cat", "")).lower() in kept
    short = event.get("cat") == "python_function" and float(event["dur"]) < SHORT_US
    return is_wanted_kind and not short and first_us <= float(event["ts"]) <= last_us


def plain(event: dict[str, Any]) -> dict[str, Any]:
    told = event.get("args", {})
    arguments = {
        name: told[name] for name in told if name in ARGUMENTS and told[name] not in ("", [])
    }
    name = event["name"]
    if event["cat"] == "python_function":
        name = _FOLDERS.sub("", name)
    usual = {key: event[key] for key in ("ph", "cat", "pid", "tid", "ts", "dur")}
    return {**usual, "name": name, **({"args": arguments} if arguments else {})}


if __name__ == "__main__":
    wanted = sys.argv[3] if len(sys.argv) > 3 else CATEGORIES
    times = (float(sys.argv[4]), float(sys.argv[5])) if len(sys.argv) > 5 else (0.0, float("inf"))
    excerpt(Path(sys.argv[1]), Path(sys.argv[2]), wanted, *times)
