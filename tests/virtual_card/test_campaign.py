"""The campaign of `make gpu` on the virtual card: some stages, with small networks and limits.

What a stage leaves is read as its owner would read it: the six files, their tables, and every
recording in them.
"""

import json
import os
import re
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.gpu.rehearse import MOST_FILES, make_ncu
from curvescope.profiling.recording.store import open_recording

from ..tables import grade
from .card import ROOT, Card

GPU = ROOT / "benchmarks" / "gpu"
STAGES = (
    "gate",
    "identical",
    "records",
    "diagnosis",
    "truth",
    "errors",
    "outside",
    "factors",
    "planted",
)
# `make virtual` leaves it out: test_diagnosis.py diagnoses a network with the same command.
ALIKE = ("diagnosis",)
# Why the others do not run here, with their seconds of processor time. By `campaign.py STAGE
# --short` on the virtual card each ran once on 2026-11-27, after the last changes of the campaign,
# and every command ended well but those of packages that are not installed and `checks`.
NOT_RUN = {
    "odd": "`diagnosis` runs the same command, test_surprises.py the size of 17",
    "program": "its diagnosis is of real time; test_diagnosis.py diagnoses a program",
    "transformer": "test_language_model.py diagnoses the same steps",
    "peaks": "21 s; test_measured.py holds the virtual card's products, and with them their peaks",
    "collector": "18 s, and it measures the host's time, which stands still here",
    "tests": "`make virtual` runs the same tests",
    "counters": "13 s; test_commands.py counts the kernels of a step",
    "further-records": "17 s; `records` has the same program's other parts, `truth` has ncu",
    "checks": "one of its questions needs CuPy, which does not start on the virtual card",
    "profilers": "20 s; both recorders run in `records`",
    "counted": "21 s; its counters have no meaning here",
    "ceilings": "19 s; test_commands.py runs its kinds of benchmarks",
    "energy": "49 s, and the power of the virtual card is not a real one's",
    "networks": "`diagnosis` runs the same command on the network of the short campaign",
    "memory-pressure": "its visits are processes, half a minute; test_cuda.py runs out of memory",
    "all-tests": "`make virtual` runs the same tests",
    "operators": "43 s, and most backends are missing; test_commands.py runs the benchmarks",
    "against-do-bench": "`outside` runs the same command",
    "programs": "there is no JAX here",
    "frameworks": "there is no JAX here",
}
# The commands of the others are forks of one process, which has their imports; what is recorded is
# a process of its own all the same.
IN_PROCESSES = ("outside",)
# Packages that the environment of these tests lacks.
MISSING = ("cupy", "pycuda")
H100 = Card(virtual_time=True)


@pytest.fixture
def campaign(answer_of, tmp_path):
    """Runs a stage on a card; returns the exit code, and the stage as evidence.json has it."""

    def run(card, stage):
        path = [str(Path(sys.executable).parent), str(make_ncu(tmp_path / "bin"))]
        code = answer_of(
            card,
            f"""
            import sys
            sys.path[:0] = {[str(GPU), str(ROOT)]!r}
            sys.argv = ["campaign.py", {stage!r}, "--short", "-o", "gpu", "--pack", "packed"]
            import campaign, running
            from tests.virtual_card.forked import fork_commands
            if {stage not in IN_PROCESSES}:
                fork_commands(running)
            print(campaign.main())
            """,
            PATH=os.pathsep.join([*path, os.environ["PATH"]]),
            CURVESCOPE_REHEARSED=str(ROOT),
        )
        evidence = json.loads((tmp_path / "packed" / "evidence.json").read_text())
        assert evidence["virtual"] is True
        (found,) = evidence["stages"]
        assert found["stage"] == stage
        return code, found

    return run


def errors_of(tables):
    """The pair of events as the card has it; see measured.toml."""
    (said,) = (row["answer"] for row in tables["checks"] if row["check"] == "event_pair")
    figures = re.findall(r"(\d+) ns(?: \(\d| by CUPTI|$)", said)
    assert figures == ["1280", "4096", "1152", "2944"], said


def truth_of(tables):
    """Each operator by all three clocks; the stand-in for ncu reads what the collector reads."""
    assert len(tables["truth"]) == 12
    for row in tables["truth"]:
        assert row["joined"] == "5 of 5", row
        assert row["collector / ncu, time"] == pytest.approx(1, abs=0.02), row
        assert row["ncu_kilocycles"] > 0, row


def planted_of(tables):
    """The plant of the short campaign, whose cause is named."""
    (row,) = tables["planted"]
    assert row["planted"] == "pageable_copy"
    assert f"outlier at 64: {row['causes']}" in row["`explain` says"]


def outside_of(tables):
    """Both time the same product on a card that gives it one time."""
    (row,) = tables["do_bench"]
    assert row["outcome"] == "within 2 %", row


READ = {"errors": errors_of, "truth": truth_of, "planted": planted_of, "outside": outside_of}


def test_every_stage_runs_here_or_says_why_not():
    """A stage of stages.txt begins with its name and what it is for."""
    named = re.findall(r"^([a-z-]+): ", (GPU / "stages.txt").read_text(), re.MULTILINE)
    assert sorted([*STAGES, *NOT_RUN]) == sorted(named)


@pytest.mark.parametrize("stage", grade(STAGES, quick={*STAGES} - {*ALIKE}, in_ci=()))
def test_a_stage_ends_and_what_it_packs_can_be_read(campaign, tmp_path, stage):
    code, found = campaign(H100, stage)
    expected = {"ok", *(f"skipped: the Python package {name} is not installed" for name in MISSING)}
    outcomes = {one["command"]: one["outcome"] for one in found["commands"]}
    bad = {line: outcome for line, outcome in outcomes.items() if outcome not in expected}
    assert not bad, (tmp_path / "gpu" / stage / "log.txt").read_text()[-4000:]
    assert code == 0
    packed = tmp_path / "packed"
    assert len(list(packed.iterdir())) <= MOST_FILES
    assert f"| {stage} |" in (packed / "summary.md").read_text()
    for path in packed.glob("*.tgz"):
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path / "read", filter="data")
    for path in (tmp_path / "read").rglob("recording.json"):
        assert open_recording(path.parent).meta["status"] == "complete", path
    for rows in found["tables"].values():
        assert rows
        assert not [row for row in rows if "broke" in str(row)]
    READ.get(stage, len)(found["tables"])


def test_a_stage_that_fails_is_said_and_packed(campaign, tmp_path):
    """AlexNet does not fit the memory of this card, so no profiled step has kernels."""
    code, found = campaign(Card(virtual_time=True, facts={"memory_bytes": 1 << 28}), "gate")
    (outcome,) = (one["outcome"] for one in found["commands"])
    assert code == 1
    assert outcome.startswith("failed: 1, ")
    summary = (tmp_path / "packed" / "summary.md").read_text()
    assert outcome in summary
    assert "broke: OutOfMemoryError" in summary
