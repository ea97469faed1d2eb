"""No rate, share or verdict stands without its base: held over every stored recording and every stored profile."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from curvescope.cli import main

ROOT = Path(__file__).parents[3]
PROFILES = [path for path in sorted((ROOT / "tests/data/profiles").iterdir()) if path.suffix not in (".md", ".py")]
RECORDINGS = [path for path in sorted((ROOT / "examples/recordings").iterdir()) if path.is_dir()]
SWEEP = ROOT / "sweep of three profiles"
RATES = {
    "gflop_per_s": "flops_time_share",
    "gb_per_s": "bytes_time_share",
    "measured_gb_per_s": "measured_time_share",
    "tensor_pipe_use": "tensor_time_share",
}
WIDEST = 200  # columns of a table that is piped


@pytest.fixture(scope="module", params=[*RECORDINGS, SWEEP, *PROFILES], ids=lambda path: path.name[:30])
def recording(request, tmp_path_factory):
    """A stored recording, or a stored profile after its import with a batch size."""
    if request.param in RECORDINGS:
        return request.param
    folder = tmp_path_factory.mktemp("imported") / "recording"
    files, options = [request.param], ["--batch", "8"]
    if request.param == SWEEP:
        files = [path for path in PROFILES if path.name.startswith("parttrans")]
        options = ["--as", "sweep", "--batch", "128,32,512"]
    if main(["import", *options, *map(str, files), "-o", str(folder)]):
        pytest.skip("no recording of its own: it needs others, or names its own batch sizes")
    return folder


def shown(capsys, *words):
    """What a command prints; None where it refuses the recording."""
    capsys.readouterr()
    status = main([*map(str, words)])
    assert status in (0, 2)
    return capsys.readouterr().out if status == 0 else None


def lines_too_wide(text):
    """Lines that are neither a command to copy nor within the widest table."""
    return [line for line in text.splitlines() if len(line) > WIDEST and not line.lstrip().startswith("curvescope ")]


@pytest.mark.parametrize("by", ["layer", "kernel", "op"])
def test_a_rate_of_a_breakdown_says_of_which_share_of_the_time_it_is(capsys, recording, by):
    document = shown(capsys, "breakdown", recording, "--by", by, "--json")
    if document is None:
        return
    found = json.loads(document)
    for row in found["rows"]:
        for rate, over in RATES.items():
            assert (row[rate] is None) == (row[over] is None), (row["label"], rate)
            assert row[over] is None or 0 < row[over] <= 1 + 1e-9, (row["label"], over)
    assert math.isclose(math.fsum(row["time_ms"] for row in found["rows"]), found["time_ms"], rel_tol=1e-6)
    assert found["n_used"] <= found["n_profiled"]
    text = shown(capsys, "breakdown", recording, "--by", by)
    assert not lines_too_wide(text)
    words = " ".join(text.split())
    if found["unit"] != "step":
        assert "A step" not in words
        assert "\nstep " not in text
    if found["n_used"] < found["n_profiled"]:
        assert f"{found['n_used']} of {found['n_profiled']} profiled steps" in words
    assert len(found["busy_ms"]) != 1
    assert ("GPUs together" in words) == bool(found["busy_ms"])
    if found["work"] == "operator":
        assert "no kernel runs" not in words


def test_a_verdict_has_an_interval_and_a_spread_more_than_one_step(capsys, recording):
    document = shown(capsys, "explain", recording, "--json")
    if document is None:
        return
    found = json.loads(document)
    for point in found["curve"]:
        if point["n"] == 1:
            assert point["spread"] is None
            assert point["stable"] is None
            assert point["time_ms"]["low"] is None
    for finding in found["findings"]:
        assert (finding["tested_value"]["low"] is None) == (finding["verdict"] == "unknown"), finding
    for split in [*found["anomalies"], *filter(None, [found["fixed_cost"]])]:
        assert split["value"]["low"] is not None
    for row in found["remedies"]["rows"]:
        assert all(one["share"]["low"] is not None for one in row["saves"]), row
    text = shown(capsys, "explain", recording, "--all")
    assert not lines_too_wide(text)
    if found["unit"] != "step":
        assert not found["findings"]
        assert found["batch_size"] is None
        for word in ("step ms", "samples/s", "noise", "a step of", "No anomaly"):
            assert word not in text, word


def test_a_table_of_times_has_no_precision_or_version_that_nobody_recorded(capsys, recording):
    cells = json.loads(shown(capsys, "table", recording, "--json"))["times"]
    meta = json.loads((recording / "recording.json").read_text())
    for cell in cells:
        assert "?" not in cell["framework"]
        assert "None" not in (cell["network"], cell["mode"])
        assert cell["precision"] == meta.get("precision", cell["precision"])
        if "imported_from" in meta:
            assert cell["precision"] is None
        assert cell["time_ms"] is not None or cell["empty"] in ("only profiled", "not measured yet")
