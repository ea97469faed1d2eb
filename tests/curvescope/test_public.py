"""The names that `import curvescope` offers."""

from __future__ import annotations

import curvescope

from .recordings import write_planted


def test_every_public_name_is_there():
    for name in curvescope.__all__:
        assert getattr(curvescope, name) is not None


def test_explain_gives_the_diagnosis_that_the_command_prints(tmp_path):
    found = curvescope.explain(curvescope.open_recording(write_planted(tmp_path / "run", "algorithm switch")))
    assert found.explanations[0].attribution.verdict.cause == "algorithm switch"
    assert "algorithm switch" in found._repr_html_()
