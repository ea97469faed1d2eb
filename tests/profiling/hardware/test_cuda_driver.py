"""The CUDA driver through ctypes, on a double of the library."""

from types import SimpleNamespace

import numpy as np
import pytest

from curvescope.base.errors import BackendMissingError
from curvescope.profiling.collect import merge
from curvescope.profiling.hardware import cuda_driver
from curvescope.profiling.hardware.cuda_driver import CudaDriver

ATTRIBUTES = {75: 9, 76: 0, 16: 132, 38: 60 << 20, 13: 1_980_000, 81: 233_472, 82: 65_536}


def set_to(pointer, value):
    pointer._obj.value = value
    return 0


@pytest.fixture
def library(monkeypatch):
    def name(buffer, _size, _device):
        buffer.value = b"NVIDIA H200"
        return 0

    double = SimpleNamespace(
        cuDeviceGet=lambda device, index: set_to(device, index) if index == 0 else 101,
        cuDeviceGetName=name,
        cuDeviceTotalMem_v2=lambda size, _: set_to(size, 150_754_820_096),
        cuDeviceGetAttribute=lambda value, attribute, _: set_to(value, ATTRIBUTES[attribute]),
    )
    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", lambda name: double)
    return double


H200 = {
    "kind": "cuda",
    "device": 0,
    "name": "NVIDIA H200",
    "compute_capability": "9.0",
    "memory_bytes": 150_754_820_096,
    "sm_count": 132,
    "l2_bytes": 60 << 20,
    "clock_hz": 1_980_000_000,
    "shared_memory_per_sm_bytes": 233_472,
    "registers_per_sm": 65_536,
}


def test_a_device_is_described_by_the_driver(library):
    assert CudaDriver().describe(0) == H200
    with pytest.raises(BackendMissingError, match=r"cuDeviceGet answered error \(101\)"):
        CudaDriver().describe(1)
    del library.cuDeviceGetName
    with pytest.raises(BackendMissingError, match="has no cuDeviceGetName"):
        CudaDriver().describe(0)


def test_a_block_that_began_after_cuda_has_the_device_of_its_kernels(library, monkeypatch):
    """CUPTI described no device; where it does, its description counts."""
    monkeypatch.setattr(merge, "entry_for", lambda device: {"of": device["name"]})
    silent, telling = (
        SimpleNamespace(devices=lambda found=found: found) for found in ([], [{"name": "CUPTI's"}])
    )
    expected = {"device": H200, "devices": [H200], "ceilings": {"of": "NVIDIA H200"}}

    def used(*devices):
        """A process whose kernels ran on devices."""
        table = type("Table", (dict,), {"rows": len(devices)})(device=np.array(devices))
        return SimpleNamespace(table={"kernels": table}.get)

    assert merge._devices([silent], [], [used(0)]) == expected
    assert merge._devices([telling], [], [used(0)])["ceilings"] == {"of": "CUPTI's"}
    assert merge._devices([silent], [], [used()]) == {}
    assert merge._devices([silent], [], [used(1)]) == {}  # the driver does not know it
