"""Writes docs/figures/report.png, the picture of the report of the kept AlexNet run:
`python docs/draw_report.py`.

It needs Chromium. The report itself is written when the site is built (`make docs`).
"""

from __future__ import annotations

import base64
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the browser of the tests

from curvescope.cli import main  # noqa: E402
from tests.browser import Page  # noqa: E402

RECORDING = "examples/recordings/alexnet-cpu"
PICTURE = ROOT / "docs" / "figures" / "report.png"
SIZE = (1180, 800)


def draw() -> None:
    """Write the picture."""
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        if main(["report", RECORDING, "-o", str(page)]):
            raise SystemExit("the report could not be written")
        with Page(page, *SIZE) as shown:
            shown.settle()
            PICTURE.write_bytes(base64.b64decode(shown.send("Page.captureScreenshot")["data"]))


if __name__ == "__main__":
    draw()
