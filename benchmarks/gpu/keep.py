"""From the folder of a campaign to what is committed of it: `python benchmarks/gpu/keep.py runs/gpu h200`.

Writes `benchmarks/results/NAME` (the small results of every stage), `tests/data/NAME` (real records, where the stage
`records` made them) and `docs/case-studies/NAME.md`, whose tables come from the results and from nothing else; what is
missing is said there. A rehearsal on a CPU is refused, unless `--into DIR` puts all of it somewhere to look at.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from packing import small_results

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder that the campaign left")
    parser.add_argument("name", help="what to call the device: names the folders and the page")
    parser.add_argument("--into", type=Path, default=ROOT, help="where to write (default: this repository)")
    args = parser.parse_args()
    stages = [json.loads(path.read_text()) for path in args.results.glob("*/done.json") if "." not in path.parent.name]
    stages.sort(key=lambda done: done["utc"])
    if not stages:
        parser.error(f"{args.results} holds no finished stage")
    if any(done["rehearsal"] for done in stages) and args.into.resolve() == ROOT:
        parser.error("this is a rehearsal on a CPU, no evidence of a GPU; --into DIR writes it elsewhere")
    results, data = args.into / "benchmarks" / "results" / args.name, args.into / "tests" / "data" / args.name
    page = args.into / "docs" / "case-studies" / f"{args.name}.md"
    if taken := [str(path) for path in (results, data, page) if path.exists()]:
        parser.error(f"{', '.join(taken)}: there already, and nothing is overwritten")
    for done in stages:
        for path in small_results(args.results / done["stage"]):
            if path.name == "log.txt":
                continue
            target = results / done["stage"] / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    if (args.results / "records" / "test_data").is_dir():
        shutil.copytree(args.results / "records" / "test_data", data)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(case_study(args.results, args.name, stages)) + "\n")
    written = ", ".join(str(path) for path in (results, data, page) if path.exists())
    print(f"Wrote {written}. The page has the tables; what they mean is for people to write.")
    return 0


def case_study(results: Path, name: str, stages: list[dict[str, Any]]) -> Iterator[str]:
    """The page, line by line."""
    yield f"# {name}: what the campaign measured"
    yield ""
    yield f"Made by `python benchmarks/gpu/keep.py` from the results in `benchmarks/results/{name}`; {_when(stages)}."
    if any(done["rehearsal"] for done in stages):
        yield ""
        yield "**A rehearsal on a CPU: nothing here is of a GPU.**"
    yield from _machine(results / "machine")
    yield from _stages(stages)
    yield from _ceilings(results / "ceilings" / "ceilings.json")
    yield from _operators(results)
    for done in stages:
        yield from _parts(results / done["stage"], done)


def _when(stages: list[dict[str, Any]]) -> str:
    first, last = stages[0]["utc"][:10], stages[-1]["utc"][:10]
    return first if first == last else f"{first} to {last}"


def _machine(stage: Path) -> Iterator[str]:
    yield from ("", "## The machine", "")
    document = _json(stage / "doctor.json")
    if document is None:
        yield "The stage `machine` left nothing."
        return
    yield from ("| what | is here | detail |", "| --- | --- | --- |")
    for row in document["checks"]:
        yield f"| {row['name']} | {'yes' if row['found'] else 'no'} | {_cell(row['detail'])} |"


def _stages(stages: list[dict[str, Any]]) -> Iterator[str]:
    yield from ("", "## Stages", "", "| stage | shows | outcome | seconds |", "| --- | --- | --- | ---: |")
    for done in stages:
        outcome = ", ".join(f"{n} {what}" for what, n in done["outcomes"].items() if n)
        yield f"| {done['stage']} | {done['says']} | {outcome} | {done['seconds']:.0f} |"
    bad = [(done["stage"], c) for done in stages for c in done["commands"] if c["outcome"] != "ok"]
    if bad:
        yield from ("", "Not everything came to an end:", "")
        yield from (f"- {stage}: `{_command(command)}`: {command['outcome']}" for stage, command in bad)


def _ceilings(path: Path) -> Iterator[str]:
    yield from ("", "## Ceilings", "")
    found = _json(path)
    if not isinstance(found, dict):
        yield "None were measured."
        return
    yield from ("| ceiling | reached | half interval | by |", "| --- | ---: | ---: | --- |")
    for kind, unit in (("compute", "GFLOP/s"), ("bandwidth", "GB/s")):
        for name, ceiling in found.get(kind, {}).items():
            spread = ceiling.get("uncertainty")
            half = "" if spread is None else f"{spread:.1%}"
            yield f"| {name} | {ceiling['per_s'] / 1e9:.4g} {unit} | {half} | {ceiling['how']} |"


def _operators(results: Path) -> Iterator[str]:
    found = [
        (path.stem.rpartition("-")[2], row)
        for path in sorted(results.glob("operators-*/*.json"))
        if path.name != "done.json" and isinstance(document := _json(path), dict)
        for sweep in document.get("sweeps", ())
        for row in sweep["results"]
    ]
    yield from ("", "## Operators, by backend", "")
    if not found:
        yield "None were measured."
        return
    yield from (
        "| problem | backend | median ms | 95 % interval | n | GFLOP/s | GB/s | outcome |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    )
    for backend, row in sorted(found, key=lambda pair: (pair[1]["problem"], pair[0])):
        low, middle, high = (_number(row[key], 1e-6) for key in ("low_ns", "median_ns", "high_ns"))
        rates = f"{_number(row['gflop_per_s'])} | {_number(row['gb_per_s'])}"
        interval = f"{low} … {high}" if low and high else ""
        yield f"| {row['problem']} | {backend} | {middle} | {interval} | {row['n']} | {rates} | {row['outcome']} |"


def _parts(stage: Path, done: dict[str, Any]) -> Iterator[str]:
    """What a stage wrote as Markdown, and as text: both as they are."""
    markdown = sorted(stage.glob("*.md"))
    texts = [path for path in sorted(stage.glob("*.txt")) if path.name not in ("log.txt", "nvidia_smi.txt")]
    texts = [path for path in texts if path.stat().st_size]
    if not markdown and not texts:
        return
    yield from ("", f"## {done['stage']}: {done['says']}")
    for path in markdown:
        yield from ("", f"### {path.stem}", "", path.read_text().strip())
    for path in texts:
        yield from ("", f"### {path.stem}", "", "```", path.read_text().rstrip(), "```")


def _json(path: Path) -> Any:
    """The document of a file; null where it is missing or was cut off."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _cell(text: Any) -> str:
    return "" if text is None else str(text).replace("|", "\\|").replace("\n", " ")


def _number(value: float | None, scale: float = 1.0) -> str:
    return "" if value is None else f"{value * scale:.4g}"


def _command(command: dict[str, Any]) -> str:
    settings = "".join(f"{name}={value} " for name, value in command["environment"].items())
    return settings + command["command"].replace(f"{ROOT}/", "")


if __name__ == "__main__":
    sys.exit(main())
