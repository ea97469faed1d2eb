"""The cell magic of notebooks: with a shell that a test holds, and in a real notebook."""

import json
from types import SimpleNamespace

import pytest

import curvescope
from curvescope.base.errors import CurvescopeError

from ..tables import ask_each

CELL = "def make_step(batch):\n    return lambda: sum(range(20_000 * batch))\n"


class Shell:
    """Runs cells in names of its own, as IPython does."""

    def __init__(self):
        self.user_ns, self.magics = {}, {}

    def run_cell(self, raw_cell):
        try:
            exec(raw_cell, self.user_ns)
        except ZeroDivisionError:
            return SimpleNamespace(success=False)
        return SimpleNamespace(success=True)

    def register_magic_function(self, func, magic_kind, magic_name):
        self.magics[magic_kind, magic_name] = func


@pytest.fixture
def shell(monkeypatch):
    """A shell with the extension; measurements return what they were asked for."""
    loaded = Shell()
    curvescope.load_ipython_extension(loaded)
    monkeypatch.setattr(
        curvescope,
        "diagnose",
        lambda make_step, values, **how: {"step": make_step, "values": values, **how},
        raising=False,
    )
    return loaded


def test_the_step_of_the_cell_is_measured_with_the_options_of_the_line(shell):
    run = shell.magics["cell", "curvescope"]
    asked = run("--axis tokens=8..64*4 --axis batch=2 --quick --device cpu -o runs/n", CELL)
    assert asked["step"] is shell.user_ns["make_step"]
    assert (asked["values"], asked["axis"], asked["fixed"]) == ((8, 32), "tokens", {"batch": 2})
    assert (asked["protocol"], asked["experiments_s"], asked["device"]) == ("quick", 15.0, "cpu")
    assert str(asked["output"]) == "runs/n"


def test_without_options_the_defaults_are_those_of_the_command(shell):
    asked = shell.magics["cell", "curvescope"]("", CELL)
    assert asked["values"] == (1, 2, 4, 8, 16, 32)
    assert (asked["protocol"], asked["experiments_s"], asked["probe"]) == ("default", None, 0.15)


def test_a_cell_that_fails_is_not_measured(shell):
    assert shell.magics["cell", "curvescope"]("", f"{CELL}1 / 0\n") is None


def test_a_step_of_an_earlier_cell_is_not_measured_for_one_without_a_step(shell):
    shell.run_cell(CELL)
    with pytest.raises(CurvescopeError, match="defines no make_step"):
        shell.magics["cell", "curvescope"]("", "x = 1\n")


@ask_each("line", ["--bacth 1..4", "--batch 4,2", "--time-limit soon"])
def test_a_wrong_line_is_refused_before_the_cell_runs(line, shell):
    with pytest.raises(CurvescopeError):
        shell.magics["cell", "curvescope"](line, CELL)
    assert "make_step" not in shell.user_ns


def test_help_prints_the_options_and_measures_nothing(shell, capsys):
    assert shell.magics["cell", "curvescope"]("--help", CELL) is None
    assert "--batch SIZES" in capsys.readouterr().out


NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [
        {
            "cell_type": "code",
            "id": f"c{place}",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": source,
        }
        for place, source in enumerate(
            [
                "%load_ext curvescope",
                "%%curvescope --batch 1..8 --quick --time-limit 3 --experiments 0 --device cpu\n"
                + CELL,
                "type(_).__name__, [point.condition for point in _.curve.points]",
            ]
        )
    ],
}


@pytest.mark.slow
def test_in_a_real_notebook_the_value_of_the_cell_is_the_diagnosis_with_its_picture(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.reads(json.dumps(NOTEBOOK), as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, resources=resources).execute()
    _, measured, kept = notebook.cells
    (shown,) = [cell for cell in measured.outputs if cell.output_type == "execute_result"]
    assert "<svg" in shown.data["text/html"]
    assert "ms a step" in shown.data["text/html"]
    assert kept.outputs[0].data["text/plain"] == "('Diagnosis', [1, 2, 4, 8])"
