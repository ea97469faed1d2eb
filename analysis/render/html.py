"""The report as one HTML file: data, style and script inside it, nothing from a network, names as text only.

Data stands in a JSON block in which `<`, `>` and `&` are escapes, and the script sets text, never markup: no name of a
trace can become an element, or turn the text around it. The policy in the page forbids every request besides.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...profiling.escaping import escape_controls

_ASSETS = Path(__file__).with_name("report_assets")
_SCRIPTS = ("base.js", "curve.js", "heat.js", "timeline.js", "roofline.js", "kernels.js", "page.js")


def render_html(document: Mapping[str, Any]) -> str:
    """The page.

    Args:
        document: of `report_data.report_document`.
    """
    style = (_ASSETS / "style.css").read_text(encoding="utf-8")
    script = "\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    run = document["runs"][0]
    title = " · ".join(filter(None, (run["network"] or run["name"], run["device"], "Curvescope")))
    page = (_ASSETS / "page.html").read_text(encoding="utf-8")
    for place, text in {
        "POLICY": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_digest(script)}'",
        "TITLE": html.escape(escape_controls(title)),
        "HEADLINE": html.escape(escape_controls(run["headline"])),
        "LEAD": html.escape(escape_controls(run["lead"])),
        "STYLE": style,
        "DATA": escape_controls(json_block(document)),
        "SCRIPT": script,
    }.items():
        # Data goes in before the script is replaced, so neither can hold a place that is still to be filled.
        page = page.replace(f"<!--{place}-->", text, 1)
    return page


def json_block(document: Any) -> str:
    """JSON that holds no markup: safe inside a script element."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
