"""Reports that only NVIDIA's own tools can read (.nsys-rep, .ncu-rep), exported by them where they are on PATH."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


def convert_report(report: Path, folder: Path) -> Path | None:
    """A report of Nsight Systems or Nsight Compute as something readable, by the tool that is here; null by none.

    Args:
        report: the file; whether it is one, only the tools can tell.
        folder: where to write.
    """
    exported, table = folder / "profile.sqlite", folder / "profile.csv"
    if (nsys := shutil.which("nsys")) is not None:
        command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={exported}", str(report)]
        if printed_by(command) is not None and exported.exists():
            return exported
    if (ncu := shutil.which("ncu")) is not None:
        printed = printed_by([ncu, "--import", str(report), "--csv", "--page=raw"])
        if printed:
            table.write_bytes(printed)
            return table
    return None


def printed_by(command: Sequence[str]) -> bytes | None:
    """What a command prints; null where it fails."""
    try:
        done = subprocess.run(list(command), capture_output=True, timeout=3600, check=False)  # noqa: S603 - NVIDIA's
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
