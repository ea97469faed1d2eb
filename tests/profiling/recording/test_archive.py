"""A recording in one file: it reads as the folder does, and a file of a stranger does no harm."""

import io
import json
import zipfile
from pathlib import Path

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.recording.archive import is_archive, unpack_archive, write_archive
from curvescope.profiling.recording.schema import TABLES
from curvescope.profiling.recording.store import open_recording

RECORDING = Path(__file__).parents[2] / "data" / "networks" / "alexnet"


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "alexnet.curvescope"
    write_archive(open_recording(RECORDING), path)
    return path


def test_an_unpacked_archive_has_every_row(archive, tmp_path):
    unpack_archive(archive, tmp_path / "again")
    first, again = open_recording(RECORDING), open_recording(tmp_path / "again")
    assert again.meta == first.meta
    for table in TABLES:
        assert again.arrow(table).equals(first.arrow(table)), table


def test_the_same_recording_makes_the_same_bytes(archive, tmp_path):
    write_archive(open_recording(RECORDING), tmp_path / "second.curvescope")
    assert (tmp_path / "second.curvescope").read_bytes() == archive.read_bytes()


def test_nothing_is_overwritten(archive, tmp_path):
    with pytest.raises(CurvescopeError, match="exists already"):
        write_archive(open_recording(RECORDING), archive)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(CurvescopeError, match="not empty"):
        unpack_archive(archive, tmp_path / "full")
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    "line",
    [pytest.param("explain @", marks=pytest.mark.slow), "breakdown @ --by layer", "compare @ @"],
)
def test_commands_read_it_as_the_folder(line, archive, tmp_path, capsys, monkeypatch):
    """Both are named `alexnet.curvescope`, and all that is printed is equal."""
    folder = tmp_path / "folders" / "alexnet.curvescope"
    unpack_archive(archive, folder)
    printed = []
    for place in (archive.parent, folder.parent):
        monkeypatch.chdir(place)
        assert main(line.replace("@", "alexnet.curvescope").split()) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""


def test_import_unpacks_it_and_report_shows_it(archive, tmp_path, capsys):
    assert main(["import", str(archive), "-o", str(tmp_path / "kept")]) == 0
    assert "curvescope explain" in capsys.readouterr().out
    assert open_recording(tmp_path / "kept").meta == open_recording(RECORDING).meta
    page = tmp_path / "page.html"
    assert main(["report", str(archive), "-o", str(page)]) == 0
    assert "alexnet.curvescope" in page.read_text()


def test_an_option_of_profiles_is_refused(archive, tmp_path, capsys):
    options = ["--batch", "8", "-o", str(tmp_path / "kept")]
    assert main(["import", str(archive), *options]) == 2
    assert "unpacked as it is" in capsys.readouterr().err


def test_a_link_in_a_recording_is_not_packed(archive, tmp_path):
    unpack_archive(archive, tmp_path / "sent")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "sent" / "steps" / "x.parquet").symlink_to(tmp_path / "secret")
    with pytest.raises(CurvescopeError, match="is a link"):
        write_archive(open_recording(tmp_path / "sent"), tmp_path / "packed.curvescope")
    assert not (tmp_path / "packed.curvescope").exists()


def repack(archive, change):
    """The archive with its contents changed by a function of a dictionary of names."""
    with zipfile.ZipFile(archive) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in change(contents).items():
            file.writestr(name, content)
    archive.write_bytes(changed.getvalue())


def with_file(name, content=b"x"):
    def change(contents):
        sums = json.loads(contents["checksums.json"])
        sums[name] = "0" * 64
        return {**contents, name: content, "checksums.json": json.dumps(sums).encode()}

    return change


ATTACKS = {
    "a name above the folder": (with_file("../outside.parquet"), "no recording has"),
    "an absolute name": (with_file("/tmp/outside.parquet"), "no recording has"),
    "a name below a table": (with_file("steps/../../outside.parquet"), "no recording has"),
    "a program": (with_file("steps/run.py"), "no recording has"),
    "an unknown table": (with_file("others/0.parquet"), "no recording has"),
    "a changed part": (with_file("steps/0.parquet"), "damaged or changed"),
    "gigabytes of zeros": (with_file("steps/0.parquet", bytes(1 << 27)), "unpacked bytes"),
    "no checksums": (
        lambda contents: {k: v for k, v in contents.items() if k != "checksums.json"},
        "no archive of Curvescope",
    ),
    "checksums that are a list": (
        lambda contents: {**contents, "checksums.json": b"[]"},
        "does not name its files",
    ),
    "checksums that are no JSON": (
        lambda contents: {**contents, "checksums.json": b"{"},
        "is damaged",
    ),
    "no recording": (lambda contents: {"readme.txt": b"x"}, "no archive of Curvescope"),
}


def test_what_a_stranger_may_send_is_refused_and_leaves_nothing(tmp_path):
    for name, (change, message) in ATTACKS.items():
        path, target = tmp_path / "sent.curvescope", tmp_path / "target"
        path.unlink(missing_ok=True)
        write_archive(open_recording(RECORDING), path)
        repack(path, change)
        with pytest.raises(CurvescopeError, match=message):
            unpack_archive(path, target)
        assert not target.exists(), name
    assert not list(tmp_path.glob("outside*"))


def test_every_cut_is_refused(archive, tmp_path):
    whole = archive.read_bytes()
    for place, share in enumerate((0.001, 0.1, 0.5, 0.9, 0.999)):
        archive.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(CurvescopeError, match="is damaged"):
            unpack_archive(archive, tmp_path / str(place))


def test_what_begins_otherwise_is_none(tmp_path):
    (tmp_path / "text").write_text("batch,ms\n1,2\n")
    assert not is_archive(tmp_path / "text")
    assert not is_archive(tmp_path / "missing")
