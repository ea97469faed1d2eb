"""A recording in one file: it reads as the folder does, and a file of a stranger does no harm."""

import hashlib
import io
import json
import shutil
import struct
import zipfile
from pathlib import Path

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.recording.archive import is_archive, unpack_archive, write_archive
from curvescope.profiling.recording.schema import TABLES
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ...tables import ask_each

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
        for entry, content in change(contents).items():
            file.writestr(entry, content)
    archive.write_bytes(changed.getvalue())


def with_file(name, content=b"x"):
    def change(contents):
        sums = json.loads(contents["checksums.json"])
        sums[name] = "0" * 64
        return {**contents, name: content, "checksums.json": json.dumps(sums).encode()}

    return change


def with_meta(content):
    def change(contents):
        sums = json.loads(contents["checksums.json"])
        sums["recording.json"] = hashlib.sha256(content).hexdigest()
        return {
            **contents,
            "recording.json": content,
            "checksums.json": json.dumps(sums).encode(),
        }

    return change


def pack_by(method):
    entry = zipfile.ZipInfo("recording.json")
    entry.compress_type = method

    def change(contents):
        return {entry: contents.pop("recording.json"), **contents}

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
    "a recording of others": (with_meta(b"{}"), "not written by Curvescope"),
    "a recording of a later version": (
        with_meta(
            b'{"format": "curvescope recording", "schema_version": 99, "status": "complete"}'
        ),
        "upgrade with",
    ),
    "a method of packing that takes long": (pack_by(zipfile.ZIP_LZMA), "no recording has"),
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


def test_an_archive_that_follows_the_words_of_the_format_is_read(tmp_path):
    """Written without the product: whichever version wrote an archive, the next one reads it."""
    files = [path for path in RECORDING.rglob("*") if path.suffix in (".json", ".parquet")]
    path = tmp_path / "of_earlier.curvescope"
    sums = {}
    with zipfile.ZipFile(path, "w") as file:
        for part in files:
            name = part.relative_to(RECORDING).as_posix()
            sums[name] = hashlib.sha256(part.read_bytes()).hexdigest()
            file.write(part, name)
        file.writestr("checksums.json", json.dumps(sums))
    unpack_archive(path, tmp_path / "again")
    assert {name: (tmp_path / "again" / name).read_bytes() for name in sums} == {
        name: (RECORDING / name).read_bytes() for name in sums
    }


def test_an_archive_has_the_checksum_of_each_file(archive):
    with zipfile.ZipFile(archive) as file:
        names = {*file.namelist()} - {"checksums.json"}
        sums = {name: hashlib.sha256(file.read(name)).hexdigest() for name in names}
        assert json.loads(file.read("checksums.json")) == sums
    assert {"recording.json", "steps/00000.parquet"} <= names


@pytest.fixture
def small(tmp_path):
    """An archive of some hundred bytes, of a recording without rows."""
    with RecordingWriter(tmp_path / "r", {}):
        pass
    path = tmp_path / "small.curvescope"
    write_archive(open_recording(tmp_path / "r"), path)
    return path


@pytest.mark.slow
def test_a_damaged_byte_is_refused_or_changes_nothing(small, tmp_path):
    """Every byte in turn, and four at once: names, sizes, places and sums are among them."""
    whole, target = small.read_bytes(), tmp_path / "target"
    kept = (tmp_path / "r" / "recording.json").read_bytes()
    for place in range(len(whole)):
        for junk in (bytes([whole[place] ^ 1]), b"\xff" * 4):
            small.write_bytes(whole[:place] + junk + whole[place + len(junk) :])
            try:
                unpack_archive(small, target)
            except CurvescopeError:
                assert not target.exists()
            else:
                assert (target / "recording.json").read_bytes() == kept
                shutil.rmtree(target)


def test_a_file_twice_is_refused(archive, tmp_path):
    repack(archive, with_file("steps/00001.parquet"))
    archive.write_bytes(archive.read_bytes().replace(b"steps/00001", b"steps/00000"))
    with pytest.raises(CurvescopeError, match="a file twice"):
        unpack_archive(archive, tmp_path / "target")


@ask_each("offset", [2**32, 2**63 - 1, 2**64 - 1])
def test_a_file_at_a_place_that_is_not_there_is_damage(offset, small, tmp_path):
    """It was said to be an error of the disk, which another folder would help."""
    data = small.read_bytes()
    entry, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    name, extra = entry + 46, struct.pack("<HHQ", 1, 8, offset)
    name_end = name + len("recording.json")
    changed = bytearray(data[:name_end] + extra + data[name_end:])
    struct.pack_into("<H", changed, entry + 30, len(extra))
    struct.pack_into("<L", changed, entry + 42, 0xFFFFFFFF)
    struct.pack_into("<L", changed, end + len(extra) + 12, end + len(extra) - entry)
    sent = tmp_path / "sent.curvescope"
    sent.write_bytes(changed)
    with pytest.raises(CurvescopeError, match="is damaged"):
        unpack_archive(sent, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_a_refused_archive_leaves_no_recording_behind(archive, tmp_path, capsys):
    """Its files were whole, and the recording in it was not: `import` left the folder."""
    repack(archive, with_meta(b"{}"))
    for words in (["import", "-o", str(tmp_path / "kept")], ["explain"], ["report"]):
        assert main([words[0], str(archive), *words[1:]]) == 2
        assert "alexnet.curvescope" in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()


def test_what_begins_otherwise_is_none(tmp_path):
    (tmp_path / "text").write_text("batch,ms\n1,2\n")
    assert not is_archive(tmp_path / "text")
    assert not is_archive(tmp_path / "missing")
