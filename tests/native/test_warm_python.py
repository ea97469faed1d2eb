"""Programs as forks of a warm Python: each has its own answer."""

import os

import pytest

from . import warm_python
from .warm_python import WarmPython


def test_after_a_program_that_hangs_the_next_one_has_its_own_answer(tmp_path, monkeypatch):
    with WarmPython("", ()) as python:
        with monkeypatch.context() as patched:
            patched.setattr(warm_python, "_LONGEST_S", 0.1)
            with pytest.raises(AssertionError, match="the program hangs"):
                python.run("import time; time.sleep(600)", tmp_path, dict(os.environ))
        done = python.run("print(1)", tmp_path, dict(os.environ))
    assert (done.returncode, done.stdout) == (0, "1\n")
