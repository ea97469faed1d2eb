"""The library of the virtual card is compiled once for all who use it, until a source changes."""

import shutil

import pytest

from . import build as module


@pytest.fixture
def compiled(monkeypatch):
    """The folders that were compiled into, with nothing compiled."""
    folders = []
    monkeypatch.setattr(module, "_compile", lambda folder, _: folders.append(folder))
    return folders


def test_what_was_built_serves_until_a_source_changes(compiled, monkeypatch, tmp_path):
    sources = shutil.copytree(module.SOURCES, tmp_path / "src")
    monkeypatch.setattr(module, "SOURCES", sources)
    folder = tmp_path / "card"
    for _ in range(2):
        assert module.build(folder) == folder / module.LIBRARY
    assert compiled == [folder]
    with (sources / "costs.cpp").open("a") as file:
        file.write("// changed\n")
    module.build(folder)
    assert compiled == [folder] * 2


def test_what_failed_to_build_is_built_again(compiled, monkeypatch, tmp_path):
    def fail(*_):
        raise OSError("no compiler")

    with monkeypatch.context() as patched:
        patched.setattr(module, "_compile", fail)
        with pytest.raises(OSError, match="no compiler"):
            module.build(tmp_path)
    module.build(tmp_path)
    assert compiled == [tmp_path]
