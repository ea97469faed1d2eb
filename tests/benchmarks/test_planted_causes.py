"""The score of runs with planted causes, and which runs are missing, on answers by hand."""

import json

from benchmarks.planted_causes import CASES, Effect, Score, kept_runs, missing, rows, score, tally

from ..tables import ask_each

SWITCHED = "switched_convolution"  # right: layer embed, "algorithm switch" or "size of one call"
BEND = {
    "kind": "excess",
    "label": "excess 8→16",
    "layer": "embed",
    "cause": "size of one call",
    "verdict": "confirmed",
}
FIXED = {
    **BEND,
    "kind": "fixed cost",
    "label": "fixed cost 4→8",
    "layer": "body.0",
    "cause": "page faults",
}


def record(*answers, confirmed=None):
    found = [(a["label"], a["cause"]) for a in answers if a["verdict"] == "confirmed"]
    return {"answers": list(answers), "confirmed": found if confirmed is None else confirmed}


@ask_each(
    ("case", "found", "expected"),
    [
        (SWITCHED, record(BEND), Score(True, True, True, ())),
        (SWITCHED, record({**BEND, "layer": "body.0"}), Score(False, True, True, ())),
        (SWITCHED, record({**BEND, "verdict": "undecided"}), Score(True, False, False, ())),
        (
            SWITCHED,
            record({**BEND, "cause": "page faults"}),
            Score(True, False, False, ("page faults",)),
        ),
        # a wrong cause of another anomaly, or of the fixed cost, counts too
        (SWITCHED, record(BEND, FIXED), Score(True, True, True, ("page faults",))),
        # another cause is larger
        (
            SWITCHED,
            record(
                FIXED | {"label": "excess 8→16"}, confirmed=[("excess 8→16", "algorithm switch")]
            ),
            Score(False, True, False, ()),
        ),
        # confirmed, but not the cause of most of it: it counts as wrong all the same
        (
            SWITCHED,
            record(BEND, confirmed=[("excess 8→16", "idle threads")]),
            Score(True, False, True, ("idle threads",)),
        ),
        # every network reads its weights and runs Python in every step, which makes a fixed cost
        # but no bend
        (
            SWITCHED,
            record(BEND, {**FIXED, "cause": "weights read every step"}),
            Score(True, True, True, ()),
        ),
        (
            SWITCHED,
            record(BEND, {**FIXED, "cause": "launch- or host-bound"}),
            Score(True, True, True, ()),
        ),
        (
            SWITCHED,
            record(BEND, confirmed=[("excess 8→16", "launch- or host-bound")]),
            Score(True, False, True, ("launch- or host-bound",)),
        ),
        (SWITCHED, record(), Score(False, False, False, ())),
        # without an anomaly the fixed cost answers; one that was planted is scored on nothing else
        (
            SWITCHED,
            record({**FIXED, "layer": "embed", "cause": "algorithm switch"}),
            Score(True, True, True, ()),
        ),
        (
            "fresh_memory_always",
            record(BEND, FIXED),
            Score(False, True, True, ("size of one call",)),
        ),
        ("fresh_memory_always", record(BEND), Score(False, False, False, ("size of one call",))),
        # no layer where the cause has none
        (
            "busy_neighbour",
            record({**BEND, "layer": None, "cause": "CPU contention"}),
            Score(None, True, True, ()),
        ),
        # with nothing planted every confirmed cause is wrong
        (
            None,
            record(BEND, {**FIXED, "verdict": "refuted"}),
            Score(None, False, False, ("size of one call",)),
        ),
        (None, record({**BEND, "verdict": "undecided"}), Score(None, False, False, ())),
    ],
)
def test_layer_and_cause_are_those_of_the_largest_anomaly(case, found, expected):
    assert score(case and CASES[case], found) == expected


def test_cases_take_turns_and_kept_runs_do_not_run_again():
    wanted = missing([], ["a", "b"], [0.1, 0.5], 3, 2)
    assert wanted[:5] == [("a", 0.1, 0), ("b", 0.1, 0), ("a", 0.5, 1), ("b", 0.5, 1), ("a", 0.1, 2)]
    assert [number for name, effect, number in wanted if effect is None] == [0, 1]
    kept = [
        {"name": "a", "target": 0.1, "number": 0},
        {"name": "b", "target": 0.1, "number": 0, "error": "killed"},
    ]
    assert missing(kept, ["a", "b"], [0.1, 0.5], 1, 0) == [("b", 0.1, 0)]


def test_an_interrupted_line_is_cut_off(tmp_path):
    path = tmp_path / "kept.jsonl"
    path.write_text(json.dumps({"name": "a"}) + '\n{"name": "b')
    assert kept_runs(path) == [{"name": "a"}]
    assert path.read_text() == '{"name": "a"}\n'


@ask_each(
    ("planted_ms", "whole_ms", "shows"),
    [
        (1.0, 1.2, True),
        (0.4, 1.2, False),  # under 5 % of the step
        (1.0, 0.4, False),  # the rest of the step cancels it
        (1.0, -1.0, False),
    ],
)
def test_a_run_counts_only_if_the_step_shows_what_was_planted(planted_ms, whole_ms, shows):
    assert Effect(planted_ms, whole_ms, 10.0).shows() == shows


def test_the_table_counts_all_runs_that_show_what_was_planted():
    facts = {"load": 0.1, "wall_s": 20.0}
    key = {"name": SWITCHED, "target": 0.1, "effect": 0.12}
    runs = [
        {**key, **record(BEND), **facts, "number": 0},
        {**key, **record({**BEND, "layer": "body.0"}), **facts, "number": 1, "effect": 0.2},
        {"name": "encoder", "target": None, "number": 0, **record(FIXED), **facts},
        {"name": "encoder", "target": None, "number": 1, **record(), **facts},
        {**key, **facts, "number": 2, "effect": 0.01, "shows": False},
    ]
    (cells,) = rows(runs)
    assert cells[2:] == ["2", "12% to 20%", "1 of 2", "2", "2", "0", "20"]
    counts = tally(runs)
    assert (counts.steps, counts.confirmed, counts.leads, counts.wrong) == (2, 2, 2, 0)
    assert (counts.nulls, counts.null_wrong, counts.wrong_causes) == (2, 1, ("page faults",))
