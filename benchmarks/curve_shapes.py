"""How often the shapes of `explain` of a table are right: simulated curves with and without a jump,
and the curves of `benchmarks/published/sealed`, which others published and nobody fitted.

    python -m benchmarks.curve_shapes [PART …] [--count 1000]

writes the parts of benchmarks/results/curve_shapes.json. Null curves have a fixed and a
proportional part, a knee, or saturate, or have a shape that no rule knows, over 5 to 64 sizes
(doubling, every one, or drawn), with noise of 0.5 to 10 %. Curves with a jump of 20 % have noise
of 3 % and at least four sizes before and behind it. The prices of the rule were chosen on curves
of other seeds, but for the price of a jump: of two values, the one with fewer claims on these.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import logsumexp, ndtr

from curvescope.analysis.curve_families import USUAL_NOISE, WEIGHT, Family, Shape
from curvescope.analysis.curve_pieces import fit_pieces
from curvescope.analysis.curve_shapes import MATERIAL, claimed, find_events
from curvescope.analysis.decompose.statistics import LEVEL, holm
from curvescope.analysis.server_log import decode_steps
from curvescope.analysis.size_lists import cheapest_lists, costs_of
from curvescope.analysis.time_tables import explain_curves
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import Recording, open_recording

HERE = Path(__file__).parent
PUBLISHED = HERE / "published"
SEALED = PUBLISHED / "sealed"
RESULT = HERE / "results" / "curve_shapes.json"
NOISES = (0.005, 0.01, 0.03, 0.05, 0.1)
_DEEPBENCH = {  # columns that name a problem
    "deepbench_conv": [
        "pass",
        "w",
        "h",
        "c",
        "k",
        "r",
        "s",
        "pad_w",
        "pad_h",
        "stride_w",
        "stride_h",
    ],
    "deepbench_gemm": ["m", "k", "a_t", "b_t"],
}
_CUDNN = ["c", "h", "w", "k", "r", "s", "pad_h", "pad_w", "stride_h", "stride_w", "group"]
_CURVE = ["problem", "device_name"]
_STATED = (0.01, 0.02, 0.05, 0.1)  # errors of published times
SERVER_LOGS = HERE.parent / "tests" / "data" / "server_logs"
# logs, and what their lines say of the requests in a step; without it the reader tells
LOGS = {
    "llama_server.log.gz": None,
    "sglang_decode.log": r"Decode batch, #running-req: (\d+)",
    "vllm_iterations.log": r"(\d+) generation requests",
}
# the sizes that vLLM 0.11 and SGLang 0.5 capture by default
CAPTURED = {
    "vLLM": [1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)],
    "SGLang": [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16)],
}
KINDS = ("10 to 19", "20 to 64", "doubling")
_SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.8)  # jumps that may be, where it is not known
UNSEEN = range(90_101, 90_105)  # seeds of curves that were drawn once the rule stood
Floats = np.ndarray


def draw_sizes(random: np.random.Generator) -> Floats:
    """Sizes of a sweep: doubling, every one or every few, or drawn without order."""
    kind, count = random.integers(3), int(random.integers(5, 65))
    if kind == 0:
        return 2.0 ** np.arange(min(count, 16))
    if kind == 1:
        return (1.0 + np.arange(count)) * random.integers(1, 9)
    return np.sort(random.choice(np.arange(1, 8 * count), count, replace=False)).astype(float)


def draw_long_sizes(random: np.random.Generator) -> tuple[Floats, str]:
    """At least ten sizes, and their kind."""
    sizes = np.arange(0.0)
    while len(sizes) < 10:
        sizes = draw_sizes(random)
    if (sizes[1:] == 2 * sizes[:-1]).all():
        return sizes, "doubling"
    return sizes, "10 to 19" if len(sizes) < 20 else "20 to 64"


def draw_smooth(random: np.random.Generator, sizes: Floats) -> Floats:
    """Times without a jump: fixed and proportional, a knee, or a part that saturates."""
    kind, middle = random.integers(3), float(random.choice(sizes))
    fixed = random.uniform(0.05, 2.0) * middle
    if kind == 0:
        return fixed + sizes
    if kind == 1:
        return np.maximum(middle, sizes) + 0.1 * fixed
    return fixed + middle * (1 - np.exp(-sizes / middle)) + random.uniform(0, 0.5) * sizes


def draw_other(random: np.random.Generator, sizes: Floats) -> Floats:
    """Times without a jump of shapes that no rule has: two knees, a logarithm, another saturation,
    or a part that outgrows the size.
    """
    kind, middle, other = random.integers(4), *random.choice(sizes, 2)
    fixed = random.uniform(0.05, 2) * middle
    if kind == 0:
        later = np.maximum(sizes, other)
        return fixed + np.maximum(sizes, middle) + random.uniform(0.2, 1) * later
    if kind == 1:
        return fixed + middle * np.log1p(sizes / middle) + random.uniform(0, 0.5) * sizes
    if kind == 2:
        return fixed + middle * np.tanh(sizes / middle) + random.uniform(0, 0.5) * sizes
    return fixed + sizes + sizes**2 / random.uniform(1, 20) / sizes[-1]


def count_claims(
    count: int, seed: int = 501, draw: Callable[..., Floats] = draw_smooth
) -> dict[str, object]:
    """How many null curves claim an edge or a slow size, by noise."""
    random, claims, curves = np.random.default_rng(seed), Counter(), Counter()
    for number in range(count):
        noise = NOISES[number % len(NOISES)]
        sizes = draw_sizes(random)
        times = draw(random, sizes) * np.exp(random.normal(0, noise, len(sizes)))
        curves[noise] += 1
        claims[noise] += bool(claimed(find_events(fit_pieces(sizes, times))))
    by_noise = {f"{noise:g}": [claims[noise], curves[noise]] for noise in NOISES}
    return {"curves": count, "claims": claims.total(), "claims_and_curves_by_noise": by_noise}


def count_found(
    count: int, seed: int = 503, share: float = 0.2, noise: float = 0.03
) -> dict[str, object]:
    """How many jumps are found at their place, and how many curves have another edge, by sizes."""
    random = np.random.default_rng(seed)
    found, others, curves = Counter(), Counter(), Counter()
    for _ in range(count):
        sizes, kind = draw_long_sizes(random)
        place = int(random.integers(4, len(sizes) - 4))
        times = draw_smooth(random, sizes)
        times[place:] *= 1 + share
        times *= np.exp(random.normal(0, noise, len(sizes)))
        at = {event.at for event in claimed(find_events(fit_pieces(sizes, times)))}
        curves[kind] += 1
        found[kind] += int(sizes[place]) in at
        others[kind] += bool(at - {int(sizes[place])})
    by_sizes = {
        kind: {"curves": curves[kind], "found": found[kind], "with_another": others[kind]}
        for kind in sorted(curves)
    }
    return {"share": share, "noise": noise, "by_sizes": by_sizes}


def count_unseen(count: int) -> dict[str, int]:
    """Both counts, of curves that nobody saw while the rule changed."""
    totals: Counter[str] = Counter()
    each = count // len(UNSEEN)
    for seed in UNSEEN:
        null, jump = count_claims(each, seed), count_found(each, 200 + seed)
        totals.update(smooth=each, claims=null["claims"], jumps=each)
        totals.update(found=sum(row["found"] for row in jump["by_sizes"].values()))
    return dict(totals)


@lru_cache(maxsize=2)
def list_smooth(every: tuple[float, ...]) -> tuple[Floats, Floats]:
    """What `draw_smooth` may draw over sizes, on a fine grid: logarithms of times and of shares."""
    sizes = np.array(every)
    fixed, slopes = np.linspace(0.05, 2, 16), np.linspace(0, 0.5, 6)
    families = [
        [Shape(Family.PROPORTIONAL, f * m) for m in sizes for f in fixed],
        [Shape(Family.FLOOR, 0.1 * f * m, m) for m in sizes for f in fixed],
        [Shape(Family.SATURATING, f * m, m, s) for m in sizes for f in fixed for s in slopes],
    ]
    times = np.stack([shape.times(sizes) for family in families for shape in family])
    counts = np.concatenate([np.full(len(family), len(family)) for family in families])
    return np.log(times), -np.log(len(families) * counts)


def weigh_jump(
    sizes: Floats, times: Floats, shares: Sequence[float], noise: float | None
) -> tuple[float, int]:
    """The logarithm of the odds of a jump, by the likelihood of all curves, and its place."""
    logs, prior = list_smooth(tuple(sizes.tolist()))
    rest = np.log(times) - logs
    rest -= rest.mean(axis=1, keepdims=True)
    count, places = len(sizes), np.arange(4, len(sizes) - 4)
    if not len(places):
        return -math.inf, 0
    behind, squares = count - places, (rest**2).sum(axis=1, keepdims=True)
    tails = rest[:, ::-1].cumsum(axis=1)[:, ::-1][:, places]

    def likelihood(squares: Floats) -> Floats:
        if noise is None:
            usual = WEIGHT * USUAL_NOISE**2
            each = -(WEIGHT + count - 1) / 2 * np.log(np.maximum(squares, 0) + usual)
        else:
            each = -squares / (2 * noise**2)
        each += prior[:, None]
        most = each.max(axis=0)
        return most + np.log(np.exp(each - most).sum(axis=0))

    jumps = [
        likelihood(squares - 2 * jump * tails + jump**2 * behind * (count - behind) / count)
        for jump in np.log1p(shares)
    ]
    of_place = logsumexp(jumps, axis=0) - np.log(len(shares))
    odds = logsumexp(of_place) - np.log(len(places)) - likelihood(squares)[0]
    return float(odds), int(places[of_place.argmax()])


def count_possible(count: int, seed: int = 3, share: float = 0.2) -> dict[str, object]:
    """How many jumps are found by who knows all that a curve may be, if 2 of 100 curves without a
    jump are claimed, as of `count_claims`: no rule finds more.
    """
    known = {
        "noise and size of the jump": ([share], 0.03),
        "neither": (_SHARES, None),
    }
    random = np.random.default_rng(seed)
    null: dict[str, list[float]] = {name: [] for name in known}
    jumps: dict[str, list[tuple[str, float, bool]]] = {name: [] for name in known}
    for number in range(count):
        other_sizes = draw_sizes(random)
        smooth = draw_smooth(random, other_sizes)
        spread = random.normal(0, 1, len(smooth))
        for name, (shares, noise) in known.items():
            own = NOISES[number % len(NOISES)]
            times = smooth * np.exp(own * spread)
            odds, _ = weigh_jump(other_sizes, times, shares, noise and own)
            null[name].append(odds)
        sizes, kind = draw_long_sizes(random)
        place = int(random.integers(4, len(sizes) - 4))
        jumped = draw_smooth(random, sizes) * np.where(np.arange(len(sizes)) < place, 1, 1 + share)
        jumped *= np.exp(random.normal(0, 0.03, len(sizes)))
        for name, (shares, noise) in known.items():
            odds, at = weigh_jump(sizes, jumped, shares, noise)
            jumps[name].append((kind, odds, at == place))
    result: dict[str, object] = {}
    for name, rows in jumps.items():
        least = np.quantile(null[name], 0.98)
        by_sizes = {
            kind: [right and odds > least for k, odds, right in rows if k == kind] for kind in KINDS
        }
        result[name] = {
            kind: {"curves": len(f), "found": int(sum(f))} for kind, f in by_sizes.items()
        }
    return result


def read_published() -> dict[str, pd.DataFrame]:
    """Tables of DeepBench, MXNet and cuDNN as steps with a problem and a device. Of cuDNN's timed
    convolutions each size has the algorithm that cuDNN advises for it.
    """
    tables = {}
    for name, columns in _DEEPBENCH.items():
        read = pd.read_csv(PUBLISHED / f"{name}.csv")
        tables[name] = _as_steps(read, columns, ["gpu"], "n", "time_ms")
    sweeps = [pd.read_csv(PUBLISHED / f"mxnet_{part}_sweeps.csv") for part in ("batch", "later")]
    columns = ["source", "mode", "network"]
    tables["mxnet"] = _as_steps(pd.concat(sweeps), columns, ["gpu"], "batch", "time_ms_per_batch")
    read = pd.read_csv(PUBLISHED / "cudnn_conv_by_algorithm.csv.gz")
    advised = read[read["algo"] == read["advised"]]
    tables["cudnn"] = _as_steps(advised, _CUDNN, ["card", "cudnn"], "batch", "time_ms")
    return tables


def _as_steps(
    read: pd.DataFrame, problem: list[str], device: list[str], size: str, time_ms: str
) -> pd.DataFrame:
    """Steps of the curves with two sizes or more; of repeated rows the first."""
    steps = pd.DataFrame({"batch": read[size], "duration_ns": 1e6 * read[time_ms]})
    for name, columns in (("problem", problem), ("device_name", device)):
        steps[name] = read[columns].astype(str).agg(" ".join, axis=1)
    steps = steps.drop_duplicates([*_CURVE, "batch"]).sort_values([*_CURVE, "batch"])
    several = steps.groupby(_CURVE)["batch"].transform("size") > 1
    return steps[several].reset_index(drop=True)


def find_excesses(steps: pd.DataFrame, noise: float) -> set[tuple[str, str, int]]:
    """The larger sizes of neighbouring ones that take 5 % more than in proportion, beyond a stated
    error, by the rule of recordings: all pairs of a table are one family.
    """
    sizes, times = steps["batch"], steps["duration_ns"]
    in_proportion = times.shift() * sizes / sizes.shift()
    value = times - in_proportion
    p = 2 * ndtr(-(value / (noise * np.hypot(times, in_proportion))).abs())
    is_pair = (steps[_CURVE] == steps[_CURVE].shift()).all(axis=1)
    pairs = steps[is_pair]
    adjusted = np.array(holm(p[is_pair].tolist()))
    beyond = (adjusted < LEVEL) & (value >= MATERIAL * times)[is_pair]
    return set(pairs.loc[beyond, [*_CURVE, "batch"]].itertuples(index=False, name=None))


def find_beyond(steps: pd.DataFrame) -> set[tuple[str, str, int]]:
    """The same of all that take 5 % more than in proportion, whatever the error."""
    sizes, times = steps["batch"], steps["duration_ns"]
    is_pair = (steps[_CURVE] == steps[_CURVE].shift()).all(axis=1)
    beyond = is_pair & (times > (1 + MATERIAL) * times.shift() * sizes / sizes.shift())
    return set(steps.loc[beyond, [*_CURVE, "batch"]].itertuples(index=False, name=None))


def find_said(steps: pd.DataFrame, noise: float) -> set[tuple[str, str, int]]:
    """The sizes that are an edge, or slow, by the shapes of `explain`."""
    said = set()
    for curve in explain_curves(steps, noise):
        for event in claimed(curve.events):
            sizes = (event.at,) if event.kind == "edge" else event.sizes
            said |= {(curve.problem, curve.device_name, size) for size in sizes}
    return said


def score_tables() -> dict[str, object]:
    """Of the pairs of neighbouring sizes that take 5 % more than in proportion, those whose larger
    size is an edge, or slow, at several stated errors; beside those that the rule of recordings
    finds, and those that it finds alone.
    """
    result: dict[str, object] = {}
    for table, steps in read_published().items():
        beyond = find_beyond(steps)
        found, excesses, missed = {}, {}, {}
        for noise in _STATED:
            said, by_excess = find_said(steps, noise), find_excesses(steps, noise)
            found[f"{noise:g}"] = len(said & beyond)
            excesses[f"{noise:g}"] = len(by_excess)
            missed[f"{noise:g}"] = [" ".join(map(str, each)) for each in sorted(by_excess - said)]
        result[table] = {
            "pairs": len(steps) - steps.groupby(_CURVE).ngroups,
            "beyond_proportion": len(beyond),
            "found_by_noise": found,
            "excesses_by_noise": excesses,
            "only_by_excess": missed,
        }
    return result


def score_sealed(name: str) -> dict[str, object]:
    """The sealed curves of a list against their labels: events that are found, that are missed, and
    that nobody labelled.
    """
    wrong, found, labelled, shapes, right = {}, 0, 0, 0, 0
    labels = json.loads((SEALED / name).read_text())
    for label in labels:
        with _import_curve(SEALED / label["file"]) as recording:
            (curve,) = explain_curves(recording.frame("steps"))
        said = claimed(curve.events)
        slow = {size for event in said for size in event.sizes}
        edges = {event.at for event in said if event.kind == "edge"}
        missed = (set(label["slow"]) - slow) | (set(label["edges"]) - edges)
        known = {*label["slow"], *label["edges"], *label["tolerated"]}
        false = (slow | edges) - known
        count = len(label["slow"]) + len(label["edges"])
        labelled, found = labelled + count, found + count - len(missed)
        words = {str(named.shape) for named in curve.shapes}
        fits = bool(words & set(label["shape"])) or (not said and "none" in label["shape"])
        shapes += fits
        right += not missed and not false
        if missed or false or not fits:
            wrong[label["file"]] = {
                "missed": sorted(missed),
                "false": sorted(false),
                "said": sorted(words),
                "label": label["shape"],
            }
    return {
        "curves": len(labels),
        "events": labelled,
        "found": found,
        "curves_with_false": sum(bool(row["false"]) for row in wrong.values()),
        "sizes_right": right,
        "shapes_right": shapes,
        "wrong": wrong,
    }


@contextmanager
def _import_curve(path: Path) -> Iterator[Recording]:
    """A file as a recording."""
    with tempfile.TemporaryDirectory() as folder:
        yield open_recording(import_profile(path, Path(folder, "r")).path)


def compare_lists() -> list[dict[str, object]]:
    """What the cheapest list saves against the lists that servers capture unasked, for the sizes of
    servers' logs on one published curve; and how many sizes are as fast as these.
    """
    with _import_curve(SEALED / "mi50_tensor.csv") as recording:
        (curve,) = explain_curves(recording.frame("steps"))
    rows: list[dict[str, object]] = []
    for name, pattern in LOGS.items():
        batches = _read_batches(SERVER_LOGS / name, pattern)
        costs = costs_of(curve.fit, Counter(batches))
        for server, sizes in CAPTURED.items():
            present = sizes[: 1 + int(np.searchsorted(sizes, costs.largest))]
            lists = cheapest_lists(costs, len(present))
            saving = costs.saving(lists[-1], present)
            as_fast = [
                len(each) for each in lists if costs.padded_ms(each) <= costs.padded_ms(present)
            ]
            rows.append(
                {
                    "log": name,
                    "steps": len(batches),
                    "largest": costs.largest,
                    "server": server,
                    "sizes": len(present),
                    "saving": [saving.value, saving.low, saving.high],
                    "as_fast_with": min(as_fast),
                }
            )
    return rows


def _read_batches(path: Path, pattern: str | None) -> list[int]:
    """The requests in each step of a log."""
    if pattern is not None:
        return [int(found) for found in re.findall(pattern, path.read_text())]
    with _import_curve(path) as recording:
        return decode_steps(recording)["batch"].tolist()


PARTS: dict[str, Callable[[int], object]] = {
    "null": count_claims,
    "null_other": lambda count: count_claims(count, 502, draw_other),
    "jump": count_found,
    "unseen": count_unseen,
    "possible": count_possible,
    "tables": lambda _: score_tables(),
    "lists": lambda _: compare_lists(),
    "sealed": lambda _: score_sealed("labels.json"),
    "later": lambda _: score_sealed("later.json"),
}


def main() -> None:
    """Score the parts that are asked for, and write each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", choices=PARTS, help="default: all")
    parser.add_argument("--count", type=int, default=1000, help="of simulated curves")
    args = parser.parse_args()
    for name in args.part or PARTS:
        scored = PARTS[name](args.count)
        kept = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
        RESULT.write_text(json.dumps({**kept, name: scored}, indent=1) + "\n")
        print(name, json.dumps(scored))


if __name__ == "__main__":
    main()
