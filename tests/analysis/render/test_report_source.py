"""The text of a program's lines stands in a report only where the file is the user's and as it was recorded."""

import os
from types import SimpleNamespace

from curvescope.analysis.render import report_data

LATER, EARLIER = "2027-01-01T00:00:00+00:00", "2001-01-01T00:00:00+00:00"


def source(created, *lines):
    explanation = SimpleNamespace(shares=[SimpleNamespace(line=line) for line in lines])
    return report_data._source([explanation], {"created_utc": created})


def test_a_line_shows_its_text_if_the_file_did_not_change_and_is_under_the_working_directory(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    for folder in (here, tmp_path):
        (folder / "model.py").write_text("import torch\n    x = self.fc(x)\n")
        os.utime(folder / "model.py", (1_780_000_000, 1_780_000_000))  # 2026
    monkeypatch.chdir(here)
    lines = ("model.py:2", "gone.py:2", "../model.py:2", str(tmp_path / "model.py") + ":2", None)
    assert source(LATER, *lines) == {"model.py:2": "x = self.fc(x)"}
    assert source(EARLIER, *lines) == {}
