"""The confusion matrix of causes: which is named where which was planted; writes docs/causes.md with --write.

Build: `python benchmarks/causes_matrix.py --write`. Half a minute.
"""

# ruff: noqa: E501 - lines of the page
from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from curvescope.analysis.anomalies import diagnose, explain
from curvescope.analysis.causes import CAUSES
from curvescope.analysis.functionals import excess

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.analysis.planted_causes import PLANS, planted  # noqa: E402

SEEDS = 12
JITTERS = (0.02, 0.1, 0.25)
PAGE = ROOT / "docs" / "causes.md"

HEAD = """# Causes

Every anomaly splits exactly into terms (layer and phase, idle, observer effect). `explain` and `diagnose` then ask of every
term *why*: each cause looks for its evidence in the recording and claims an amount with a score; the best-scored claim takes
what it accounts for, then the next, and the rest is `unexplained`, a cause with a size. Amounts add up to the anomaly to the
last digit. A verdict names the cause, the rows it rests on, and what would refute it; `--json` has the rival claims too.

| cause | evidence in the recording | amount |
|---|---|---|
| algorithm switch | kernels of the term run at one of the two sizes only; their families by name | what those kernels contribute (arithmetic) |
| wave and tile quantisation | grid, block, registers and shared memory give waves; the tail predicts the time ratio within 30 % | the empty part of last waves, and blocks beyond the batch's share (modelled) |
| memory pressure | allocations and frees inside the step; or a switch while memory is over 85 % full | their time in idle; the switch |
| launch- or host-bound | idle, kernels per step, launch, copy and synchronisation calls | idle that allocations leave; host-to-device copies |
| cache capacity | bytes of one launch pass the cache's size, bandwidth falls by over 10 % | time beyond the smaller size's bandwidth |
| roof change | FLOPs per byte pass the ridge, the roofline predicts the time ratio | what the roofline's time gives (modelled) |
| throttling | SM clock lower by over 3 % while the larger size was measured, throttle reasons | time beyond the smaller size's clock: an upper bound |
| instability | the term's interval holds 0; steps with two paces | all of the term |
| fixed cost shared | same kernels, negative part of an excess, the fixed time fits | all of the term |
| observer effect | the profiled step against the unwatched one | its own term |
| unexplained | none | the rest |

Where the anomaly as a whole is less than its noise, the verdict is instability whatever its parts are.

## Who is named where who was planted

Written by `python benchmarks/causes_matrix.py --write`: tests/analysis/planted_causes.py plants each cause from batch 8 to 16
in a network of three layers; the kernels' times vary by {jitters} from step to step (instability: 40 %), {seeds} sweeps each
of 8 rounds. Rows are planted, columns named. These are synthetic recordings: they show that evidence leads to the right name, not how
often real machines leave such evidence.

"""


def page() -> str:
    """The page as Markdown."""
    counts: dict[str, Counter[str]] = {cause: Counter() for cause in PLANS}
    for cause in PLANS:
        for jitter in JITTERS:
            for seed in range(SEEDS):
                wanted = None if cause == "instability" else jitter
                steps, kernels, recorded = planted(cause, seed, wanted)
                found = diagnose(steps, kernels, recorded=recorded)
                split = explain(excess(8, 16), found.curve, found.terms, found.parts, recorded)
                counts[cause][split.attribution.verdict.cause] += 1
    listed = [cause for cause in CAUSES if cause in counts]
    numbers = {cause: place + 1 for place, cause in enumerate(listed)}
    lines = ["| planted | " + " | ".join(str(numbers[c]) for c in listed) + " |", "|---|" + "---|" * len(listed)]
    for cause in listed:
        cells = [str(counts[cause][named]) if counts[cause][named] else "·" for named in listed]
        lines.append(f"| {numbers[cause]} {cause} | " + " | ".join(cells) + " |")
    right = sum(counts[cause][cause] for cause in listed)
    every = sum(sum(c.values()) for c in counts.values())
    jitters = ", ".join(f"{jitter:.0%}" for jitter in JITTERS)
    head = HEAD.format(jitters=jitters, seeds=SEEDS * len(JITTERS))
    return head + "\n".join(lines) + f"\n\n{right} of {every} right.\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/causes.md")
    if parser.parse_args().write:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
