"""Writes the man page from the help of the commands: `python docs/man_page.py [FILE]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from curvescope import __version__
from curvescope.cli import JOBS

PAGE = Path(__file__).parents[1] / "build" / "curvescope.1"


def man_page() -> str:
    """The page in roff, section 1."""
    lines = [
        f'.TH CURVESCOPE 1 "" "Curvescope {__version__}"',
        ".SH NAME",
        r"curvescope \- say why a training or inference step takes as long as it does",
        ".SH SYNOPSIS",
        r".B curvescope",
        r".I COMMAND",
        "[options]",
        ".SH COMMANDS",
    ]
    commands = [command for listed in JOBS.values() for command in listed]
    for command in commands:
        lines += [".TP", rf".B {_roff(command.name)}", _roff(command.help)]
    for command in commands:
        parser, _ = command.build()
        lines.append(f".SH {_roff(command.name.upper())}")
        lines += _paragraphs(parser.description or "")
        for action in parser._actions:
            if action.help != argparse.SUPPRESS and action.dest != "help":
                lines += [".TP", rf".B {_roff(_spelling(action))}"]
                lines.append(_roff((action.help or "") % {**vars(action), "prog": parser.prog}))
    lines += [".SH EXIT STATUS", "0 done, 1 a requested check failed, 2 bad input or an unusable"]
    lines += ["machine, 130 interrupted."]
    return "\n".join(lines) + "\n"


def _paragraphs(description: str) -> Iterator[str]:
    for paragraph in description.strip().split("\n\n"):
        yield from (".PP", _roff(" ".join(paragraph.split())))


def _spelling(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return value
    flags = ", ".join(action.option_strings)
    return flags if action.nargs == 0 else f"{flags} {value}"


def _roff(text: str) -> str:
    """A text in one line of roff: no dash becomes a hyphen, and no line a request."""
    line = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{line}" if line[:1] in (".", "'") else line


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(man_page(), encoding="utf-8")
