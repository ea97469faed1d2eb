"""The answer on one page: it fits a terminal, and says what the recording holds."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from rich.cells import cell_len

from curvescope.analysis.causes.context import Recorded
from curvescope.analysis.causes.host import HOST_BOUND
from curvescope.analysis.causes.totals import CauseTotal, TermCause
from curvescope.analysis.decompose.functionals import fixed_cost
from curvescope.analysis.decompose.slow_steps import SlowSteps
from curvescope.analysis.decompose.terms import IDLE, KERNELS, Key
from curvescope.analysis.diagnosis.explain import diagnose, explain
from curvescope.analysis.render.cells import fit_finding
from curvescope.analysis.render.deviations import _fit_line
from curvescope.analysis.render.found import SURE, _describe_fixed_cost, find_all
from curvescope.analysis.render.page import LINES, Page, _group
from curvescope.analysis.render.summary import summarize
from curvescope.analysis.verdicts.words import Verdict
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.store import open_recording

from ...shared import EXAMPLE, ROOT
from ...tables import ask_each, grade
from ..diagnosis.test_certain import planted
from ..synthetic import timed_steps

SWEEPS = (
    EXAMPLE,
    EXAMPLE.parent / "vgg_a-h100",
    ROOT / "tests/data/h100/found-late",
    *(ROOT / "tests/data/causes" / name for name in ("BusyNeighbour", "WaitsForItsInput")),
)
LARGE = SWEEPS[1:3]  # their diagnoses take four seconds each
EACH_SWEEP = pytest.mark.parametrize(
    "path", grade(SWEEPS, quick={*SWEEPS} - {*LARGE}, in_ci=LARGE), ids=lambda path: path.name
)
OWN_WORDS = re.compile(r"\b(excess|curvature|bends?|terms?|visits?|claims?|factors?|screen\w*)\b")


@pytest.fixture(scope="module")
def diagnosis_of():
    """The diagnosis of a stored recording, which many tests show."""
    known = {}

    def diagnosis(path):
        if path not in known:
            known[path] = explain(open_recording(path))
        return known[path]

    return diagnosis


@EACH_SWEEP
@ask_each("width", [60, 80, 120])
def test_the_answer_fits_a_terminal_and_has_all_its_parts(path, width, diagnosis_of):
    page = Page(summarize(diagnosis_of(path)))
    lines = page.text(width).splitlines()
    assert len(lines) <= LINES
    commands = [line for line in lines if "curvescope " in line]
    assert len(commands) == 3
    assert all(cell_len(line) <= width for line in lines if line not in commands)
    heads = [line.split()[0].strip(",") for line in lines if re.match(r"[A-Z]{4,}\b", line)]
    assert list(dict.fromkeys(heads)) == ["TIME", "FOUND", "NEXT"]
    said = "\n".join(line for line in lines if line not in commands)
    assert not OWN_WORDS.search(said), OWN_WORDS.search(said)


def test_the_page_of_the_example(diagnosis_of):
    lines = Page(summarize(diagnosis_of(EXAMPLE))).text(80).splitlines()
    assert lines[0].startswith("alexnet training step, fp32, 2 threads, Intel Xeon")
    assert lines[0].endswith("108 s, 90 quiet measurements")
    assert lines[1].startswith("2 slow sizes: 2, 8. At 8: fc6")
    assert "At 8: fc6 (Linear) forward, slow library call (cause confirmed)." in " ".join(
        lines[1:3]
    )
    assert lines[2].endswith("Take batch 32 or more")
    (eight,) = (line for line in lines if line.startswith("    8 "))
    assert re.search(r"257\.9 ± 1\.\d +31\.0 +█+.? +\+5\.6 ± 1\.9 \[1\]$", eight)
    (found,) = (line for line in lines if line.startswith("1  "))
    assert found.startswith("1  fc6 (Linear) forward at 8: slow library call ")
    assert found.split()[-5:] == ["2.3", "%", "at", "8", "confirmed"]
    assert "at batch 1 89 % is fixed, at 32 20 %." in "\n".join(lines)
    slow, largest = (line for line in lines if line.startswith("TIME"))
    assert slow.startswith("TIME at 8   conv backward 25 %, linear backward 24 %")
    assert largest.startswith("TIME at 32  conv backward 41 %")
    do = "DO 1  Run fc6 (Linear) forward through oneDNN: -41 % of its time at batch 8"
    assert lines[lines.index(do) - 1].startswith("4  keep freed memory")


@ask_each(
    ("kind", "group"),
    [("Conv2d", "conv"), ("BatchNorm1d", "batchnorm"), ("Applied", "applied"), ("Embed", "embed")],
)
def test_a_group_of_time_is_named_by_the_class_without_its_dimensions(kind, group):
    key = Key("features.0", "forward", KERNELS)
    assert _group(key, lambda _: kind) == f"{group} forward"


@pytest.mark.slow
def test_no_place_is_named_that_makes_less_than_what_counts(diagnosis_of):
    """The deviation of the whole step is told in its place, where nothing is confirmed."""
    diagnosis = diagnosis_of(ROOT / "tests/data/h100/found-late")
    strict = replace(diagnosis, curve=replace(diagnosis.curve, least=0.3))
    before, after = (
        [found.what for found in find_all(asked) if " than the line " in found.what]
        for asked in (diagnosis, strict)
    )
    assert "64 takes 61.44 ms" in " ".join(after)
    assert "64 takes" not in " ".join(before)
    # The profiler hides the place of what is at 8; at 16 no layer makes 2 % of the step.
    assert [said.split()[0] for said in before] == ["16", "8"]


def test_an_interval_is_as_fine_as_its_number_at_most():
    """Equal times, as of a modelled clock, have an interval of 0, which no measurement has."""
    steps = timed_steps(
        lambda batch: 2.0 + batch, np.random.default_rng(0), noise=0, drift=0, spikes=0
    )
    lines = Page(summarize(diagnose(Recorded(steps)))).text(80).splitlines()
    (eight,) = (line for line in lines if line.startswith("    8 "))
    assert " 10.00 ± <0.01 " in eight
    assert "± 0" not in "".join(lines).replace("± 0.", "")


def test_a_path_of_numbers_is_called_a_layer_where_its_class_has_no_room():
    assert fit_finding("0-3 (Linear, 4 times), 0.137 ms of every step", 36) == (
        "layers 0-3, 0.137 ms of every step"
    )
    assert fit_finding("* (Linear, 4 times), 0.137 ms of every step", 36) == (
        "all layers, 0.137 ms of every step"
    )
    assert fit_finding("idle in 4 (Small) at 64: launch- or host-bound", 44) == (
        "idle in layer 4 at 64: launch- or host-bound"
    )
    whole = "0 (Rows) forward at 64: waves"
    assert fit_finding(whole, 40) == whole
    assert fit_finding("fc6 (Linear) forward at 8: slow library call", 36) == (
        "fc6 forward at 8: slow library call"
    )


def test_a_size_with_nearly_the_most_samples_is_not_said_to_have_the_most():
    steps = timed_steps(lambda batch: 0.2 + batch, np.random.default_rng(0), noise=0.001)
    page = Page(summarize(diagnose(Recorded(steps))))
    assert page.text(80).splitlines()[0].endswith("Take batch 4: 96 % of the most samples/s")
    steps = timed_steps(lambda batch: batch, np.random.default_rng(0), noise=0.001)
    page = Page(summarize(diagnose(Recorded(steps))))
    assert page.text(80).splitlines()[0].endswith("Take batch 1: nearly the most samples/s")


@ask_each(("times", "none"), [([1.0, 2.2, 4.9], 0), ([4.0, 2.0, 1.0], 1)])
def test_no_part_of_the_line_of_costs_is_below_zero(times, none):
    parts = _fit_line(np.array([1.0, 2.0, 4.0]), np.array(times))
    assert parts[none] == 0.0 < parts[1 - none]


def test_a_line_that_misses_by_more_than_the_fixed_cost_tells_none():
    """One said "0.462 + 2.95 ms x batch ± 18 %: 2 % is fixed" above 2.8 ms of every step."""
    cost_ms = {8: 25.0, 16: 42.0, 24: 87.0, 32: 97.0}
    steps = timed_steps(
        cost_ms.__getitem__, np.random.default_rng(0), batches=tuple(cost_ms), noise=0.005, spikes=0
    )
    text = Page(summarize(diagnose(Recorded(steps)))).text(100)
    assert re.search(r"A step costs about 3\.\d+ ms x batch ± 1\d %\.$", text, re.MULTILINE)
    assert "is fixed" not in text


def test_the_verdict_says_that_a_layer_costs_more_where_the_step_does_not_show_it():
    page = Page(summarize(planted("copies", 0)))
    said = "mixer forward costs more from batch 24 on: more work per sample (measured)."
    assert page.summary.say_verdict().startswith(said)


def test_more_work_is_counted_per_one_of_the_axis():
    diagnosis = planted("copies", 0)
    of_tokens = replace(diagnosis.recorded, axis=Axis("tokens"))
    verdict = Page(summarize(replace(diagnosis, recorded=of_tokens))).summary.say_verdict()
    assert "costs more from tokens 24 on: more work per token (measured)." in verdict


def test_names_have_the_room_of_a_wide_terminal(diagnosis_of):
    page = Page(summarize(diagnosis_of(EXAMPLE)))
    assert "slow library call, 1.69x the best" in page.text(120)
    assert "maxpool forward 7 %" in page.text(120)


@pytest.mark.slow
def test_findings_beyond_the_page_are_counted(diagnosis_of):
    page = Page(summarize(diagnosis_of(EXAMPLE.parent / "vgg_a-h100")))
    shown = re.findall(r"^\d  ", page.text(80), re.MULTILINE)
    rest = len(page.entries) - len(shown)
    assert f"FOUND, each part by itself, and {rest} more: --all" in page.text(80)


@pytest.mark.slow
def test_a_size_to_pad_to_stands_among_the_sizes_though_it_was_only_probed(diagnosis_of):
    """On an H100 17 samples take longer than 24, which only probes measured."""
    page = Page(summarize(diagnosis_of(ROOT / "tests/data/h100/found-late")))
    lines = page.text(80).splitlines()
    assert any(re.match(r"\d  17 takes longer than 24: pad to it", line) for line in lines)
    (row,) = (line for line in lines if line.startswith("   24 "))
    assert re.fullmatch(r" +24 +29\.\d+ +8\d\d +█+. +probed, \d steps", row)
    assert not any("probed" in line for line in page.text(80).splitlines() if line != row)


@EACH_SWEEP
def test_a_size_with_a_finding_has_its_number_though_the_finding_is_not_listed(path, diagnosis_of):
    """Else a size that is 12 % off its neighbours looks as if nothing was found there."""
    page = Page(summarize(diagnosis_of(path)))
    text = page.text(120)
    slow = {entry.at for entry in page.entries if entry.is_slow_size}
    for line in text.splitlines():
        size = re.match(r" +(\d+)  +\d", line)
        if size and int(size[1]) in slow:
            assert re.search(r"\[\d+(,\d+)*\]$", line), line


@pytest.mark.slow
def test_the_whole_step_is_told_beside_a_part_of_it(text_of):
    """conv4_1 alone makes 6 % of a step that is 3 % off its neighbours."""
    shown = " ".join(text_of("explain", EXAMPLE.parent / "vgg_a-h100", "3").split())
    assert "Of a step: 6.4 % at batch 64." in shown
    assert (
        "That is this part by itself. The whole step is +1.89 ms (3.1 %) off its neighbours, by "
        "all its parts." in shown
    )


@EACH_SWEEP
def test_a_layer_at_a_size_is_one_finding(path, diagnosis_of):
    places = [
        (entry.place, entry.at)
        for entry in find_all(diagnosis_of(path))
        if entry.is_slow_size and entry.place
    ]
    assert len(places) == len(set(places))


def test_slow_steps_stand_within_the_first_three_lines(diagnosis_of):
    """More than 3 % of a step's time: they come before what is slow at one size."""
    slow = SlowSteps(
        batch=8, steps=64, slow=(15, 31, 47, 63), slow_ms=1000.0, usual_ms=250.0, share=0.16,
        period=16, in_common=(),
    )  # fmt: skip
    diagnosis = diagnosis_of(EXAMPLE)
    recorded = replace(diagnosis.recorded, slow=(slow,))
    page = Page(summarize(replace(diagnosis, recorded=recorded)))
    lines = page.text(80).splitlines()
    assert "1 step in 16 at batch 8 takes 4.0 times as long: 16 % of the time." in " ".join(
        lines[:3]
    )
    assert (page.entries[0].slow, page.entries[0].worth) == (slow, ((8, "16 %"),))
    assert len(lines) <= LINES


def test_a_finding_is_shown_in_full_by_its_number(text_of, refusal_of):
    shown = " ".join(text_of("explain", EXAMPLE, "1").split())
    assert shown.startswith("1 fc6 (Linear) forward at 8: slow library call")
    assert "How: for inference: torch.utils.mkldnn.to_mkldnn(layer)" in shown
    assert "curvescope bench gemm --candidates" in shown
    last = " ".join(text_of("explain", EXAMPLE, "4").split())
    assert "How: MALLOC_MMAP_THRESHOLD_" in last
    assert "has findings 1 to 4" in refusal_of("explain", EXAMPLE, "5")
    refused = refusal_of("explain", EXAMPLE, "1", "--of", "memory")
    assert "Finding 1: only the answer on the times of a curve" in refused


@ask_each(
    ("gain", "listed"),
    [((0.05, -0.2, 0.3), True), ((0.05, -5.07, 0.93), False), ((-0.1, -0.2, 0.1), False)],
)
def test_a_change_is_listed_where_it_may_save_a_known_part(diagnosis_of, gain, listed):
    """One of them was printed as `saves -507 to 93 %`, and one that costs time as a finding."""
    diagnosis = diagnosis_of(EXAMPLE)
    (saving,) = diagnosis.remedies.attempts
    value, low, high = gain
    gains = tuple(
        (at, replace(before, value=value, low=low, high=high)) for at, before in saving.gains
    )
    remedies = replace(diagnosis.remedies, savings=(replace(saving, gains=gains),))
    found = find_all(replace(diagnosis, remedies=remedies))
    assert [entry.sure for entry in found if entry.saving] == ["not proven"] * listed


def test_the_page_on_answers_explains_every_word_of_how_sure():
    page = (ROOT / "docs" / "answer.md").read_text()
    section = page.partition("## How sure")[2].partition("##")[0]
    rows = re.findall(r"^\| ([a-z ]+) \| (.*) \|$", section, re.MULTILINE)
    assert rows == [("word", "what it rests on"), *SURE.items()]


@EACH_SWEEP
def test_an_answer_is_worth_no_more_than_it_claims(path, diagnosis_of):
    """However slow its size is: on an H100 conv2_1 makes 0.6 of 1.9 ms at 16."""
    diagnosis = diagnosis_of(path)
    for found in find_all(diagnosis):
        lead = next(iter(found.answers), None)
        if lead is None or lead.leading is None:
            continue
        size, share = found.worth[0]
        worth_ms = float(share.removesuffix(" %")) / 100 * diagnosis.curve.at(size).time_ms.value
        assert worth_ms <= 1.06 * abs(lead.leading.amount), found.what


@pytest.mark.parametrize(
    ("waits_ms", "shares", "said"),
    [
        ((1.4, 1.2, 0.8, 0.6), ("36 %", "9.5 %"), "1.40 ms of a step of 2"),
        ((1.6, 1.6, 1.6, 1.6), ("41 %", "25 %"), "1.60 ms of every step"),
    ],
)
def test_idle_time_that_larger_steps_hide_is_no_cost_of_theirs(waits_ms, shares, said):
    """A language model in bf16 waited for its host in 1.4 of 3.9 ms at 2, and in 0.6 of 6.3 at 16,
    of which it was said that 26 % are.
    """
    waits, sizes = Key(None, None, IDLE), (2, 4, 8, 16)
    total = CauseTotal(HOST_BOUND, 1.6, (TermCause(waits.label, 1.6, None, ()),))
    answer = SimpleNamespace(
        evidence=(),
        leading=total,
        where=waits.label,
        cause=HOST_BOUND,
        functional=fixed_cost(2, 4),
        shares=[SimpleNamespace(label=waits.label, key=waits)],
        verdict=Verdict.UNTESTED,
        noise=False,
    )
    values_ms = np.array([[time_ms] for time_ms in waits_ms])
    diagnosis = SimpleNamespace(
        fixed_cost=answer,
        curve=SimpleNamespace(conditions=sizes, times_ms={2: 3.9, 16: 6.3}),
        terms=SimpleNamespace(conditions=sizes, keys=(waits,), values_ms=values_ms),
        recording=None,
        axis=Axis(),
    )
    (found,) = _describe_fixed_cost(diagnosis)
    assert found.worth == tuple(zip((2, 16), shares, strict=True))
    assert found.what.endswith(said)


def test_a_size_below_the_line_between_its_neighbours_is_not_called_slow():
    """From 16 on memory is mapped anew: 8 and 15 cost more than in proportion, and far less than
    the line to 16 says.
    """
    cost_ms = {1: 0.43, 2: 0.52, 4: 0.74, 8: 1.76, 15: 3.87, 16: 17.6, 32: 35.0, 64: 69.0}
    steps = timed_steps(
        cost_ms.__getitem__, np.random.default_rng(0), batches=tuple(cost_ms), noise=0.005, spikes=0
    )
    page = Page(summarize(diagnose(Recorded(steps))))
    listed = {entry.at for entry in page.entries}
    assert {8, 15, 16} <= listed
    assert {entry.at for entry in page.entries if entry.is_slow_size}.isdisjoint({8, 15})
    assert page.summary.say_verdict().startswith("Batch 16 is slow")
