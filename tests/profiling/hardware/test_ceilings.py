"""Ceilings: kept, found again for the same device only, and taken along by recordings."""

from dataclasses import replace

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware import ceilings
from curvescope.profiling.hardware.ceilings import Ceiling, Ceilings
from curvescope.profiling.hardware.limits import hardware_of

from ...tables import ask_each

CPU = {"kind": "cpu", "name": "A CPU (R) @ 2 GHz", "threads": 2}
FOUND = Ceilings(
    CPU,
    {"fp32": Ceiling(2e11, "peak 512 chains fp32, numba", 0.01)},
    {
        "L1": Ceiling(9e11, "memory read, numba", 0.02),
        "DRAM": Ceiling(2e10, "memory copy, numba", None),
    },
    (2_000_000_000, 2_100_000_000),
    {"numba": "0.68"},
    "2026-01-02T03:04:05+00:00",
    {"bf16": Ceiling(9e14, "peak_bf16_wgmma, cupy", 0.01)},
)


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CURVESCOPE_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "ceilings"


def test_they_come_back_as_they_were(data_folder):
    assert ceilings.load(CPU) is None
    path = ceilings.save(FOUND)
    assert path == data_folder / "a-cpu-r-2-ghz_20260102030405.json"
    assert ceilings.load(CPU) == FOUND


def test_the_newest_counts_and_none_is_overwritten(data_folder):
    ceilings.save(FOUND)
    later = replace(FOUND, compute={}, measured_utc="2026-02-01T00:00:00+00:00")
    ceilings.save(later)
    ceilings.save(FOUND)
    assert len(list(data_folder.iterdir())) == 3
    assert ceilings.load(CPU) == later


@ask_each("changes", [{"threads": 4}, {"name": "another"}, {"kind": "cuda"}])
def test_another_device_has_none(changes):
    ceilings.save(FOUND)
    assert ceilings.load({**CPU, **changes}) is None
    assert ceilings.load({**CPU, "cuda": None, "note": "not of its identity"}) == FOUND


def test_files_of_others_are_passed_over(data_folder):
    ceilings.save(FOUND)
    for i, text in enumerate(
        ("{", "[]", "{}", '{"format": "other"}', '{"format": "curvescope ceilings", "version": 99}')
    ):
        (data_folder / f"{i}.json").write_text(text)
    assert ceilings.load(CPU) == FOUND


def test_a_recording_with_them_has_measured_roofs():
    ceilings.save(FOUND)
    hardware = hardware_of({"device": CPU, "ceilings": ceilings.entry_for(CPU)})
    roofs = {roof.level: (roof.per_s, roof.kind) for roof in hardware.roofs}
    assert roofs == {
        "compute": (2e11, "ceiling"),
        "DRAM": (2e10, "ceiling"),
        "L1": (9e11, "ceiling"),
    }


def test_a_recording_made_before_them_has_them_too():
    meta = {"device": CPU, "ceilings": None}
    assert hardware_of(meta).roofs == ()
    ceilings.save(FOUND)
    assert hardware_of(meta).roof("DRAM").per_s == 2e10
    assert "2026-01-02" in hardware_of(meta).roof("compute").source
    assert hardware_of({"device": {**CPU, "threads": 4}}).roofs == ()
    assert hardware_of({"device": {**CPU, "key": "modelled"}}).roofs == ()


def test_what_a_recording_has_counts_before_what_was_measured_later():
    own = {"flops_per_s": 1e11, "dram_bytes_per_s": 1e10}
    ceilings.save(FOUND)
    assert hardware_of({"device": CPU, "ceilings": own}).roof("DRAM").per_s == 1e10


def test_a_folder_that_cannot_be_written_is_said(monkeypatch):
    monkeypatch.setenv("CURVESCOPE_DATA", "/proc/nowhere")
    with pytest.raises(CurvescopeError, match="could not be written"):
        ceilings.save(FOUND)


def test_without_a_variable_the_data_folder_of_xdg_is_taken(monkeypatch, tmp_path):
    monkeypatch.delenv("CURVESCOPE_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert ceilings.folder() == tmp_path / "curvescope" / "ceilings"
