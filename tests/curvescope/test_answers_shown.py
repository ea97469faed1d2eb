"""Answers and experiments as a reader meets them: terminal, JSON, notebook, and the page in a
browser.
"""

import html
import io
import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

import curvescope
from curvescope.analysis.diagnosis.remedies import Remedies
from curvescope.analysis.render.answer_words import sentence
from curvescope.analysis.render.answers import render_answers
from curvescope.analysis.render.causes import render_causes
from curvescope.analysis.render.headline import finding_sentence
from curvescope.analysis.render.report_experiments import describe_tests
from curvescope.analysis.verdicts.words import Verdict
from curvescope.cli import main
from curvescope.profiling.recording.store import open_recording

from ..browser import Page, needs_browser
from ..shared import EXAMPLE
from .recordings import write_planted
from .test_report import embedded, reported
from .tested_recording import BATCHES, GRID_MS, write_tested

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    return write_tested(tmp_path_factory.mktemp("answers") / "tested")


@pytest.fixture(scope="module")
def page(tested):
    assert main(["report", str(tested), "-o", str(tested.parent / "report.html")]) == 0
    return tested.parent / "report.html"


def in_order(text, *wanted):
    """Whether the words, between bars, stand in the text in this order, however its lines are
    broken.
    """
    text, at = " ".join(text.split()), 0
    for words in " | ".join(wanted).split(" | "):
        at = text.find(words, at)
        if at < 0:
            return words
    return True


def test_what_was_noticed_while_measuring_is_said_below_the_answer(tmp_path, text_of):
    warning = "1 other process (process 40) used this GPU while it was measured."
    write_planted(tmp_path / "r", warnings=[warning])
    assert in_order(text_of("explain", tmp_path / "r", "--all"), "step ms", warning) is True
    page = text_of("explain", tmp_path / "r")
    assert in_order(page, "ms a step", "FOUND", f"! {warning[:40]}", "NEXT") is True


def with_open(found, *answers):
    """The diagnosis, with nothing confirmed of some answers."""

    def opened(answer):
        causes = (replace(total, verdict=Verdict.UNDECIDED) for total in answer.causes)
        return replace(answer, causes=tuple(causes)) if answer in answers else answer

    explanations = tuple(map(opened, found.explanations))
    return replace(found, explanations=explanations, fixed_cost=opened(found.fixed_cost))


def test_the_headline_leads_with_the_confirmed_cause_that_makes_most_of_a_step(tested):
    """Of the fixed cost; the anomaly, of which a cause is confirmed too, is 4 % of the step.

    What its remedy saves of the step is one number: that at the largest batch size where it is
    proven.
    """
    found = curvescope.explain(open_recording(tested))
    slow = "atch 4 takes 65.64 ms, 1.13 more than the line between 2 and 8"
    anomaly = f"{slow}."
    leading = "age faults make 68 % of the fixed cost of a step, confirmed by experiment."
    remedy = (
        "keep freed memory in the process: -34 % of the step (34 to 35) at batch 8, -62 % at 1."
    )
    assert finding_sentence(found) == f"{remedy} P{leading} B{anomaly}"
    nothing = with_open(found, *found.answers)
    assert finding_sentence(nothing) == f"{remedy} B{anomaly}"
    assert finding_sentence(replace(nothing, remedies=Remedies())) == f"b{anomaly}"
    of_anomaly = finding_sentence(with_open(found, *found.answers[1:]))
    assert of_anomaly.startswith(f"{remedy} B{slow}: slow library call in ")
    assert " of it, confirmed by experiment. " in of_anomaly
    assert anomaly not in of_anomaly


def with_untested_rest(found):
    """The diagnosis, with a part of the first cause that nobody tested, in a further term."""
    bend, *others = found.explanations
    total = next(one for one in bend.causes if one.cause == found.answers[0].cause)
    fc7 = replace(total.terms[0], label="fc7 (Linear) forward", verdict=Verdict.UNTESTED)
    rest = replace(total, terms=(fc7,), verdict=Verdict.UNTESTED, reason="the time was up")
    causes = (rest, *bend.causes)
    return replace(
        found,
        explanations=(replace(bend, causes=causes), *others),
    )


def test_the_headline_counts_only_what_is_confirmed(tested):
    """A cause that one term confirms, without complete steps, may be claimed of others that nobody
    tested.
    """
    found = curvescope.explain(open_recording(tested))
    found = with_open(found, *found.answers[1:])
    said = finding_sentence(found)
    assert "between 2 and 8: slow library call in fc6 (Linear) forward makes " in said
    assert finding_sentence(with_untested_rest(found)) == said


def test_what_is_left_of_a_confirmed_cause_says_why_it_is_open(tested):
    found = with_untested_rest(curvescope.explain(open_recording(tested)))
    console = Console(width=120, file=io.StringIO())
    console.print(render_causes(found.explanations[0]))
    assert "the rest of slow library call is untested: the time was up." in console.file.getvalue()


def test_advice_that_several_answers_share_is_written_once(tested):
    answer = curvescope.explain(open_recording(tested)).answers[0]
    console = Console(width=80)
    with console.capture() as shown:
        console.print(render_answers((answer, answer)))
    assert shown.get().count("How: a torch.autograd.Function") == 1
    assert "How: as in 1." in shown.get()


def test_the_terminal_leads_with_the_answers(tested, text_of):
    wanted = (
        "What to do | 1. keep freed memory | How 1: | MALLOC_TRIM_THRESHOLD_ | 1. The bend at 4 | "
        "fc6 (Linear) forward",
        "confirmed | How: | page faults | of the fixed cost of a step | How: as above. | batch "
        "step ms",
        "Terms of bend at 4",
    )
    assert in_order(text_of("explain", tested, "--all"), *wanted) is True


@pytest.mark.slow
def test_the_best_batch_size_and_where_the_time_of_the_largest_goes_stand_before_the_curve(text_of):
    wanted = "Batch size: | Batch 32: the longest layer is | is the longest kernel | step ms"
    assert in_order(text_of("explain", EXAMPLE, "--all"), wanted) is True


def test_everything_fits_80_columns(tested, text_of):
    out = text_of("explain", tested, "--all")
    assert max(len(line) for line in out.splitlines() if not line.startswith("  curvescope ")) <= 80
    wanted = (
        "curvature | Terms of bend at 4 | Causes of bend at 4 | slow library call | not "
        "significant | no cause",
        "Experiments on bend at 4 | shows its share in isolation | On a finer grid | removes | "
        "-23% confirmed",
        "undecided ¹ | ¹ It removes the anomaly only by slowing other batch sizes. | Untested "
        "(images and filters",
        "no operand is an image | 1 of 3 operators was not rebuilt. | Terms of fixed cost 1→2",
        "Experiments on fixed cost 1→2 | The complete step, unprofiled",
    )
    assert in_order(out, *wanted) is True


def test_a_command_to_copy_is_one_line_in_a_narrow_window(tested, monkeypatch, text_of):
    monkeypatch.setenv("COLUMNS", "40")
    shown = text_of("explain", tested).splitlines()
    assert f"NEXT  curvescope explain {tested} 1" in shown
    assert f"      curvescope explain {tested} --all" in shown


def test_factors_have_a_column_where_the_words_have_room(tested, monkeypatch, text_of):
    shown = text_of("explain", tested, "--all")
    assert "slowing other batch sizes" in " ".join(shown.split())
    assert "padded_batch\n" not in shown
    monkeypatch.setenv("COLUMNS", "120")
    assert "padded_batch\n" in text_of("explain", tested, "--all")


@pytest.mark.slow
def test_untested_causes_bring_the_command_that_goes_on(tmp_path, text_of):
    path = write_tested(tmp_path / "run", experiments_wait_for_time=True)
    lead, command = (
        "The time for experiments was up",
        f"  curvescope confirm {path} --experiments 5m",
    )
    shown = text_of("explain", path, "--all")
    assert in_order(shown, lead, command.strip(), "step ms") is True
    assert command in shown.splitlines()
    assert command.strip() in text_of("explain", path)
    enough = write_tested(tmp_path / "enough")
    assert lead not in text_of("explain", enough, "--all")


def without_layers(steps, kernels):
    kernels["layer"], kernels["op"] = None, "aten::linear"


@pytest.mark.slow
def test_a_step_of_ones_own_without_layers_says_how_to_name_them(tmp_path, text_of):
    own = write_planted(tmp_path / "own", change=without_layers, mode="own")
    shown = text_of("explain", own, "--all")
    hint = "set `step.module = model` in `make_step`"
    assert hint in " ".join(shown.split())
    assert f"breakdown {own} --by op --at" in shown
    named = text_of("explain", write_planted(tmp_path / "named", mode="own"), "--all")
    assert "step.module" not in named
    assert "--by layer" in named
    graphed = text_of(
        "explain",
        write_planted(tmp_path / "graphed", change=without_layers, mode="own", graphed=True),
        "--all",
    )
    assert "step.module" not in graphed


@pytest.mark.slow
def test_visits_that_are_set_aside_are_said_in_one_line_and_in_the_document(tmp_path, text_of):
    def beside_others(steps, _):
        steps["run_queue_wait_ns"] = steps["duration_ns"].where(
            (steps["batch"] == 8) & steps["round"].isin([1, 2]), 0
        )

    path = write_planted(tmp_path / "r", change=beside_others)
    visits = open_recording(path).frame("steps").groupby(["batch", "round"]).ngroups
    line = (
        f"2 of {visits} visits set aside: threads waited for a core for more than 5 % of the "
        "time, in rounds 2 and 3."
    )
    shown = text_of("explain", path, "--all")
    assert in_order(shown, "planted: conv3 backward costs", line, "batch step ms") is True
    assert f"2 of {visits} measurements disturbed" in text_of("explain", path).splitlines()[0]
    document = json.loads(text_of("explain", path, "--json"))
    assert line in document["notes"]
    assert document["disturbances"] == {
        "visits": visits,
        "disturbed": 2,
        "set_aside": True,
        "prevail": False,
        "reasons": [
            {"reason": line.split(": ")[1].split(", in")[0], "visits": 2, "rounds": [2, 3]}
        ],
        "sentence": line,
    }


@pytest.mark.slow
def test_where_disturbed_visits_prevail_the_answer_begins_with_them(text_of):
    """A recorded sweep beside a busy neighbour."""
    said = (
        "18 of 20 visits disturbed: threads waited for a core for more than 5 % of the time, in "
        "rounds 1 to 10."
    )
    recording = EXAMPLE.parents[2] / "tests" / "data" / "causes" / "BusyNeighbour"
    assert "DISTURBED: 18 of 20 measurements" in text_of("explain", recording).splitlines()[0]
    out = text_of("explain", recording, "--all")
    assert in_order(out, said, "what is open may be open for that reason", "step ms") is True
    assert out.count("visits disturbed") == 1


def test_the_document_has_the_answers_first_and_every_outcome(tested, text_of):
    document = json.loads(text_of("explain", tested, "--json"))
    assert list(document)[:6] == [
        "schema",
        "recording",
        "headline",
        "remedies",
        "batch_size",
        "answers",
    ]
    (kept,) = document["remedies"]["rows"]
    assert (kept["factors"], kept["cause"], kept["verdict"]) == (
        ["kept_memory"],
        "page faults",
        "confirmed",
    )
    assert [at["batch"] for at in kept["saves"] if at["proven"]] == list(BATCHES)
    assert [row["factors"] for row in document["remedies"]["others"]] == [["no_onednn"]]
    first, *_, last = document["answers"]
    assert (first["cause"], first["verdict"]) == ("slow library call", "confirmed")
    assert (last["functional"]["kind"], last["verdict"]) == ("fixed cost", "confirmed")
    assert document["anomalies"][0]["verdict"] == first["sentence"]
    assert document["fixed_cost"]["functional"] == last["functional"]
    factors = [one["factor"] for one in document["experiments"]]
    of_fc6 = ["onednn", "one_thread", "padded_batch", "channels_last"]
    assert factors == [None, None, None, *of_fc6, None, "kept_memory", None, "no_onednn"]


@pytest.mark.slow
def test_without_experiments_it_says_how_to_run_them_or_why_not(tmp_path, text_of):
    write_planted(tmp_path / "new", torch_device="cpu")
    assert f"curvescope confirm {tmp_path / 'new'}" in " ".join(
        text_of("explain", tmp_path / "new").split()
    )
    write_planted(tmp_path / "old")
    assert "does not say how to run its steps again" in " ".join(
        text_of("explain", tmp_path / "old", "--all").split()
    )
    run = reported(tmp_path / "new")
    assert run["tested"] == {}
    assert f"curvescope confirm {tmp_path / 'new'}" in run["how_to_test"]


@pytest.mark.slow
def test_words_follow_the_axis(tmp_path, text_of):
    write_tested(
        tmp_path / "tokens", axis={"name": "tokens", "unit": "tokens"}, fixed={"batch": 16}
    )
    head, _, evidence = text_of("explain", tmp_path / "tokens", "--all").partition("Terms of")
    assert "batch 16" in head.splitlines()[0]
    assert "batch" not in head.split("\n", 1)[1]
    assert (
        in_order(head, "at tokens 8", "ms/token tokens/s", "curvature ms/token", "time per token")
        is True
    )
    assert "time at tokens 4" in evidence
    run = reported(tmp_path / "tokens")
    assert run["axis"]["value"] == "value of tokens"
    assert "Tokens 4 takes" in run["explain"]["headline"]


def test_runs_counts_experiments(tested, document_of):
    assert [row["experiments"] for row in document_of("runs", tested.parent)["recordings"]] == [5]


def test_a_notebook_leads_with_the_answers(tested):
    found = curvescope.explain(open_recording(tested))
    html = found._repr_html_()
    sentences = [sentence(answer) for answer in found.answers]
    texts = Texts()
    texts.feed(html)
    assert texts.found[0] == str(found)
    assert texts.found[1] == sentences[0]
    assert "matrix products run through oneDNN instead of MKL" in texts.found
    assert html.index("How:") < html.index("95 % interval")


class Texts(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_data(self, data):
        self.found.append(data)


@pytest.mark.slow
def test_the_page_has_the_term_in_the_step_and_on_a_finer_grid(page):
    run = embedded(page)["runs"][0]
    bend, _, fixed = run["explain"]["answers"]
    assert [answer["verdict"] for answer in (bend, fixed)] == ["confirmed", "confirmed"]
    term, beside = (
        bend["evidence"][0],
        run["tested"][bend["functional"]["label"]]["fc6 (Linear) forward"],
    )
    assert term["label"] == "fc6 (Linear) forward"
    assert beside["step"]["batches"] == list(BATCHES)
    assert {*term["alone"]["batches"], *beside["grid"]["batches"]} == set(GRID_MS)
    assert term["alone"]["times_ms"][0]["value"] == pytest.approx(GRID_MS[2], rel=0.03)
    factors = {factor["factor"]: factor for factor in term["factors"]}
    assert factors["onednn"]["taken"]["low"] > embedded(page)["confirmed_above"]
    assert factors["one_thread"]["taken"]["high"] < embedded(page)["refuted_below"]
    assert factors["channels_last"]["taken"] is None


def test_the_page_gets_the_size_at_which_a_gain_counts(tested):
    """The slow size of the bend, as in the terminal, and the smallest of the fixed cost."""
    found = curvescope.explain(open_recording(tested))
    bend, *_, fixed = found.answers
    for answer, size in ((bend, 4), (fixed, 1)):
        for term in answer.evidence:
            shown = describe_tests(answer, found)[term.label]
            pairs = zip(term.factors, shown.gain_indices, strict=True)
            sizes = {factor.batches[index] for factor, index in pairs if factor.rounds}
            assert sizes == {size}


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (800, True), (375, False)])
def test_experiments_are_drawn_at_any_width(page, width, dark):
    with Page(page, width, 900, dark=dark) as opened:
        opened.settle()
        assert opened.problems == []
        assert opened.evaluate("document.documentElement.scrollWidth") == width
        assert opened.evaluate("document.querySelectorAll('.answers li').length") == 3
        marks = opened.evaluate(
            "[...document.querySelectorAll('#experiments .mark')].map(e => e.classList[1])"
        )
        assert marks[:3] == ["is-confirmed", "is-undecided", "is-refuted"]
        untried = opened.evaluate("document.querySelector('#experiments details').textContent")
        assert "One change was not tried" in untried
        assert "no operand is an image" in untried
        # No text of a chart leaves its chart.
        outside = opened.evaluate(
            "[...document.querySelectorAll('#experiments svg[role=group]')].flatMap(s => { const b "
            "= s.getBoundingClientRect();return [...s.querySelectorAll('text')].filter(t => { "
            "const r = t.getBoundingClientRect();return r.left < b.left - 1 || r.right > b.right + "
            "1; }).map(t => t.textContent); })"
        )
        assert outside == []


@pytest.mark.slow
def test_the_page_gives_a_setting_once(page):
    """The setting of kept memory helps with the second and the third answer."""
    text = page.read_text().partition("<script")[0]
    answers = embedded(page)["runs"][0]["explain"]["answers"]
    hows = [
        f"How: {answer['remedy']['how']}"
        for answer in answers
        if answer["remedy"] and answer["remedy"]["how"]
    ]
    assert sum(text.count(html.escape(how)) for how in set(hows)) == len(set(hows))
    assert text.count("How: as in") == len(hows) - len(set(hows))


@pytest.mark.slow
@needs_browser
def test_an_answer_leads_to_its_terms_causes_and_experiments(page):
    with Page(page) as opened:
        answers = embedded(page)["runs"][0]["explain"]["answers"]
        for number, answer in enumerate(answers):
            links = (
                "document.querySelectorAll('.verdict:not([hidden]) .answers "
                f"li')[{number}].querySelectorAll('.more a')"
            )
            names = opened.evaluate(f"[...{links}].map(a => a.textContent)")
            assert names[:2] == ["Terms", "Causes"]
            for link in range(len(names)):
                opened.evaluate(f"{links}[{link}].click()")
                opened.settle()
            for section in ("terms", "causes"):
                chosen = opened.evaluate(
                    f"document.querySelector('#{section} .tools select').value"
                )
                assert chosen.startswith(answer["functional"]["label"])
        assert opened.problems == []


@pytest.mark.slow
@needs_browser
def test_a_change_is_chosen_and_described(page):
    with Page(page) as opened:
        while opened.evaluate("document.getElementById('tip').hidden"):
            opened.hover("#experiments .mark.is-confirmed circle")
        tip = opened.evaluate("document.getElementById('tip').textContent")
        assert "removes" in tip
        assert "time at batch 4: −23 %" in tip
        line = "document.querySelector('#experiments path.with').getAttribute('d')"
        drawn = "document.querySelectorAll('#experiments path.with').length"
        before = opened.evaluate(line)
        assert opened.evaluate(drawn) == 2
        select = "document.querySelector('#experiments .term select')"
        opened.evaluate(f"{select}.selectedIndex = 2; {select}.dispatchEvent(new Event('change'))")
        assert opened.evaluate(line) != before
        opened.evaluate(f"{select}.selectedIndex = 0; {select}.dispatchEvent(new Event('change'))")
        assert opened.evaluate(drawn) == 1  # of the complete step
        of = "document.querySelector('#experiments .head select')"
        opened.evaluate(f"{of}.selectedIndex = 1; {of}.dispatchEvent(new Event('change'))")
        opened.settle()
        assert "the step" in opened.evaluate(
            "document.querySelector('#experiments h3').textContent"
        )
        assert opened.problems == []


@pytest.mark.slow
@needs_browser
def test_names_in_experiments_stay_text(tmp_path):
    def hostile(entries):
        for entry in entries["experiments"]:
            entry["notes"] = [HOSTILE]
        for facts in entries["factors"].values():
            for one in facts.values():
                one["what"] = one["how"] = HOSTILE
        return entries

    path = write_tested(tmp_path / "hostile")
    meta = json.loads((path / "recording.json").read_text())
    (path / "recording.json").write_text(json.dumps(hostile(meta)))
    assert main(["report", str(path), "-o", str(tmp_path / "report.html")]) == 0
    with Page(tmp_path / "report.html") as opened:
        opened.settle()
        assert HOSTILE in opened.evaluate("document.querySelector('.answers').textContent")
        assert opened.evaluate("document.querySelectorAll('main img').length") == 0
        assert opened.problems == []
