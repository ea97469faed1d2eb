"""Makes the folder of wheels that a CUDA machine without a network needs: `make gpu-wheels`, where
there is a network.

Downloads the packages that Curvescope needs, in the versions of constraints.txt and for the Python
of that machine, and builds the collector, a library that any Python loads. Curvescope itself is
taken from the tree. `--present` names packages that the machine has. `campaign.py --wheels DIR`
installs the wheels.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
# Images with PyTorch and pandas have them. Their wheels are large.
PRESENT = ("numpy", "pandas", "pyarrow", "scipy", "rich")
NOT_THERE = ("tomli",)  # for older Pythons
# adbc-driver-sqlite needs its manager; the others need only what a machine with pandas has.
ALSO = {"adbc-driver-sqlite": ("adbc-driver-manager",)}
_GLIBC = (5, 12, 17, 24, 27, 28, 31, 34)  # pip takes each version of the standard by itself


def needed(present: tuple[str, ...] | list[str]) -> list[str]:
    """Packages to download, pinned, e.g. `duckdb==1.4.2`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[\[<>=; ]", requirement)[0] for requirement in project["dependencies"]]
    names = [one for name in names for one in (name, *ALSO.get(name, ()))]
    # Of several lines the last is for the newest Python.
    pins = dict(
        re.findall(r"^([\w-]+)==([^\s;]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    )
    return [f"{name}=={pins[name]}" for name in names if name not in (*present, *NOT_THERE)]


def take_collector(wheel: Path, folder: Path) -> None:
    """Put the library of Curvescope's wheel into a folder."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".so"))
        (folder / Path(name).name).write_bytes(archive.read(name))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path(".wheels"), help="default: .wheels"
    )
    parser.add_argument("--python", default="3.12", help="Python of that machine (default: 3.12)")
    parser.add_argument("--machine", default="x86_64", help="its processor (default: x86_64)")
    parser.add_argument(
        "--present",
        nargs="*",
        default=PRESENT,
        metavar="NAME",
        help=f"packages it has (default: {' '.join(PRESENT)})",
    )
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for path in [*args.folder.glob("*.whl"), *args.folder.glob("*.so")]:
        path.unlink()
    constraints = dict.fromkeys(
        ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"), str(ROOT / "constraints.txt")
    )
    platforms = [f"manylinux_2_{minor}_{args.machine}" for minor in _GLIBC]
    platforms += [f"manylinux2014_{args.machine}", f"manylinux1_{args.machine}", "any"]
    where = ["--only-binary=:all:", "--implementation=cp", f"--python-version={args.python}"]
    where += [f"--platform={platform}" for platform in platforms]
    with tempfile.TemporaryDirectory() as tools:
        venv.create(tools, with_pip=True)
        pip = [
            str(Path(tools, "bin", "python")),
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
        ]
        for requirement in needed(args.present):
            subprocess.run(
                [*pip, "download", "--no-deps", *where, "--dest", args.folder, requirement],
                check=True,
            )
        own = [*pip, "wheel", "--no-deps", "--wheel-dir", tools, str(ROOT)]
        subprocess.run(own, check=True, env={**os.environ, **constraints})
        take_collector(next(Path(tools).glob("*.whl")), args.folder)
    made = sorted([*args.folder.glob("*.whl"), *args.folder.glob("*.so")])
    for path in made:
        print(f"{path.stat().st_size / 1e6:6.1f} MB  {path.name}")
    print(f"{sum(path.stat().st_size for path in made) / 1e6:6.1f} MB  in {args.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
