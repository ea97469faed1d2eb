"""Every command that reads recordings, on every kind of recording: an answer, or a sentence that
refuses, and never a traceback.

Kinds, commands and options are discovered: a new one joins by itself, or fails here by name.
"""

import argparse
import json
import shutil
import traceback
from functools import cache

import pytest

from curvescope.cli import COMMANDS
from curvescope.commands.scale import PARTS as SCALE
from curvescope.profiling.readers import READERS

from ..profiling.readers.fuzzing import SEEDS
from ..shared import PROFILES, shared_folder
from ..tables import ask_each, grade
from .kinds_of_recordings import MADE, of_readers, of_stored

# The kinds on which every option is tried: the richest of each origin.
FOR_OPTIONS = ("own step", "table of times", "nsys_sqlite 1")
# Positional arguments that are recordings, by `dest`.
RECORDED = {"recording", "recordings", "ranks", "base", "root", "file"}
# Positional arguments that are left out, where an argument of RECORDED is there.
LEFT_OUT = {"others", "program"}
# Commands that read no recording, or that read it when an agent asks.
WITHOUT = {
    *("diagnose", "sweep", "scale", "bench", "record", "attach", "step", "doctor", "mcp"),
    "scale measure",
}
# Options that are always given: what is written goes into the test's folder, and what measures ends
# soon.
ALWAYS = {
    "report": ["-o", "new"],
    "export": ["-o", "new"],
    "import": ["-o", "new"],
    "confirm": ["--experiments", "1s", "--run-its-code"],
    "scale read": ["--workers", "1"],
}
# A value for each option that takes one; BATCH, PAIR: sizes of the recording.
VALUES = {
    "--at": "BATCH",
    "--acceptance": "70%",
    "--against": "1",
    "--batch": "BATCH",
    "--capture": "RUN",
    "--count": "4",
    "--gpu": "0",
    "--diff": "train.py",
    "--explain": "0",
    "--fail-over": "5%",
    "--histogram": "RUN",
    "--limit": "30ms",
    "--memory-limit": "1GB",
    "--noise": "2%",
    "--pair": "PAIR",
    "--present": "1,2,4",
    "--problem": "conv",
    "--process": "0",
    "--range-pattern": "L_(?P<layer>.+)",
    "--steps": "whole",
    "--summary": "new.md",
}
# Options that measure, or that need a server: they have tests of their own.
UNTRIED = {
    "compare": {
        *("--measure", "--framework", "--mode", "--step", "--step-range", "--step-line"),
        *("--step-function", "--device", "--batch", "--time-limit", "--output"),
        "--junit",  # with --fail-over
    },
    "confirm": {
        *("--experiments", "--lock-clocks", "--run-its-code"),
        *("--all", "--json"),  # of what it prints, as `explain` does
    },
    "explain": {"--svg"},
    "export": {"--output"},
    "import": {"--output"},
    "scale read": {"--scheduler", "--workers"},
    "report": {"--output"},
    "roofline": {"--svg"},
    "runs": {"--store"},
}
NEEDED = {
    "compare": ["RUN"],
    "compare --format": ["--steps"],
    "compare --published": ["--steps"],
    "scale read --against": ["--explain", "0"],
}
# What has a parser of its own: commands, and parts of `scale`.
PARSED = {**COMMANDS, **{f"scale {name}": part for name, part in SCALE.items()}}


def reads(command):
    """Whether the command takes a recording."""
    places = {action.dest for action in parser_of(command)._get_positional_actions()}
    return bool(places & RECORDED)


@cache
def parser_of(command):
    return PARSED[command].build()[0]


READING = [command for command in PARSED if command not in WITHOUT]


def plain_line(command):
    """The words of the command with no option but the needed ones."""
    words = ["RUN", *NEEDED.get(command, []), *ALWAYS.get(command, [])]
    for group in parser_of(command)._mutually_exclusive_groups:
        if group.required:
            words.append(group._group_actions[0].option_strings[0])
    return words


def option_lines(command):
    """The words of the command with each of its options, and each of their choices."""
    parser, untried = parser_of(command), UNTRIED.get(command, set())
    exclusive = [group for group in parser._mutually_exclusive_groups if group.required]
    for action in parser._get_optional_actions():
        name = action.option_strings[-1]
        if name in untried or isinstance(action, argparse._HelpAction):
            continue
        words = ["RUN", *NEEDED.get(command, []), *ALWAYS.get(command, [])]
        words += NEEDED.get(f"{command} {name}", [])
        for group in exclusive:
            if action not in group._group_actions:
                words.append(group._group_actions[0].option_strings[0])
        if action.nargs == 0:
            yield [*words, name]
            continue
        for value in action.choices or [VALUES[name]]:
            if value != action.default:
                yield [*words, name, str(value)]


def test_a_command_reads_recordings_or_is_listed_as_one_that_reads_none():
    """A new command that names its argument otherwise is listed in RECORDED or in WITHOUT."""
    assert {command for command in PARSED if not reads(command)} == WITHOUT


@ask_each("command", READING)
def test_every_option_has_a_value_and_every_exception_is_an_option(command):
    options = {
        action.option_strings[-1]: action
        for action in parser_of(command)._actions[1:]
        if action.option_strings
    }
    untried = UNTRIED.get(command, set())
    assert untried <= options.keys()
    for name in options.keys() - untried - VALUES.keys():
        assert options[name].nargs == 0 or options[name].choices, name


def test_every_reader_has_a_sample():
    assert SEEDS.keys() == set(READERS)


def all_kinds():
    kinds = {**MADE, **of_readers()}
    stored = of_stored()
    assert not kinds.keys() & stored.keys()
    return kinds | stored


KINDS = all_kinds()


# Of twelve lines `make test` tries one, of every other kind, `make test-ci` three more, and `make
# test-all` the others.
DEALT = 12
QUICK = [name for name, kind in KINDS.items() if not kind.slow and not kind.exhaustive][::2]
SHARES = {"quick": range(1), "in CI": range(1, 4), "others": range(4, DEALT)}


def deal(lines, name, share):
    """The lines of a kind in a share.

    The next quick kind begins with another line: every line is quick for some kind, and every kind
    has some quick lines.
    """
    first = (QUICK if name in QUICK else [*KINDS]).index(name)
    dealt = enumerate(lines, first)
    return [line for place, line in dealt if place % DEALT in SHARES[share]]


def parameters(names, quick):
    """Kinds and shares of their lines; kinds that take long, or ask what another asks, are slow."""
    chosen = []
    for name in names:
        kind = KINDS[name]
        for share in SHARES:
            marks = []
            if kind.slow or kind.exhaustive or share != "quick" or name not in quick:
                marks.append(pytest.mark.slow)
            if kind.exhaustive or share == "others":
                marks.append(pytest.mark.exhaustive)
            chosen.append(pytest.param(name, share, marks=marks, id=f"{name}-{share}"))
    return chosen


@pytest.fixture
def kind(request, tmp_path_factory, tmp_path, command):
    """A recording of a kind, in a folder of the test's own."""
    name = request.param

    def make(folder):
        KINDS[name].make(folder / "r", command)

    made = shared_folder(tmp_path_factory, f"kind-{name}".replace(" ", "-"), make) / "r"
    (shutil.copytree if made.is_dir() else shutil.copy)(made, tmp_path / "r")
    return tmp_path / "r"


def fill(words, recording):
    """The words with the recording in its place, and with its batch sizes."""
    file = recording / "recording.json"
    batches = json.loads(file.read_text()).get("batches") if file.exists() else None
    batches = [str(batch) for batch in batches or (1, 2)]
    places = {"RUN": str(recording), "BATCH": batches[-1], "PAIR": ",".join(batches[:2])}
    return [places.get(word, word) for word in words]


def fault_of(command, words, recording, run):
    """What is wrong with the end of a command; None if it ends well."""
    for written in (recording.parent / "new", recording.parent / "runs"):
        if written.is_dir():
            shutil.rmtree(written)
        written.unlink(missing_ok=True)
    try:
        done = run(*command.split(), *fill(words, recording), cwd=recording.parent)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
    if done.returncode == 0 or (done.returncode == 1 and "--fail-over" in words):
        return None
    said = " ".join(done.stderr.split())
    if done.returncode != 2:
        return f"exit code {done.returncode}: {said}"
    sentence = said.rpartition("curvescope: ")[2]
    accident = "A file operation failed" in sentence or "cannot be imported" in sentence
    if accident or "usage:" in said or len(sentence) < 20:
        return f"refused without a sentence: {said}"
    return None


def check(lines, recording, run):
    faults = {}
    for command, words in lines:
        fault = fault_of(command, words, recording, run)
        if fault is not None:
            faults[f"{command} {' '.join(words)}"] = fault
    assert not faults, "\n".join(f"{line}: {fault}" for line, fault in faults.items())


def with_options(command):
    return [(command, words) for words in option_lines(command)]


def every_option():
    return [line for command in READING for line in with_options(command)]


@pytest.mark.parametrize(("kind", "share"), parameters(KINDS, QUICK), indirect=["kind"])
def test_no_command_ends_in_a_traceback(kind, share, command, request):
    lines = [(name, plain_line(name)) for name in READING]
    check(deal(lines, request.node.callspec.params["kind"], share), kind, command)


@pytest.mark.parametrize(("kind", "share"), parameters(FOR_OPTIONS, FOR_OPTIONS), indirect=["kind"])
def test_no_option_ends_in_a_traceback(kind, share, command, request):
    check(deal(every_option(), request.node.callspec.params["kind"], share), kind, command)


def test_every_line_is_quick_for_some_kind_and_every_kind_has_quick_lines():
    lines = [(name, plain_line(name)) for name in READING]
    quick = {name: deal(lines, name, "quick") for name in KINDS if not KINDS[name].exhaustive}
    assert all(quick.values())
    asked = [line for name in QUICK for line in quick[name]]
    assert all(line in asked for line in lines)
    for name in KINDS:
        dealt = [line for share in SHARES for line in deal(lines, name, share)]
        assert sorted(dealt) == sorted(lines)


def pytest_generate_tests(metafunc):
    """Profiles of others: ours, or all in the folder that `--profiles` names."""
    if "profile" not in metafunc.fixturenames:
        return
    folder = metafunc.config.getoption("--profiles")
    files = sorted((folder or PROFILES).iterdir())
    profiles = [path for path in files if path.suffix not in (".md", ".py")]
    rows = profiles if folder else grade(profiles, quick=(), in_ci=profiles[::12])
    metafunc.parametrize("profile", rows, ids=lambda path: path.name)


def test_no_command_ends_in_a_traceback_on_a_profile_of_others(profile, tmp_path, command):
    """The file is imported again by `import`; the other commands take the recording of it, or the
    file, where that is refused.
    """
    shutil.copy(profile, tmp_path)
    imported = command("import", profile.name, "-o", "r", cwd=tmp_path)
    assert imported.returncode in (0, 2)
    recording = tmp_path / ("r" if imported.returncode == 0 else profile.name)
    check([(one, plain_line(one)) for one in READING if one != "import"], recording, command)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [name for name in KINDS if name not in FOR_OPTIONS], indirect=True)
def test_no_option_ends_in_a_traceback_on_any_other_kind(kind, command):
    check(every_option(), kind, command)
