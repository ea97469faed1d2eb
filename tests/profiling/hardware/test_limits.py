"""Limits of devices: which GPU a driver's name means, and how many blocks of a kernel
an SM holds.
"""

from itertools import product
from types import SimpleNamespace

import pytest

from curvescope.kernels.levels import memory_levels
from curvescope.profiling.hardware.devices import devices
from curvescope.profiling.hardware.host import describe_device
from curvescope.profiling.hardware.limits import CEILING, PEAK, hardware_of, match_device
from curvescope.profiling.hardware.occupancy import LIMITS, occupancy_of

from ...tables import ask_each


@ask_each(
    ("name", "key"),
    [
        ("Tesla K40m", "k40"),
        ("GeForce GTX TITAN X", "titanx_maxwell"),
        ("GeForce GTX 1080 Ti", "gtx1080ti"),
        ("Tesla P100-PCIE-16GB", "p100_pcie"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100_pcie_80gb"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", None),  # another chip under the name
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("GeForce GTX 950", None),
        (None, None),
    ],
)
def test_a_drivers_name_means_one_gpu_or_none(name, key):
    found = match_device(name)
    assert (found.key if found else None) == key


def test_a_gpu_with_another_number_of_sms_is_not_the_listed_one():
    """The driver calls both RTX 3080 by one name; the one with 12 GB has 70 SMs."""
    assert match_device("NVIDIA GeForce RTX 3080", "8.6", 68).key == "rtx3080"
    assert match_device("NVIDIA GeForce RTX 3080", "8.6", 70) is None
    assert match_device("NVIDIA GeForce RTX 3080", "8.9") is None
    assert match_device("AMD Instinct MI300X", "9.4", 304).key == "mi300x"  # ROCm's capability
    assert (
        match_device("Radeon RX 7900 XTX", "11.0", 48).key == "rx7900xtx"
    )  # of 96 CUs HIP counts pairs


@ask_each("device", devices())
def test_a_recording_from_any_listed_gpu_has_its_roofs(device):
    for name in (device.name, *device.aliases):
        recorded = hardware_of(
            {"device": {"name": name, "kind": "cuda", "sm_count": device.sm_count}}
        )
        assert recorded.roof("DRAM").per_s == device.memory_bytes_per_s
        assert recorded.roof("compute").per_s == device.peak_flops_per_s()
        for precision in ("fp16", "fp8", "int8"):
            roof = recorded.roof("compute", precision)
            assert (roof is None) == (
                not (device.tensor_flops_per_s(precision) or device.lane_flops_per_s(precision))
            )


def test_kernels_of_another_precision_have_a_roof_of_their_own():
    recorded = hardware_of(
        {"device": {"name": "NVIDIA A100-SXM4-40GB", "kind": "cuda"}, "precision": "bf16"}
    )
    assert recorded.roof("compute").precision == "bf16"
    assert recorded.roof("compute", "fp32").per_s == pytest.approx(19.5e12, rel=1e-3)
    assert recorded.exceeded({"unknown": 100e12}, 1.0, None) == ()
    assert recorded.exceeded({"fp32": 100e12}, 1.0, None) == ("compute",)
    assert recorded.exceeded({"fp32": 15e12, "bf16": 100e12}, 1.0, 2e12) == ("compute", "DRAM")


def test_a_rate_is_a_share_of_the_roof_that_it_comes_nearest_to():
    peaks = hardware_of({"device": {"name": "NVIDIA A100-SXM4-40GB", "kind": "cuda"}})
    fast = peaks.of_peak({"fp32": 9.75e12}, 1.0, 0.3 * 1.555e12)
    assert (fast.level, fast.kind) == ("compute", "peak")
    assert fast.share == pytest.approx(0.5, rel=1e-2)
    moving = peaks.of_peak({"fp32": 1e12}, 1.0, 0.9 * 1.555e12)
    assert (moving.level, moving.share) == ("DRAM", pytest.approx(0.9, rel=1e-2))
    assert peaks.of_peak({}, 1.0, None) is None
    assert hardware_of({"device": {"kind": "cpu"}}).of_peak({"fp32": 1e9}, 1.0, 1e9) is None


def test_a_measured_roof_is_passed_by_more_than_its_error():
    ceilings = {"flops_per_s": 50e12, "dram_bytes_per_s": 1e12}
    measured = hardware_of({"device": {"name": "a card", "kind": "cuda"}, "ceilings": ceilings})
    assert measured.of_peak({"fp32": 25e12}, 1.0, None).kind == "ceiling"
    assert measured.exceeded({"fp32": 50.3e12}, 1.0, 1.01e12) == ()
    assert measured.exceeded({"fp32": 52e12}, 1.0, 1.05e12) == ("compute", "DRAM")


def test_a_rate_of_unknown_precision_exceeds_the_highest_roof_only():
    silent = hardware_of({"device": {"name": "NVIDIA A100-SXM4-40GB", "kind": "cuda"}})
    assert silent.roof("compute").precision == "fp32"
    assert silent.exceeded({"unknown": 100e12}, 1.0, None) == ()
    assert silent.exceeded({"unknown": 2000e12}, 1.0, None) == ("compute",)
    stated = hardware_of(
        {"device": {"name": "NVIDIA A100-SXM4-40GB", "kind": "cuda"}, "precision": "fp32"}
    )
    assert stated.exceeded({"unknown": 100e12}, 1.0, None) == ("compute",)


@ask_each("architecture", list(LIMITS))
def test_blocks_per_sm_are_those_of_the_one_occupancy(architecture):
    """The wave verdict once had a table of its own, without the 1 KiB that 8.0 and later keep of
    every block.
    """
    capability = f"{architecture // 10}.{architecture % 10}"
    device = hardware_of(
        {"device": {"name": "unlisted", "kind": "cuda", "compute_capability": capability}}
    )
    for launch in product(
        (64, 96, 256, 384, 1024), (32, 48, 80, 168), (0, 4096, 20480, 32768, 49152)
    ):
        blocks = occupancy_of(LIMITS[architecture], *launch).blocks
        assert device.blocks_per_sm(*launch) == (blocks or None), launch
    assert device.blocks_per_sm(2048, 32, 0) is None


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


@ask_each(
    ("name", "precision", "flops_per_s", "source"),
    [
        # Dense products of an H200: 132 SMs, 2048 or 1024 FMAs of two FLOPs a clock, 1830 MHz.
        ("NVIDIA H200", "bf16", 2 * 132 * 2048 * 1.83e9, "tensor cores"),
        ("NVIDIA H200", "tf32", 2 * 132 * 1024 * 1.83e9, "tensor cores"),
        ("NVIDIA H200", "fp32", 2 * 132 * 128 * 1.98e9, "lanes and SMs"),
        # Before tensor cores mixed precision is computed in fp32.
        ("GeForce GTX 1080", "fp32", 2 * 20 * 128 * 1.733e9, "lanes and SMs"),
        ("GeForce GTX 1080", "fp16", 2 * 20 * 128 * 1.733e9, "has no fp16 tensor cores"),
        ("Tesla V100-SXM2-16GB", "fp16", 125.3e12, "tensor cores"),
        ("Tesla V100-SXM2-16GB", "bf16", 15.67e12, "has no bf16 tensor cores"),
    ],
)
def test_the_compute_roof_is_that_of_the_recordings_precision(name, precision, flops_per_s, source):
    roof = hardware_of({"device": {"name": name, "kind": "cuda"}, "precision": precision}).roof(
        "compute"
    )
    assert (roof.per_s, roof.precision) == (pytest.approx(flops_per_s, rel=1e-3), precision)
    assert source in roof.source


def test_a_ceiling_of_another_precision_is_no_roof():
    ceilings = {
        "flops_per_s": 50e12,
        "dram_bytes_per_s": 4e12,
        "compute": {
            "fp32": {"per_s": 50e12, "how": "gemm"},
            "bf16": {"per_s": 700e12, "how": "gemm"},
        },
    }
    h200 = {"device": {"name": "NVIDIA H200", "kind": "cuda"}, "ceilings": ceilings}
    fp16, bf16 = (
        hardware_of({**h200, "precision": precision}).roof("compute")
        for precision in ("fp16", "bf16")
    )
    assert (fp16.kind, bf16.kind, bf16.per_s) == (PEAK, CEILING, 700e12)
    cpu = hardware_of(
        {"device": {"name": "a CPU", "kind": "cpu"}, "precision": "fp16", "ceilings": ceilings}
    )
    assert cpu.roof("compute") is None
    assert cpu.roof("DRAM").per_s == 4e12


def test_a_gpu_that_is_not_listed_has_the_roofs_of_its_drivers_facts():
    facts = {
        "kind": "cuda",
        "name": "unlisted",
        "compute_capability": "9.0",
        "sm_count": 100,
        "l2_bytes": 40 << 20,
    }
    hardware = hardware_of(
        {"device": {**facts, "clock_hz": 1_000_000_000, "memory_bytes_per_s": 2_000_000_000_000}}
    )
    roofs = {roof.level: roof.per_s for roof in hardware.roofs}
    assert roofs == {"compute": 2 * 128 * 100 * 1e9, "DRAM": 2e12}
    assert hardware.cache_bytes == 40 << 20


def test_a_memory_rate_that_no_gpu_has_is_no_roof():
    """The driver of a Tegra X1 tells 0.204 GB/s; its memory has 25.6."""
    facts = {
        "kind": "cuda",
        "name": "unlisted",
        "compute_capability": "5.3",
        "sm_count": 2,
        "clock_hz": 998_000_000,
    }
    hardware = hardware_of({"device": {**facts, "memory_bytes_per_s": 204_000_000}})
    assert "DRAM" not in {roof.level for roof in hardware.roofs}


@pytest.mark.parametrize("l2", [{"L2_cache_size": 62_914_560}, {}])
def test_a_gpu_that_is_not_listed_has_the_cache_that_torch_tells(monkeypatch, l2):
    torch = pytest.importorskip("torch")
    facts = {
        "name": "NVIDIA X300",
        "major": 13,
        "minor": 0,
        "multi_processor_count": 200,
        "total_memory": 10**12,
    }
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**facts, **l2)
    )
    device = describe_device("cuda:0")
    assert hardware_of({"device": device}).cache_bytes == l2.get("L2_cache_size")
    assert [level.name for level in memory_levels(device)] == (["L2", "DRAM"] if l2 else ["DRAM"])


def test_a_gpu_that_torchs_cudnn_refuses_is_described_without_its_version(monkeypatch):
    """torch's own words of a GTX 1080 under cuDNN 9.24."""
    torch = pytest.importorskip("torch")
    facts = {
        "name": "NVIDIA X300",
        "major": 6,
        "minor": 1,
        "multi_processor_count": 20,
        "total_memory": 10**10,
    }

    def refuse():
        raise RuntimeError("cuDNN version 92400 is not compatible with devices with SM < 7.5.")

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**facts))
    monkeypatch.setattr(torch.backends.cudnn, "version", refuse)
    assert describe_device("cuda:0")["cudnn"] is None
