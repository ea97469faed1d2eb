"""Completion in a shell, asked as a shell asks it; and the man page."""

import shutil
import subprocess

import pytest

from curvescope.cli import COMMANDS
from curvescope.completion import script_for

from ..shared import load_script
from ..tables import ask_each

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
ASK = """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_curvescope
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script():
    return script_for("bash")


@pytest.fixture
def complete(script, tmp_path):
    """The words that bash offers for the last word of a line, in a folder with two recordings."""
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "recording.json").touch()
    (tmp_path / "runs" / "other").mkdir()

    def ask(*words):
        line = ["bash", "-c", script + ASK, "bash", "curvescope", *words]
        done = subprocess.run(line, cwd=tmp_path, check=True, capture_output=True, text=True)
        assert not done.stderr
        return done.stdout.split()

    return ask


@needs_bash
@ask_each(
    ("words", "offered"),
    [
        (("dia",), ["diagnose"]),
        (("explain", ""), ["runs/a", "runs/b"]),
        (("compare", "runs/a", ""), ["runs/a", "runs/b"]),
        (("diagnose", "vgg"), ["vgg16", "vgg19", "vgg_a"]),
        (("diagnose", "alexnet", "--card", "gtx1080"), ["gtx1080", "gtx1080ti"]),
        (("diagnose", "alexnet", "--mo"), ["--mode"]),
        (("explain", "runs/a", "--mode", "d"), ["decode"]),
        (("bench", "ge"), ["gemm"]),
        (("scale", "r"), ["read"]),
        (("record", "--", "python", "tr"), []),  # of files, by the shell
    ],
)
def test_a_line_is_completed(words, offered, complete):
    assert sorted(complete(*words)) == offered


@needs_bash
def test_the_name_of_a_recording_is_not_run(complete, tmp_path):
    recording = tmp_path / "runs" / "$(touch made)"
    recording.mkdir()
    (recording / "recording.json").touch()
    assert "made)" in complete("explain", "runs/$")
    complete("explain", "")
    assert not (tmp_path / "made").exists()


@needs_bash
def test_every_command_and_its_options_are_offered(complete):
    assert set(complete("")) == set(COMMANDS)
    for name, command in COMMANDS.items():
        flags = {flag for action in command.build()[0]._actions for flag in action.option_strings}
        assert set(complete(name, "--")) <= flags, name
        assert "--help" in complete(name, "--he"), name


def test_the_script_is_printed_by_doctor_and_zsh_reads_it_as_bash_does(text_of, script):
    assert text_of("doctor", "--completion", "bash") == script
    zsh = text_of("doctor", "--completion", "zsh")
    assert zsh.startswith("autoload -U +X bashcompinit")
    assert zsh.endswith(script)


def test_the_man_page_has_every_command_and_no_line_that_is_lost():
    page = load_script("docs/man_page.py").man_page()
    requests = {line.split()[0] for line in page.splitlines() if line.startswith(".")}
    assert requests == {".TH", ".SH", ".TP", ".B", ".I", ".PP"}
    for name in COMMANDS:
        assert f"\n.SH {name.upper()}\n" in page
    assert r".B \-\-batch SIZES" in page
    assert not any(line.startswith("'") for line in page.splitlines())
