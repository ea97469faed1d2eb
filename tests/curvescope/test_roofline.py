"""`curvescope roofline` on a recording."""

import csv
import io
from pathlib import Path

import pytest

from curvescope.cli import main

from .recordings import write_planted


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_planted(tmp_path_factory.mktemp("roofline") / "run", "roof change")


def test_text_says_what_roofs_and_bytes_are(run, text_of):
    out = text_of("roofline", run)
    assert "peak" in out
    assert " ".join(out.split()).index("Of the time with a known bound: bound by") < out.index(
        "limit"
    )
    assert "Kernels with unknown work take" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_share_above_its_roof_is_marked_where_the_rates_have_no_room(tmp_path, text_of):
    run = str(tmp_path / "modelled")
    assert main(["diagnose", "alexnet", "--card", "gtx1080", "--batch", "64..128", "-o", run]) == 0
    out = text_of("roofline", run)
    assert "GFLOP/s" not in out
    assert "%†" in out
    assert "waves" not in out  # a modelled kernel has no geometry


def test_json_and_csv_hold_the_same_points(run, document_of, text_of):
    document = document_of("roofline", run, "--at", "8", "--by", "layer")
    assert (document["batch"], document["device"]) == (8, "GeForce GTX 1080")
    rows = list(
        csv.DictReader(io.StringIO(text_of("roofline", run, "--at", "8", "--by", "layer", "--csv")))
    )
    points = [row for row in rows if row["row"] == "point"]
    assert [float(p["time_s"]) for p in points] == [p["time_s"] for p in document["points"]]
    assert points[0]["bytes_source"] == "measured"


def test_a_batch_that_is_not_there_is_exit_code_2(run, refusal_of):
    assert "Batch 5 was not profiled; the recording has 4, 8, 16" in refusal_of(
        "roofline", run, "--at", "5"
    )


def test_a_profile_has_its_roofs_without_an_import(document_of):
    profile = Path(__file__).parents[1] / "data/profiles/tl_mi300_ddp_resnet18.json.gz"
    document = document_of("roofline", profile, "--by", "layer")
    assert {point["bound"] for point in document["points"]} == {"memory", "neither"}
    # In bf16: none is near its roof, and most were beyond that of fp32.
    assert not any("compute" in point["exceeded_roofs"] for point in document["points"])
    assert document["device"] == "AMD Instinct MI300X"
