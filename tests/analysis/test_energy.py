"""Energy over batch sizes: planted powers and times, whose functionals are known."""

import pytest

from curvescope.analysis.energy import explain_energy
from curvescope.analysis.render.energy import show_energy
from curvescope.base.errors import CurvescopeError

from .planted_energy import COUNTER, write_energy


def test_power_that_rises_bends_the_energy_where_the_time_is_straight(tmp_path):
    """200 W up to batch 8, 300 W at 16: of E(16) − 2·E(8) = 49.5 − 34 = +15.5 J time gives −1 J and
    power +16.5.
    """
    found = explain_energy(write_energy(tmp_path / "r", lambda batch: 300 if batch == 16 else 200))
    (excess,) = (f for f in found.findings if f.shown.label == "excess 8→16")
    split = found.splits[found.findings.index(excess)]
    assert excess.verdict == "anomaly"
    assert excess.value.value == pytest.approx(49.5 - 2 * 17.0, rel=0.02)
    assert split.by_time_j == pytest.approx(-1.0, abs=0.2)
    assert split.by_power_j == pytest.approx(16.5, rel=0.02)
    for finding, parts in zip(found.findings, found.splits, strict=True):
        assert parts.by_time_j + parts.by_power_j == pytest.approx(
            finding.value.value, rel=1e-9, abs=1e-9
        )
    assert found.power_w(16) == pytest.approx(300, rel=1e-6)


def test_constant_power_has_no_anomaly_and_a_fixed_energy(tmp_path):
    """200 W · 5 ms: 1 J of every step does not grow with the batch size."""
    found = explain_energy(write_energy(tmp_path / "r", lambda batch: 200))
    assert found.anomalies == ()
    functional, value = found.fixed_cost
    assert functional.label == "fixed cost 4→8"
    assert value.value == pytest.approx(1.0, rel=0.2)


def test_the_page_has_joules_and_says_what_cannot_be_split(tmp_path, capsys):
    show_energy(write_energy(tmp_path / "r", lambda batch: 300 if batch == 16 else 200))
    said = " ".join(capsys.readouterr().out.split())
    assert "step J" in said
    assert "J/sample" in said
    assert "samples/J" in said
    assert "Energy of the planted GPU, by a planted counter." in said
    assert "excess of b → kb is E(kb) − k·E(b), where E is the energy of a step" in said
    assert "no split over layers" in said
    assert "clocks not locked" in said
    assert " ms" not in said


def test_the_document_has_every_functional_with_its_unit(tmp_path, document_of):
    write_energy(tmp_path / "r", lambda batch: 200)
    document = document_of("explain", tmp_path / "r", "--of", "energy")
    assert [point["batch"] for point in document["curve"]] == [4, 8, 16]
    assert document["curve"][0]["j_per_sample"] == pytest.approx(9.0 / 4, rel=0.02)
    assert [finding["unit"] for finding in document["findings"]] == ["J", "J", "J/sample"]
    assert document["source"] == COUNTER


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"missing": "there is no RAPL"}, "there is no RAPL"),
        (COUNTER, "too short"),
        (None, "too short"),
    ],
)
def test_a_recording_without_energies_says_why(tmp_path, source, why):
    recording = write_energy(tmp_path / "r", None, source=source)
    with pytest.raises(CurvescopeError, match=why):
        explain_energy(recording)


def test_measuring_energy_where_there_is_none_ends_before_anything_runs(
    tmp_path, monkeypatch, refusal_of
):
    monkeypatch.setattr("curvescope.profiling.hardware.energy.POWERCAP", tmp_path)
    assert "no RAPL package" in refusal_of(
        "diagnose", "--of", "energy", "alexnet", "--device", "cpu", "-o", tmp_path / "r"
    )
    assert not (tmp_path / "r").exists()
