"""Recordings that somebody tampered with: a refusal names the file and the entry, and a store is listed in any case."""

import json
import os

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.base.limits import META_BYTES, VARIABLE
from curvescope.profiling.recording.store import open_recording

from ..curvescope.recordings import write_planted


@pytest.fixture
def store(tmp_path):
    """A folder with a whole recording `a`."""
    write_planted(tmp_path / "a")
    return tmp_path


def tamper(store, name="b", **entries):
    """A copy of the recording's `recording.json`, with other entries."""
    meta = json.loads((store / "a" / "recording.json").read_text())
    (store / name).mkdir()
    (store / name / "recording.json").write_text(json.dumps({**meta, **entries}))
    return store / name


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"network": 5}, "`network`: expected text or null, got a whole number (network is 5)"),
        ({"batches": 7}, "`batches`: expected a list or null, got a whole number"),
        ({"batches": [1, "x"]}, "`batches[1]`: expected a whole number, got text"),
        ({"batches": [0]}, "`batches[0]`: expected a whole number >= 1"),
        ({"batches": [2**70]}, "`batches[0]`: expected a whole number <= 1099511627776"),
        ({"device": "x"}, "`device`: expected an object or null, got text"),
        ({"device": {"sm_count": "x"}}, "`device.sm_count`: expected a whole number or null, got text"),
        ({"lost": {"x": {"count": -1, "sentence": ""}}}, "`lost[...].count`: expected a whole number >= 0"),
        ({"lost": {"x": {}}}, "`lost[...]`: object missing required field count"),
        ({"protocol": [1]}, "`protocol`: expected an object or null, got a list"),
        ({"ceilings": {"flops_per_s": 1e308}}, "`ceilings.flops_per_s`: expected a number <= 1e+30"),
        ({"layer_classes": {"fc6": None}}, "`layer_classes[...]`: expected text, got null"),
        ({"unmeasured": [{}]}, "`unmeasured[0]`: object missing required field batch"),
        ({"axis": {"name": "../x"}}, "`axis.name`: expected text matching regex"),
        ({"experiments": [{"number": 0}]}, "`experiments[0]`: object missing required field"),
        ({"status": "\x1b[2Jowned"}, "`status`: expected text matching regex"),
        ({"schema_version": -5}, "`schema_version`: expected a whole number >= 1"),
    ],
)
def test_an_entry_of_another_type_is_refused_by_name(entries, said, store, refusal_of):
    path = tamper(store, **entries)
    with pytest.raises(CurvescopeError) as refused:
        open_recording(path)
    assert str(refused.value).startswith(f"{path}/recording.json is damaged or edited: {said}")
    assert "recording.json is damaged" in refusal_of("explain", path)


BROKEN = {
    "deep": lambda file: file.write_text('{"format": "curvescope recording", "x": ' + "[" * 100_000 + "]" * 100_000),
    "brackets": lambda file: file.write_text("[" * 99_999),
    "no number": lambda file: file.write_text('{"rounds": NaN}'),
    "digits": lambda file: file.write_text('{"rounds": ' + "9" * 5000 + "}"),
    "pipe": lambda file: os.mkfifo(file),
    "large": lambda file: file.write_text(" " * (META_BYTES + 1)),
    "binary": lambda file: file.write_bytes(b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN)
def test_a_broken_recording_is_listed_beside_the_whole_ones(damage, store, document_of, refusal_of, text_of):
    (store / "b").mkdir()
    damage(store / "b" / "recording.json")
    whole, broken = document_of("runs", store)["recordings"]
    assert (whole["status"], whole["unreadable"]) == ("complete", None)
    assert broken["status"] == "unreadable"
    assert "recording.json" in broken["unreadable"]
    assert "\n" not in broken["unreadable"]
    assert f"Unreadable: {store}/b/recording.json" in " ".join(text_of("runs", store).split())
    assert "recording.json" in refusal_of("explain", store / "b")


def test_an_entry_of_another_type_is_listed_too(store, document_of):
    tamper(store, device="x")
    *_, broken = document_of("runs", store)["recordings"]
    assert "`device`: expected an object or null" in broken["unreadable"]


def test_a_limit_is_raised_by_the_environment(store, monkeypatch):
    (store / "b").mkdir()
    meta = (store / "a" / "recording.json").read_text()
    (store / "b" / "recording.json").write_text(meta + " " * META_BYTES)
    with pytest.raises(CurvescopeError, match="set CURVESCOPE_LIMITS=10 in the environment"):
        open_recording(store / "b")
    monkeypatch.setenv(VARIABLE, "2")
    assert open_recording(store / "b").complete
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(CurvescopeError, match="CURVESCOPE_LIMITS is 'much': set it to a whole number"):
        open_recording(store / "b")
