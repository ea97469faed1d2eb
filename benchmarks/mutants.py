"""Whether the fast tests notice errors of the method: plants those of mutants.toml, one at a time,
in a copy.

The copy has what is not committed yet. Takes some minutes; `--only 7` plants one of them. Exit
code: 0 every error was caught; 1 some survived; 2 the list does not fit the code, or the tests fail
without any error planted.

    .venv-virtual/bin/python benchmarks/mutants.py --virtual    # in code that only a GPU reaches, on a virtual card
"""  # noqa: E501

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CHECKOUT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("mutants.toml")
VIRTUAL_LIST = Path(__file__).with_name("virtual_mutants.toml")
_PASSED, _FAILED = 0, 1  # exit codes of pytest


@dataclass(frozen=True)
class Mutant:
    """One planted error."""

    number: int
    error: str
    file: str
    old: str  # occurs once in the file
    new: str
    tests: tuple[str, ...]  # must notice

    def apply(self, text: str) -> str:
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"mutant {self.number}: {self.file} has the old text {count} times, not once; "
                f"adapt {LIST.name}:\n"
                f"{self.old.strip()}"
            )
        return text.replace(self.old, self.new)


RunTests = Callable[[Path, Sequence[str]], int]


def read_list(path: Path = LIST) -> list[Mutant]:
    entries = tomllib.loads(path.read_text())["mutant"]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def copy_checkout(folder: Path) -> None:
    """Copy every file of the checkout that git does not ignore, and the native libraries, into
    `folder`.
    """
    listed = [
        "git",
        "-C",
        str(CHECKOUT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        source, target = CHECKOUT / name, folder / name
        if source.is_symlink() or source.is_file():  # not what is deleted and not committed
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    from curvescope.profiling import __path__ as installed

    for library in (library for room in installed for library in Path(room).glob("*.so")):
        shutil.copy2(library, folder / "profiling" / library.name)


def run_tests(folder: Path, tests: Sequence[str]) -> int:
    """Run fast tests of a copy until one fails; return pytest's exit code, and show its output if
    it is an error.
    """
    # The import hook of an editable install would find the checkout; an empty module of its name
    # replaces it.
    for hook in (module for module in sys.modules if module.startswith("_editable_")):
        (folder / f"{hook}.py").touch()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *tests,
    ]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    imported = "import curvescope; print(curvescope.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", imported],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    if folder.resolve() not in Path(found.stdout.strip()).resolve().parents:
        raise SystemExit(
            f"The tests would import {found.stdout.strip()}, not the copy in {folder}."
        )
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode not in (_PASSED, _FAILED):
        print(done.stdout[-4000:], done.stderr[-4000:], sep="\n")
    return done.returncode


def plant(mutants: Sequence[Mutant], folder: Path, run: RunTests = run_tests) -> int:
    """Plant each mutant in a copy, run its tests, and print what became of it."""
    every = sorted({test for mutant in mutants for test in mutant.tests})
    print(f"{len(mutants)} mutants; first their tests without any", flush=True)
    if run(folder, every) != _PASSED:
        print("The tests fail without any error planted: nothing can be said.")
        return 2
    survived, broken = [], []
    for mutant in mutants:
        path, began = folder / mutant.file, time.monotonic()
        text = path.read_text()
        try:
            path.write_text(mutant.apply(text))
            code = run(folder, mutant.tests)
        finally:
            path.write_text(text)
        verdict = {_PASSED: "survived", _FAILED: "caught"}.get(code, "broken")
        survived += [mutant.number] * (verdict == "survived")
        broken += [mutant.number] * (verdict == "broken")
        print(
            f"{mutant.number:3} {verdict:8} {time.monotonic() - began:5.0f} s  {mutant.error}",
            flush=True,
        )
    print(f"{len(mutants) - len(survived) - len(broken)} of {len(mutants)} caught")
    if broken:
        print("the tests could not be run with:", *broken)
        return 2
    if survived:
        print("survived:", *survived)
    return 1 if survived else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", type=int, nargs="+", metavar="N", help="numbers of the mutants to plant"
    )
    parser.add_argument(
        "--virtual", action="store_true", help=f"those of {VIRTUAL_LIST.name}, in its environment"
    )
    chosen = parser.parse_args(arguments)
    listed = read_list(VIRTUAL_LIST if chosen.virtual else LIST)
    mutants = [mutant for mutant in listed if not chosen.only or mutant.number in chosen.only]
    if not mutants:
        parser.error("no mutant has that number")
    try:
        for mutant in mutants:
            mutant.apply((CHECKOUT / mutant.file).read_text())
        with tempfile.TemporaryDirectory(prefix="curvescope-mutants-") as folder:
            copy_checkout(Path(folder))
            return plant(mutants, Path(folder))
    except (ValueError, OSError) as error:
        print(error)
        return 2
    except KeyboardInterrupt:
        print("interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
