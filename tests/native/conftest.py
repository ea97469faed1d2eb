"""Builds the test doubles of libcupti and of the CUDA driver once per session."""

import os
import shutil
import sys
import textwrap
from contextlib import ExitStack
from functools import cache

import pytest

from curvescope.cli import main
from curvescope.profiling.recording.store import open_recording

from ..shared import shared_folder
from .doubles import COMPILER, HERE, build_doubles
from .warm_python import WarmPython


@pytest.fixture(scope="session")
def doubles(tmp_path_factory):
    """The folder of libcuda.so.1 and libcupti.so.12, both test doubles; the workers of a session
    share it.
    """
    if shutil.which(COMPILER) is None:
        pytest.skip("no C++ compiler to build the test doubles of libcupti and the driver with")
    return shared_folder(tmp_path_factory, "doubles", build_doubles)


@pytest.fixture(scope="session")
def run_warm():
    """Runs a program: its text, the folder and its variables, of which LD_LIBRARY_PATH chooses the
    server.
    """
    with ExitStack() as stack:

        @cache
        def server(libraries):
            return stack.enter_context(WarmPython(libraries))

        def run(program, cwd, environment):
            return server(environment.get("LD_LIBRARY_PATH", "")).run(program, cwd, environment)

        yield run


@pytest.fixture
def on_doubles(doubles):
    """The variables of a program whose driver and libcupti are the doubles."""
    cupti = str(doubles / "libcupti.so.12")
    return {"LD_LIBRARY_PATH": str(doubles), "FAKE_CUPTI": cupti, "CURVESCOPE_CUPTI": cupti}


@pytest.fixture
def run(tmp_path, run_warm):
    """Runs a program in `tmp_path` with these variables besides the usual ones; returns what it
    printed.
    """

    def run(program, **environment):
        done = run_warm(program, tmp_path, {**os.environ, "PYTHONPATH": str(HERE), **environment})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def record_fake(tmp_path, monkeypatch, on_doubles):
    """Records a program that has a fake GPU: its exit code and the recording.

    `options` are the command's, further keywords the program's environment.
    """

    def record(program, *, cupti=None, options=(), **environment):
        source = tmp_path / "program.py"
        source.write_text("from fake_gpu import FakeGpu, launch\n" + textwrap.dedent(program))
        path = tmp_path / f"recording{len(list(tmp_path.iterdir()))}"
        chosen = {} if cupti is None else {"CURVESCOPE_CUPTI": cupti}
        for name, value in {**on_doubles, **chosen, "PYTHONPATH": str(HERE), **environment}.items():
            monkeypatch.setenv(name, value)
        code = main(["record", "-o", str(path), *options, "--", sys.executable, str(source)])
        return code, open_recording(path)

    return record
