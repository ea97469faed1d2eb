"""Which cause is named in synthetic recordings with each cause planted."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import evidence

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from curvescope.analysis.causes import UNEXPLAINED  # noqa: E402
from curvescope.analysis.decompose.functionals import excess  # noqa: E402
from curvescope.analysis.diagnosis.explain import diagnose, explain_one  # noqa: E402
from tests.analysis.causes.planted_causes import PLANS, planted  # noqa: E402
from tests.analysis.synthetic import times_of  # noqa: E402

JITTERS = (0.02, 0.1, 0.25)
_NOISY = {"not significant": 0.4}


def named(cause: str, jitter: float, seed: int) -> str:
    """The cause that is named of one sweep, or suspected where it is unexplained."""
    steps, kernels, beside = planted(cause, seed, _NOISY.get(cause, jitter))
    found = diagnose(replace(beside, kernel_times=times_of(steps, kernels)))
    verdict = explain_one(found, excess(8, 16)).largest_cause
    if verdict is None:
        return "none"
    suspected = next((term.claim.cause for term in verdict.terms if term.claim), verdict.cause)
    return suspected if verdict.cause == UNEXPLAINED else verdict.cause


def results(seeds: int) -> Iterator[evidence.Named]:
    """How often each planted cause was named, and what instead."""
    rows = []
    for cause in PLANS:
        found = Counter(
            named(cause, jitter, 100 * seed + 1) for jitter in JITTERS for seed in range(seeds)
        )
        instead = ", ".join(
            f"{name} {number}" for name, number in found.most_common() if name != cause
        )
        rows.append([cause, str(found[cause]), instead])
    yield "planted_recordings", ["planted", "named", "instead"], rows


if __name__ == "__main__":
    evidence.simulate(__doc__, 12, results)
