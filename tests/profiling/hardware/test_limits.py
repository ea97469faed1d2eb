"""Limits of devices: which GPU a driver's name means, and how many blocks of a kernel an SM holds."""

from __future__ import annotations

from itertools import product

import pytest

from curvescope.profiling.hardware.limits import CEILING, PEAK, hardware_of, match_device
from curvescope.profiling.hardware.occupancy import LIMITS, occupancy


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


@pytest.mark.parametrize("architecture", list(LIMITS))
def test_blocks_per_sm_are_those_of_the_one_occupancy(architecture):
    """The wave verdict once had a table of its own, without the 1 KiB that 8.0 and later keep of every block."""
    capability = f"{architecture // 10}.{architecture % 10}"
    device = hardware_of({"device": {"name": "unlisted", "kind": "cuda", "compute_capability": capability}})
    for launch in product((64, 96, 256, 384, 1024), (32, 48, 80, 168), (0, 4096, 20480, 32768, 49152)):
        assert device.blocks_per_sm(*launch) == (occupancy(architecture, *launch).blocks or None), launch
    assert device.blocks_per_sm(2048, 32, 0) is None


def test_shared_memory_of_an_a100_by_hand():
    """164 KiB hold 4 blocks of 32 KiB and the 1 KiB that the system keeps of each, not 5."""
    a100 = hardware_of({"device": {"name": "A100", "kind": "cuda", "compute_capability": "8.0"}})
    assert a100.blocks_per_sm(128, 32, 32 * 1024) == 4


def test_what_if_an_sm_had_more_registers():
    device = {"name": "Tesla V100", "kind": "cuda", "what_if": {"registers_per_sm": 131072}}
    assert hardware_of({"device": device}).blocks_per_sm(256, 64, 0) == 8


def test_ceilings_overrule_peaks_and_each_says_which_it_is():
    meta = {"device": {"name": "GeForce GTX 1080", "kind": "cuda"}}
    peaks = hardware_of(meta)
    assert {roof.kind for roof in peaks.roofs} == {PEAK}
    assert peaks.roof("compute").per_s == pytest.approx(2 * 20 * 128 * 1.733e9)
    assert peaks.roof("DRAM").per_s == pytest.approx(peaks.roof("compute").per_s / 27.7, rel=0.002)
    measured = hardware_of({**meta, "ceilings": {"dram_bytes_per_s": 240e9}})
    assert (measured.roof("DRAM").per_s, measured.roof("DRAM").kind) == (240e9, CEILING)
    assert measured.roof("compute").kind == PEAK


def test_an_unknown_device_has_no_limits_made_up():
    unknown = hardware_of({"device": {"name": "Radeon", "kind": "cuda", "sm_count": 12}})
    assert (unknown.sm_count, unknown.cache_bytes, unknown.roofs) == (12, None, ())
    assert unknown.blocks_per_sm(256, 32, 0) is None
    assert unknown.roof("DRAM") is None
    assert hardware_of({}).name is None


def h200(precision, **further):
    facts = {"name": "NVIDIA H200", "kind": "cuda", "compute_capability": "9.0", "sm_count": 132}
    return hardware_of({"device": facts, "precision": precision, **further}).roof("compute")


def test_the_compute_roof_is_that_of_the_recordings_precision():
    """Dense products of an H200 by hand: 132 SMs, 2048 or 1024 FMAs of two FLOPs a clock, 1830 MHz."""
    assert h200("fp16").per_s == h200("bf16").per_s == pytest.approx(2 * 132 * 2048 * 1.83e9)
    assert h200("tf32").per_s == pytest.approx(2 * 132 * 1024 * 1.83e9)
    assert h200("fp32").per_s == pytest.approx(2 * 132 * 128 * 1.98e9)
    assert h200("fp16").precision == "fp16"
    assert "tensor cores" in h200("fp16").source


def test_before_tensor_cores_mixed_precision_is_computed_in_fp32():
    for precision in ("fp32", "fp16", "bf16", "tf32"):
        meta = {"device": {"name": "GeForce GTX 1080", "kind": "cuda"}, "precision": precision}
        roof = hardware_of(meta).roof("compute")
        assert roof.per_s == pytest.approx(2 * 20 * 128 * 1.733e9)
        assert ("has no" in roof.source) == (precision != "fp32")
    v100 = {"name": "Tesla V100-SXM2-16GB", "kind": "cuda"}
    assert hardware_of({"device": v100, "precision": "fp16"}).roof("compute").per_s == pytest.approx(125.3e12, rel=1e-3)
    assert hardware_of({"device": v100, "precision": "bf16"}).roof("compute").per_s == pytest.approx(15.67e12, rel=1e-3)


def test_a_ceiling_of_another_precision_is_no_roof():
    ceilings = {
        "flops_per_s": 50e12,
        "dram_bytes_per_s": 4e12,
        "compute": {"fp32": {"per_s": 50e12, "how": "gemm"}, "bf16": {"per_s": 700e12, "how": "gemm"}},
    }
    assert h200("bf16", ceilings=ceilings).per_s == 700e12
    assert (h200("fp16", ceilings=ceilings).kind, h200("bf16", ceilings=ceilings).kind) == (PEAK, CEILING)
    cpu = hardware_of({"device": {"name": "a CPU", "kind": "cpu"}, "precision": "fp16", "ceilings": ceilings})
    assert cpu.roof("compute") is None
    assert cpu.roof("DRAM").per_s == 4e12


@pytest.mark.parametrize("former", [False, True])
def test_a_gpu_that_is_not_listed_has_the_roofs_of_its_drivers_facts(former):
    clock, memory = ("sm_clock_hz", "memory_bandwidth_bytes_per_s") if former else ("clock_hz", "memory_bytes_per_s")
    facts = {"kind": "cuda", "name": "unlisted", "compute_capability": "9.0", "sm_count": 100, "l2_bytes": 40 << 20}
    hardware = hardware_of({"device": {**facts, clock: 1_000_000_000, memory: 2_000_000_000_000}})
    roofs = {roof.level: roof.per_s for roof in hardware.roofs}
    assert roofs == {"compute": 2 * 128 * 100 * 1e9, "DRAM": 2e12}
    assert hardware.cache_bytes == 40 << 20
