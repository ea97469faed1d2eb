"""A recording may have links to anything of the user's: no command changes what they lead to."""

import os
import stat
from pathlib import Path

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.experiments import confirming
from curvescope.profiling.measure import sweep_plan
from curvescope.profiling.recording import inside
from curvescope.profiling.recording.inside import open_folder

from ..curvescope.recordings import META
from ..profiling.measure.fake_measurers import CARD, FakeMeasurer, machine
from .fuzzed_recordings import _quietly
from .linked_recordings import list_all, write_linked, write_outside


class Measurer(FakeMeasurer):
    """Measures on the device that the planted recording has."""

    def __init__(self):
        super().__init__(machine(device={**CARD, **META["device"]}))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def measured(monkeypatch):
    """A sweep goes on with a fake, and `confirm` takes every recording for one of this machine: so
    both reach what writes and deletes.
    """
    monkeypatch.setattr(sweep_plan, "LocalMeasurer", Measurer)
    monkeypatch.setattr(confirming, "why_not_replayed", lambda _: None)
    monkeypatch.setattr(confirming, "_differences", lambda _: ())


def run_linked(number, folder, monkeypatch):
    folder.mkdir()
    command = write_linked(number, folder)
    before = list_all(folder / "outside")
    monkeypatch.chdir(folder)
    code = _quietly(command)
    assert list_all(folder / "outside") == before, f"{number}: {command}"
    assert code in (0, 1, 2), f"{number}: {command}: {code}"
    assert "Traceback" not in _quietly.said, f"{number}: {command}: {_quietly.said}"
    return command


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(range(12), id="few"),
        pytest.param(range(12, 236), id="all", marks=pytest.mark.exhaustive),
    ],
)
def test_nothing_outside_of_a_recording_is_changed(numbers, measured, tmp_path, monkeypatch):
    for number in numbers:
        run_linked(number, tmp_path / str(number), monkeypatch)


@pytest.mark.parametrize("by_descriptor", [True, False], ids=["descriptors", "paths"])
class TestDoor:
    """Both ways of the door: by descriptor, and by a look at each folder (Windows)."""

    @pytest.fixture(autouse=True)
    def way(self, by_descriptor, monkeypatch):
        monkeypatch.setattr(inside, "_BY_DESCRIPTOR", by_descriptor)

    def test_a_folder_and_its_files_are_made_and_removed(self, tmp_path):
        with open_folder(tmp_path, "a", "b", make=True) as folder:
            folder.write("x", b"1")
            folder.write("x", b"2")
            with folder.append("x") as file:
                file.write(b"3")
            folder.rename("x", "y")
            assert folder.names() == ["y"]
        assert (tmp_path / "a/b/y").read_bytes() == b"23"
        with open_folder(tmp_path) as folder:
            folder.remove_tree("a")
        assert list(tmp_path.iterdir()) == []

    def test_a_link_is_not_entered_written_through_or_cleared(self, tmp_path):
        write_outside(tmp_path / "outside")
        before = list_all(tmp_path / "outside")
        recording = tmp_path / "r"
        (recording / "chunks").mkdir(parents=True)
        for place in (recording, recording / "chunks"):
            (place / "link").symlink_to(tmp_path / "outside")
            (place / "file").symlink_to(tmp_path / "outside" / "thesis.txt")
        for names in (("link",), ("link", "below"), ("chunks", "link")):
            with pytest.raises(CurvescopeError, match="link is a link, and nothing is written"):
                open_folder(recording, *names, make=True).__enter__()
        with open_folder(recording) as folder:
            with pytest.raises(CurvescopeError, match="file is no regular file; remove it"):
                folder.append("file")
            with pytest.raises(CurvescopeError, match="link is a link"):
                folder.remove_tree("link")
            with pytest.raises(FileExistsError):
                folder.create("file")
            folder.write("file", b"mine")
            folder.remove_tree("chunks")
        assert (recording / "file").read_bytes() == b"mine"
        assert list_all(tmp_path / "outside") == before

    @pytest.mark.parametrize("name", ["", ".", "..", "../outside", "a/b", f"{os.sep}etc"])
    def test_a_name_that_leads_elsewhere_is_refused(self, name, tmp_path):
        with open_folder(tmp_path) as folder:
            for act in (folder.create, folder.remove, folder.make, folder.remove_tree):
                with pytest.raises(CurvescopeError, match="is no name of an entry"):
                    act(name)

    def test_the_own_folder_of_a_recording_may_be_a_link_of_the_user(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "r").symlink_to("real")
        with open_folder(tmp_path / "r", "steps", make=True) as folder:
            folder.write("x", b"")
        assert (tmp_path / "real/steps/x").is_file()

    def test_a_pipe_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "log")
        with (
            open_folder(tmp_path) as folder,
            pytest.raises(CurvescopeError, match="no regular file"),
        ):
            folder.append("log")
        assert stat.S_ISFIFO(Path(tmp_path, "log").lstat().st_mode)
