"""Writes the report of the kept AlexNet run and its picture: `python docs/draw_report.py` (needs Chromium).

Writes docs/figures/report.html, which the site shows as an example, and docs/figures/report.png.
"""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the browser of the tests

from curvescope.cli import main  # noqa: E402
from tests.browser import Page  # noqa: E402

RECORDING = "examples/recordings/alexnet-cpu"
FIGURES = ROOT / "docs" / "figures"
SIZE = (1180, 800)


def draw() -> None:
    """Write both files."""
    page = FIGURES / "report.html"
    os.chdir(ROOT)
    if main(["report", RECORDING, "-o", str(page), "--force"]):
        raise SystemExit("the report could not be written")
    with Page(page, *SIZE) as shown:
        shown.settle()
        (FIGURES / "report.png").write_bytes(base64.b64decode(shown.send("Page.captureScreenshot")["data"]))


if __name__ == "__main__":
    draw()
