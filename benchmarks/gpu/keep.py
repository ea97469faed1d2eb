"""From the folder of a campaign to what is committed of it: `python benchmarks/gpu/keep.py runs/gpu h200`.

Writes `benchmarks/results/NAME` (the small results of every stage), `tests/data/NAME` (real records, where the stage
`records` made them) and `docs/case-studies/NAME.md`, the campaign's summary with the tables of its stages. A rehearsal
on a CPU is refused, unless `--into DIR` puts all of it somewhere to look at.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from campaign import write_summary
from packing import small_results

ROOT = Path(__file__).parents[2]


def main() -> int:
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
    write_summary(args.results)
    page.write_text(
        (args.results / "summary.md").read_text().replace("# GPU campaign", f"# The GPU campaign on {args.name}", 1)
    )
    written = ", ".join(str(path) for path in (results, data, page) if path.exists())
    print(f"Wrote {written}. The page has the tables; what they mean is for people to write.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
