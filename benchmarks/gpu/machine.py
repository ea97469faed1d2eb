"""Makes a CUDA machine without a network ready for the campaign: the packages from wheels,
Curvescope from the tree.

The wheels are of packages that Curvescope needs and the machine lacks; `make gpu-wheels` puts the
collector beside them, a library that any Python loads. A second call on the same machine finds both
in place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CUDA = Path("/usr/local/cuda")
NCU = Path("/opt/nvidia/nsight-compute")  # with a folder for each version
SITE = Path(tempfile.gettempdir()) / "curvescope-site"
_READY = "CURVESCOPE_CAMPAIGN_SITE"  # set where the packages are on Python's path


def is_ready() -> bool:
    """Whether this process has the packages of the wheels."""
    return _READY in os.environ


def start_with(wheels: Path) -> None:
    """Install wheels, and become the campaign that has them on its path; returns only without any
    wheel.
    """
    found = sorted(map(str, wheels.glob("*.whl")))
    if not found:
        return
    if not SITE.exists():
        with tempfile.TemporaryDirectory(dir=SITE.parent) as folder:
            pip = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-index",
                "--no-deps",
                "--no-compile",
            ]
            subprocess.run(
                [*pip, "--disable-pip-version-check", "--target", f"{folder}/site", *found],
                check=True,
            )
            Path(folder, "site").rename(SITE)
    for library in wheels.glob("*.so"):
        shutil.copyfile(library, ROOT / "profiling" / library.name)
    path = os.pathsep.join(filter(None, (str(ROOT), str(SITE), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, _READY: str(SITE), "PYTHONUNBUFFERED": "1"}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def find_tools(environment: MutableMapping[str, str], cuda: Path = CUDA, ncu: Path = NCU) -> None:
    """Add what NVIDIA's installers leave off the path: CUDA's compiler and its libraries, and
    Nsight Compute.
    """
    found = [cuda / "bin", *sorted(ncu.glob("*/"), key=_version)[-1:]]
    added = [str(folder) for folder in found if folder.is_dir()]
    environment["PATH"] = os.pathsep.join([environment.get("PATH", os.defpath), *added])
    if cuda.is_dir():
        environment.setdefault("CUDA_HOME", str(cuda))  # where numba looks for libnvvm


def _version(folder: Path) -> list[int]:
    return [int(part) for part in folder.name.split(".") if part.isdigit()]
