"""Writes docs/figures/report.png, the picture of the report of the kept AlexNet run:
`python docs/draw_report.py`.

It needs Chromium. The picture holds the words of its first screen as a text chunk, and a test
compares them with what the report says today. `make docs` writes the report itself.
"""

from __future__ import annotations

import base64
import os
import sys
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the browser of the tests

from curvescope.analysis.diagnosis.explain import explain  # noqa: E402
from curvescope.analysis.render.first_screen import first_screen  # noqa: E402
from curvescope.analysis.render.summary import summarize  # noqa: E402
from curvescope.cli import main  # noqa: E402
from curvescope.profiling.recording.store import open_recording  # noqa: E402
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
            picture = base64.b64decode(shown.send("Page.captureScreenshot")["data"])
    PICTURE.write_bytes(with_words(picture, list_words()))


def list_words() -> str:
    """The words of the first screen, in a line of ASCII."""
    screen = first_screen(summarize(explain(open_recording(ROOT / RECORDING))))
    said = [screen.facts, screen.verdict]
    said += [f"{tile.name}: {tile.answer}: {tile.reason}" for tile in screen.tiles]
    said += [f"{entry.what}: {entry.worth}: {entry.sure}" for entry in screen.found]
    return " | ".join(said).encode("ascii", "backslashreplace").decode()


_HEADER_END = 33  # of a PNG: the signature of 8 bytes, and its first chunk of 25
_KEY = b"tEXt" + b"Description" + bytes(1)


def with_words(picture: bytes, words: str) -> bytes:
    """A PNG with a text chunk behind its header."""
    chunk = _KEY + words.encode()
    length, check = len(chunk) - 4, zlib.crc32(chunk)
    whole = length.to_bytes(4, "big") + chunk + check.to_bytes(4, "big")
    return picture[:_HEADER_END] + whole + picture[_HEADER_END:]


def words_of(picture: bytes) -> str:
    """The words that `with_words` put into a PNG."""
    length = int.from_bytes(picture[_HEADER_END : _HEADER_END + 4], "big")
    chunk = picture[_HEADER_END + 4 : _HEADER_END + 8 + length]
    assert chunk.startswith(_KEY)
    return chunk.removeprefix(_KEY).decode()


if __name__ == "__main__":
    draw()
