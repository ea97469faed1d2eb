"""What doctor says of a machine with a card, on doubles of driver and NVML."""

import sys

import pytest

from curvescope import gpu_checks
from curvescope.base.errors import BackendMissingError
from curvescope.cli import main
from curvescope.commands import doctor
from curvescope.profiling.collect import self_test
from curvescope.profiling.collect.self_test import SelfTest

from ..profiling.hardware.test_clocks import fake_nvml


class Driver:
    """A driver of CUDA 13.0 with one device."""

    def version(self):
        return "13.0"

    def count_devices(self):
        return 1


@pytest.fixture
def card(monkeypatch, tmp_path):
    """An H200 that all users may profile, whose collector works; returns a function that gives
    doctor's lines.
    """
    nvml = fake_nvml(
        nvmlDeviceGetTotalEnergyConsumption=lambda _: 1000,
        nvmlSystemGetNVMLVersion=lambda: "13.580",
        nvmlDeviceGetName=lambda _: "NVIDIA H200",
        nvmlDeviceGetComputeMode=lambda _: 0,
        nvmlDeviceGetPersistenceMode=lambda _: 1,
        nvmlDeviceGetMaxClockInfo=lambda _, __: 1980,
        nvmlDeviceGetMigMode=lambda _: (0, 0),
        nvmlDeviceGetEccMode=lambda _: (1, 1),
        nvmlDeviceGetEnforcedPowerLimit=lambda _: 700_000,
    )
    parameters = tmp_path / "params"
    parameters.write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\n")
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(gpu_checks, "CudaDriver", Driver)
    monkeypatch.setattr(gpu_checks.nvml, "driver_version", lambda: "580.159.04")
    monkeypatch.setattr(gpu_checks, "DRIVER_PARAMETERS", parameters)
    works = SelfTest(1000, 1000, 1000, 0.25, "recording", "/usr/lib/libcupti.so.13", 130000)
    monkeypatch.setattr(self_test, "run_self_test", lambda: works)
    monkeypatch.setattr(self_test, "run_counter_test", lambda path: 10)
    return lambda: {check.name: check for check in gpu_checks.check_gpus()}


def test_a_card_that_works_has_a_line_for_each_thing(card):
    lines = card()
    assert all(check.found for check in lines.values())
    assert lines["NVIDIA driver"].detail == "580.159.04, CUDA 13.0, 1 device for this process"
    assert lines["NVML"].detail == "version 13.580: clocks, power and energy"
    assert lines["GPU 0"].detail == (
        "NVIDIA H200, compute mode default, persistence on, MIG off, ECC on, power limit 700 W, "
        "SM clock 1980 MHz of at most 1980 (sw_power_cap), energy by NVML's total energy counter, "
        "whether clocks are locked is not reported by any driver"
    )
    assert lines["profiling permission"].detail == "all users (RmProfilingAdminOnly: 0)"
    assert (
        lines["libcupti"].detail == "/usr/lib/libcupti.so.13, API version 130000: fits the driver"
    )
    assert (
        lines["collector self-test"].detail
        == "1000 of 1000 kernels recorded, 1000 with geometry, 0.25 s"
    )
    assert lines["counters"].detail == "CUPTI counted 10 of 10 kernels in the process itself"


def test_without_a_driver_there_is_no_line_beyond_the_one_that_says_so(monkeypatch, capsys):
    def missing():
        raise BackendMissingError("There is no CUDA driver.")

    monkeypatch.setattr(gpu_checks, "CudaDriver", missing)
    monkeypatch.setattr(doctor, "_CHECKS", (doctor._cuda,))
    assert list(gpu_checks.check_gpus()) == []
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.count("missing") == 1


def test_devices_that_are_hidden_are_the_only_fault(card, monkeypatch):
    def hidden(self):
        raise BackendMissingError("cuInit answered CUDA_ERROR_NO_DEVICE (100).")

    monkeypatch.setattr(Driver, "count_devices", hidden, raising=False)
    (check,) = card().values()
    assert not check.found
    assert "CUDA_ERROR_NO_DEVICE" in check.detail
    assert "CUDA_VISIBLE_DEVICES" in check.remedy


@pytest.mark.parametrize(("user", "found"), [(0, True), (1000, False)])
def test_profiling_that_is_kept_for_root_names_the_module_option(card, monkeypatch, user, found):
    gpu_checks.DRIVER_PARAMETERS.write_text("RmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(gpu_checks.os, "geteuid", lambda: user)
    check = card()["profiling permission"]
    assert check.found == found
    assert "NVreg_RestrictProfilingToAdminUsers=0" in check.remedy


@pytest.mark.parametrize(
    ("mode", "name"), [(1, "exclusive to one thread"), (2, "prohibited"), (3, "exclusive to one p")]
)
def test_a_card_that_does_not_admit_several_processes_is_a_fault(card, monkeypatch, mode, name):
    monkeypatch.setattr(sys.modules["pynvml"], "nvmlDeviceGetComputeMode", lambda _: mode)
    check = card()["GPU 0"]
    assert not check.found
    assert f"compute mode {name}" in check.detail
    assert "nvidia-smi -c DEFAULT" in check.command


def test_a_collector_that_records_nothing_is_a_fault_with_its_reason(card, monkeypatch):
    refused = SelfTest(
        1000,
        0,
        0,
        0.25,
        "cuptiSubscribe: CUPTI_ERROR_UNKNOWN (999)",
        "/usr/lib/libcupti.so.13",
        130000,
    )
    monkeypatch.setattr(self_test, "run_self_test", lambda: refused)
    lines = card()
    assert not lines["libcupti"].found
    assert "CUPTI_ERROR_UNKNOWN" in lines["libcupti"].detail
    assert not lines["collector self-test"].found


def test_counters_that_cannot_be_read_in_the_process_name_what_counts_instead(card, monkeypatch):
    def refuse(path):
        raise BackendMissingError(
            "cuptiRangeProfilerEnable: only administrators may read performance counters."
        )

    monkeypatch.setattr(self_test, "run_counter_test", refuse)
    check = card()["counters"]
    assert not check.found
    assert "only administrators" in check.detail
    assert "ncu" in check.remedy


@pytest.mark.parametrize(
    ("said", "version"),
    [
        (
            "Copyright (c) 2018-2025\nVersion 2025.3.1.0 (build 36398880) (public-release)",
            "version 2025.3.1.0",
        ),
        (
            "NVIDIA Nsight Systems version 2024.6.2.225-246235244400v0",
            "version 2024.6.2.225-246235244400v0",
        ),
        (
            "Cuda compilation tools, release 13.0, V13.0.85\nBuild cuda_13.0.r13.0/compiler",
            "version 13.0",
        ),
        ("", "version unknown"),
    ],
)
def test_tools_say_their_versions(tmp_path, said, version):
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    tool.chmod(0o755)
    assert doctor._version(str(tool)) == version
