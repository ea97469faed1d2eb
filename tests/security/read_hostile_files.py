"""Reads the hostile files with the commands that a reader would run, each in a process held to
limits.

    python -m tests.security.read_hostile_files [--large] [--write docs/hostile-files.md] [NAME …]

prints, or writes, what each took.
"""

import argparse
import contextlib
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

import curvescope.analysis.diagnosis.suggested  # what a child need not load again
import curvescope.experiments.factors  # noqa: F401
from curvescope.cli import _main

from .apart import MOST_BYTES, MOST_CPU_S, run_apart
from .hostile_files import LARGE_FILES, SCRATCH, SMALL_FILES

READ_BY = ("breakdown R", "explain R", "report R -o R.html", "export R --csv -o R.csv")


def run(words, folder):
    """Run a command there; anything but an answer or a refusal in words is an AssertionError.

    Returns the exit code.
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
    return code


def read(name, folder, commands=READ_BY):
    """Import a hostile file and read the recording, each in a process of its own; yields the
    command and `Spent`.
    """
    suffix, make = {**SMALL_FILES, **LARGE_FILES}[name]
    data = make()
    path = folder / f"profile{suffix}"
    path.write_bytes(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    del data
    yield (
        f"import of {path.stat().st_size} bytes",
        run_apart(lambda: run(["import", str(path), "-o", "R"], folder)),
    )
    if (folder / "R").exists():
        for command in commands:
            yield command, run_apart(lambda command=command: run(command.split(), folder))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true", help="those of hundreds of MB, too")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="page whose table to write")
    parser.add_argument("names", nargs="*", default=[*SMALL_FILES])
    args = parser.parse_args()
    names = [*args.names, *(LARGE_FILES if args.large else ())]
    rows, bad = [], 0
    for name in names:
        folder = Path(tempfile.mkdtemp(dir=SCRATCH))
        found = list(read(name, folder))
        size = (folder / f"profile{ {**SMALL_FILES, **LARGE_FILES}[name][0] }").stat().st_size
        shutil.rmtree(folder)
        wrong = [f"{command}: {spent.wrong}" for command, spent in found if spent.wrong]
        bad += bool(wrong)
        read_s = max(spent.cpu_s for _, spent in found[1:]) if found[1:] else None
        peak = max(spent.peak_bytes for _, spent in found) >> 20
        rows.append((name, size, found[0][1].cpu_s, read_s, peak, wrong))
        print(*rows[-1], sep=" | ", flush=True)
    print(
        f"{len(rows)} files, {bad} beyond the limits of {MOST_CPU_S} s and {MOST_BYTES >> 20} MiB"
    )
    if args.write:
        _write(args.write, rows)
    return 1 if bad else 0


def _write(page, rows):
    """Put the table between the marks of a page."""
    lines = [
        "| file | size | import, CPU s | slowest command after it, CPU s | most memory, MiB |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, size, import_s, read_s, peak, wrong in rows:
        after = "refused" if read_s is None else f"{read_s:.1f}"
        mark = " **too much**" if wrong else ""
        lines.append(f"| {name}{mark} | {size:,} | {import_s:.1f} | {after} | {peak} |")
    text = page.read_text()
    begin, end = text.index("<!-- table -->"), text.index("<!-- end -->")
    page.write_text("\n".join([text[:begin] + "<!-- table -->", "", *lines, "", text[end:]]))


if __name__ == "__main__":
    sys.exit(main())
