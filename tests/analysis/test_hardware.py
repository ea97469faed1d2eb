"""Limits of devices: which GPU a driver's name means, and how many blocks of a kernel an SM holds."""

from __future__ import annotations

import pytest

from curvescope.analysis.hardware import CEILING, PEAK, hardware_of, match_device


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Tesla K40m", "k40"),
        ("GeForce GTX TITAN X", "titanx_maxwell"),
        ("NVIDIA TITAN X (Pascal)", "titanx_pascal"),
        ("GeForce GTX 1080", "gtx1080"),
        ("GeForce GTX 1080 Ti", "gtx1080ti"),
        ("Tesla P100-PCIE-16GB", "p100_pcie"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("GeForce GTX 950", None),
        ("AMD EPYC", None),
        (None, None),
    ],
)
def test_a_drivers_name_means_one_gpu_or_none(name, key):
    found = match_device(name)
    assert (found.key if found else None) == key


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 64, 0, 4),  # 65,536 registers / (8 warps x 64 x 32)
        (256, 32, 0, 8),  # 2048 threads / 256
        (64, 16, 0, 32),  # the most blocks of an SM
        (128, 32, 40_000, 2),  # 98,304 bytes of shared memory
        (1024, 200, 0, None),  # does not fit at all
        (33, 32, 0, 32),  # 33 threads are 2 warps: 64 registers x 32 each, 32 of them in 65,536
    ],
)
def test_blocks_per_sm_of_a_gtx_1080_by_hand(threads, registers, shared, blocks):
    gtx_1080 = hardware_of({"device": {"name": "GeForce GTX 1080", "kind": "cuda"}})
    assert gtx_1080.blocks_per_sm(threads, registers, shared) == blocks


def test_ceilings_overrule_peaks_and_each_says_which_it_is():
    meta = {"device": {"name": "GeForce GTX 1080", "kind": "cuda"}}
    peaks = hardware_of(meta)
    assert {roof.kind for roof in peaks.roofs} == {PEAK}
    assert peaks.roof("compute").per_s == pytest.approx(2 * 20 * 128 * 1.733e9)
    assert peaks.ridge_flops_per_byte == pytest.approx(27.7, abs=0.05)
    measured = hardware_of({**meta, "ceilings": {"dram_bytes_per_s": 240e9}})
    assert (measured.roof("DRAM").per_s, measured.roof("DRAM").kind) == (240e9, CEILING)
    assert measured.roof("compute").kind == PEAK


def test_an_unknown_device_has_no_limits_made_up():
    unknown = hardware_of({"device": {"name": "Radeon", "kind": "cuda", "sm_count": 12}})
    assert (unknown.sm_count, unknown.cache_bytes, unknown.roofs) == (12, None, ())
    assert unknown.blocks_per_sm(256, 32, 0) is None
    assert unknown.ridge_flops_per_byte is None
    assert hardware_of({}).name is None
