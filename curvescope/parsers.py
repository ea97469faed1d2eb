"""Commands and their parsers, whose help shows groups of options."""

from __future__ import annotations

import argparse
import difflib
import importlib
import itertools
import keyword
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from .base.errors import CurvescopeError

PROGRAM = "-- COMMAND"  # among the arguments that are given
_FEW = 12  # choices that are listed beside a guess
_NEGATIVE = re.compile(r"-\d")  # begins a value, as no option has such a name

Run: TypeAlias = "Callable[[argparse.Namespace], int]"  # what a command does; returns its exit code


class Command(NamedTuple):
    """A command, or a part of one (`bench NAME`), with its line in the help.

    Its module in `commands` defines `add_arguments(parser)` and `run(args) -> int`. The module's
    name has _ after a keyword, and only `build` imports it.
    """

    name: str
    help: str

    def build(self) -> tuple[CommandParser, Run]:
        """Its parser, and what runs it."""
        name = self.name.replace(" ", ".") + "_" * keyword.iskeyword(self.name)
        module = importlib.import_module(f".commands.{name}", __package__)
        parser = CommandParser(f"curvescope {self.name}", module.__doc__)
        module.add_arguments(parser)
        return parser, module.run


class Part(Protocol):
    """A part of a command: it has a line in the help, and a parser of its own."""

    @property
    def help(self) -> str:
        """Its line in the help."""

    def build(self) -> tuple[CommandParser, Run]:
        """Its parser, and what runs it."""


def add_parts(
    parser: argparse.ArgumentParser, parts: Mapping[str, Part], title: str, further: str = ""
) -> None:
    """Declare that the first word after a command chooses one of its parts, listed below `title`
    with a line each; `further` says what else the word may be.
    """
    width = max(map(len, parts))
    lines = [f"  {name:<{width}}  {part.help}" for name, part in parts.items()]
    parser.epilog = "\n".join([f"{title}:", *lines])
    below = ", ".join(filter(None, (f"one of the {title} below", further)))
    parser.add_argument("part", choices=parts, metavar="WHAT", help=below)
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="its options")


def run_part(parts: Mapping[str, Part], args: argparse.Namespace) -> int:
    """Run the part that the options of `add_parts` choose; returns its exit code."""
    parser, run = parts[args.part].build()
    return run(parser.parse_args(args.options))


class Parser(argparse.ArgumentParser):
    """A parser that knows typos, and takes values such as -3..4 as values, to say their errors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = _NEGATIVE

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = list(action.choices)
        names = [str(choice) for choice in choices]
        near = difflib.get_close_matches(str(value), names, n=2)
        hints = [f"did you mean {' or '.join(near)}?"] if near else []
        if not near or len(choices) <= _FEW:
            hints.append(f"choose from {', '.join(names)}")
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {' '.join(hints)}")


class CommandParser(Parser):
    """A parser of one command: `group` puts its options under titles; those without a group come
    last.

    With `takes_program`, all that follows -- is the command of a program, `program`. The arguments
    whose values are not their defaults are `given`, by name. `read_defaults` reads other defaults
    of options, by name without dashes, for the arguments so far; those that count are `defaults`.
    """

    takes_program = False
    read_defaults: Callable[[argparse.Namespace], Mapping[str, str]] | None = None

    def __init__(self, prog: str, description: str | None) -> None:
        super().__init__(
            prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self._positionals.title = "arguments"

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; the command of a program is none of them."""
        parsed = self._parse(args, namespace)
        parsed.defaults = {}
        if self.read_defaults is not None and (texts := self.read_defaults(parsed)):
            named = self._set_defaults(texts)
            parsed = self._parse(args, namespace)
            parsed.defaults = {
                name: text for name, text in named.items() if f"--{name}" not in parsed.given
            }
        return parsed

    def _set_defaults(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Set the defaults of the options that this command has; returns their texts."""
        named = {}
        for action in self._actions:
            name = action.option_strings[-1].removeprefix("--") if action.option_strings else ""
            if name not in texts:
                continue
            convert = action.type if callable(action.type) else str
            self.set_defaults(**{action.dest: convert(texts[name])})
            named[name] = texts[name]
        return named

    def _parse(self, args: Any, namespace: Any) -> Any:
        if self.takes_program:
            args, program = split_at_program(list(args or ()))
            namespace = argparse.Namespace(program=program)
        parsed = super().parse_args(args, namespace)
        parsed.given = set()
        for action in self._actions:
            value = getattr(parsed, action.dest, None)
            if value not in (None, [], self.get_default(action.dest)):
                names = action.option_strings or [action.dest]
                parsed.given.add(names[-1])
        if self.takes_program and parsed.program:
            parsed.given.add(PROGRAM)
        return parsed

    def format_usage(self) -> str:
        """One line where there are many options."""
        if not self._has_groups():
            return super().format_usage()
        formatter = self._get_formatter()
        positional = [action for action in self._actions if not action.option_strings]
        formatter.add_usage(self.usage, positional, [])
        return formatter.format_help().replace(self.prog, f"{self.prog} [options]", 1)

    def format_help(self) -> str:
        """Usage, description, positional arguments, then the options by group."""
        formatter = self._get_formatter()
        formatter.add_text(_fill_description(self.description or ""))
        for group in sorted(self._action_groups, key=lambda group: group is self._optionals):
            last = group is self._optionals and self._has_groups()
            formatter.start_section("output" if last else group.title)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return f"{self.format_usage()}\n{formatter.format_help()}"

    def _has_groups(self) -> bool:
        return len(self._action_groups) > 2  # every parser has positional arguments and options


def refuse_given(args: argparse.Namespace, why: str, *names: str) -> None:
    """Refuse arguments that say nothing here, where the user gave them; `why` is the sentence."""
    if wrong := [name for name in names if name in args.given]:
        raise CurvescopeError(f"{why}: omit {', '.join(wrong)}.")


def group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """The group of options with a title, which is added at the first call."""
    titled = (group for group in parser._action_groups if group.title == title)
    return next(titled, None) or parser.add_argument_group(title)


def split_at_program(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before --, and the command of a program after it."""
    before = list(itertools.takewhile(lambda argument: argument != "--", arguments))
    return before, list(arguments[len(before) + 1 :])


def _fill_description(text: str) -> str:
    """A description whose sentences fill the width; examples, which are indented, stay
    unmodified.
    """
    width = min(shutil.get_terminal_size().columns - 2, 100)
    paragraphs = []
    for part in text.strip().split("\n\n"):
        paragraphs.append(part if part.startswith(" ") else textwrap.fill(part, width))
    return "\n\n".join(paragraphs)
