"""Constants of a script that have other numbers as it runs."""

import subprocess
import sys

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.workload.program import Program

from ...tables import ask_each

SCRIPT = """'''Its own words.'''
from __future__ import annotations
import os, sys
from beside import here

batch_size: int = 3
class Settings:
    batch_size, lr = 1, 2

    def __init__(self):
        self.batch_size = 7

def load(data, batch_size=5, *, workers=1):
    return batch_size

settings = {"batch_size": 4, "workers": 2}
text = "batch_size = 64"
print(__name__, __doc__, os.path.basename(__file__), sys.argv[1:], here)
print(batch_size, Settings().batch_size, load(1), dict(batch_size=9), settings, text)
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "beside.py").write_text("here = 'beside'")
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


def output_of(program):
    done = subprocess.run(program.words({"batch": 32}), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_every_constant_of_the_name_has_the_number_and_all_else_is_as_it_was(script):
    command = (sys.executable, str(script), "--epochs", "2")
    said = output_of(Program(command, assign=("batch_size={batch}",)))
    assert said.splitlines() == [
        "__main__ Its own words. train.py ['--epochs', '2'] beside",
        "32 32 32 {'batch_size': 32} {'batch_size': 32, 'workers': 2} batch_size = 64",
    ]
    assert script.read_text() == SCRIPT


def test_several_constants_are_changed_together(script):
    assign = ("batch_size={batch}", "workers=0")
    assert "{'batch_size': 32, 'workers': 0}" in output_of(
        Program((sys.executable, str(script)), assign=assign)
    )


def test_a_name_that_the_script_has_not_is_said(script):
    said = output_of(Program((sys.executable, str(script)), assign=("bs={batch}",)))
    assert "has no number named bs, as in `bs = 64`" in said


@ask_each(
    ("assign", "command", "says"),
    [
        ("batch_size", "python train.py", "write NAME=NUMBER"),
        ("batch_size={batch}", "python -m train", "no file that ends in .py"),
        ("batch_size=8", "python train.py", "--assign batch_size={batch}"),
    ],
)
def test_a_wrong_assignment_is_refused_before_anything_runs(assign, command, says):
    with pytest.raises(CurvescopeError, match=says):
        Program(tuple(command.split()), assign=(assign,)).check("batch", {})
