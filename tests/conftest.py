"""What several rooms' tests share."""

from __future__ import annotations

from . import environment  # noqa: F401 - before what reads the variables

# isort: split
import contextlib
import gc
import io
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from curvescope.analysis.render import documents
from curvescope.cli import main
from curvescope.profiling.hardware import heap

from . import explained_once
from .process_state import ProcessState, forget_answers
from .shared import ON_VIRTUAL_CARD, PROFILES, load_script, shared_folder

# A shell starts what it puts into the background with interrupts ignored, and every process that a
# test starts and interrupts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores

# No file of a test outlives a power cut, and waiting for the disk takes milliseconds for each of
# some ten thousand.
os.fsync = lambda _descriptor: None


explained_once.install()

# No example is refused for its time, which a busy machine decides, and every run has the same
# examples. To look for others: `pytest --hypothesis-profile=default`.
settings.register_profile(
    "everywhere", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("everywhere")


@pytest.fixture(autouse=True)
def _process_as_before(pytestconfig: pytest.Config) -> Iterator[None]:
    """A test leaves this process as it found it: the next one runs in it, whichever that is.

    The other fixtures ask for this one: what they change is undone before it looks.
    """
    before = ProcessState()
    yield
    changed = before.put_back()
    forget_answers()
    # What a command changes and does not put back would also stay in the process of a notebook.
    assert pytestconfig.getoption("--shuffle") is None or not changed


@pytest.fixture(autouse=True)
def _glibc_as_usual(_process_as_before: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without thresholds in the environment: Dask sets one, where it starts its workers."""
    for name in heap.VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _files_of_the_user(
    _process_as_before: None,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is read or written in the user's own folder of data; all tests of a run share
    another.
    """
    monkeypatch.setenv("CURVESCOPE_DATA", str(tmp_path_factory.getbasetemp() / "data"))


@pytest.fixture(autouse=True)
def _documents_fit_their_schema(_process_as_before: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every document that a command prints in this process is held to its schema, where jsonschema
    is installed.
    """
    if find_spec("jsonschema") is None:  # a GPU machine without a network
        return
    as_text = documents.document_text

    def checked(document):
        text = as_text(document)
        document_validator(documents.kind_of(type(document))).validate(json.loads(text))
        return text

    monkeypatch.setattr(documents, "document_text", checked)


@cache
def document_validator(schema):
    """Validator of the documents of one kind, which takes no field that their schema
    does not name.
    """
    import jsonschema

    definitions = _strict_definitions()
    (name,) = (
        name
        for name, one in definitions.items()
        if one.get("properties", {}).get("schema", {}).get("const") == schema
    )
    return jsonschema.Draft202012Validator({"$defs": definitions, "$ref": f"#/$defs/{name}"})


@cache
def _strict_definitions():
    definitions = load_script("docs/document_schema.py").document_schema()["$defs"]
    for definition in definitions.values():
        if "properties" in definition:
            definition["additionalProperties"] = False
    return definitions


@pytest.fixture(scope="session")
def imported_profile(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of recordings of `data/profiles`, each imported once with the usual options; tests
    only read them.
    """

    def get(name: str) -> Path:
        from curvescope.profiling.readers import import_profile

        def make(folder: Path) -> None:
            import_profile(PROFILES / name, folder / "r")

        return shared_folder(tmp_path_factory, f"imported-{name}", make) / "r"

    return get


# The command line in this process: most commands take longer to start than to do.


def run_command(*arguments, cwd, code=None):
    """Run a command in a folder; return its exit code, which is `code`, and what it printed, as of
    an own process.
    """
    out, err = io.StringIO(), io.StringIO()
    before, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
    os.chdir(cwd)
    forget_answers()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            ended = main([str(argument) for argument in arguments])
    except SystemExit as exited:
        ended = exited.code
    finally:
        os.chdir(before)
        sys.path[:] = path
        _forget_modules_of(cwd, modules)
    assert code is None or ended == code, err.getvalue()
    return subprocess.CompletedProcess(arguments, ended, out.getvalue(), err.getvalue())


def _forget_modules_of(folder, kept):
    """Another test's script may have the same name, and an own process would import that one.

    Modules that were there before, `kept`, stay: in the root of the project these are the tests.
    """
    for name in sys.modules.keys() - kept:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(folder):
            del sys.modules[name]


@pytest.fixture(scope="session")
def command():
    """`run_command`, for tests and for the fixtures of modules."""
    return run_command


@pytest.fixture
def text_of(capsys):
    """Run a command in the current folder; return what it prints."""

    def run(*words, code=0):
        capsys.readouterr()
        assert main([str(word) for word in words]) == code
        return capsys.readouterr().out

    return run


@pytest.fixture
def document_of(text_of):
    """Run a command with --json; return its document."""
    return lambda *words, code=0: json.loads(text_of(*words, "--json", code=code))


@pytest.fixture
def refusal_of(capsys):
    """Run a command that refuses; return its words, in one line."""

    def run(*words):
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        return " ".join(capsys.readouterr().err.split())

    return run


@pytest.fixture
def one_compile_thread() -> Iterator[None]:
    """Inductor compiles in the test's own process; monkeypatch cannot put an option of torch back,
    torch can.
    """
    import torch._inductor.config

    with torch._inductor.config.patch(compile_threads=1):
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="the files in a random order, and the tests of each; a seed repeats an order",
    )
    parser.addoption(
        "--profiles",
        type=Path,
        metavar="FOLDER",
        help="profiles for test_every_recording.py, in place of ours",
    )


def leave_rows_to_ci(items: list[pytest.Item]) -> None:
    """Mark as slow what a test's table has beyond its first rows, and as exhaustive what it has
    beyond those of CI, where `first_rows` says so.
    """
    asked: Counter[str] = Counter()
    for item in items:
        first = item.get_closest_marker("first_rows")
        if first and not item.get_closest_marker("slow"):
            test = item.nodeid.partition("[")[0]
            asked[test] += 1
            if asked[test] > first.args[0]:
                item.add_marker(pytest.mark.slow)
            if asked[test] > first.kwargs.get("in_ci", math.inf):
                item.add_marker(pytest.mark.exhaustive)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_rows_to_ci(items)
    # The files of slow tests first, so that no processor waits at the end for a slow test that
    # began last; of these, the files with torch, so that few workers load all of it.
    files = {item.path for item in items}
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    with_torch = {path for path in files if _IMPORTS_TORCH.search(path.read_text("utf-8"))}
    items.sort(key=lambda item: (item.path not in slow, item.path not in with_torch))
    seed = config.getoption("--shuffle")
    if seed is not None:
        shuffle_within_files(items, random.Random(seed))
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu and not _has_gpu():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))
    if ON_VIRTUAL_CARD:
        for item in items:
            for marker in item.iter_markers("not_virtual"):
                item.add_marker(
                    pytest.mark.skip(reason=f"not for a virtual card: {marker.args[0]}")
                )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Take what the imports make out of every collection of garbage; with torch that is a million
    objects.
    """
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


def pytest_unconfigure() -> None:
    """Let the end of the process collect it; DuckDB's binding would report it as leaked."""
    gc.unfreeze()


def shuffle_within_files(items: list[pytest.Item], random_source: random.Random) -> None:
    """Shuffle in place: a file's tests stay together, as what they share is made once."""
    of_file: dict[Path, list[pytest.Item]] = {}
    for item in items:
        of_file.setdefault(item.path, []).append(item)
    files = list(of_file.values())
    random_source.shuffle(files)
    for tests in files:
        random_source.shuffle(tests)
    items[:] = [test for tests in files for test in tests]


_IMPORTS_TORCH = re.compile(r"^\s*(?:from|import) torch\b", re.MULTILINE)


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())
