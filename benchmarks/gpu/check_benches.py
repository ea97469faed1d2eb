"""What benchmarks measured, as Markdown; fails where one measured nothing, or got a wrong result or an error.

Arguments: file to write, JSON documents of `curvescope bench`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_MEASURED = ("ok", "not_verified")
_BAD = ("incorrect", "failed")


def outcomes_of(document: Mapping[str, Any]) -> Counter[str]:
    """Number of results by outcome; each ceiling is one that was measured."""
    if "sweeps" in document:
        return Counter(result["outcome"] for sweep in document["sweeps"] for result in sweep["results"])
    return Counter(ok=len(document["compute"]) + len(document["bandwidth"]))


def faults(name: str, outcomes: Mapping[str, int]) -> Iterator[str]:
    """What is wrong, one sentence each."""
    if not any(outcomes.get(outcome) for outcome in _MEASURED):
        yield f"{name} measured nothing"
    for outcome in _BAD:
        if outcomes.get(outcome):
            yield f"{name}: {outcomes[outcome]} results {outcome}"


def main() -> int:
    """Write the table, and print what is wrong."""
    target, *paths = map(Path, sys.argv[1:])
    lines, found = ["| benchmark | results by outcome |", "| --- | --- |"], []
    for path in paths:
        text = path.read_text() if path.is_file() else ""
        outcomes = outcomes_of(json.loads(text)) if text else Counter[str]()
        said = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or "none"
        lines.append(f"| {path.stem} | {said} |")
        found += faults(path.stem, outcomes)
    target.write_text("\n".join([*lines, "", *(f"- **{fault}**" for fault in found)]) + "\n")
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
