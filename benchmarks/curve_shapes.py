"""How often the shapes of `explain` of a table are right: simulated curves with and without a jump,
and the curves of `benchmarks/published/sealed`, which others published and nobody fitted.

    python -m benchmarks.curve_shapes [--count 1000] [--sealed]

writes benchmarks/results/curve_shapes.json. Null curves have a fixed and a proportional part, a
knee, or saturate, over 5 to 64 sizes (doubling, every one, or drawn), with noise of 0.5 to 10 %.
Curves with a jump of 20 % have noise of 3 % and at least four sizes before and behind it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from curvescope.analysis.curve_pieces import fit_pieces
from curvescope.analysis.curve_shapes import claimed, find_events
from curvescope.analysis.time_tables import explain_curves
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

HERE = Path(__file__).parent
SEALED = HERE / "published" / "sealed"
RESULT = HERE / "results" / "curve_shapes.json"
NOISES = (0.005, 0.01, 0.03, 0.05, 0.1)
Floats = np.ndarray


def draw_sizes(random: np.random.Generator) -> Floats:
    """Sizes of a sweep: doubling, every one or every few, or drawn without order."""
    kind, count = random.integers(3), int(random.integers(5, 65))
    if kind == 0:
        return 2.0 ** np.arange(min(count, 16))
    if kind == 1:
        return (1.0 + np.arange(count)) * random.integers(1, 9)
    return np.sort(random.choice(np.arange(1, 8 * count), count, replace=False)).astype(float)


def draw_smooth(random: np.random.Generator, sizes: Floats) -> Floats:
    """Times without a jump: fixed and proportional, a knee, or a part that saturates."""
    kind, middle = random.integers(3), float(random.choice(sizes))
    fixed = random.uniform(0.05, 2.0) * middle
    if kind == 0:
        return fixed + sizes
    if kind == 1:
        return np.maximum(middle, sizes) + 0.1 * fixed
    return fixed + middle * (1 - np.exp(-sizes / middle)) + random.uniform(0, 0.5) * sizes


def count_claims(count: int, seed: int = 1) -> dict[str, object]:
    """How many null curves claim an edge or a slow size, by noise."""
    random, claims, curves = np.random.default_rng(seed), Counter(), Counter()
    for number in range(count):
        noise = NOISES[number % len(NOISES)]
        sizes = draw_sizes(random)
        times = draw_smooth(random, sizes) * np.exp(random.normal(0, noise, len(sizes)))
        curves[noise] += 1
        claims[noise] += bool(claimed(find_events(fit_pieces(sizes, times))))
    by_noise = {f"{noise:g}": [claims[noise], curves[noise]] for noise in NOISES}
    return {"curves": count, "claims": claims.total(), "claims_and_curves_by_noise": by_noise}


def count_found(
    count: int, seed: int = 2, share: float = 0.2, noise: float = 0.03
) -> dict[str, object]:
    """How many jumps are found at their place, and how many curves have another edge, by sizes."""
    random = np.random.default_rng(seed)
    found, others, curves = Counter(), Counter(), Counter()
    for _ in range(count):
        sizes = np.arange(0)
        while len(sizes) < 10:
            sizes = draw_sizes(random)
        doubling = bool((sizes[1:] == 2 * sizes[:-1]).all())
        kind = "doubling" if doubling else "10 to 19" if len(sizes) < 20 else "20 to 64"
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


def score_sealed() -> dict[str, object]:
    """The sealed curves against their labels: events that are found, that are missed, and that
    nobody labelled.
    """
    wrong, found, labelled, shapes = {}, 0, 0, 0
    labels = json.loads((SEALED / "labels.json").read_text())
    for label in labels:
        with tempfile.TemporaryDirectory() as folder:
            recording = open_recording(
                import_profile(SEALED / label["file"], Path(folder, "r")).path
            )
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
        "curves_with_false": sum(bool(one["false"]) for one in wrong.values()),
        "shapes_right": shapes,
        "wrong": wrong,
    }


def main() -> None:
    """Simulate, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--sealed", action="store_true", help="score the sealed curves, too")
    args = parser.parse_args()
    kept = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    result = {**kept, "null": count_claims(args.count), "jump": count_found(args.count)}
    if args.sealed:
        result["sealed"] = score_sealed()
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
