"""The user's command under a recorder, where it is asked to end; tests/native/test_endings.py has
whole recordings.
"""

import signal
import subprocess
import sys

import pytest

from curvescope.profiling.collect import command
from curvescope.profiling.collect.command import Ending, run_command

PYTHON = (sys.executable, "-S", "-c")
SEVEN = (*PYTHON, "raise SystemExit(7)")
SLEEPS = (*PYTHON, "import time; time.sleep(600)")


def interrupt_in(monkeypatch, name, skipped=0):
    """Ctrl-C inside a method of `Popen`, which has done its work and did not return yet, in a later
    call.
    """
    method = getattr(subprocess.Popen, name)
    calls = []

    def interrupted(*arguments, **options):
        result = method(*arguments, **options)
        calls.append(arguments)
        if len(calls) > skipped:
            monkeypatch.setattr(subprocess.Popen, name, method)
            signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(subprocess.Popen, name, interrupted)


@pytest.mark.parametrize("skipped", [0, 1], ids=["beside it", "itself"])
def test_a_signal_while_the_command_is_started_reaches_it(monkeypatch, skipped):
    interrupt_in(monkeypatch, "__init__", skipped)
    assert run_command(SLEEPS) == Ending(130, "SIGINT")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_as_the_command_ends_changes_nothing(monkeypatch):
    interrupt_in(monkeypatch, "wait")
    assert run_command(SEVEN) == Ending(7, "SIGINT")


def test_a_command_that_does_not_end_is_waited_for_and_named(monkeypatch, tmp_path, capsys):
    """It ends once the line was printed."""
    said = tmp_path / "said"
    say = command._Program._say_waiting

    def say_and_go_on(program):
        say(program)
        said.touch()

    monkeypatch.setattr(command._Program, "_say_waiting", say_and_go_on)
    monkeypatch.setattr(command, "_PATIENCE_S", 0.01)
    waits = (
        "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"os.kill(os.getppid(), signal.SIGTERM)\nwhile not os.path.exists({str(said)!r}): "
        "time.sleep(0.01)\n"
        "sys.exit(7)"
    )
    assert run_command((*PYTHON, waits)) == Ending(7, "SIGTERM")
    assert "waiting for" in capsys.readouterr().err


def test_who_ignores_interrupts_starts_a_command_that_does_too():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asks = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
        assert run_command((*PYTHON, asks)) == Ending(1, None)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_command_without_a_witness_gets_every_signal(monkeypatch):
    """`cat` is not on PATH: nobody knows whether a signal reached the command by itself."""
    monkeypatch.setenv("PATH", "")
    kills = "import os, signal, time; os.kill(os.getppid(), signal.SIGUSR1); time.sleep(600)"
    assert run_command((*PYTHON, kills)) == Ending(138, None)
