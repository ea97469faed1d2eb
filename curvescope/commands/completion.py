"""Print a completion script for a shell: commands, options and their values.

curvescope completion bash > ~/.local/share/bash-completion/completions/curvescope
curvescope completion zsh > FOLDER_IN_FPATH/_curvescope
curvescope completion fish > ~/.config/fish/completions/curvescope.fish
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

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
        parser = commands.add_parser(name, help=command.help)
        if name == "bench":
            benches = parser.add_subparsers()
            for bench, about in BENCHES.items():
                module = importlib.import_module(f".bench.{bench}", __package__)
                under = benches.add_parser(bench, help=about)
                module.add_arguments(under)
                _complete_files(under)
        else:
            command.load().add_arguments(parser)
            _complete_files(parser)
    return whole


def _complete_files(parser: argparse.ArgumentParser) -> None:
    import shtab

    for action in parser._actions:
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
