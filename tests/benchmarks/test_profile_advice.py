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
    assert results["score"] == advice.score_groups(results)
    assert results["profiles"].keys() == advice.labels().keys()


def test_a_part_of_another_tool_is_right_where_it_can_stand_for_a_cause():
    labels = {
        "busy": {"first": []},
        "gaps": {"first": ["host code in one gap"], "small": ["exposed communication"]},
        "copies": {"first": ["exposed communication"], "also": ["copies from and to the host"]},
    }
    hta = {"idle_time": 60.0, "non_compute_time": 30.0}
    said = {name: advice.meant_parts("HTA", hta) for name in labels}
    found = advice.score_parts(said, labels)
    # Idle is right of gaps; other device work is communication or copies.
    assert found == {"first": [1, 2], "nothing": [0, 1], "precision": [2, 6]}
    findings = ["Kernel Hotspot: x", "Small Kernel Overhead: 9 launches", "NCCL Serialization: y"]
    small, collectives = advice.meant_parts("nsys-ai", findings)
    assert "launch- or host-bound" in small
    assert collectives == {"exposed communication"}
    lens = {"total_time": 100.0, "idle_time": 4.0, "exposed_comm_time": 6.0}
    assert advice.meant_parts("TraceLens", {**lens, "exposed_memcpy_time": 9.0}) == [
        {"copies from and to the host"},
        {"exposed communication"},
    ]


def test_a_change_of_a_cause_prints_what_it_does_to_the_score():
    def results(causes, precision):
        suggested = [{"cause": cause} for cause in causes]
        whole = {"first": [1, 1], "nothing": [0, 0], "precision": precision, "recall": [1, 1]}
        return {"profiles": {"p": {"ours": {"suggested": suggested}}}, "score": {"all": whole}}

    before = results(["input"], [1, 1])
    assert advice.differences(before, before) == ["nothing changes"]
    assert advice.differences(before, results(["input", "copies"], [1, 2])) == [
        "precision: 1 of 1 before, 1 of 2 now",
        "p: input -> input, copies",
    ]


def test_labels_name_causes_and_profiles_that_there_are():
    causes = {cause.name for cause in (*catalogue._OF_TERMS, *catalogue.OF_PROFILES)}
    for name, label in advice.labels().items():
        assert (PROFILES / name).exists() != ("origin" in label), name
        named = {cause for key in ("first", "also", "small") for cause in label.get(key, ())}
        assert named <= causes, name
    timelines = {path.name for path in PROFILES.glob("*.json.gz")}
    timelines |= {path.name for path in PROFILES.glob("*.sqlite.gz")}
    timelines |= {path.name for path in PROFILES.glob("*.xplane.*")}
    assert timelines - set(advice.labels()) == WITHOUT_KERNELS | {OF_TENSORFLOW}
