"""Traces that merge those of two ranks, as tools write them: each process is read as from its own
file.
"""

import gzip
import json

import pytest

from curvescope.profiling.readers import Options, import_profile
from curvescope.profiling.recording.store import open_recording

from ...shared import PROFILES

RANKS = ("hta_sampled_rank0.json.gz", "hta_sampled_rank1.json.gz")
OFFSET = 100_000


def by_numbers(event, rank):
    """As TraceLens: ids and processes of each rank are moved by a large number."""
    event["pid"] += rank * OFFSET
    if "correlation" in event.get("args", {}):
        event["args"]["correlation"] += rank * OFFSET


def by_names(event, rank):
    """As SGLang: the rank stands before the number of the process."""
    event["pid"] = f"[TP{rank:02}] {event['pid']}"


def unchanged(_event, _rank):
    """Two lists of events, one after the other."""


@pytest.fixture
def merged(tmp_path):
    """A function that writes both ranks into one file, changed by a tool's rule and by
    another one.
    """

    def write(rule, further=unchanged):
        events = []
        for rank, name in enumerate(RANKS):
            document = json.loads(gzip.decompress((PROFILES / name).read_bytes()))
            for event in document["traceEvents"]:
                rule(event, rank)
                further(event, rank)
                events.append(event)
        path = tmp_path / "merged.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        return path

    return write


def kernels(path):
    columns = ["name", "start_ns", "duration_ns", "op", "phase"]
    frame = open_recording(path).frame("kernels")[columns]
    return frame.sort_values(["start_ns", "name"], ignore_index=True)


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("rule", [by_numbers, by_names, unchanged])
@pytest.mark.parametrize("rank", [0, 1])
def test_each_process_is_read_as_from_its_own_file(rule, rank, merged, imported_profile, tmp_path):
    path = import_profile(merged(rule), tmp_path / "one", Options(process=rank)).path
    expected = kernels(imported_profile(RANKS[rank]))
    found = kernels(path)
    assert len(found) == len(expected) > 1_000
    assert found["op"].tolist() == expected["op"].tolist()
    assert found["duration_ns"].tolist() == expected["duration_ns"].tolist()
    meta = open_recording(path).meta
    assert (meta["merged"]["processes"], meta["merged"]["process"]) == (2, rank)


@pytest.mark.slow
def test_the_first_is_read_and_the_way_to_the_others_said(merged, text_of, refusal_of):
    text = " ".join(text_of("explain", merged(by_numbers)).split())
    assert "comes last" not in text  # both spend 0.38 and 0.40 s in communication
    refusal = refusal_of("import", merged(by_numbers), "--process", "2")
    assert "--process 2: it has 2 processes, numbered from 0." in refusal


@pytest.mark.slow
def test_ranks_of_one_file_are_compared(merged, document_of):
    apart = document_of("scale", "read", *(PROFILES / name for name in RANKS))
    together = document_of("scale", "read", merged(by_numbers))
    assert together == apart


@pytest.mark.slow
def test_a_rank_that_waits_least_comes_last(merged, text_of):
    def shorter(event, rank):
        if rank and "nccl" in event["name"] and event["cat"] == "kernel":
            event["dur"] *= 0.2

    text = " ".join(text_of("explain", merged(by_names, shorter), "--all").split())
    assert "process 1 comes last: it waits least, and the others for it" in text
