"""The score of the advice on profiles: of labels by hand, and as it is stored."""

import json

from curvescope.analysis.causes import catalogue

from ..shared import PROFILES, load_script

advice = load_script("benchmarks/profile_advice.py")

# Nothing ran on a device in these, so that `explain` refuses them; the other is of one CPU.
WITHOUT_KERNELS = {
    "frasertajima_weatherbench2.sqlite.gz",
    "hta_cupti_profiler_trace.json.gz",
    "hta_rank_non_gpu.json.gz",
}
OF_TENSORFLOW = "dleebrown_anna_timeline_01.json.gz"
LABELS = {
    "loader": {"first": ["input"], "also": ["precision"], "small": ["copies"]},
    "idle": {"first": ["launches", "gap"]},
    "busy": {"first": []},
}


def test_a_score_counts_what_is_true_what_is_said_and_what_is_first():
    said = {"loader": ["input", "copies", "optimizer"], "idle": ["copies", "gap"], "busy": []}
    found = advice.score(said, LABELS)
    assert (found["first"], found["nothing"]) == ([1, 2], [1, 1])
    # Copies are small in one and untrue in the other; the gap is enough beside launches.
    assert found["precision"] == [2, 4]
    assert found["recall"] == [2, 3]
    assert found["causes"]["copies"] == {"precision": [0, 1], "recall": [0, 0]}
    assert found["causes"]["input"] == {"precision": [1, 1], "recall": [1, 1]}


def test_the_stored_score_is_that_of_the_stored_advice():
    results = json.loads(advice.RESULTS.read_text())
    assert results["score"] == advice.score(advice.causes_of(results), advice.labels())


def test_labels_name_causes_and_profiles_that_there_are():
    causes = {cause.name for cause in (*catalogue._OF_TERMS, *catalogue.OF_PROFILES)}
    for name, label in advice.labels().items():
        assert (PROFILES / name).exists(), name
        assert {cause for causes in label.values() for cause in causes} <= causes, name
    timelines = {path.name for path in PROFILES.glob("*.json.gz")}
    timelines |= {path.name for path in PROFILES.glob("*.sqlite.gz")}
    assert timelines - set(advice.labels()) == WITHOUT_KERNELS | {OF_TENSORFLOW}
