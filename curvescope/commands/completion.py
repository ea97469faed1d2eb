"""Print a completion script for a shell: commands, options and their values.

curvescope completion bash > ~/.local/share/bash-completion/completions/curvescope
curvescope completion zsh > FOLDER_IN_FPATH/_curvescope
curvescope completion fish > ~/.config/fish/completions/curvescope.fish
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..parsers import Command
    from .bench import Bench

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(args: argparse.Namespace) -> int:
    import shtab

    print(shtab.complete(_build_full_parser(), args.shell))
    return 0


def _build_full_parser() -> argparse.ArgumentParser:
    """Build one parser with all commands and benchmarks, which only completion needs."""
    from ..cli import COMMANDS
    from .bench import BENCHES

    whole = argparse.ArgumentParser(prog="curvescope")
    whole.add_argument("--version", action="store_true", help="the version")
    commands = whole.add_subparsers()
    for name, command in COMMANDS.items():
        if name == "bench":
            benches = commands.add_parser(name, help=command.help).add_subparsers()
            for bench in BENCHES.values():
                _add(benches, bench)
        else:
            _add(commands, command)
    return whole


def _add(
    parsers: argparse._SubParsersAction[argparse.ArgumentParser], command: Command | Bench
) -> None:
    import shtab

    parser, _ = command.build()
    for action in parser._actions:
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    parsers.add_parser(
        command.name.split()[-1], help=command.help, parents=[parser], add_help=False
    )
