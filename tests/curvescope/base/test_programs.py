"""Programs are looked up in absolute folders of PATH alone, also by the rule of Windows."""

import ast
import os
import re
import sys

import pytest

from curvescope.base.programs import find_program
from curvescope.profiling.readers.nsight_reports import convert_report

from ...shared import ROOT

ROOMS = ("curvescope", "profiling", "analysis", "kernels", "experiments")


def plant(path, text="#!/bin/sh\ntouch ran\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture(params=["linux", "win32"])
def folder(request, tmp_path, monkeypatch):
    """A working folder with a program, which an installed one has too."""
    ending = ".EXE" if request.param == "win32" else ""
    plant(tmp_path / "work" / f"nsys{ending}")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "platform", request.param)
    monkeypatch.setenv("PATHEXT", ".COM;.EXE")
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", "../work", str(tmp_path / "none")]))
    return tmp_path


def test_no_program_of_the_working_folder_is_one(folder):
    assert find_program("nsys") is None


def test_an_installed_program_is_found_behind_relative_folders(folder, monkeypatch):
    ending = ".EXE" if sys.platform == "win32" else ""
    installed = plant(folder / "bin" / f"nsys{ending}")
    monkeypatch.setenv("PATH", os.pathsep.join([".", str(folder / "bin")]))
    assert find_program("nsys") == installed


def test_a_program_that_is_named_by_its_path_is_found(folder):
    assert find_program("./nsys") is not None
    assert find_program(str(folder / "work" / "nsys")) is not None
    assert find_program("./other") is None


@pytest.mark.first_rows(1)
def test_reading_a_report_runs_no_program_of_the_working_folder(folder):
    report = folder / "work" / "x.nsys-rep"
    report.write_bytes(b"NVID" + bytes(4000))
    assert convert_report(report, folder / "work") is None
    assert not (folder / "work" / "ran").exists()


def test_a_folder_or_a_file_that_cannot_be_run_is_no_program(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").touch(0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("a") is None
    assert find_program("b") is None


def nodes_with(pattern):
    """The nodes of every module of the product whose text has the pattern, with its path."""
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 300
    for path in files:
        text = path.read_text()
        if re.search(pattern, text):
            yield from ((path, node) for node in ast.walk(ast.parse(text)))


def test_no_other_lookup_stands_in_the_product():
    found = []
    for path, node in nodes_with(r"\.which\b|\bshutil\b"):
        is_attribute = isinstance(node, ast.Attribute) and node.attr == "which"
        is_import = isinstance(node, ast.ImportFrom) and node.module == "shutil"
        if is_attribute or (is_import and "which" in (alias.name for alias in node.names)):
            found.append(f"{path}:{node.lineno}")
    assert found == []


STARTS = ("run", "Popen", "check_output", "run_process")


def test_no_program_is_started_by_its_bare_name():
    """Windows looks for such a name in the working folder first."""
    started = []
    for path, node in nodes_with(rf"\.({'|'.join(STARTS)})\b"):
        is_start = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if is_start and node.func.attr in STARTS:
            command = node.args[0] if node.args else None
            first = command.elts[0] if isinstance(command, ast.List) else None
            if isinstance(first, ast.Constant):
                started.append(f"{path}:{node.lineno}")
    assert started == []
