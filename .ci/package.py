"""Builds the sdist and the wheels as they are published, and holds them to what is promised:
`make package`.

Twice from folders of different names the wheel comes out byte for byte the same (SOURCE_DATE_EPOCH
is the commit's time). It is tagged with the oldest glibc it runs on; the pure one, for systems
without the collector, with none. They and the sdist are installed into empty environments; the
wheels' have no compiler on their PATH. Every Python of 3.10 to 3.14 that is found is tried; those
that are not are named. All have the version of the package and of the changelog, and SHA256SUMS
lists them. PyPI's own check accepts their metadata and the README in them, the extra
torch can be resolved, and uninstalling leaves no file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "build" / "dist"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
EXTRAS = {
    "torch",
    "numba",
    "cuda11",
    "cuda12",
    "cuda13",
    "pycuda",
    "attach",
    "mcp",
    "ncu",
    "cluster",
    "docs",
    "dev",
}
PROFILE = ROOT / "tests" / "data" / "profiles" / "hta_alexnet_trace.json.gz"
CHECKS = (
    "--version",
    "doctor",
    "doctor --card gtx1080",
    "diagnose vgg_a --card gtx1080 --batch 1..4 -o r",
    "report r",
    f"import {shlex.quote(str(PROFILE))} -o p",
    "explain p",
)


def main() -> None:
    """Build and check; raises where a promise is not kept."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir(parents=True)
    epoch = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    with tempfile.TemporaryDirectory(prefix="curvescope-package-") as folder:
        work = Path(folder)
        wheels = [build(work / name, "--wheel", epoch) for name in ("first", "of another name")]
        digests = {hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels}
        assert len(digests) == 1, "two builds of one commit differ"
        print(f"reproducible: sha256 {digests.pop()}")
        sdist = build(work / "sdist", "--sdist", epoch)
        pure = build(work / "pure", "--wheel", epoch, "-Cwheel.cmake=false")
        for made in (sdist, pure):
            shutil.copy(made, DIST)
        check_sdist(sdist)
        wheel = tag(wheels[0])
        check_metadata(wheel, "libcurvescope_collector.so")
        check_metadata(pure)
        check_version(wheel, pure, sdist)
        files = [str(file) for file in sorted(DIST.iterdir())]
        run(sys.executable, "-m", "twine", "check", "--strict", *files)
        print("metadata: accepted by twine")
        tried = []
        for version in PYTHONS:
            python = find_python(version)
            if python is None:
                print(f"python{version} is not here: not tried")
                continue
            check_installed(python, wheel, work / f"wheel-{version}")
            tried.append(version)
        assert tried, "no Python to try the wheel with"
        check_installed(sys.executable, pure, work / "pure-wheel")
        check_installed(sys.executable, sdist, work / "from-sdist", compiler=True)
    sums = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}"
        for file in sorted(DIST.iterdir())
    ]
    (DIST / "SHA256SUMS").write_text("\n".join([*sums, ""]))
    print(
        f"whole on Python {', '.join(tried)}: {', '.join(p.name for p in sorted(DIST.iterdir()))} "
        f"in {DIST}"
    )


def find_python(version: str) -> str | None:
    """An interpreter of that version that runs, on PATH or among pyenv's."""
    among = [
        shutil.which(f"python{version}"),
        *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ]
    for python in filter(None, among):
        asked = subprocess.run(
            [python, "-c", "import sys; print(sys.version)"], capture_output=True, text=True
        )
        if asked.stdout.startswith(f"{version}."):
            return str(python)
    return None


def run(*command: object, **options: Any) -> str:
    """Output of a command, which has to succeed."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, **options
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(source: Path, kind: str, epoch: str, *options: str) -> Path:
    """Build from the last commit."""
    source.mkdir(parents=True)
    archive = source.with_suffix(".tar")
    run("git", "archive", "--output", archive, "HEAD", cwd=ROOT)
    with tarfile.open(archive) as files:
        files.extractall(source)
    # of the build's own requirements; which variable counts depends on pip's age
    pins = str(ROOT / "constraints.txt")
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": epoch,
        "PIP_CONSTRAINT": pins,
        "PIP_BUILD_CONSTRAINT": pins,
    }
    run(
        sys.executable, "-m", "build", kind, *options, "-o", source / "out", source, env=environment
    )
    (made,) = (source / "out").iterdir()
    return made


def tag(wheel: Path) -> Path:
    """The wheel under the tag of the oldest glibc that it runs on; nothing is bundled."""
    shown = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
    found = re.search(r'platform tag: "(manylinux\w+)"', shown)
    assert found, shown
    name = run(sys.executable, "-m", "wheel", "tags", "--platform-tag", found[1], wheel).split()[-1]
    shutil.copy(wheel.with_name(name), DIST)
    print(f"tag: {found[1]}")
    return DIST / name


def check_sdist(sdist: Path) -> None:
    """It has what a build and its tests need, and nothing that git does not have; it may follow the
    rooms' links.
    """
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = set(run("git", "ls-files", cwd=ROOT).splitlines())
    paths = {
        name: (ROOT / name).resolve().relative_to(ROOT.resolve()).as_posix()
        for name in names - {"PKG-INFO", ""}
    }
    unknown = {name for name, path in paths.items() if name not in tracked and path not in tracked}
    assert not unknown, unknown
    for needed in (
        "LICENSE",
        "README.md",
        "native/CMakeLists.txt",
        "tests/conftest.py",
        "curvescope/py.typed",
    ):
        assert needed in names, needed


def check_version(*files: Path) -> None:
    """Every file has the version of the package, which the changelog has too, unless it is being
    worked on.
    """
    found = re.search(
        r'^__version__ = "(.+)"$', (ROOT / "curvescope" / "__init__.py").read_text(), re.MULTILINE
    )
    assert found
    version = found[1]
    assert {file.name.split("-")[1].removesuffix(".tar.gz") for file in files} == {version}, version
    head = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert head, "CHANGELOG.md has no section"
    assert head[1] in (version, "Unreleased"), f"CHANGELOG.md begins with {head[1]}, not {version}"
    print(f"version: {version}" + (", not released" if head[1] == "Unreleased" else ""))


def check_metadata(wheel: Path, *libraries: str) -> None:
    """Typed, with every extra, licence and entry point, and with these libraries and no others."""
    listed = run(sys.executable, "-m", "zipfile", "-l", wheel)
    for needed in (
        "curvescope/py.typed",
        "licenses/LICENSE",
        "entry_points.txt",
        "SKILL.md",
        *libraries,
    ):
        assert needed in listed, needed
    assert listed.count(".so") == len(libraries), wheel.name
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    missing = EXTRAS - set(re.findall(r"^Provides-Extra: (\S+)$", metadata, re.MULTILINE))
    assert not missing, f"extras are missing: {missing}"


def check_installed(python: str, package: Path, folder: Path, *, compiler: bool = False) -> None:
    """Install into an empty environment and run; without a compiler if it is the wheel."""
    run(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    limits = ["-c", ROOT / "constraints.txt", "--quiet", "--disable-pip-version-check"]
    environment = {**os.environ}
    if not compiler:
        environment["PATH"] = str(folder / "bin")
    run(
        inside,
        "-m",
        "pip",
        "install",
        *limits,
        *([] if compiler else ["--only-binary", ":all:"]),
        package,
        env=environment,
    )
    # A warning of a library would stand above every answer.
    strict = {**environment, "PYTHONWARNINGS": "error::FutureWarning"}
    for check in CHECKS:
        run(folder / "bin" / "curvescope", *shlex.split(check), cwd=folder, env=strict)
    run(inside, "-m", "pip", "check", env=environment)
    if compiler:
        extra = ["--dry-run", "--find-links", DIST, "curvescope[torch]"]
        run(inside, "-m", "pip", "install", *limits, *extra, env=environment)
    run(inside, "-m", "pip", "uninstall", "--yes", "--quiet", "curvescope", env=environment)
    left = [path for path in folder.rglob("*urvescope*") if "__pycache__" not in path.parts]
    assert not left, f"uninstalling leaves {left}"
    print(f"{package.name} works in an empty environment of {run(inside, '--version').strip()}")


if __name__ == "__main__":
    main()
