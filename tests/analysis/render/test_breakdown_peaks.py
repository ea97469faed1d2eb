"""The column of the share of a peak, on a card's recording."""

import re

import pytest

from curvescope.analysis.decompose.breakdown import Row, of_peak
from curvescope.analysis.render.of_peak import note_of_peaks, show_of_peak
from curvescope.profiling.hardware.limits import CEILING, PEAK, OfPeak, hardware_of

from ...shared import ROOT
from ...tables import ask_each

H100 = hardware_of({"device": {"name": "NVIDIA H100 80GB HBM3", "kind": "cuda"}})


def row(**facts):
    facts = {"flops_time_share": 1.0, "bytes_time_share": 1.0, **facts}
    return Row("layer", 1.0, None, **facts)


def test_a_rate_over_a_part_of_the_time_is_no_share_of_a_peak():
    product = {"flops": 33.45e9, "gflop_per_s": 33_450.0, "precisions": {"fp32": 33.45e9}}
    assert show_of_peak(of_peak(row(**product), H100)) == "50% FLOPs"
    assert of_peak(row(**product | {"flops_time_share": 0.8}), H100) is None
    assert show_of_peak(of_peak(row(gb_per_s=1675.0), H100)) == "50% DRAM"
    assert of_peak(row(gb_per_s=1675.0, bytes_time_share=0.11), H100) is None


def test_measured_bytes_come_before_compulsory_ones():
    assert show_of_peak(of_peak(row(gb_per_s=335.0, measured_gb_per_s=3015.0), H100)) == "90% DRAM"


@ask_each(
    ("share", "kind", "shown"),
    [
        (1.0, CEILING, "100% FLOPs"),
        (1.005, CEILING, "at roof FLOPs"),
        (1.02, CEILING, "at roof FLOPs"),
        (1.03, CEILING, "103% FLOPs"),
        (1.005, PEAK, "100% FLOPs"),
        (1.02, PEAK, "102% FLOPs"),
    ],
)
def test_the_error_of_a_measured_roof_passes_no_roof(share, kind, shown):
    assert show_of_peak(OfPeak(share, "compute", kind)) == shown


def test_which_peak_it_is_is_said():
    assert note_of_peaks([None]) is None
    both = note_of_peaks([OfPeak(0.5, "compute", CEILING), OfPeak(0.9, "DRAM", PEAK), None])
    assert "FLOPs as measured on the device or DRAM as its datasheet has it" in both


@pytest.mark.slow
def test_the_breakdown_of_a_card_has_the_column(text_of, document_of):
    path = ROOT / "examples" / "recordings" / "vgg_a-h100"
    text = text_of("breakdown", path)
    assert "of peak" in text
    (pool,) = re.findall(r"(?m)^pool1 .*backward .*", text)
    assert "% DRAM" not in pool  # its bytes are known for 11 % of its time
    rows = {row["label"]: row for row in document_of("breakdown", path)["rows"]}
    reached = rows["relu1_1 (ReLU) backward"]["of_peak"]
    assert (reached["level"], reached["kind"]) == ("DRAM", "peak")
    assert 0.85 < reached["share"] < 0.95
    assert rows["idle"]["of_peak"] is None
