"""Holds the detector against the plain rule `excess > 5 %` on every pair of DeepBench; writes docs/detector.md.

Build: `python benchmarks/published_pairs.py --write`. Without --write the page is printed. `--tables DIR` writes DeepBench's
times as tables that `curvescope import --table` reads.
"""

# ruff: noqa: E501 - lines of the page
from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections import Counter
from pathlib import Path

from evidence import beginning

from curvescope.analysis.decompose.findings import FindingVerdict
from curvescope.analysis.render.series import relative_size
from curvescope.analysis.time_tables import find_all
from curvescope.profiling.readers.time_table import import_table
from curvescope.profiling.recording.store import open_recording

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "benchmarks" / "published"
PAGE = ROOT / "docs" / "detector.md"
PLAIN_RULE = 0.05
NOISES = (0.01, 0.02, 0.05, 0.10)
TABLES = {"convolutions": "deepbench_conv", "GEMMs": "deepbench_gemm"}
# Input height x width, channels > filters, filter; GEMMs are m x n x k, and n is their batch.
PROBLEMS = {
    "deepbench_conv": "{pass} {h}x{w} {c}>{k} {s}x{r} pad {pad_h},{pad_w} stride {stride_h},{stride_w}",
    "deepbench_gemm": "gemm {m}xBATCHx{k} {a_t}{b_t}",
}

HEAD = """`python benchmarks/published_pairs.py --write` writes this page from DeepBench's times in benchmarks/published. Its option
`--tables DIR` writes these times as tables; `curvescope import FILE --table` imports such a table, and `curvescope explain` tests
it.

DeepBench publishes one mean per problem and device, without a spread. So a verdict uses a *stated* standard error of
every time (`--noise`; printed with every verdict; without it, the noise is estimated from the table, see
[importing](importing.md#tables-of-times)). The standard error of excess(b → kb) is then
√((k·T(b)·noise)² + (T(kb)·noise)²), its p comes from the normal distribution, and all tests of a table are one family (Holm).
If a curve has repeated rows for every batch size, the test uses these repeats instead, as in a sweep. An effect under 5 % of the
larger time is no anomaly in a table, however small the noise.

The plain rule calls a pair anomalous when T(kb) > 1.05·k·T(b). It ignores noise and the number of pairs. Neither rule is the
truth. *Precision* is the share of the detector's anomalies that the plain rule finds too; *recall* is the share of the plain
rule's anomalies that the detector confirms. The detector rejects the pairs whose excess may be chance, given the stated error
and the number of pairs.

| table | pairs | stated noise | plain rule | detector | both | precision | recall |
|---|---|---|---|---|---|---|---|
"""

MIDDLE = """
At 5 %, the anomalies are:

| problem | device | pair | excess over proportional cost | p, adjusted |
|---|---|---|---|---|
"""

TAIL = """
The detector finds VGG's conv3_1 (56x56, 128 > 256, 3x3) backward data from batch 8 to 16 on Titan X (Maxwell), M40 and Titan X
(Pascal), all with cuDNN 5. It does not find it on P100 (cuDNN 6) and V100 (cuDNN 7), where batch 16 costs 1.4 times batch 8. It
also finds AlexNet on K40m in PaddlePaddle from batch 256 to 512 (tests/data/published/k40m_training.csv), but not in TensorFlow
on the same card.
"""


def write_table(name: str, path: Path) -> Path:
    """One of `PROBLEMS` as a table of problem, device, batch and time; no value is changed, and no row left out."""
    with (PUBLISHED / f"{name}.csv").open(newline="") as published, path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("problem", "device", "batch", "time_ms"))
        for row in csv.DictReader(published):
            table.writerow((PROBLEMS[name].format(**row), row["gpu"], row["n"], row["time_ms"]))
    return path


def page() -> str:
    """The page as Markdown."""
    lines, listed, counts = [], [], Counter[str]()
    for label, name in TABLES.items():
        with tempfile.TemporaryDirectory() as folder:
            table = write_table(name, Path(folder) / f"{name}.csv")
            steps = open_recording(import_table(table, Path(folder) / "run").path).frame("steps")
        for noise in NOISES:
            pairs = [(s, f) for s in find_all(steps, noise) for f in s.findings if f.tested.kind == "excess"]
            plain = [relative_size(*pair) > PLAIN_RULE for pair in pairs]
            found = [f.verdict == FindingVerdict.ANOMALY for _, f in pairs]
            both = sum(p and f for p, f in zip(plain, found, strict=True))
            lines.append(
                f"| {label} | {len(pairs)} | {noise:.0%} | {sum(plain)} | {sum(found)} | {both} | "
                f"{_ratio(both, sum(found))} | {_ratio(both, sum(plain))} |"
            )
            if noise == 0.05:
                counts.update(pairs=len(pairs), plain=sum(plain), both=both, alone=sum(found) - both)
                anomalies = [pair for pair in pairs if pair[1].verdict == FindingVerdict.ANOMALY]
                listed += [
                    f"| {s.problem} | {s.device_name} | {f.tested.at} → {f.tested.to} | {relative_size(s, f):+.0%} | "
                    f"{f.p_adjusted:.1g} |"
                    for s, f in sorted(anomalies, key=lambda pair: -relative_size(*pair))
                ]
    figures = (
        f"Of **{counts['pairs']}** pairs of published times, a plain 5 % rule calls {counts['plain']} anomalous.",
        f"With a stated error of 5 % for every time, the detector confirms **{counts['both']}** of those "
        f"{counts['plain']}; the others may be chance.",
        f"It calls **{counts['alone']}** pairs anomalous that the plain rule does not.",
    )
    return (
        beginning("The detector on published measurements", *figures)
        + HEAD
        + "\n".join(lines)
        + "\n"
        + MIDDLE
        + "\n".join(listed)
        + "\n"
        + TAIL
    )


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "none found"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/detector.md")
    parser.add_argument("--tables", type=Path, metavar="DIR", help="write DeepBench's times into this folder")
    args = parser.parse_args()
    if args.tables:
        args.tables.mkdir(parents=True, exist_ok=True)
        for name in PROBLEMS:
            write_table(name, args.tables / f"{name}.csv")
    elif args.write:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
