"""The git repository in which code lies."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...base.programs import find_program

_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def run_git(*words: str) -> str | None:
    """The output of a git command; None if it failed."""
    if (git := find_program("git")) is None:
        return None
    ran = subprocess.run([git, *words], capture_output=True, text=True, check=False)  # noqa: S603
    return ran.stdout.strip() if ran.returncode == 0 else None


def commit_entry(spec: Mapping[str, Any], folder: Path | None = None) -> dict[str, str]:
    """The entry of `recording.json` for the commit of the code: of a folder, else of the file of
    the step, else of the working directory; empty outside a repository.
    """
    file, _, _ = (spec.get("step") or "").rpartition(":")
    if folder is None:
        folder = Path(file).expanduser().parent if file.endswith(".py") else Path()
    commit = run_git("-C", str(folder), "rev-parse", "--verify", "--quiet", "HEAD")
    return {"commit": commit} if commit and _COMMIT.fullmatch(commit) else {}
