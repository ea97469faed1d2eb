"""Planted causes on virtual cards: does `diagnose` confirm the right cause on a GPU's path, and nothing else?

A virtual card (tests/virtual_card) is a GPU made of CUDA's public functions: kernels take a time by a small table and
compute nothing, and time is virtual, so that a run gives the same on every machine. What is planted is in the step
(benchmarks/virtual_steps.py) or in the card; `curvescope.diagnose` is told nothing. It is a test of the method along
the path of a GPU; it says nothing of a real one.

    .venv-virtual/bin/python benchmarks/virtual_causes.py [--cases wave,clock] [--write]

With `make virtual`'s environment. Results go to benchmarks/results/virtual_causes.jsonl; a later run of a case counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.evidence import beginning  # noqa: E402
from benchmarks.planted_causes import Case, describe, kept_runs, score  # noqa: E402
from tests.virtual_card.build import build  # noqa: E402
from tests.virtual_card.card import LIBRARIES, Card  # noqa: E402

KEPT = Path(__file__).parent / "results" / "virtual_causes.jsonl"
PAGE = ROOT / "docs" / "virtual-causes.md"
# Of virtual seconds.
MEASURED_S, EXPERIMENTS_S = 4.0, 60.0
_LONGEST_S = 1500  # of the host's, for one case
_FLOPS = 2 * 2048**2 * 512  # of a product of the network for a sample
_K40_FLOPS = 2 * 1920**2 * 64
_H100 = Card(virtual_time=True)


@dataclass(frozen=True)
class Planted:
    """A case on a virtual card.

    Attributes:
        case: the step and what is right; no causes where nothing is planted.
        card: the virtual card.
        testable: whether an experiment could confirm the cause; else it has to be named.
        locks: whether the clock may be locked.
    """

    case: Case
    card: Card = _H100
    testable: bool = True
    locks: bool = False


def _case(make: str, what: str, values: Sequence[int], functional: str, causes: str = "") -> Case:
    named = frozenset(filter(None, causes.split("|")))
    return Case(make, what, tuple(values), functional, (), frozenset(), named)


def _on(device: str, *plants: Mapping[str, Any], **costs: float) -> Card:
    return Card([device], True, costs, plants)


HOST, SWITCH, TILES = "launch- or host-bound", "algorithm switch", "wave and tile quantisation"
_SIZES = (16, 32, 64, 128)
_OTHER = {"match": "gemm", "slower": 1.7, "name": "cutlass_80_simt_sgemm_256x128_8x4_nn_align1"}
_COLLECTIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_AT_8 = {"match": "gemm", "slower": 1.5, "name": "sgemm_sm35_ldg_nt_64x16x128x8x32"}
CASES = {
    one.case.make: one
    for one in (
        Planted(
            _case("wave", "a batch just past a wave of blocks", (32, 50, 64, 128), "excess", TILES),
            _on("h100", {"match": "SoftMax", "wave_ns": 100_000}),
        ),
        Planted(
            _case("clock", "a clock that drops at 64", _SIZES, "excess", "throttling"), locks=True
        ),
        Planted(
            _case(
                "allocation",
                "memory taken anew in each step of 64",
                _SIZES,
                "excess",
                f"memory pressure|{HOST}",
            )
        ),
        Planted(
            _case("pageable_copy", "a pageable copy in each step of 64", _SIZES, "excess", HOST),
            testable=False,
        ),
        Planted(
            _case("switch", "another, slower kernel from 64 on", _SIZES, "excess", SWITCH),
            _on("h100", {**_OTHER, "from_flops": 63 * _FLOPS}),
        ),
        Planted(
            _case("launches", "3,000 small kernels in each step of 64", _SIZES, "excess", HOST)
        ),
        Planted(
            _case(
                "beside",
                "kernels beside communication at 64",
                _SIZES,
                "excess",
                "kernels beside communication",
            ),
            _on(
                "h100",
                {"match": "spin_kernel", "name": _COLLECTIVE},
                {"match": "gemm", "beside": "nccl", "slower": 3},
            ),
            testable=False,
        ),
        Planted(
            _case(
                "full_memory",
                "GTX 1080: 8 GB are full at 128",
                (32, 64, 128),
                "excess",
                f"memory pressure|{SWITCH}",
            ),
            _on("gtx1080"),
        ),
        Planted(
            _case(
                "bend_at_8",
                "K40: concave-down at 8, by another kernel",
                (4, 8, 16, 32),
                "bend",
                SWITCH,
            ),
            _on("k40", {**_AT_8, "from_flops": 7 * _K40_FLOPS, "below_flops": 9 * _K40_FLOPS}),
        ),
        Planted(
            _case(
                "cache",
                "arrays that outgrow the L2 at 128",
                (32, 64, 128),
                "excess",
                "cache capacity",
            ),
            _on("h100", l2_speed=2.5, launch_ns=1000, call_ns=100),  # no step waits for the host
            testable=False,  # equal calls find their arrays in the cache however it was before
        ),
        Planted(
            _case(
                "precision", "fp32 at 64, bf16 elsewhere", _SIZES, "excess", f"precision|{SWITCH}"
            )
        ),
    )
}
NULLS = {
    device: Planted(_case("parts", f"nothing, {device}", (1, 2, 4), "excess"), _on(device))
    for device in ("h100", "v100", "gtx1080", "k40")
}


def run_one(name: str) -> dict[str, Any]:
    """Diagnose one case on the virtual card of this process."""
    import curvescope
    from benchmarks import virtual_steps
    from curvescope.profiling.hardware.locked_clocks import clocks_may_be_locked
    from curvescope.profiling.measure.protocol import Protocol

    planted = {**CASES, **NULLS}[name]
    protocol = Protocol("planted", (6, 8), 1, (1, 4), 0.04, 2, MEASURED_S)
    with tempfile.TemporaryDirectory() as folder, clocks_may_be_locked(planted.locks):
        found = curvescope.diagnose(
            getattr(virtual_steps, planted.case.make),
            planted.case.values,
            device="cuda:0",
            protocol=protocol,
            experiments_s=EXPERIMENTS_S,
            output=Path(os.environ.get("VIRTUAL_CAUSES_KEEP", folder), name),
        )
        return describe(found)


def run(name: str, libraries: Path = LIBRARIES) -> dict[str, Any]:
    """Diagnose one case in a process of its own, on its card."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**CASES, **NULLS}[name].card.environment(Path(folder), libraries)
        words = [sys.executable, __file__, "--one", name]
        done = subprocess.run(
            words,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
    if done.returncode:
        return {"name": name, "error": done.stderr.strip().splitlines()[-1:]}
    return {
        "name": name,
        **json.loads(done.stdout.splitlines()[-1]),
        "wall_s": time.monotonic() - began_s,
    }


def named(planted: Planted, record: dict[str, Any]) -> bool:
    """Whether an answer names the right cause, whatever its verdict."""
    return any(answer["cause"] in planted.case.causes for answer in record["answers"])


def right(planted: Planted, record: dict[str, Any]) -> bool:
    """Whether the right cause is confirmed, or named where no experiment could confirm it."""
    confirmed = any(cause in planted.case.causes for _, cause in record["confirmed"])
    return confirmed or (not planted.testable and named(planted, record))


def summary(name: str, record: dict[str, Any]) -> str:
    """One line on a run."""
    if "error" in record:
        return f"{name}: {record['error']}"
    planted = {**CASES, **NULLS}[name]
    answers = "; ".join(
        f"{a['label']}: {a['where']}, {a['cause']} ({a['verdict']})" for a in record["answers"]
    )
    found = score(planted.case if planted.case.causes else None, record)
    verdict = (
        "right"
        if right(planted, record)
        else "not found"
        if planted.case.causes
        else "nothing planted"
    )
    return f"{name}: {verdict}, wrong {', '.join(found.wrong) or 'none'} ({record['wall_s']:.0f} s): {answers}"


def page(kept: Sequence[dict[str, Any]]) -> str:
    """The page as Markdown, of the last run of each case."""
    last = {one["name"]: one for one in kept if "error" not in one}
    found = [(planted, last[name]) for name, planted in CASES.items() if name in last]
    nulls = [(planted, last[name]) for name, planted in NULLS.items() if name in last]
    wrong = [score(planted.case, one).wrong for planted, one in found]
    false = [score(None, one).wrong for _, one in nulls]
    rows = [_row(planted, one, causes) for (planted, one), causes in zip(found, wrong, strict=True)]
    rows += [
        _row(planted, one, causes) for (planted, one), causes in zip(nulls, false, strict=True)
    ]
    hits = [planted.testable for planted, one in found if right(planted, one)]
    figures = (
        f"On virtual cards, the right cause was found in **{_of(len(hits), len(found))}** of the steps with a planted "
        f"cause: confirmed in {sum(hits)}, and named in {len(hits) - sum(hits)}, where no experiment tests it.",
        f"A wrong cause was confirmed in **{_of(sum(map(bool, wrong)), len(wrong))}** of them.",
        f"With nothing planted, a cause was confirmed in **{_of(sum(map(bool, false)), len(false))}** of the sweeps.",
    )
    return beginning("Planted causes on virtual cards", *figures) + TEXT.format(
        rows="\n".join(rows), measured=MEASURED_S, experiments=EXPERIMENTS_S
    )


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "not measured"


def _row(planted: Planted, record: dict[str, Any], wrong: Sequence[str]) -> str:
    case, device = planted.case, planted.card.devices[0]
    says = [
        f"{one['label']}: {one['cause']} ({one['verdict']})"
        if one["cause"]
        else f"{one['label']}: cause not known"
        for one in record["answers"][:2]
    ]
    found = "–" if not case.causes else "yes" if right(planted, record) else "no"
    if found == "yes" and not planted.testable:
        found = "named; no experiment tests it"
    causes = ", ".join(sorted(case.causes)) or "none"
    cells = [f"virtual {device}", case.what, causes, "<br>".join(says) or "no anomaly", found]
    return f"| {' | '.join([*cells, ', '.join(wrong) or 'none'])} |"


TEXT = """`.venv-virtual/bin/python benchmarks/virtual_causes.py --write`, in the environment of `make virtual`, writes
this page.

**These cards are virtual.** No GPU took part, and nothing here says how often verdicts are right on a real
one. A virtual card is made of CUDA's public functions: PyTorch's CUDA build and CUPTI run on it as on a GPU,
its kernels compute nothing, and each takes a time by a small table: whole waves of blocks, bytes over
bandwidth, and what is planted. Time is virtual, so a run gives the same on every machine. What this does
show: on the path that only a GPU takes (kernels from CUPTI, clocks, allocations, streams, graphs,
experiments in processes of their own), a cause that is there is found, and no other.

The cases are not held out: plants, costs and what counts as right were adjusted while the cases were written,
after answers had been seen. Where 8 GB are full, *algorithm switch* counts as right too, since cuDNN then
takes another algorithm; by *memory pressure* alone it would be a miss and a wrong cause.

`curvescope.diagnose` is told nothing; it measures for {measured:g} virtual seconds and experiments for
{experiments:g}. A cause counts from 10 % of an anomaly on. *Found*: confirmed by experiment, or named where
no experiment can test it. Steps: benchmarks/virtual_steps.py; every run:
benchmarks/results/virtual_causes.jsonl.

| card | planted | right cause | `diagnose` says | found | wrong confirmed |
|---|---|---|---|---|---|
{rows}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", default=",".join([*CASES, *NULLS]), help="comma-separated (default: all)"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, metavar="N", help="cases at once (default %(default)s)"
    )
    parser.add_argument(
        "--write", action="store_true", help=f"run, and write {PAGE.relative_to(ROOT)}"
    )
    parser.add_argument("--only-write", action="store_true", help="write the page of the kept runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run_one(args.one)))
        return 0
    names = [] if args.only_write else args.cases.split(",")
    if unknown := set(names) - {*CASES, *NULLS}:
        parser.error(
            f"--cases {', '.join(sorted(unknown))}: choose from {', '.join([*CASES, *NULLS])}"
        )
    if names:
        build(LIBRARIES)
    with ThreadPoolExecutor(args.jobs) as pool:
        for name, found in zip(names, pool.map(run, names), strict=True):
            with KEPT.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(summary(name, found), file=sys.stderr, flush=True)
    if args.write or args.only_write:
        PAGE.write_text(page(kept_runs(KEPT)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
