"""Planted causes on virtual cards: does `diagnose` confirm the right cause on a GPU's path, and
nothing else?

A virtual card (tests/virtual_card) is a GPU made of CUDA's public functions: kernels take a time by
a small table and compute nothing, and time is virtual, so that a run gives the same on every
machine. What is planted is in the step (benchmarks/gpu/steps_with_causes.py) or in the card;
`curvescope.diagnose` is told nothing. It is a test of the method along the path of a GPU; it says
nothing of a real one.

    .venv-virtual/bin/python benchmarks/virtual_causes.py [--cases wave,clock] [--noise 1]
    python benchmarks/virtual_causes.py --cases ""            # only the table of the kept runs

With `make virtual`'s environment. A case named `PLANT@SEED` is held out: device, shapes, batch
sizes and the amount are drawn by the seed, and nothing was fitted to them. `--noise SEED` lets the
card vary from run to run as an H100 did. The tests run the plants of `IN_CI`. Results go to
benchmarks/results/virtual_causes.jsonl, with noise to virtual_causes_noise.jsonl beside it; a later
run of a case counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.evidence import markdown, read_tables  # noqa: E402
from benchmarks.planted_causes import FIXED, Case, describe, kept_runs, score  # noqa: E402
from curvescope.profiling.hardware.devices import get_device  # noqa: E402
from tests.virtual_card.build import build  # noqa: E402
from tests.virtual_card.card import LIBRARIES, Card  # noqa: E402

RESULTS = Path(__file__).parent / "results"
KEPT, KEPT_NOISE = RESULTS / "virtual_causes.jsonl", RESULTS / "virtual_causes_noise.jsonl"
# Virtual seconds to measure a case, to measure one on a card that varies, and for experiments.
MEASURED_S, VARYING_S, EXPERIMENTS_S = 4.0, 8.0, 150.0
_LEFT = 0.5  # of an anomaly, on a card without what makes it
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
        sizes: changed `Sizes` of the step.
    """

    case: Case
    card: Card = _H100
    testable: bool = True
    locks: bool = False
    sizes: Mapping[str, Any] = field(default_factory=dict)


def _case(make: str, what: str, values: Sequence[int], functional: str, causes: str = "") -> Case:
    named = frozenset(filter(None, causes.split("|")))
    return Case(make, what, tuple(values), functional, (), frozenset(), named)


def _on(device: str, *plants: Mapping[str, Any], **costs: float) -> Card:
    return Card([device], True, costs, plants)


HOST, SWITCH, TILES = "launch- or host-bound", "algorithm switch", "wave and tile quantisation"
COPIES = "copies from and to the host"
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
            sizes={"rows": 5},
        ),
        Planted(
            _case(
                "one_block_past",
                "one block more than in proportion, past a wave, at 64 only",
                _SIZES,
                "excess",
                TILES,
            ),
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
            _case("pageable_copy", "a pageable copy in each step of 64", _SIZES, "excess", COPIES),
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
            sizes={"rows": 64, "width": 1920},
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


# Plants of which others are held out, by a seed.
_DRAWN = ("wave", "clock", "allocation", "pageable_copy", "switch", "launches", "precision")
_DRAWN_ON = {"precision": ("h100",)}  # that is faster in bf16
_LARGEST_S = 0.06  # about, of the largest step
_SHARE = 0.8  # of the peak that products reach
_WIDTHS = {"h100": (1536, 2560, 3072), "v100": (1280, 1536, 2560)}  # of others: narrower


def held_out(make: str, seed: int) -> Planted:
    """A plant on another card, of other shapes, at another batch size and by another amount.

    Products have so many rows that the last wave of their tiles hardly counts.
    """
    draw = random.Random(f"{make} {seed}")
    device = draw.choice(_DRAWN_ON.get(make, ("h100", "v100", "titanx_pascal", "gtx1080")))
    facts = get_device(device)
    if make == "wave":
        return _drawn_wave(draw, device)
    least = draw.choice((6, 10, 14, 20, 24))
    batches = (least, 2 * least, 4 * least, 8 * least)
    at = draw.choice(batches[1:3])
    width = draw.choice(_WIDTHS.get(device, (768, 1024, 1536)))
    layers = draw.choice((2, 3, 5))
    flops_per_s = facts.sm_count * facts.fp32_lanes_per_sm * 2 * facts.clock_hz
    flops_of_row = 2 * width**2 * layers
    rows = round(_LARGEST_S * _SHARE * flops_per_s / flops_of_row / batches[-1])
    amounts = {
        "clock": draw.uniform(0.5, 0.75),
        "allocation": draw.randint(12, 40),
        "launches": draw.randint(2000, 5000),
        "switch": draw.uniform(1.4, 2.2),
    }
    amount = amounts.get(make, 0)
    plants = []
    if make == "switch":
        from_flops = 2 * width**2 * rows * (at - 1)
        plants = [{**_OTHER, "slower": amount, "from_flops": from_flops}]
    case = replace(CASES[make].case, values=batches, what=f"{_WHAT[make]} {at}")
    sizes = {"at": at, "width": width, "layers": layers, "rows": rows, "amount": amount}
    return replace(CASES[make], case=case, card=_on(device, *plants), sizes=sizes)


_WHAT = {
    "clock": "a clock that drops at",
    "allocation": "memory taken anew in each step of",
    "pageable_copy": "a pageable copy in each step of",
    "switch": "another, slower kernel from",
    "launches": "many small kernels in each step of",
    "precision": "fp32 instead of bf16 at",
}


def _drawn_wave(draw: random.Random, device: str) -> Planted:
    """Rows of softmax: two blocks of 1,024 threads fill an SM; the third batch size is just past a
    wave.
    """
    rows = draw.randint(3, 9)
    fits = 2 * get_device(device).sm_count // rows
    past = fits + draw.randint(1, max(1, fits // 8))
    batches = (round(0.6 * fits), fits, past, 2 * fits)
    case = replace(
        CASES["wave"].case,
        values=batches,
        what=f"{past} samples, just past a wave of {fits}",
    )
    plant = {"match": "SoftMax", "wave_ns": draw.randint(60_000, 200_000)}
    return replace(CASES["wave"], case=case, card=_on(device, plant), sizes={"rows": rows})


def planted_case(name: str) -> Planted:
    """A case by its name; `PLANT@SEED` is held out."""
    make, _, seed = name.partition("@")
    return held_out(make, int(seed)) if seed else {**CASES, **NULLS}[name]


# What the tests on the virtual card run: the founding cases, and held-out ones.
SEEDS = (1, 2, 3)
HELD_OUT = tuple(f"{make}@{seed}" for seed in SEEDS for make in _DRAWN)
WITH_NOISE = (*CASES, *HELD_OUT[-len(_DRAWN) :], HELD_OUT[0])  # twenty
IN_CI = ("full_memory", "wave@1", "precision@1")
LONGEST = "bend_at_8"  # a third of the time of the virtual card's tests
# The other kinds are only measured there: whether the cause is named, before any experiment.
NAMED_IN_CI = tuple(name for name in CASES if name not in {one.split("@")[0] for one in IN_CI})


def run_one(
    name: str, experiments_s: float = EXPERIMENTS_S, measured_s: float = MEASURED_S
) -> dict[str, Any]:
    """Diagnose one case on the virtual card of this process."""
    import curvescope
    from benchmarks.gpu import steps_with_causes
    from curvescope.profiling.hardware.locked_clocks import clocks_may_be_locked
    from curvescope.profiling.measure.protocol import Protocol

    planted = planted_case(name)
    protocol = Protocol("planted", (6, 8), 1, (1, 4), 0.04, 2, measured_s)
    with tempfile.TemporaryDirectory() as folder, clocks_may_be_locked(planted.locks):
        found = curvescope.diagnose(
            getattr(steps_with_causes, planted.case.make),
            planted.case.values,
            device="cuda:0",
            protocol=protocol,
            experiments_s=experiments_s,
            output=Path(os.environ.get("VIRTUAL_CAUSES_KEEP", folder), name),
        )
        return describe(found)


def curve_ms(name: str) -> dict[str, float]:
    """The time of each batch size of a case on the virtual card of this process, without
    Curvescope.
    """
    import torch

    from benchmarks.gpu import steps_with_causes

    planted, found = planted_case(name), {}
    for batch in planted.case.values:
        step = getattr(steps_with_causes, planted.case.make)(batch)
        for _ in range(3):
            torch.cuda.synchronize()
            began_ns = time.perf_counter_ns()
            step()
            torch.cuda.synchronize()
            found[str(batch)] = (time.perf_counter_ns() - began_ns) / 1e6
        del step
    return found


def run(name: str, noise: int = 0, experiments_s: float = EXPERIMENTS_S) -> dict[str, Any]:
    """Diagnose one case in a process of its own, on its card."""
    began_s = time.monotonic()
    limits = {
        "measured_s": VARYING_S if noise else MEASURED_S,
        "experiments_s": experiments_s,
    }
    record = run_by(name, partial(_in_a_process, limits=limits), noise)
    if "error" in record:
        return record
    wall_s = time.monotonic() - began_s
    return {**record, **limits, "wall_s": wall_s}


def run_by(
    name: str, on_card: Callable[[Card, str, str], dict[str, Any]], noise: int = 0
) -> dict[str, Any]:
    """Diagnose one case; a function of a card, one of `QUESTIONS` and the case asks it on the
    card.
    """
    planted = planted_case(name)
    card = replace(planted.card, noise=noise)
    record = {"name": name, "virtual": True, "noise": noise, **on_card(card, "one", name)}
    if "error" in record:
        return record
    confirmed = {cause for _, cause in record["confirmed"]}
    if TILES in confirmed - planted.case.causes:
        smooth = replace(planted.card, costs={**planted.card.costs, "whole_waves": 0})
        record["without_waves_ms"] = on_card(smooth, "curve", name)
    return record


# What is asked of a case on the card of a process, by its name.
QUESTIONS: dict[str, Callable[..., dict[str, Any]]] = {"one": run_one, "curve": curve_ms}


def _in_a_process(
    card: Card, question: str, name: str, limits: Mapping[str, float]
) -> dict[str, Any]:
    """Run this program on a card; returns the document that it printed, or its `error`."""
    options = [f"--{limit.removesuffix('_s')}={limit_s}" for limit, limit_s in limits.items()]
    with tempfile.TemporaryDirectory() as folder:
        environment = card.environment(Path(folder), LIBRARIES) | planted_variables(name)
        done = subprocess.run(
            [sys.executable, __file__, f"--{question}", name, *options],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1:]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def planted_variables(name: str) -> dict[str, str]:
    """The environment by which steps_with_causes.py plants the case."""
    return {"CURVESCOPE_PLANTED": json.dumps(dict(planted_case(name).sizes))}


def named(planted: Planted, record: dict[str, Any]) -> bool:
    """Whether an answer on the curve names the right cause, whatever its verdict."""
    answers = [(answer["label"], answer["cause"]) for answer in record["answers"]]
    return _has_right(planted, answers)


def right(planted: Planted, record: dict[str, Any]) -> bool:
    """Whether the right cause is confirmed, or named where no experiment could confirm it."""
    confirmed = _has_right(planted, record["confirmed"])
    return confirmed or (not planted.testable and named(planted, record))


def _has_right(planted: Planted, found: Sequence[Sequence[str]]) -> bool:
    """Of anomalies with their causes: what is planted at one size is no fixed cost."""
    causes = [cause for label, cause in found if not label.startswith(FIXED)]
    return any(cause in planted.case.causes for cause in causes)


def wrong(planted: Planted, record: Mapping[str, Any]) -> tuple[str, ...]:
    """The causes that are confirmed and not true: neither planted nor seen in a card without them.

    Sizes of a network may leave waves of blocks half empty although nobody planted it. Whether that
    makes an anomaly, the card tells itself: where the last wave takes only its share of one, at
    least half of the anomaly is gone.
    """
    confirmed = [pair for pair in record["confirmed"] if not _of_waves(record, *pair)]
    case = planted.case if planted.case.causes else None
    return score(case, {**record, "confirmed": confirmed}).wrong


def _of_waves(record: Mapping[str, Any], label: str, cause: str) -> bool:
    without = record.get("without_waves_ms")
    if cause != TILES or without is None:
        return False
    curve = {size: found[0] for size, found in record["curve_ms"].items()}
    return abs(amount_ms(label, without)) <= _LEFT * abs(amount_ms(label, curve))


def amount_ms(label: str, curve: Mapping[str, float]) -> float:
    """An anomaly of a curve of times by batch size, by its label, e.g. "excess 32→64"."""
    points = {int(size): ms for size, ms in curve.items()}
    what, _, where = label.rpartition(" ")
    if what == "bend at":
        sizes = sorted(points)
        at = sizes.index(int(where))
        low, middle, high = sizes[at - 1 : at + 2]
        return (
            points[low]
            + (points[high] - points[low]) * (middle - low) / (high - low)
            - points[middle]
        )
    low, high = map(int, where.split("→"))
    if what == FIXED:
        return (high * points[low] - low * points[high]) / (high - low)
    return points[high] - points[low] * high / low


def summary(name: str, record: dict[str, Any]) -> str:
    """One line on a run."""
    if "error" in record:
        return f"{name}: {record['error']}"
    planted = planted_case(name)
    answers = "; ".join(
        f"{a['label']}: {a['where']}, {a['cause']} ({a['verdict']})" for a in record["answers"]
    )
    false = wrong(planted, record)
    verdict = (
        "right"
        if right(planted, record)
        else "not found"
        if planted.case.causes
        else "nothing planted"
    )
    return (
        f"{name}: {verdict}, wrong {', '.join(false) or 'none'} ({record['wall_s']:.0f} s): "
        f"{answers}"
    )


# Counted when each ran for the first time; of `clock@1` that run is not in the file.
_AT_FIRST = "18 of 21"


def last_runs(kept: Path = KEPT) -> dict[str, dict[str, Any]]:
    """The last kept run of each case."""
    return {run["name"]: run for run in kept_runs(kept) if "error" not in run}


def figures() -> list[str]:
    """What the last run of each case says, and a diagnosis of a language model, as sentences."""
    last = last_runs()
    plants, held_out = (
        _figures([name for name in names if name in last], last) for names in (CASES, HELD_OUT)
    )
    nulls = [name for name in NULLS if name in last]
    false = sum(bool(wrong(planted_case(name), last[name])) for name in nulls)
    return [
        f"Of the plants, the right cause was found in {plants}",
        f"Of the plants that are held out, the right cause was found in {held_out} At the first run of each it "
        f"was found in **{_AT_FIRST}**.",
        f"With nothing planted, a cause was confirmed in **{_of(false, len(nulls))}** of the "
        "sweeps.",
        _noise_figure(last_runs(KEPT_NOISE)),
        _model_figure(),
    ]


def _model_figure() -> str:
    """What a diagnosis of a language model says there, as a sentence."""
    table = read_tables()["virtual_language_model"]
    named = [
        f"{step} {cause} ({sure})"
        for step, cause, sure in zip(
            *map(table.column, ("step", "first cause", "how sure")), strict=True
        )
    ]
    return f"A bf16 language model was diagnosed to its end: in {', in '.join(named)}."


def _noise_figure(last: Mapping[str, dict[str, Any]]) -> str:
    """What the runs with noise say, as a sentence."""
    runs = [(planted_case(name), last[name]) for name in WITH_NOISE if name in last]
    said = sum(named(planted, run) for planted, run in runs)
    confirmed = sum(_has_right(planted, run["confirmed"]) for planted, run in runs)
    false = sum(bool(wrong(planted, run)) for planted, run in runs)
    seconds = sorted({run["experiments_s"] for _, run in runs})
    budgets = [f"{limit_s:g}" for limit_s in seconds]
    return (
        "On a card that varies as the H100 did, from launch to launch and from step to step, the "
        f"right cause was named in **{_of(said, len(runs))}** and confirmed in {confirmed}. A wrong "
        f"cause was confirmed in **{_of(false, len(runs))}**. Experiments had "
        f"{' or '.join(budgets)} virtual seconds."
    )


def _figures(names: Sequence[str], last: Mapping[str, dict[str, Any]]) -> str:
    """How many of these cases were found, and in how many a wrong cause was confirmed."""
    found = [(planted_case(name), last[name]) for name in names]
    hits = [planted.testable for planted, one in found if right(planted, one)]
    false = sum(bool(wrong(planted, one)) for planted, one in found)
    drawn = sum(any(_of_waves(one, *pair) for pair in one["confirmed"]) for _, one in found)
    besides = f" In {drawn} more it was one that nobody planted and that is there." if drawn else ""
    return (
        f"**{_of(len(hits), len(found))}**: confirmed in {sum(hits)}, and named in "
        f"{len(hits) - sum(hits)}, where no "
        "experiment tests it. A wrong cause was confirmed in "
        f"**{_of(false, len(found))}**.{besides}"
    )


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "not measured"


HEAD = ("card", "planted", "right cause", "`diagnose` says", "found", "wrong confirmed")


def _row(name: str, record: dict[str, Any]) -> list[str]:
    planted = planted_case(name)
    case, device = planted.case, planted.card.devices[0]
    false = wrong(planted, record)
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
    said = "<br>".join(says) or "no anomaly"
    return [f"virtual {device}", case.what, causes, said, found, ", ".join(false) or "none"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases",
        help="comma-separated (default: all; with noise twenty plants)",
    )
    parser.add_argument(
        "--noise", type=int, default=0, metavar="SEED", help="what varies as on an H100"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, metavar="N", help="cases at once (default %(default)s)"
    )
    parser.add_argument(
        "--experiments",
        type=float,
        default=EXPERIMENTS_S,
        metavar="S",
        help="virtual seconds of experiments (default %(default)s)",
    )
    parser.add_argument("--measured", type=float, default=MEASURED_S, help=argparse.SUPPRESS)
    for question in QUESTIONS:
        parser.add_argument(f"--{question}", help=argparse.SUPPRESS)
    args = parser.parse_args()
    for question, answer in QUESTIONS.items():
        if asked := getattr(args, question):
            limits = (args.experiments, args.measured) if answer is run_one else ()
            print(json.dumps(answer(asked, *limits)))
            return 0
    default = WITH_NOISE if args.noise else (*CASES, *NULLS, *HELD_OUT)
    names = list(default) if args.cases is None else list(filter(None, args.cases.split(",")))
    kept = KEPT_NOISE if args.noise else KEPT
    makes = {name.partition("@")[0] for name in names if "@" in name}
    if unknown := {name for name in names if "@" not in name} - {*CASES, *NULLS} | makes - {
        *_DRAWN
    }:
        known = ", ".join([*CASES, *NULLS, *(f"{make}@SEED" for make in _DRAWN)])
        parser.error(f"--cases {', '.join(sorted(unknown))}: choose from {known}")
    if names:
        build(LIBRARIES)
    with ThreadPoolExecutor(args.jobs) as pool:
        run_case = partial(run, noise=args.noise, experiments_s=args.experiments)
        for name, found in zip(names, pool.map(run_case, names), strict=True):
            with kept.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(summary(name, found), file=sys.stderr, flush=True)
    last = last_runs(kept)
    shown = [name for name in (*CASES, *NULLS, *HELD_OUT) if name in last]
    print(*markdown(HEAD, (_row(name, last[name]) for name in shown)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
