"""What docs/bench.md shows is what the command prints."""

import contextlib
import io
from pathlib import Path

import pytest

from curvescope.base.errors import BackendMissingError
from curvescope.cli import main
from curvescope.kernels import compile as nvrtc
from curvescope.kernels.catalog import KERNELS

PAGE = (Path(__file__).parents[2] / "docs" / "bench.md").read_text()


@pytest.mark.slow
def test_the_table_shown_is_the_table_printed(monkeypatch):
    try:
        nvrtc.compiler_for(35)
    except BackendMissingError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("COLUMNS", "80")
    command, _, shown = PAGE.split("```\n$ curvescope ")[1].split("\n…\n")[0].partition("\n")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(command.split()) == 0
    assert "\n".join(line.rstrip() for line in printed.getvalue().splitlines()).startswith(shown)


def test_every_source_is_on_the_page():
    assert all(f"`{source}.cu`" in PAGE for source in {kernel.source for kernel in KERNELS})
