"""MFU of a step: which FLOPs, over which peak; missing where one of them is."""

from dataclasses import replace
from pathlib import Path

import pytest

from curvescope.analysis.decompose.breakdown import break_down_recording
from curvescope.analysis.decompose.mfu import step_mfu
from curvescope.analysis.render.breakdown import mfu_note
from curvescope.analysis.step_table import cells_of
from curvescope.profiling.hardware.limits import Hardware, hardware_of
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import RECORDING, open_recording

from ...shared import PROFILES


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """One forward pass of a small BERT on an H100, whose products are bf16 by the names of their
    kernels.
    """
    target = tmp_path_factory.mktemp("mfu") / "bert"
    return open_recording(import_profile(PROFILES / "tl_h100_bert_small.json.gz", target).path)


def test_the_peak_is_that_of_the_precision_with_the_most_flops(bert):
    mfu = step_mfu(bert, break_down_recording(bert), hardware_of(bert.meta))
    # 132 SMs x 2048 FMAs x 2 x 1830 MHz; the trace has a single step.
    assert mfu.peak_flops_per_s == 132 * 2048 * 2 * 1830e6
    (step,) = bert.frame("steps")["duration_ns"]
    assert mfu.share == pytest.approx(
        bert.frame("kernels")["flops"].sum() / (step / 1e9) / mfu.peak_flops_per_s
    )
    assert mfu_note(mfu) == (
        "MFU 0.19% of 989.4 TFLOP/s (peak: bf16, dense, tensor cores of NVIDIA H100 SXM at 1830 "
        "MHz)."
    )
    assert mfu_note(replace(mfu, share=0.4, known_time_share=0.6)) == (
        "MFU at least 40% of 989.4 TFLOP/s (peak: bf16, dense, tensor cores of NVIDIA H100 SXM at "
        "1830 MHz): FLOPs are known for 60% of the busy time."
    )


def test_of_two_gpus_the_peaks_add_up(bert):
    breakdown, hardware = break_down_recording(bert), hardware_of(bert.meta)
    one = step_mfu(bert, breakdown, hardware)
    two = step_mfu(bert, replace(breakdown, busy_ms={0: 1.0, 1: 1.0}), hardware)
    assert (two.share, two.peak_flops_per_s) == (one.share / 2, 2 * one.peak_flops_per_s)


def test_it_is_missing_without_a_peak_a_step_or_flops(bert):
    breakdown, hardware = break_down_recording(bert), hardware_of(bert.meta)
    unknown = tuple(replace(row, flops=None) for row in breakdown.rows)
    assert step_mfu(bert, breakdown, Hardware(None, None)) is None
    assert step_mfu(bert, replace(breakdown, unit=RECORDING), hardware) is None
    assert step_mfu(bert, replace(breakdown, rows=unknown), hardware) is None


def test_a_cpu_without_measured_ceilings_has_none_in_the_table():
    recording = open_recording(Path(__file__).parents[3] / "examples/recordings/alexnet-cpu")
    assert {cell.mfu for cell in cells_of(recording)} == {None}


@pytest.mark.slow
def test_the_table_has_it_of_a_modelled_step(tmp_path):
    from curvescope.cli import main

    assert (
        main(
            ["diagnose", "alexnet", "--card", "gtx1080", "--batch", "64", "-o", str(tmp_path / "m")]
        )
        == 0
    )
    (cell,) = cells_of(open_recording(tmp_path / "m"))
    assert 0.1 < cell.mfu < 1
    assert cell.mfu_peak.startswith("8.873 TFLOP/s, fp32")  # 2560 lanes x 2 x 1733 MHz
