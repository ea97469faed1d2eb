"""Prints the documents of `--json`, encoded by msgspec. A value that is infinite or NaN is null.

The type of each kind of document stands beside the view that shows the same as text.

Fields in `_s`, `_ms`, `_ns` are times, in `_bytes` sizes, in `_per_s` rates; a share is a fraction
of 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

# A field that is renamed, removed or gets another meaning makes it the next number; new fields do
# not.
DOCUMENT_VERSION = 1
_BEYOND_ASCII = re.compile("[^ -~]")


def kind_of(document: type) -> str:
    """The kind and version of a type of documents, e.g. `curvescope.explain/1` of
    `ExplainDocument`.
    """
    return f"curvescope.{document.__name__.removesuffix('Document').lower()}/{DOCUMENT_VERSION}"


def json_text(document: Any) -> str:
    """Anything made of documents as JSON."""
    return msgspec.json.encode(document, enc_hook=_plain).decode()


def document_text(document: Any) -> str:
    """A document as JSON on one line; its first field, `schema`, names its kind and version."""
    return f'{{"schema":"{kind_of(type(document))}",{json_text(document)[1:]}'


def print_document(document: Any) -> None:
    """Print a document on standard output; sequences that a terminal may obey are escaped, as
    everything beyond ASCII.
    """
    print(_BEYOND_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], document_text(document)))


def _plain(value: Any) -> Any:
    """A mapping of any type, or a number of NumPy, as msgspec takes it."""
    return dict(value) if isinstance(value, Mapping) else value.item()
