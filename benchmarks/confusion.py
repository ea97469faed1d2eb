"""Which cause is named in synthetic recordings with each cause planted: the table of
docs/causes.md.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import evidence

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from curvescope.analysis.causes import UNEXPLAINED  # noqa: E402
from curvescope.analysis.decompose.functionals import excess  # noqa: E402
from curvescope.analysis.diagnosis.explain import diagnose, explain_one  # noqa: E402
from tests.analysis.causes.planted_causes import PLANS, planted  # noqa: E402
from tests.analysis.synthetic import times_of  # noqa: E402

PAGE = ROOT / "docs" / "causes.md"
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


def results(seeds: int) -> Iterator[tuple[str, list[str]]]:
    rows, right, count = [], 0, len(JITTERS) * seeds
    for cause in PLANS:
        found = Counter(
            named(cause, jitter, 100 * seed + 1) for jitter in JITTERS for seed in range(seeds)
        )
        right += found[cause]
        instead = ", ".join(
            f"{name} {number}" for name, number in found.most_common() if name != cause
        )
        rows.append(f"| {cause} | {found[cause]} | {instead} |")
    yield "| planted | named |", rows
    line = "the right cause, not how often real machines produce such evidence. "
    yield line, [f"{line}{right} of {count * len(PLANS)} right ({date.today()}):"]


if __name__ == "__main__":
    evidence.simulate(__doc__, PAGE, 12, results)
