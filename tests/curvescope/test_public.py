"""The names that `import curvescope` offers."""

from importlib import metadata

import pytest

import curvescope

from ..tables import ask_each
from .recordings import write_planted


@ask_each("name", [name for name in curvescope.__all__ if name != "__version__"])
def test_every_public_name_is_there_and_says_what_it_is(name):
    found = getattr(curvescope, name)
    assert found.__name__ == name
    assert found.__module__.startswith("curvescope.")
    assert (found.__doc__ or "").strip()
    assert name in dir(curvescope)


def test_a_name_that_is_not_public_is_missing():
    with pytest.raises(AttributeError, match="no attribute 'store'"):
        _ = curvescope.store


def test_the_version_is_that_of_the_package():
    assert curvescope.__version__ == metadata.version("curvescope")


def test_explain_prints_the_verdict_its_evidence_and_what_would_refute_it(tmp_path, text_of):
    out = text_of("explain", str(write_planted(tmp_path / "run", "algorithm switch")), "--all")
    assert "is mostly conv3 backward: algorithm switch from winograd" in " ".join(out.split())
    assert "its family: Winograd, not fused → implicit GEMM [kernels.name]" in out
    assert "Refuted if: with the smaller size's algorithm" in out
    # Commands to copy stay in one line.
    assert max(len(line) for line in out.splitlines() if not line.startswith("  curvescope ")) <= 80


def test_a_recordings_breakdown_adds_up_to_the_step_as_the_command_prints_it(tmp_path, document_of):
    path = write_planted(tmp_path / "run")
    recording = curvescope.open_recording(path)
    rows = recording.breakdown(by="kernel")
    document = document_of("breakdown", path, "--by", "kernel")
    assert rows["time_ms"].sum() == pytest.approx(document["time_ms"])
    assert rows["label"].tolist() == [row["label"] for row in document["rows"]]
    assert recording.breakdown("phase", batch=4)["time_ms"].sum() < document["time_ms"]


def test_a_recordings_roofline_has_roofs_and_points(tmp_path, document_of):
    path = write_planted(tmp_path / "run")
    rows = curvescope.open_recording(path).roofline(by="layer")
    points = document_of("roofline", path, "--by", "layer")["points"]
    assert rows[rows["row"] == "point"]["label"].drop_duplicates().tolist() == [
        point["label"] for point in points
    ]
