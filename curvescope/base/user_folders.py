"""Folders of this user's own files."""

from __future__ import annotations

import os
from pathlib import Path

DATA_VARIABLE = "CURVESCOPE_DATA"


def data_folder() -> Path:
    """Folder of data that no recording holds: $CURVESCOPE_DATA, else the XDG specification's."""
    if chosen := os.environ.get(DATA_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(base) / "curvescope"
