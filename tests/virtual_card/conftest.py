"""The virtual card of a session, and programs on it.

Without torch's CUDA build nothing is collected.
"""

from __future__ import annotations

import json
import sysconfig
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..native.warm_python import WarmPython
from .build import build, headers
from .card import LIBRARIES, ROOT, Card, loading

_SITE = Path(sysconfig.get_paths()["purelib"])
collect_ignore_glob = [] if all(folder.exists() for folder in headers(_SITE)) else ["test_*.py"]

# What nearly every program here imports, once for all of them.
_IMPORTS = (
    "torch",
    "torch._dynamo",  # by every optimizer
    "pandas",
    "pyarrow.parquet",
    "curvescope.cli",
    "curvescope.profiling.workload.any_workload",
)

_QUICK_END = f"""
import sys
sys.path.append({str(ROOT)!r})
from tests.virtual_card.forked import end_quickly
end_quickly()
"""


@pytest.fixture(scope="session")
def libraries() -> Path:
    """The folder of the virtual card's libraries, which the command line shares."""
    return build(LIBRARIES).parent


@pytest.fixture(scope="session")
def _server(libraries: Path) -> Iterator[WarmPython]:
    variables = loading(libraries)
    with WarmPython(variables.pop("LD_LIBRARY_PATH"), _IMPORTS, variables) as server:
        yield server


@pytest.fixture
def run_on(tmp_path: Path, libraries: Path, _server: WarmPython) -> Callable[..., str]:
    """Runs a program on a `Card`, in `tmp_path`, with further variables; returns what
    it printed.
    """

    def run(card: Card, program: str, as_any_program: bool = False, **environment: str) -> str:
        chosen = card.environment(tmp_path / "card", libraries)
        program = textwrap.dedent(program) + ("" if as_any_program else _QUICK_END)
        done = _server.run(program, tmp_path, {**chosen, **environment})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def answer_of(run_on: Callable[..., str]) -> Callable[..., Any]:
    """Runs a program on a `Card`; returns what it printed last, as JSON."""

    def run(card: Card, program: str, **environment: str) -> Any:
        return json.loads(run_on(card, program, **environment).splitlines()[-1])

    return run


@pytest.fixture
def curvescope_on(run_on: Callable[..., str]) -> Callable[..., str]:
    """Runs a command of Curvescope on a `Card`, in `tmp_path`; returns what it printed."""

    def run(card: Card, *words: object, **environment: str) -> str:
        program = f"""
            import sys
            from curvescope.cli import main
            sys.path.insert(0, "")
            if code := main({[str(word) for word in words]!r}):
                sys.exit(code)
        """
        return run_on(card, program, **environment)

    return run
