"""Runs the command blocks of the documentation:
`python docs/run_blocks.py [--write] [--slow] [PAGE...]`.

A ```console block holds commands after `$
` and what they print, which is compared; a line `...` stands for any lines. A ```sh block is run
and has to succeed. The blocks of a page run in order, in one empty folder. A comment right before a
block says what else holds of it:

    <!-- slow -->         takes longer than seconds: run with --slow only
    <!-- not run: WHY --> needs what a test machine has not; its curvescope commands are parsed
    <!-- file: NAME -->   the block is not commands: it is written to this file
    <!-- get: NAME = PATH -->  (anywhere) puts a copy of a file or folder of the repository into the folder
"""  # noqa: E501

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n+)?^```(?P<kind>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_GET = re.compile(r"<!-- get: (\S+) = (\S+) -->")
_SHELL = re.compile(r"[|<>;&$`*]")
COLUMNS = "80"


class BlockError(Exception):
    """A block that does not do what the page says."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its kind, the comment before it, its text, and where the text stands in the
    page.
    """

    kind: str
    mark: str
    body: str
    span: tuple[int, int]

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """Each command with the output that the page shows; sh blocks show none."""
        text = self.body.replace("\\\n", "\0")
        command, shown = "", ""
        for line in text.splitlines(keepends=True):
            if self.kind == "sh" or line.startswith("$ "):
                if command:
                    yield command, shown
                command, shown = line.removeprefix("$ ").strip().replace("\0", "\\\n"), ""
            else:
                shown += line
        if command:
            yield command, shown


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page."""
    return [
        Block(found["kind"], found["mark"] or "", found["body"], found.span("body"))
        for found in _BLOCK.finditer(page)
    ]


def run_page(path: Path, *, slow: bool = False, write: bool = False) -> int:
    """Run the blocks of one page; returns how many commands ran.

    Args:
        path: the page.
        slow: run what is marked slow too.
        write: put what the commands print into the page, where it shows all of it.

    Raises:
        BlockError: a command failed, or printed something else than the page shows.
    """
    page = path.read_text()
    ran = 0
    edits: list[tuple[tuple[int, int], str]] = []
    with tempfile.TemporaryDirectory(prefix="curvescope-docs-") as folder:
        for name, source in _GET.findall(page):
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(
                ROOT / source, Path(folder) / name
            )
        for block in blocks_of(page):
            if block.mark.startswith("file: "):
                (Path(folder) / block.mark.removeprefix("file: ")).write_text(block.body)
            elif block.kind in ("console", "sh") and not block.mark.startswith("not run"):
                if block.mark == "slow" and not slow:
                    continue
                text = ""
                for command, shown in block.commands:
                    printed = run(command, Path(folder))
                    ran += 1
                    if block.kind == "console" and not write and not matches(shown, printed):
                        raise BlockError(
                            f"{path}: `{command}` prints\n{printed}\nand the page shows\n{shown}"
                        )
                    text += f"$ {command}\n" + (
                        shown if matches(shown, printed) else renewed(shown, printed)
                    )
                if block.kind == "console":
                    edits.append((block.span, text))
    if write:
        for (start, end), text in reversed(edits):
            page = page[:start] + text + page[end:]
        path.write_text(page)
    return ran


def matches(shown: str, printed: str) -> bool:
    """Whether output is what a page shows of it; `...` stands for any lines."""
    pieces = re.split(r"^\.\.\.\n", _stripped(shown), flags=re.MULTILINE)
    return re.fullmatch(r"(?:.*\n)*?".join(map(re.escape, pieces)), _stripped(printed)) is not None


def renewed(shown: str, printed: str) -> str:
    """What a command prints now, as much of it as the page showed: each piece becomes the lines
    most like it.
    """
    lines = _stripped(printed).splitlines(keepends=True)
    if "...\n" not in shown:
        return "".join(lines)
    pieces, place = [], 0
    for piece in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE):
        size = len(piece.splitlines())
        starts = range(place, max(place, len(lines) - size) + 1)
        best = max(
            starts,
            key=lambda n: difflib.SequenceMatcher(
                None, "".join(lines[n : n + size]), piece
            ).ratio(),
        )
        pieces.append("".join(lines[best : best + size]))
        place = best + size if size else place
    return "...\n".join(pieces)


def _stripped(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())


def run(command: str, folder: Path) -> str:
    """What a command prints; ours are run in this process where they need no shell.

    Raises:
        BlockError: it failed.
    """
    environment = {**os.environ, "COLUMNS": COLUMNS, "HOME": str(folder), "TERM": "dumb"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    code, printed, errors = 0, "", ""
    if (
        command.startswith("curvescope ")
        and not _SHELL.search(command)
        and " record " not in command
    ):
        code, printed, errors = _run_here(shlex.split(command)[1:], folder)
    else:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        code, printed, errors = done.returncode, done.stdout, done.stderr
    if code:
        raise BlockError(f"`{command}` ended with exit code {code}:\n{printed}{errors}")
    return printed


def _run_here(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    from curvescope.cli import main

    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(arguments)
            except SystemExit as exit_:
                code = int(exit_.code or 0)
    finally:
        os.chdir(before)
        del os.environ["COLUMNS"]
        if columns is not None:
            os.environ["COLUMNS"] = columns
    return code, out.getvalue(), err.getvalue()


def command_lines(page: str) -> list[str]:
    """Every line of a page that is a curvescope command, in a block of any kind; comments are left
    out.
    """
    lines = page.replace("\\\n", " ").splitlines()
    found = (re.fullmatch(r"(?:\$ |    )?(curvescope [a-z].*?)(?:\s+#.*)?", line) for line in lines)
    return [match[1] for match in found if match]


def main() -> int:
    """Run the pages named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path, nargs="*", help="pages (default: all)")
    parser.add_argument("--slow", action="store_true", help="also what takes long")
    parser.add_argument("--write", action="store_true", help="put the output into the pages")
    args = parser.parse_args()
    for page in args.page or sorted(Path(__file__).parent.rglob("*.md")):
        if ran := run_page(page, slow=args.slow, write=args.write):
            print(f"{page}: {ran} commands")
    return 0


if __name__ == "__main__":
    sys.exit(main())
