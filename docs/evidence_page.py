"""The page of evidence: what was measured of Curvescope, each figure from the stored data."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from scipy.stats import binomtest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from benchmarks import (  # noqa: E402
    evidence,
    framework_table,
    planted_causes,
    profile_advice,
    public_steps,
    time_limits,
    virtual_causes,
)
from curvescope.analysis.render.words import list_values  # noqa: E402
from tests.virtual_card.measured import stage_rows  # noqa: E402

TABLES = evidence.read_tables()


@dataclass(frozen=True)
class Section:
    """What one question was, its answer in figures, and what the answer does not say.

    Attributes:
        title: the question.
        asked: how it was asked.
        figures: sentences with the figures.
        data: commands that print the data and that measure again.
        limits: what the figures do not show.
        table: lines of a table.
    """

    title: str
    asked: str
    figures: Callable[[], Iterable[str]]
    data: str
    limits: str = ""
    table: Callable[[], Sequence[str]] = tuple


def percents(cells: Iterable[str], place: int = 0) -> list[float]:
    """The percentage at one place of each cell that has so many."""
    parts = [re.findall(r"([\d.]+) ?%", cell) for cell in cells]
    return [float(found[place]) for found in parts if len(found) > place]


def first_numbers(cells: Iterable[str]) -> list[int]:
    """The number with which each cell begins."""
    return [int(cell.replace(",", "").split()[0]) for cell in cells]


def last_numbers(cells: Iterable[str]) -> list[int]:
    """The number with which each cell ends."""
    return [int(cell.replace(",", "").split()[-1]) for cell in cells]


def interval_figures() -> Iterable[str]:
    """What simulated sweeps say of intervals and tests."""
    alarms, power = TABLES["false_alarms"], TABLES["power"]
    cells = [cell for header in alarms.head[1:] for cell in alarms.column(header)]
    yield (
        f"The tests report an anomaly in **{max(percents(cells)):g}%** or less of sweeps without "
        "one, under every noise and every protocol."
    )
    yield (
        f"95 % intervals of the bend hold the true value in **{min(percents(cells, 1)):g}%** or "
        f"more of the sweeps, intervals of the pace in **{min(percents(cells, 2)):g}%**, and "
        f"intervals of T in **{min(percents(TABLES['intervals_of_t'].column(_T_HEAD))):g}%**."
    )
    small, large = (percents(power.column(f"default, +{share}%")) for share in (5, 20))
    yield (
        f"A step that is 20 % longer from one size on is found in **{min(large):g}%** or more of "
        f"them, one of 5 % in {min(small):g} to {max(small):g} %, by the noise."
    )


_T_HEAD = "default (6 rounds of 4 steps)"


def design_figures() -> Iterable[str]:
    """What simulations say of the parts of the method."""
    processes = TABLES["rounds_in_processes"]
    alarms = zip(processes.rows, processes.column("none"), strict=True)
    in_one, in_each = (share for (differ, *_), share in alarms if differ == "2 %")
    yield (
        f"**Processes** that differ by 2 % make an anomaly of {_space_out(in_one)} of straight "
        f"lines in one process, and of {_space_out(in_each)} with a process for each round "
        "(`rounds_in_processes`)."
    )
    first, last = TABLES["same_seconds"].rows[1], TABLES["same_seconds"].rows[-1]
    yield (
        "**Marked steps and a reference** find a step that is 20 % longer in "
        f"{_space_out(last[-1])} of sweeps of 60 s under drift and bursts. Profiling all rounds "
        f"finds {_space_out(first[-1])} (`same_seconds`)."
    )
    ends = [cell for row in TABLES["early_ends"].rows for cell in row[2:]]
    early, late = (sum(counts) for counts in zip(*map(_early_and_late, ends), strict=True))
    yield (
        f"**Rounds that end early** find {early} of {40 * len(ends)} longer steps, all rounds find "
        f"{late} (`early_ends`)."
    )
    terms = [cell for row in TABLES["intervals_of_terms"].rows for cell in row[1:]]
    yield (
        f"**Intervals of terms** hold for a planted layer in {min(percents(terms)):g} to "
        f"{max(percents(terms)):g} % of sweeps (`intervals_of_terms`)."
    )
    probed = TABLES["probed_sizes"]
    right, false = percents(probed.column("right")), percents(probed.column("false"))
    yield (
        f"**Probes** between the sizes find {min(right):g} to {max(right):g} % of published jumps, "
        f"by the noise, and a false one in {max(false):g} % of straight lines at most "
        "(`probed_sizes`)."
    )
    versions = TABLES["versions"]
    failed, longer = map(versions.column, versions.head[2:4])
    yield (
        f"**Versions** without a change failed in {sum(first_numbers(failed))} of "
        f"{sum(last_numbers(failed))} runs. A step that is 5 % longer is found in {longer[0]} "
        f"runs, and in {longer[-1]} where equal processes differ by 8 % (`versions`)."
    )
    shares = [time_limits.share_of_promise(run) for run in time_limits.kept_runs()]
    yield (
        f"**Time limits**: {len(shares)} runs of steps of 0.3 ms to 13 s took "
        f"{min(shares):.2f} to {max(shares):.2f} of the promised time "
        "(`python -m benchmarks.time_limits`)."
    )


def _early_and_late(cell: str) -> tuple[int, int]:
    early, late = re.findall(r"\d+", cell)[:2]
    return int(early), int(late)


def noise_table() -> list[str]:
    """False alarms, intervals and power of the default protocol, by noise."""
    alarms, power = TABLES["false_alarms"], TABLES["power"]
    shares = [f"default, +{share}%" for share in (5, 10, 20)]
    found = zip(*(power.column(share) for share in shares), strict=True)
    rows = []
    for noise, cell, found_of_noise in zip(
        alarms.column("noise"), alarms.column("default"), found, strict=True
    ):
        held = [*cell.split(", "), "–"][:3]
        rows.append([noise, *held, *found_of_noise])
    head = ["noise", "alarms", "bend holds", "pace holds", "found, +5%", "+10%", "+20%"]
    return evidence.markdown(head, rows)


def verdict_figures() -> Iterable[str]:
    """What simulated and identical experiments say of verdicts."""
    table = TABLES["verdicts"]
    yield (
        f"Intervals of the share removed hold in **{min(percents(table.column('held'))):g}%** or "
        f"more of {table.sweeps} simulated experiments of each kind. A wrong factor is confirmed "
        f"in **{max(percents(table.column('wrong confirmed'))):g}%** of any kind at most."
    )
    right = table.column("right, 20%")
    yield (
        f"A bend of 20 % has its cause confirmed in {min(percents(right)):g} to "
        f"{max(percents(right)):g} %, by the noise."
    )
    pairs = TABLES["identical_processes"]
    causes = pairs.column("causes of an excess of 10 % confirmed")
    savings = pairs.column("savings of 2 %")
    count = sum(last_numbers(causes))
    yield (
        "Real processes that differ in nothing: a cause was confirmed in "
        f"**{sum(first_numbers(causes))} of {count}** pairs, a saving in "
        f"**{sum(first_numbers(savings))} of {count}**. At a level of 2 % chance gives "
        f"{round(0.02 * count)}."
    )
    false = TABLES["savings_of_starts"].column("experiments with a false claim")
    yield (
        "Experiments with two changes that save nothing claim 2 % or more in "
        f"{min(percents(false)):g} to {max(percents(false)):g} % (`savings_of_starts`)."
    )


def planted_figures() -> Iterable[str]:
    """What steps with planted causes say."""
    yield from planted_causes.figures()
    layers = [
        json.loads(line) for line in (RESULTS / "planted_layers.jsonl").read_text().splitlines()
    ]
    last = {run["kind"]: run["right"] for run in layers}
    nulls = ("nothing", "equal parts")
    kinds = [right for kind, right in last.items() if not kind.startswith(nulls)]
    yield (
        f"A slow layer leads the answer in **{sum(kinds)} of {len(kinds)}** kinds of planted "
        "layers (`python -m benchmarks.planted_layers`)."
    )
    again = {}
    for kind in last:
        runs = [run["right"] for run in layers if run["kind"] == kind]
        if len(runs) >= _OFTEN and not kind.startswith(nulls):
            again[kind] = f"in **{sum(runs)} of {len(runs)}** runs of *{kind}*"
    yield f"Measured again, the layer leads {list_values(again.values())}."
    tested = [run for run in layers if run.get("experiments") and not run["kind"].startswith(nulls)]
    beside = [run for run in tested if run["beside"]]
    said = [f"*{run['kind']}* ({'; '.join(run['beside'])})" for run in beside]
    places = f": {list_values(said)}" if said else ""
    yield (
        "With experiments a cause is confirmed in another place than that layer in "
        f"**{len(beside)} of {len(tested)}** runs{places}."
    )
    null = [run for run in layers if run["kind"] == "nothing"]
    counts = []
    for says_threads in (False, True):
        runs = [run["verdict"] for run in null if ("threads" in run) == says_threads]
        slow = [verdict for verdict in runs if not verdict.startswith("No batch size")]
        counts.append(f"{len(slow)} of {len(runs)}")
    yield (
        f"With nothing planted a size is called slow in {counts[0]} runs where 2 % of a step "
        f"counted, and in {counts[1]} where 5 % did, by 5 % each."
    )
    equal = [run["right"] for run in layers if run["kind"].startswith("equal parts")]
    yield (
        f"Of steps that run equal parts, where no size can be slow, **{equal.count(False)} of "
        f"{len(equal)}** have a size called slow, in sweeps of 20 s."
    )
    named = TABLES["planted_recordings"]
    yield (
        f"In synthetic recordings **{sum(map(int, named.column('named'))):,} of "
        f"{count_recordings(named):,}** verdicts name the planted cause (`planted_recordings`)."
    )


def count_recordings(table: evidence.Table) -> int:
    """Number of synthetic recordings: three spreads of kernels' times, sweeps of each."""
    return 3 * (table.sweeps or 0) * len(table.rows)


def machine_table() -> list[str]:
    """The planted causes on each machine."""
    return evidence.markdown(planted_causes.MACHINES_HEAD, planted_causes.rows_of_machines())


def coverage_figures() -> Iterable[str]:
    """What imports of real profiles say."""
    rows = [row for name in ("", "_further") for row in _coverage(name)]
    timed = [row for row in rows if row["kernels"]]
    whole = sum(row["in_steps"] >= _MOST for row in timed)
    yield f"**{len(rows)} of {len(rows)}** profiles of others are read."
    yield (
        f"Steps hold at least 95 % of the device time in **{whole} of {len(timed)}** profiles "
        "with kernels and times."
    )
    traces = [row for row in timed if row["format"].startswith("PyTorch")]
    families, operators = (
        sum((row[name] or 0) >= _MOST for row in traces) for name in ("family", "op")
    )
    yield (
        f"Of {len(traces)} PyTorch traces, at least 95 % of the kernels' time has a known family "
        f"in **{families}**, an operator in **{operators}**."
    )
    yield from profile_advice.figures()


_MOST = 0.95
_OFTEN = 10  # runs of a planted layer that are counted by themselves
_TWICE = " with its capture"  # a profile that is imported without it, too


def _coverage(name: str) -> list[dict[str, Any]]:
    rows = json.loads((RESULTS / f"profile_coverage{name}.json").read_text())
    return [row for row in rows if not row["file"].endswith(_TWICE)]


def choice_figures() -> Iterable[str]:
    """What the map of a library's choices says of real problems, beside plain loops of torch."""
    lines = (RESULTS / "library_choices.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    agree = [row for row in rows if min(abs(row["change"]), abs(row["plain_change"])) > 0.2]
    yield (
        f"In **{len(agree)} of {len(rows)}** the map and the loop both say that the neighbour "
        "takes over 20 % less or more."
    )
    for row in rows:
        sizes = f"{row['axis']} {row['size']} to {row['neighbour']}"
        interval = f"{row['low']:+.0%} to {row['high']:+.0%}"
        samples = f"n {row['n'][0]:,} and {row['n'][1]:,}"
        yield (
            f"{row['network']}, {row['layer']} (`{row['problem']}`): {sizes} is "
            f"{row['change']:+.0%} ({interval}; {samples}) by the map, {row['plain_change']:+.0%} "
            "by the loop."
        )


# of `curve_shapes.json`: when their edges were labelled
_PUBLISHED_CURVES = {
    "sealed": "before the rule was written",
    "later": "before the rule met them",
}


def shape_figures() -> Iterable[str]:
    """What `explain` says of curves whose edges are known."""
    kept = json.loads((RESULTS / "curve_shapes.json").read_text())
    null, other, jump = (kept[name] for name in ("null", "null_other", "jump"))
    yield (
        f"**{_share(null['claims'], null['curves'])}** smooth curves with noise of 0.5 to 10 % get "
        "an edge or a slow size that is not there; "
        f"{_share(other['claims'], other['curves'])} of shapes that no rule knows do."
    )
    found, curves = (sum(_counts(jump["by_sizes"], name)) for name in ("found", "curves"))
    by_sizes = ", ".join(
        f"{row['found']} of {row['curves']} ({name})" for name, row in jump["by_sizes"].items()
    )
    yield (
        f"A jump of 20 % at a noise of 3 % is found at its place in **{_share(found, curves)}** "
        f"curves; by sizes in {by_sizes}."
    )
    unseen = kept["unseen"]
    yield (
        "On curves that nobody saw while the rule changed, it claims something of "
        f"{_share(unseen['claims'], unseen['smooth'])} smooth curves, and finds the jump in "
        f"{_share(unseen['found'], unseen['jumps'])}."
    )
    most = "; ".join(
        f"knowing {name} {100 * sum(_counts(rows, 'found')) / sum(_counts(rows, 'curves')):.1f} %, "
        f"doubling sizes {100 * rows['doubling']['found'] / rows['doubling']['curves']:.0f} %"
        for name, rows in kept["possible"].items()
    )
    count = sum(_counts(kept["possible"]["neither"], "curves"))
    yield (
        "Who knows every shape that the simulator draws, and claims 2 of 100 smooth curves, "
        f"finds at most, of {count} jumps: {most}."
    )
    for table, rows in kept["tables"].items():
        noises = ", ".join(
            f"{count} at {float(noise):.0%}" for noise, count in rows["found_by_noise"].items()
        )
        excesses = ", ".join(map(str, rows["excesses_by_noise"].values()))
        yield (
            f"Of {rows['beyond_proportion']} of {rows['pairs']} pairs of `{table}` that take 5 % "
            f"more than in proportion, it says an edge or a slow size of {noises} stated error; "
            f"the test of the excess alone finds {excesses}."
        )
    for name, when in _PUBLISHED_CURVES.items():
        rows = kept[name]
        yield (
            f"Of {rows['events']} edges and slow sizes in {rows['curves']} curves that others "
            f"published, labelled {when}, it finds **{rows['found']}**. All sizes are right in "
            f"**{rows['sizes_right']}** curves, the shape in {rows['shapes_right']}. In "
            f"{rows['curves_with_false']} it says a size that is not labelled."
        )
    for row in kept["lists"]:
        value, low, high = row["saving"]
        yield (
            f"For the {row['steps']} steps of up to {row['largest']} requests of `{row['log']}`, "
            f"on a published curve of two MI50, the cheapest list of {row['sizes']} sizes saves "
            f"{value:.1%} ({low:.1%} to {high:.1%}) against those that {row['server']} captures "
            f"unasked; {row['as_fast_with']} are as fast."
        )


def _share(found: int, count: int) -> str:
    """A count of a count, with the 95 % interval of its share."""
    low, high = binomtest(found, count).proportion_ci(method="wilson")
    return f"{found} of {count} ({low:.1%} to {high:.1%})"


def _counts(rows: dict[str, Any], name: str) -> list[int]:
    return [row[name] for row in rows.values()]


def fault_figures() -> Iterable[str]:
    """What fault trials and hostile files say."""
    import faults

    yield from faults.figures(TABLES["faults"])
    files = TABLES["hostile_files"]
    read = sum(result == "read" for result in files.column("result"))
    seconds = [float(cell or 0) for row in files.rows for cell in row[4:6]]
    yield (
        f"Of **{len(files.rows)}** files that were written to do harm, {read} are read and "
        f"{len(files.rows) - read} refused in words. A command took at most **{max(seconds):g} "
        f"s** of CPU time and **{max(map(int, files.column('most memory, MiB')))} MiB**."
    )


def speed_figures() -> Iterable[str]:
    """What measuring costs."""
    kept = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    printed = kept["collector"]["printed"]
    json_times = re.search(r"json\.dumps.*?(\d+) x", printed)
    peer_times = re.search(r"cupti-python.*?(\d+) x", printed)
    lost = re.search(r"bytes per record: ([\d.]+); lost: (\d+)", printed)
    assert json_times
    assert peer_times
    assert lost
    yield (
        f"The collector writes a kernel record in {lost[1]} bytes and lost {lost[2]}. JSON takes "
        f"**{json_times[1]}** times its CPU time, cupti-python **{peer_times[1]}** times without "
        "writing."
    )
    analysis = re.search(r"analysis: ([\d.]+) s.*\nmemory: (\d+) MiB", kept["analyse"]["printed"])
    assert analysis
    yield (
        f"A recording of a million kernels is analysed in **{analysis[1]} s** and "
        f"**{analysis[2]} MiB**."
    )


def operator_figures() -> Iterable[str]:
    """What other timings and the code of the loops say of operators alone."""
    lines = [" ".join(row) for row in TABLES["single_costs"].rows]
    found = (
        re.search(rf"{script}\.py best over best ([\d.]+)", "\n".join(lines))
        for script in ("stream", "bare_gemm")
    )
    stream, product = (ratio[1] for ratio in found if ratio)
    yield (
        f"On a CPU the measured memory bandwidth is **{stream}** of STREAM's, and a matrix product "
        f"takes **{product}** times as long as in a bare loop, best over best."
    )
    outside = stage_rows("h100", "do_bench")
    judged = [row for row in outside if row["outcome"] != "too short to judge"]
    ratios = [f"{row['ratio']:.3f}" for row in judged]
    yield (
        f"On an H100 a product and a convolution take **{list_values(ratios)}** times as long as "
        f"by `triton.testing.do_bench` (n = {judged[0]['n']} each). A third was too short to judge."
    )
    loops = TABLES["peak_loops"]
    lanes = [row for row in loops.rows if row[1] == "peak_fp32"]
    counts = [f"{own} of {every} on {architecture}" for architecture, _, _, own, every, _ in lanes]
    yield (
        f"Of the instructions in a round of the loop for the fp32 peak, {list_values(counts)} are "
        "its multiply-adds. No GPU was needed to count them."
    )


def model_figures() -> Iterable[str]:
    """How far off predicted cards are."""
    table = TABLES["cost_model_operators"]
    errors = {(row[0], row[1]): row for row in table.rows}
    for kind, words in (("forward", "forward convolutions"), ("product", "matrix products")):
        _, _, count, median, average, *_ = errors["a GPU", kind]
        yield (
            f"On a GPU left out of the fit, {words} are **{median}** off in the median, "
            f"{_space_out(average)} in the mean (n = {count})."
        )
    networks = TABLES["cost_model_networks"]
    counts = list(map(int, networks.column("n")))
    held = zip(counts, percents(networks.column("inside")), strict=True)
    inside = sum(count * share for count, share in held) / sum(counts)
    yield f"**{inside:.0f}%** of {sum(counts)} steps of networks are inside their 90 % interval."


def _space_out(percent: str) -> str:
    return percent.replace("%", " %")


def framework_figures() -> Iterable[str]:
    """How frameworks compare on the same networks."""
    rows = [row for row in framework_table.shown() if "failed" not in row]
    for name, words in (("jax", "JAX"), ("keras-tensorflow", "Keras on TensorFlow")):
        pairs = [pair for row in rows for pair in row["pairs"] if pair["pair"] == ["torch", name]]
        sure = [pair["times"][0] for pair in pairs if pair["significant"]]
        slower = sum(times > 1 for times in sure)
        yield (
            f"{words} takes longer than PyTorch in **{slower}** of {len(pairs)} cells and less in "
            f"**{len(sure) - slower}**: {min(sure):.2f} to {max(sure):.2f} times as long, mean "
            f"{mean(sure):.2f}."
        )


SECTIONS = (
    Section(
        "Do the intervals hold, and do the tests err?",
        "A sweep is simulated whose true curve is known: a straight line, or a line with a step of "
        "a known size. The product's own code makes intervals and verdicts of it. Each kind of "
        f"noise has {TABLES['false_alarms'].sweeps} sweeps of a straight line and "
        f"{TABLES['power'].sweeps} of each step.",
        interval_figures,
        "`python benchmarks/evidence.py false_alarms power intervals_of_t`. Again: `python "
        "benchmarks/interval_coverage.py --write`, which describes each noise.",
        "A sweep that reports nothing has not shown that nothing is there. Small effects on a "
        "disturbed machine are missed more often than not.",
        noise_table,
    ),
    Section(
        "Is each part of the method worth its place?",
        "The same simulations, with a part of the method and without it.",
        design_figures,
        "`python benchmarks/evidence.py NAME`. Scripts that ran once are in the history, at the "
        "commit that the table names.",
    ),
    Section(
        "Do verdicts of experiments hold?",
        "[The rule](experiments.md#the-rule) judges simulated experiments whose truth is known, "
        "and real processes that differ in nothing.",
        verdict_figures,
        "`python benchmarks/evidence.py verdicts identical_processes savings_of_starts`. Again: "
        "`python benchmarks/experiment_verdicts.py --write`.",
    ),
    Section(
        "Is the right cause confirmed?",
        "Small real networks get one cause each, of a size that is measured without Curvescope. "
        "`curvescope.diagnose` is told nothing. With nothing planted the time is in proportion to "
        "the batch by construction, so every confirmed cause is wrong.",
        planted_figures,
        "`python benchmarks/planted_causes.py` prints a row for each cause; `--runs 8 --null 200` "
        "measures. Runs: `benchmarks/results/planted_causes*.jsonl`.",
        "The authors knew these plants while they wrote the causes. So the figures show that the "
        "chain from measurement to verdict works, not how often strangers' anomalies are "
        "explained. On busier machines fewer causes are confirmed, and more sweeps of nothing err.",
        machine_table,
    ),
    Section(
        "And on a GPU's path?",
        "A virtual card is made of CUDA's public functions. PyTorch's CUDA build and CUPTI run on "
        "it, its kernels compute nothing, and each takes a time by a small table.",
        virtual_causes.figures,
        '`python benchmarks/virtual_causes.py --cases ""` prints a row for each case. Again: '
        "`.venv-virtual/bin/python benchmarks/virtual_causes.py`, in the environment of `make "
        "virtual`, with noise by `--noise 1`. Runs: `benchmarks/results/virtual_causes*.jsonl`.",
        "No GPU took part, so this says nothing of verdicts on a real card. The plants of the "
        "first figure were adjusted while they were written. A seed draws card, shapes, sizes and "
        "amount of the others. A cause counts from 10 % of an anomaly on. One block more than "
        "in proportion, at one size only, is missed: no other size has its grid.",
    ),
    Section(
        "Does it help on steps of others?",
        "`curvescope diagnose` with its defaults ran on training steps of public scripts, on "
        "anomalies that users of other projects reported, and on steps that no change makes "
        "faster. *Compiler* is `g++ -O2` in a loop on one of two cores.",
        public_steps.figures,
        "`python -m benchmarks.public_steps` and `python -m benchmarks.published_live` print each "
        "run; with `--folder FOLDER` they measure. `benchmarks/results/public_steps*.jsonl`, "
        "`published_live.jsonl`.",
        "Savings are of the complete step, with and without the change by turns. bf16 changes "
        "results. With `OMP_WAIT_POLICY=passive`, 4 of 11 further sweeps of a product ended with "
        "false gains of 11 to 30 %.",
    ),
    Section(
        "What does a profile of somebody else give?",
        "Profiles of others are imported complete (`tests/data/profiles/README.md`). Those from "
        "elsewhere were labelled after the advice was written, four profiles again after it was "
        "read. A tool's part of the time is right if it can be a labelled cause.",
        coverage_figures,
        "`benchmarks/results/profile_coverage*.json`; `python benchmarks/profile_advice.py "
        "--print` shows each suggestion beside sums by hand and other tools.",
        "A suggestion is an upper bound, and was not tried.",
        profile_advice.peer_table,
    ),
    Section(
        "Does a table of times get the right edges?",
        "Curves are simulated over 5 to 64 sizes, doubling, every one or drawn. Others come from "
        "public issues of 2025 and 2026. Their edges were labelled before the rule was written.",
        shape_figures,
        "`benchmarks/results/curve_shapes.json`; again: `python -m benchmarks.curve_shapes "
        "PART --count COUNT`.",
        "The prices of the rule were chosen on this simulator, whose families it knows, on other "
        "curves of it; the price of a jump, of two values, on these. A smooth deviation may be as "
        "likely as a jump, most over doubling sizes: "
        "one may be a knee. All curves of others were looked at while the rule changed. "
        "One of them, of two MI50, showed that jumps stand just behind multiples of 8. "
        "Three logs are few loads.",
    ),
    Section(
        "Does another size of a problem take another time?",
        "The map of `bench --around` and a loop of torch alone, which visits both sizes by turns, "
        "time problems of real networks in one process, with warm caches, on one thread of an AMD "
        "EPYC.",
        choice_figures,
        "`benchmarks/results/library_choices.jsonl`; again: `python -m "
        "benchmarks.library_choices`.",
        "The problems were found by trying layers of common networks at neighbouring sizes, so "
        "they say that such sizes exist, not how common they are.",
    ),
    Section(
        "Is anything lost when something breaks?",
        "Commands are killed, get signals at random moments, run out of disk, memory, descriptors "
        "or modules, and their clock jumps. A trial is bad if recorded data is gone, changed or "
        "unreadable, or if a failure has no message. Hostile files have limits of 10 s and 2 GiB.",
        fault_figures,
        "`python benchmarks/evidence.py faults hostile_files`. Again: `make faults` and `python -m "
        "tests.security.read_hostile_files --large --write`.",
        "`tests/security/other_attacks.toml` lists the attacks on recordings, secrets, programs "
        "and agents, each with its test.",
    ),
    Section(
        "What does measuring cost?",
        "Both sides of a comparison run by turns. Single times hold for two cores of an AMD EPYC.",
        speed_figures,
        "`python benchmarks/speed.py --print`. Again: `make bench`.",
        "The collector ran with a test double of libcupti, so CUPTI's own cost is not in it. "
        "cupti-python reads any activity with few lines of Python. Ours reads what steps need.",
    ),
    Section(
        "Are operators timed right?",
        "`curvescope bench` runs beside other timings of the same operators, in turn.",
        operator_figures,
        "`python benchmarks/evidence.py single_costs peak_loops`. Again: `python "
        "benchmarks/peak_loops.py`, and stage `outside` of [the campaign](gpu-campaign.md).",
        "nvbench was not compared.",
    ),
    Section(
        "How far off is a predicted card?",
        "The [cost model](cost-model.md#how-far-to-trust-it) was asked about GPUs, architectures "
        "and networks that its fit had not seen.",
        model_figures,
        "`python benchmarks/evidence.py cost_model_operators cost_model_networks`. Again: `python "
        "benchmarks/cost_model.py`.",
        "It misses most positive excesses.",
    ),
    Section(
        "How do frameworks compare?",
        "The same networks ran in three frameworks on one or two cores of an Intel Xeon, forward "
        "and with backward, in processes that take turns.",
        framework_figures,
        "`python -m benchmarks.framework_table print` has each cell, and the layers and kernels "
        "that make each difference. `benchmarks/results/frameworks.jsonl`.",
        "Other work ran beside some cells of 64 samples. Cells that decide nothing are in neither "
        "count.",
    ),
)

BEGINNING = """# Evidence

The measurements of Curvescope itself, and their limits. `python docs/generate_reference.py` writes
this page from the stored data, and a test holds it to them.

Most of it ran on CPUs. On a real GPU Curvescope ran [twice for fifteen
minutes](../case-studies/h100.md). The error of each number of a GPU, measured or estimated, is [one
table](../reference/known-errors.md). [Limits](limits.md) lists what does not work at all.
"""


def evidence_page() -> str:
    """The page."""
    lines = [BEGINNING]
    for section in SECTIONS:
        lines += [f"## {section.title}", "", section.asked, ""]
        lines += [*(f"- {figure}" for figure in section.figures()), ""]
        if table := section.table():
            lines += [*table, ""]
        lines += [section.limits, ""] if section.limits else []
        lines += [f"Data: {section.data}", ""]
    return "\n".join(lines).rstrip() + "\n"
