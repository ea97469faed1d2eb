"""Parsers of commands; the help of a command with many options shows them in groups."""

from __future__ import annotations

import argparse
import shutil
import textwrap

LONGEST_LIST = 8  # options that are read well without groups
_FIRST = {"explain": "what to explain", "import": "what to read", "compile": "what to compile"}
WHAT = "what to measure"
# The names of options in `args`, by group; all others say what to measure. A name means the same in every command.
GROUPS = {
    "where it runs": ("device", "threads", "backend", "scheduler", "workers", "memory_limit", "lock_clocks"),
    "how long and how exactly": (
        *("quick", "protocol", "until", "time_limit", "images", "epochs", "experiments", "warm_up", "timeout", "cache"),
        "no_verify",
    ),
    "modelled GPUs": ("library", "framework", "what_if"),
    "tables of times": ("table", "problem", "noise"),
    "output": ("output", "resume", "base", "fail_over", "all", "json", "help"),
}


class CommandParser(argparse.ArgumentParser):
    """A parser whose help has groups if there are many options."""

    def groups(self) -> dict[str, list[argparse.Action]]:
        """The options that the help shows, by title."""
        options = [action for action in self._actions if action.option_strings and action.help != argparse.SUPPRESS]
        if len(options) <= LONGEST_LIST + 1:  # every command has --help
            return {"options": options}
        first = _FIRST.get(self.prog.split()[-1], WHAT)
        found: dict[str, list[argparse.Action]] = {first: [], **{title: [] for title in GROUPS}}
        titles = {name: title for title, names in GROUPS.items() for name in names}
        for action in options:
            found[titles.get(action.dest, first)].append(action)
        return {title: actions for title, actions in found.items() if actions}

    def format_usage(self) -> str:
        """One line where a list of all options would be longer than what it says."""
        many = len(self.groups()) > 1
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._positionals_shown() if many else self._actions, [])
        usage = formatter.format_help()
        return usage.replace(self.prog, f"{self.prog} [options]", 1) if many else usage

    def format_help(self) -> str:
        """Usage, description, positional arguments, then the options by group."""
        formatter = self._get_formatter()
        formatter.add_text(_filled(self.description or ""))
        for title, actions in {"arguments": self._positionals_shown(), **self.groups()}.items():
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return f"{self.format_usage()}\n{formatter.format_help()}"

    def _positionals_shown(self) -> list[argparse.Action]:
        return [action for action in self._actions if not action.option_strings]


def _filled(text: str) -> str:
    """A description whose sentences fill the width; examples, which are indented, stay as they are."""
    width = min(shutil.get_terminal_size().columns - 2, 100)
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(one if one.startswith(" ") else textwrap.fill(one, width) for one in paragraphs)
