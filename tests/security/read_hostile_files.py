"""Reads the hostile files with the commands that a reader would run, each in a process held to
limits.

    python -m tests.security.read_hostile_files [--large] [--write] [NAME …]

prints what each took, and keeps the table of all where asked (`python benchmarks/evidence.py
hostile_files`). `other_attacks.toml` lists the attacks that are no single profile.
"""

import argparse
import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import curvescope.analysis.diagnosis.suggested  # what a child need not load again
import curvescope.analysis.ranks.jobs
import curvescope.experiments.factors  # noqa: F401
from benchmarks import evidence
from curvescope.cli import _main

from .apart import MOST_BYTES, MOST_CPU_S, run_apart
from .hostile_files import LARGE_FILES, SCRATCH, SMALL_FILES
from .shared_references import SHARED_FILES

READ_BY = ("breakdown R", "explain R", "report R -o R.html", "export R --csv -o R.csv")
FILES = {**SMALL_FILES, **SHARED_FILES, **LARGE_FILES}
_LONGEST_RESULT = 110  # characters of a refusal in the table


def run(words, folder):
    """Run a command there; anything but an answer or a refusal in words is an AssertionError.

    Returns the refusal; an empty text for an answer.
    """
    os.chdir(folder)
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        try:
            code = _main(words)
        except SystemExit as exited:
            code = exited.code
    assert code in (0, 1, 2), f"exit code {code}"
    assert code == 0 or 20 < len(said.getvalue()) < 4000, said.getvalue()[:500]
    assert not Path("PWNED").exists(), "it ran code"
    return said.getvalue() if code == 2 else ""


def read(name, folder, commands=READ_BY):
    """Import a hostile file and read the recording, each in a process of its own; yields the
    command and `Spent`.
    """
    suffix, make = FILES[name]
    data = make()
    path = folder / f"profile{suffix}"
    path.write_bytes(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    del data
    first = ["import", str(path), "-o", "R"]
    if name.startswith("ranks: "):
        first = ["scale", "read", str(path)]
    yield (
        f"{first[0]} of {path.stat().st_size} bytes",
        run_apart(lambda: run(first, folder)),
    )
    if (folder / "R").exists():
        for command in commands:
            yield command, run_apart(lambda command=command: run(command.split(), folder))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true", help="those of hundreds of MB, too")
    parser.add_argument("--write", action="store_true", help="keep the table of these files")
    parser.add_argument("--jobs", type=int, default=1, help="files that are read at once")
    parser.add_argument("names", nargs="*", default=[*SMALL_FILES, *SHARED_FILES])
    args = parser.parse_args()
    names = [*args.names, *(LARGE_FILES if args.large else ())]
    rows, bad = [], 0
    with ProcessPoolExecutor(args.jobs) as readers:
        for row, wrong in readers.map(_read_row, names):
            rows.append(row)
            bad += bool(wrong)
            print(*row, *wrong, sep=" | ", flush=True)
    print(
        f"{len(rows)} files, {bad} beyond the limits of {MOST_CPU_S} s and {MOST_BYTES >> 20} MiB"
    )
    if args.write:
        evidence.keep("hostile_files", HEAD, list(map(_cells, rows)))
    return 1 if bad else 0


def _read_row(name):
    """What a file took, as the table shows it, and what went wrong."""
    folder = Path(tempfile.mkdtemp(dir=SCRATCH))
    try:
        found = list(read(name, folder))
        size = (folder / f"profile{FILES[name][0]}").stat().st_size
    finally:
        shutil.rmtree(folder)
    wrong = [f"{command}: {spent.wrong}" for command, spent in found if spent.wrong]
    read_s = max(spent.cpu_s for _, spent in found[1:]) if found[1:] else None
    peak = max(spent.peak_bytes for _, spent in found) >> 20
    result = "**too much**" if wrong else _result(found[0][1].answer)
    return (name, size, result, found[0][1].cpu_s, read_s, peak), wrong


def _result(said):
    """The result of an import: "read", or the reason of the refusal."""
    if not said:
        return "read"
    reason = re.sub(r"^curvescope: (?:\S*profile\.\S*: )?", "", " ".join(said.split()))
    reason = re.split(r"; |\. |\.$", reason)[0]
    if len(reason) > _LONGEST_RESULT:
        reason = f"{reason[: _LONGEST_RESULT - 1]}…"
    return "refused: " + reason.replace("|", "\\|").replace("<", "&lt;")


HEAD = (
    "format",
    "what the file does",
    "bytes",
    "result",
    "import, CPU s",
    "slowest command after it, CPU s",
    "most memory, MiB",
)


def _cells(row):
    """A row of the kept table."""
    name, size, result, import_s, read_s, peak = row
    after = "" if read_s is None else f"{read_s:.1f}"
    return [*name.split(": ", 1), f"{size:,}", result, f"{import_s:.1f}", after, str(peak)]


if __name__ == "__main__":
    sys.exit(main())
