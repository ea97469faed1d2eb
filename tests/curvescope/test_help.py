"""The help of the commands: few options in a list, many in groups."""

import re

from curvescope.cli import COMMANDS, INSTEAD, JOBS, main
from curvescope.commands.bench import BENCHES
from curvescope.commands.scale import PARTS as SCALE

from ..tables import ask_each

LONGEST_LIST = 9  # options that are read well without groups, with --help
MOST = 20
MOST_COMMANDS = 20


def test_the_first_page_names_every_command_once_by_job(command, tmp_path):
    text = command("--help", cwd=tmp_path).stdout
    assert max(map(len, text.splitlines())) <= 80
    for job, commands in JOBS.items():
        section = text.partition(f"\n{job}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines() if line[2] != " "] == [
            one.name for one in commands
        ]
    assert len(COMMANDS) <= MOST_COMMANDS
    assert all(f"  {name} " in command("bench", "--help", cwd=tmp_path).stdout for name in BENCHES)
    assert all(f"  {name} " in command("scale", "--help", cwd=tmp_path).stdout for name in SCALE)


@ask_each(("word", "instead"), INSTEAD.items())
def test_a_word_that_is_no_command_gets_one_line_with_what_to_type(word, instead, capsys):
    """The line is a command line that its parser takes."""
    assert main([word, "x"]) == 2
    said = capsys.readouterr().err
    assert said == f"curvescope: There is no command {word}: type `curvescope {instead}`.\n"
    name, *arguments = instead.split()
    if name in COMMANDS:
        COMMANDS[name].build()[0].parse_args(arguments)


def test_arguments_are_given_where_their_values_are_not_their_defaults():
    parser, _ = COMMANDS["sweep"].build()
    line = ["--step", "x", "--mode", "training", "--quick", "--", "python", "x.py"]
    assert parser.parse_args(line).given == {"--step", "--protocol", "--quick", "-- COMMAND"}
    assert parser.parse_args(["alexnet"]).given == {"network"}


@ask_each(
    "name",
    [
        *COMMANDS,
        *(f"bench {name}" for name in BENCHES),
        *(f"scale {name}" for name in SCALE),
    ],
)
def test_no_list_of_options_is_long_without_groups(name, command, tmp_path):
    done = command(*name.split(), "--help", cwd=tmp_path, code=0)
    text = done.stdout
    options = text.count("\n  -")
    assert options <= MOST + 1  # and --help
    assert "\noutput:" in text or options <= LONGEST_LIST
    assert re.match(rf"usage: curvescope {name}\b", text)
    assert max(len(line) for line in text.splitlines() if not line.startswith("  ")) <= 80


def test_groups_say_what_how_long_and_where_output_goes(command, tmp_path):
    text = command("diagnose", "--help", cwd=tmp_path).stdout
    titles = [
        line[:-1] for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")
    ]
    assert titles == [
        "arguments",
        "what to measure",
        "where it runs",
        "how long and how exactly",
        "output",
    ]
    assert (
        text.index("where it runs:")
        < text.index("--device")
        < text.index("how exactly:")
        < text.index("--json")
    )


def test_a_wrong_option_gets_one_line_of_usage(command, tmp_path):
    done = command("diagnose", "--nonsense", cwd=tmp_path, code=2)
    assert len(done.stderr.splitlines()) == 2
