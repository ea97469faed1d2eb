"""The confusion matrix of causes: which is named where which was planted; writes docs/causes.md with --write.

`python benchmarks/causes_matrix.py --write` takes half a minute and leaves what was found on real machines as it is;
`--machine 6 --write` plants each real case six times on this machine first, ten seconds each (Linux). What is found is
kept in build/ as it comes: interrupted, the same command goes on, and when the page is written it is gone.
"""

# ruff: noqa: E501 - lines of the page
from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from curvescope.analysis.causes import CAUSES, NOT_SIGNIFICANT, Attribution, Claim, interventions
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.diagnosis.split import diagnose, explain
from curvescope.profiling.hardware.host import describe_host

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.analysis.causes.planted_causes import PLANS, planted  # noqa: E402
from tests.analysis.causes.planted_machine import CASES, Planted, name_cause, record  # noqa: E402
from tests.analysis.synthetic import times_of  # noqa: E402

SEEDS = 12
JITTERS = (0.02, 0.1, 0.25)
PAGE = ROOT / "docs" / "causes.md"
MACHINE = "## On a real machine"
KEPT = ROOT / "build" / "causes_matrix.jsonl"

HEAD = """# Causes

Every anomaly splits exactly into terms (layer and phase, idle, profiling overhead). `explain` and `diagnose` then look for the
cause of every term: each cause checks the recording for its evidence and claims an amount, with a score. The claim with the
best score takes its amount first, then the next one. The rest is `unexplained`, with its own amount. Amounts add up to the
anomaly to the last digit. A verdict names the cause, the rows it uses, and what would refute it; `--json` also lists the
rival claims. [Experiments](experiments.md) then decide: a confirmed cause takes what was measured, a refuted one takes nothing.

| cause | evidence in the recording | amount |
|---|---|---|
| algorithm switch | kernels of the term that run at only one of the two batch sizes; their families by name | what those kernels contribute (arithmetic) |
| more calls | the same kernels of the term run more often than at another batch size | time of the calls beyond the fewest (arithmetic) |
| wave and tile quantisation | grid, block, registers and shared memory give the waves; the tail predicts the time ratio within 30 % | the empty part of the last waves, and blocks beyond proportional growth with the batch (modelled) |
| graph padding | marks name the batch size that the replayed CUDA graph was captured for; else steps of a larger batch size that replay a graph run the same kernels in the same grids, for over 80 % of the time | time beyond the line between the times at the neighbouring captured sizes (modelled) |
| memory pressure | allocations and frees inside the step; an algorithm switch while memory is over 85 % full | their time in idle; the amount of the switch |
| page faults | on a CPU, page faults that do not grow in proportion to the batch: new memory in every step | system CPU time, by the term's share of the page faults where they were counted, else of the bytes (modelled) |
| launch- or host-bound | idle, kernels per step, launch, memcpy and synchronisation calls | idle that allocations do not explain; host-to-device memcpys |
| cache capacity | bytes of one launch exceed the cache's size, bandwidth falls by over 10 %; where DRAM bytes are [measured](guides/record.md), they rise by over 10 % per compulsory byte | time beyond that at the smaller batch size's bandwidth |
| roof change | FLOPs per byte cross the ridge, the roofline predicts the time ratio | difference of the roofline's times (modelled) |
| throttling | clock lower by over 3 % at the larger batch size, throttle reasons; where cycles are measured, the kernels' own clock (cycles per time) is lower too | time beyond that at the smaller batch size's clock: an upper bound |
| kernels beside communication | calls beside a collective take longer than those of the same kernel (name, grid, block, FLOPs) where none runs, at the same batch size; at least three of each | the slow-down beyond its error: in the kernels' term and in that of communication, with which they share the time; a lower bound, as kernels that never run alone are left out |
| CPU contention | on a CPU, ready threads waited for a core: by over 5 % more at one of the batch sizes, or (weak) in over 5 % of the time at all of them | time beyond that with the best batch size's share of cores, or with all cores: an upper bound |
| idle threads | on a CPU, over 10 % fewer threads at work at one of the batch sizes | time beyond that with the most threads at work: an upper bound |
| slow library call | the same kernel at a rate that is over 10 % lower, as a share of the roofline's; without roofs in FLOPs and in bytes per second | time beyond that at the best rate |
| size of one call | none: only an experiment names it | what splitting the batch takes away |
| weights read every step | bytes that do not grow with the batch, in a term that takes as long as moving its bytes | their time at the DRAM roof (modelled) |
| optimizer work | terms of the optimizer that do not grow with the batch | all of the term |
| not significant (no cause, listed last) | the term's interval contains 0 | all of the term |
| fixed cost amortised | same kernels, negative share of an excess, the fixed time fits | what other causes leave of the term |
| profiling overhead | profiled steps compared with unprofiled ones of the same visit | its own term |
| unexplained | none | the rest |

If the total anomaly is less than its noise, it is not significant, whatever its terms are.

## The experiment of each cause

A factor whose change takes the anomaly away confirms its cause. Each factor belongs to one cause; [Factors](reference/factors.md) says
what each one changes. Only where a term's kernels differ between the batch sizes, `onednn`, `no_onednn`, `no_cudnn` and `cublaslt` test the
algorithm switch instead of the slow library call: one library at all batch sizes takes a switch between two away.

{experiments}
## Does the verdict name the planted cause?

`python benchmarks/causes_matrix.py --write` writes this table. tests/analysis/causes/planted_causes.py plants each cause from
batch 8 to 16 in a network of three layers. The kernels' times vary by {jitters} from step to step (for *not
significant*, by 40 %), with {seeds} sweeps each of 8 rounds. Rows are planted causes, columns the causes that the verdict names.
The recordings are synthetic: they show that evidence leads to the right cause, not how often real machines produce such evidence.

"""


def page() -> str:
    """The page as Markdown."""
    counts: dict[str, Counter[str]] = {cause: Counter() for cause in PLANS}
    for cause in PLANS:
        for jitter in JITTERS:
            for seed in range(SEEDS):
                wanted = None if cause == NOT_SIGNIFICANT else jitter
                steps, kernels, recorded = planted(cause, seed, wanted)
                found = diagnose(steps, times_of(steps, kernels), recorded=recorded)
                split = explain(excess(8, 16), found.curve, found.terms, found.kernel_times, recorded)
                counts[cause][split.attribution.verdict.cause] += 1
    listed = [cause for cause in CAUSES if cause in counts]
    numbers = {cause: place + 1 for place, cause in enumerate(listed)}
    lines = ["| planted | " + " | ".join(str(numbers[c]) for c in listed) + " |", "|---|" + "---|" * len(listed)]
    for cause in listed:
        lines.append(f"| {numbers[cause]} {cause} | {_cells(counts[cause], listed)} |")
    right = sum(counts[cause][cause] for cause in listed)
    every = sum(sum(c.values()) for c in counts.values())
    jitters = ", ".join(f"{jitter:.0%}" for jitter in JITTERS)
    head = HEAD.format(jitters=jitters, seeds=SEEDS * len(JITTERS), experiments=experiments_table())
    return head + "\n".join(lines) + f"\n\n{right} of {every} right.\n"


def experiments_table() -> str:
    """The factors that test each cause, and what they show, as Markdown."""
    lines = [
        "| cause | factors of a term alone | factors of complete steps | if the cause is right |",
        "|---|---|---|---|",
    ]
    for cause, one in interventions().items():
        names = [", ".join(f"`{name}`" for name in factors) for factors in (one.term, one.step)]
        why = f"not tested: {one.untested}" if one.untested else one.expected[0].lower() + one.expected[1:].rstrip(".")
        lines.append(f"| {cause} | {names[0]} | {names[1]} | {why} |")
    return "\n".join(lines) + "\n"


def _cells(named: Counter[str], listed: list[str]) -> str:
    return " | ".join(str(named[cause]) if named[cause] else "·" for cause in listed)


def on_this_machine(runs: int) -> str:
    """The section on real sweeps: every case of tests/analysis/causes/planted_machine.py, recorded and named `runs` times."""
    kept = kept_runs()
    host = kept[0]["host"] if kept else describe_host()
    done = Counter(run["model"] for run in kept)
    for number in range(runs):
        for case in CASES.values():
            if done[case.model] <= number:
                kept.append({"host": host, "model": case.model, **plant(case)})
                with KEPT.open("a") as file:
                    file.write(json.dumps(kept[-1]) + "\n")
                print(f"{number + 1} of {runs}: {case.cause}: {kept[-1]['named']}", file=sys.stderr)
    lines = [MACHINE, ""]
    lines += [
        f"`python benchmarks/causes_matrix.py --machine {runs} --write` writes this section: {runs} real sweeps of each of the models in",
        f"tests/analysis/causes/planted_models.py, without synthetic data. {host['cpu']}, {host['usable_cores']} cores, load average "
        f"{host['load_average_1min']} before the first; {datetime.now(timezone.utc):%Y-%m-%d}.",
        "",
        "| planted | by | named | claimed |",
        "|---|---|---|---|",
    ]
    for case in CASES.values():
        found = [run for run in kept if run["model"] == case.model][:runs]
        verdicts = ", ".join(
            f"{cause} {count}" for cause, count in Counter(run["named"] for run in found).most_common()
        )
        claimed = sum(run["claimed"] for run in found)
        lines.append(f"| {case.cause} | {case.model} | {verdicts} | {claimed} of {runs} |")
    lines += [
        "",
        "*Named* counts the verdicts on the total excess; *claimed* counts the sweeps in which any term had evidence of the planted cause.",
        "If the machine's noise exceeds the excess, the excess is not significant.",
    ]
    return "\n".join(lines) + "\n"


def kept_runs() -> list[dict[str, Any]]:
    """What an interrupted call left, without a last line that it did not finish."""
    KEPT.parent.mkdir(exist_ok=True)
    lines = KEPT.read_text().splitlines(keepends=True) if KEPT.is_file() else []
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        KEPT.write_text("".join(whole))
    return [json.loads(line) for line in whole]


def plant(case: Planted) -> dict[str, Any]:
    """Record a case once: the cause that is named, and whether the planted one is claimed at all."""
    with tempfile.TemporaryDirectory() as folder:
        found = name_cause(case, record(case, Path(folder, "run"))).attribution
    named = found.verdict.cause if found.verdict else "nothing"
    return {"named": named, "claimed": any(case.cause == claim.cause for claim in claims(found))}


def claims(found: Attribution) -> Iterator[Claim]:
    """Every claim on every term, whatever it took."""
    for cause in found.causes:
        for term in cause.terms:
            yield from (*filter(None, [term.claim]), *term.rivals)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/causes.md")
    parser.add_argument("--machine", type=int, metavar="N", help="plant the real cases N times each on this machine")
    arguments = parser.parse_args()
    if arguments.machine:
        machine = on_this_machine(arguments.machine)
    else:
        _, heading, rest = PAGE.read_text().partition(MACHINE)
        machine = heading + rest
    text = page() + ("\n" + machine if machine else "")
    if arguments.write:
        PAGE.write_text(text)
        if arguments.machine:
            KEPT.unlink()
    else:
        sys.stdout.write(text)
