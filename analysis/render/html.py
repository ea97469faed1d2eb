"""The report as one HTML file with its data, style and script; its policy forbids every request.

The data is a JSON block in which `<`, `>` and `&` are escaped, and the script sets text, never
markup: no name in a trace can become an element or change the direction of text.
"""

from __future__ import annotations

import base64
import hashlib
import html
from pathlib import Path
from typing import Any

from ...base.escaping import escape_controls
from .documents import json_text
from .report_document import ReportDocument
from .report_verdict import comparison_html, verdict_html

_ASSETS = Path(__file__).with_name("report_assets")
_SCRIPTS = (
    "base.js",
    *("curve.js", "history.js"),
    "experiments.js",
    "icicle.js",
    "timeline.js",
    "roofline.js",
    "kernels.js",
    *("rows.js", "page.js"),
)


def render_html(document: ReportDocument) -> str:
    """The page of a `report_document`."""
    style = (_ASSETS / "style.css").read_text(encoding="utf-8")
    script = "\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    run = document["runs"][0]
    title = " · ".join(
        filter(None, (run["explain"].network or run["name"], run["device"], "Curvescope"))
    )
    page = (_ASSETS / "page.html").read_text(encoding="utf-8")
    for name, text in {
        "POLICY": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "TITLE": html.escape(escape_controls(title)),
        "VERDICTS": comparison_html(document["comparison"])
        + "\n".join(verdict_html(run, index) for index, run in enumerate(document["runs"])),
        "STYLE": style,
        "DATA": escape_controls(json_block(document)),
        "SCRIPT": script,
    }.items():
        # The data is escaped and the script comes last, so no inserted text can contain a
        # placeholder that follows.
        page = page.replace(f"<!--{name}-->", text, 1)
    return page


def json_block(document: Any) -> str:
    """JSON that holds no markup: safe inside a script element."""
    text = json_text(document)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
