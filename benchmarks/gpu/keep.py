"""From the six files of a campaign to what is committed of it:
`python benchmarks/gpu/keep.py FOLDER`.

FOLDER is what `campaign.py --pack` wrote. The card's name in devices.toml, e.g. h100, names what
this writes: `tests/data/NAME` (real records) and `benchmarks/results/NAME` (every number, ncu's
table and the summary). What ran on the virtual card is refused, unless `--into DIR` puts it
somewhere to look at.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What names the machine or one card of many: paths above the checkout, of Python, and UUIDs.
_NAMES = (
    (re.compile(r"(?:/[^\s/'\"`]+)+/(benchmarks|tests)/"), r"\1/"),
    (re.compile(r"(?:/[^\s/'\"`]+)+/bin/python3?\b"), "python"),
    (re.compile(r"(?:/[^\s/'\"`]+)+/(lib\w+\.so)"), r"\1"),
    (re.compile(r"(?<= )/\S+ …"), "…"),  # cut off
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "(a UUID)"),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="folder with the six files")
    parser.add_argument(
        "--into", type=Path, default=ROOT, help="where to write (default: this repository)"
    )
    args = parser.parse_args()
    if not (args.results / "evidence.json").exists():
        parser.error(
            f"{args.results} has no evidence.json: give the folder of `campaign.py --pack`"
        )
    evidence = json.loads((args.results / "evidence.json").read_text())
    if evidence["virtual"] and args.into.resolve() == ROOT:
        parser.error(
            "this ran on the virtual card, and is no evidence of a GPU; --into DIR writes it "
            "elsewhere"
        )
    device = evidence["device"] or {}
    if (name := device.get("key")) is None:
        parser.error(f"{device.get('name', 'its device')} is not in devices.toml: add it first")
    results, data = args.into / "benchmarks" / "results" / name, args.into / "tests" / "data" / name
    if taken := [str(path) for path in (results, data) if path.exists()]:
        parser.error(f"{', '.join(taken)}: there already, and nothing is overwritten")
    results.mkdir(parents=True)
    (results / "evidence.json").write_text(_nameless((args.results / "evidence.json").read_text()))
    if (args.results / "ncu.csv").exists():
        shutil.copyfile(args.results / "ncu.csv", results / "ncu.csv")
    if (args.results / "test_data.tgz").exists():
        _unpack_test_data(args.results / "test_data.tgz", data)
    text = _nameless((args.results / "summary.md").read_text())
    headed = text.replace("# GPU campaign", f"# The GPU campaign on {device['name']}", 1)
    (results / "summary.md").write_text(headed)
    written = ", ".join(str(path) for path in (results, data) if path.exists())
    print(f"Wrote {written}. The summary has the tables, and people write what they mean.")
    return 0


def _nameless(text: str) -> str:
    for pattern, replacement in _NAMES:
        text = pattern.sub(replacement, text)
    return text


def _unpack_test_data(archive: Path, target: Path) -> None:
    """Put what the stages packed as `STAGE/test_data/…` into one folder; each stage has a README of
    its own.
    """
    with tarfile.open(archive) as opened:
        for entry in opened.getmembers():
            stage, _, *rest = Path(entry.name).parts
            if not entry.isfile() or ".." in rest:
                continue
            name = (
                f"README-{stage}.md"
                if rest == ["README.md"] and stage != "records"
                else "/".join(rest)
            )
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            source = opened.extractfile(entry)
            assert source is not None
            path.write_bytes(source.read())


if __name__ == "__main__":
    sys.exit(main())
