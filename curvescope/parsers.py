"""Commands and their parsers, whose help shows groups of options, and the options that were
replaced.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import keyword
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

_FEW = 12  # choices that are listed beside a guess
_NEGATIVE = re.compile(r"-\d")  # begins a value, as no option has such a name

Run: TypeAlias = "Callable[[argparse.Namespace], int]"  # what a command does; returns its exit code


class Command(NamedTuple):
    """A command, or a benchmark (`bench NAME`), with its line in the help.

    Its module in `commands`, with _ for - and after a keyword, defines `add_arguments(parser)` and
    `run(args) -> int`, and is imported only by `build`.
    """

    name: str
    help: str

    def build(self) -> tuple[CommandParser, Run]:
        """Its parser, and what runs it."""
        name = self.name.replace("-", "_").replace(" ", ".") + "_" * keyword.iskeyword(self.name)
        module = importlib.import_module(f".commands.{name}", __package__)
        parser = CommandParser(f"curvescope {self.name}", module.__doc__)
        module.add_arguments(parser)
        return parser, module.run


class Parser(argparse.ArgumentParser):
    """A parser that takes values such as -3..4 as values, so that what is wrong with them is said,
    and knows typos.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = _NEGATIVE

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = None if action.choices is None else list(action.choices)
        if choices is not None and value not in choices:
            near = difflib.get_close_matches(str(value), map(str, choices), n=2)
            hints = [f"did you mean {' or '.join(near)}?"] if near else []
            if not near or len(choices) <= _FEW:
                hints.append(f"choose from {', '.join(map(str, choices))}")
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {' '.join(hints)}")


class CommandParser(Parser):
    """A parser of one command: `group` puts its options under titles; those without a group come
    last.

    With `takes_program`, all that follows -- is the command of a program, `program`.
    """

    takes_program = False

    def __init__(self, prog: str, description: str | None) -> None:
        super().__init__(
            prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self._positionals.title = "arguments"

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; the command of a program is none of them."""
        if not self.takes_program:
            return super().parse_args(args, namespace)
        own, program = split_at_program(list(args or ()))
        return super().parse_args(own, argparse.Namespace(program=program))

    def format_usage(self) -> str:
        """One line where a list of all options would be longer than what it says."""
        if not self._has_groups():
            return super().format_usage()
        formatter = self._get_formatter()
        formatter.add_usage(
            self.usage, [action for action in self._actions if not action.option_strings], []
        )
        return formatter.format_help().replace(self.prog, f"{self.prog} [options]", 1)

    def format_help(self) -> str:
        """Usage, description, positional arguments, then the options by group."""
        formatter = self._get_formatter()
        formatter.add_text(_filled(self.description or ""))
        for group in sorted(self._action_groups, key=lambda group: group is self._optionals):
            last = group is self._optionals and self._has_groups()
            formatter.start_section("output" if last else group.title)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return f"{self.format_usage()}\n{formatter.format_help()}"

    def _has_groups(self) -> bool:
        return len(self._action_groups) > 2  # every parser has positional arguments and options


def group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """The group of options with a title, which is added at the first call."""
    titled = (group for group in parser._action_groups if group.title == title)
    return next(titled, None) or parser.add_argument_group(title)


def split_at_program(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before --, and the command of a program after it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return list(arguments[:end]), list(arguments[end + 1 :])


def _filled(text: str) -> str:
    """A description whose sentences fill the width; examples, which are indented, stay
    unmodified.
    """
    width = min(shutil.get_terminal_size().columns - 2, 100)
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(
        part if part.startswith(" ") else textwrap.fill(part, width) for part in paragraphs
    )
