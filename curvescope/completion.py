"""Completion of the command line in a shell, for `doctor --completion`: commands, options and their
choices, networks, GPUs, and the recordings in `runs/`.

The script knows all but the recordings when it is printed, so that completing starts no Python.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping

from .cli import COMMANDS
from .parsers import Part

# Positional arguments that are recordings or networks, and options that are GPUs, by `dest`.
_RECORDINGS = ("recording", "recordings", "base", "others", "root", "ranks")
_NETWORKS, _CARDS = ("network",), ("card",)
_RUNS = "RUNS"  # in the script, for the recordings in `runs/`

_FUNCTION = """\
_curvescope() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}
  local words='' IFS=$' \\t\\n' networks='@NETWORKS@' cards='@CARDS@' run
  if [[ $COMP_CWORD -gt 2 && " @PARTS@ " == *" $command ${COMP_WORDS[2]} "* ]]; then
    command="$command ${COMP_WORDS[2]}"
  fi
  if [[ $COMP_CWORD -eq 1 ]]; then
    words='@COMMANDS@'
  else
    case "$command $before" in
@CHOICES@
    *)
      if [[ $word == -* ]]; then
        case $command in
@OPTIONS@
        esac
      else
        case $command in
@PLACES@
        esac
      fi
      ;;
    esac
  fi
  COMPREPLY=($(compgen -W "${words/RUNS/}" -- "$word"))
  if [[ $words == *RUNS* ]]; then
    for run in runs/*/recording.json; do  # not among the words, as bash runs what $(...) names
      run=${run%/recording.json}
      [[ -f $run/recording.json && $run == "$word"* ]] && COMPREPLY+=("$run")
    done
  fi
}
complete -o default -F _curvescope curvescope
"""


def script_for(shell: str) -> str:
    """The completion script of a shell."""
    from .profiling.hardware.devices import devices
    from .profiling.workload.networks import names

    parts = _list_parts()
    parsers = {name: part.build()[0] for name, part in parts.items()}
    lines: dict[str, list[str]] = {"CHOICES": [], "OPTIONS": [], "PLACES": []}
    for name, parser in parsers.items():
        lines["OPTIONS"].append(_case(name, _list_options(parser)))
        lines["PLACES"].append(_case(name, _list_places(name, parser, parts)))
        lines["CHOICES"] += _list_choices(name, parser)
    filled = {
        "COMMANDS": " ".join(COMMANDS),
        "PARTS": " ".join(name for name in parts if " " in name),
        "NETWORKS": " ".join(names()),
        "CARDS": " ".join(device.key for device in devices()),
        **{key: "\n".join(cases) for key, cases in lines.items()},
    }
    script = _FUNCTION
    for key, text in filled.items():
        script = script.replace(f"@{key}@", text)
    begin = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return begin + script


def _list_parts() -> dict[str, Part]:
    """The commands and their parts, e.g. `bench gemm`, by the words that begin them."""
    from .commands.bench import BENCHES
    from .commands.scale import PARTS

    parts: dict[str, Part] = {**COMMANDS}
    groups: Mapping[str, Mapping[str, Part]] = {"bench": BENCHES, "scale": PARTS}
    for command, of_command in groups.items():
        parts |= {f"{command} {name}": part for name, part in of_command.items()}
    return parts


def _case(name: str, words: str) -> str:
    return f"        {shlex.quote(name)}) words={words} ;;"


def _list_options(parser: argparse.ArgumentParser) -> str:
    flags = [flag for action in _list_shown(parser) for flag in action.option_strings]
    return shlex.quote(" ".join(flags))


def _list_places(name: str, parser: argparse.ArgumentParser, parts: Mapping[str, Part]) -> str:
    """The words of the positional arguments: parts, networks, or recordings."""
    inside = [part.removeprefix(f"{name} ") for part in parts if part.startswith(f"{name} ")]
    names = {action.dest for action in parser._actions if not action.option_strings}
    words = list(inside)
    if names & {*_RECORDINGS}:
        words.append(_RUNS)
    listed = shlex.quote(" ".join(words))
    return f'{listed}" $networks"' if names & {*_NETWORKS} else listed


def _list_choices(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """A case for each option with choices, or with the name of a GPU."""
    for action in _list_shown(parser):
        flags = "|".join(shlex.quote(f"{name} {flag}") for flag in action.option_strings)
        if action.dest in _CARDS:
            yield f'    {flags}) words="$cards" ;;'
        elif action.choices is not None:
            words = " ".join(map(str, action.choices))
            yield f"    {flags}) words={shlex.quote(words)} ;;"


def _list_shown(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The options that the help shows."""
    for action in parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            yield action
