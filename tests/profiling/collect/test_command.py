"""The user's command under a recorder, where it is interrupted."""

import signal
import subprocess
import sys

import pytest

from curvescope.profiling.collect.command import run_command

SEVEN = (sys.executable, "-S", "-c", "raise SystemExit(7)")


def interrupt_in(monkeypatch, name):
    """Ctrl-C inside a method of `Popen`: it has done its work, and did not return yet."""
    method = getattr(subprocess.Popen, name)

    def interrupted(*arguments, **options):
        result = method(*arguments, **options)
        monkeypatch.setattr(subprocess.Popen, name, method)
        signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(subprocess.Popen, name, interrupted)


@pytest.mark.parametrize("name", ["__init__", "wait"])
def test_interrupted_while_it_starts_or_runs_a_command_is_waited_for(monkeypatch, name):
    interrupt_in(monkeypatch, name)
    assert run_command(SEVEN, 600) == (7, True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_command_that_does_not_end_after_an_interrupt_is_killed(monkeypatch):
    interrupt_in(monkeypatch, "__init__")
    assert run_command((sys.executable, "-S", "-c", "import time; time.sleep(600)"), 0.01) == (137, True)


def test_who_ignores_interrupts_starts_a_command_that_does_too():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asks = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
        assert run_command((sys.executable, "-S", "-c", asks), 1) == (1, False)
    finally:
        signal.signal(signal.SIGINT, before)
