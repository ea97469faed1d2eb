"""A disk that fills while a program is recorded: what was written stays, and what is lost is
counted.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from curvescope.cli import main
from curvescope.profiling.collect.torch_events import read_processes
from curvescope.profiling.recording.store import CHUNKS, open_recording

# The program's own files may grow no further than this: its writes fail as on a full disk, and only
# its own.
NO_ROOM = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
RANGES = """
import time, nvtx

def emit(count):
    for number in range(count):
        with nvtx.annotate("r"):
            pass
        if number % 500 == 0:
            time.sleep(0.02)  # so that no ring is full but for the disk
"""
FEW, MANY = 5000, 20_000  # a thread's ring holds 8,192 ranges


def record(tmp_path, program, *, code=0):
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    words = [
        "record",
        "-o",
        str(tmp_path / "r"),
        "--",
        sys.executable,
        str(tmp_path / "program.py"),
    ]
    assert main(words) == code
    return tmp_path / "r"


def kept_and_lost(path):
    recording = open_recording(path)
    lost = {name: entry["count"] for name, entry in recording.meta["lost"].items()}
    return recording.count_rows("ranges"), lost


def test_ranges_wait_in_memory_until_there_is_room(tmp_path):
    """With the exit of the program the recording command, whose files may grow, writes them."""
    path = record(tmp_path, NO_ROOM + RANGES + f"emit({FEW})")
    assert kept_and_lost(path) == (FEW, {})


def test_what_has_no_room_in_memory_is_counted(tmp_path):
    path = record(tmp_path, NO_ROOM + RANGES + f"emit({MANY})")
    kept, lost = kept_and_lost(path)
    assert FEW < kept < MANY
    assert lost == {"nvtx_dropped": MANY - kept}
    assert open_recording(path).meta["status"] == "incomplete"


@pytest.mark.slow
def test_a_recovery_counts_what_only_the_recording_command_knew(tmp_path, monkeypatch, capsys):
    """The counts lay in memory that is gone with that command: it wrote them beside the chunks."""
    from curvescope.profiling.recording import part_files

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(part_files.pq, "write_table", full)
        path = record(tmp_path, NO_ROOM + RANGES + f"emit({MANY})")
    said = capsys.readouterr().err
    assert "Lost: " in said
    assert "on a full disk" in said
    assert main(["import", str(path)]) == 0
    kept, lost = kept_and_lost(path)
    assert FEW < kept < MANY
    assert lost == {"nvtx_dropped": MANY - kept}
    assert "killed" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_block_of_this_process_counts_what_it_could_not_write(tmp_path):
    """Nobody else reads the rings of `curvescope.record()`."""
    program = (
        RANGES
        + f"""
import curvescope, os, resource, sys
with curvescope.record(sys.argv[1]):
    emit(10)
    time.sleep(0.1)
    size = max(file.stat().st_size for file in os.scandir(sys.argv[1] + "/{CHUNKS}") if "chunks" in file.name)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    emit({FEW})
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))  # the counts fit, no event does
    from curvescope.profiling.collect import inject
    stop = inject.record_stop
    def with_room():
        stop()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    inject.record_stop = with_room
"""  # noqa: E501
    )
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "r")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kept, lost = kept_and_lost(tmp_path / "r")
    assert kept < FEW + 10
    assert kept + lost["nvtx_unwritten"] == FEW + 10


@pytest.mark.slow
def test_a_window_of_torch_that_could_not_be_written_is_counted(tmp_path):
    (tmp_path / "1-000000.window.json.part").touch()
    assert read_processes(tmp_path).unreadable == 1


FILLED = (
    RANGES
    + """
import os, sys
emit(int(sys.argv[1]))
fill = open("disk/fill", "wb", buffering=0)
for size in (4096, 1):
    try:
        while True:
            fill.write(b"x" * size)
    except OSError:
        pass
emit(int(sys.argv[2]))
"""
)
ON_SMALL_DISK = """
mount -t tmpfs -o size="$3" none disk || exit 77
"$0" -m curvescope.cli record -o disk/r -- "$0" program.py "$1" "$2" || exit 1
cp -r disk/r kept  # the disk goes with this shell
"""


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("unshare") is None, reason="mounts a small disk in a namespace of its own"
)
@pytest.mark.parametrize(
    ("before", "after", "size"),
    [(FEW, FEW, "3m"), (FEW, MANY, "3m"), (MANY, FEW, "3m"), (FEW, FEW, "16k")],
)
def test_on_a_disk_that_the_program_fills_no_range_is_uncounted(tmp_path, before, after, size):
    """The room that was held for the end takes the last ranges and the counts, whether or not the
    tables fit.
    """
    (tmp_path / "program.py").write_text(FILLED)
    (tmp_path / "disk").mkdir()
    names = ["unshare", "--mount", "--map-root-user", "sh", "-c", ON_SMALL_DISK, sys.executable]
    done = subprocess.run(
        [*names, str(before), str(after), size],
        cwd=tmp_path, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip("this system mounts nothing for its users")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "kept"
    meta = json.loads((path / "recording.json").read_text())
    assert meta.get("exit_code", 0) == 0  # four pages have no room for it
    if (path / CHUNKS).is_dir():
        assert main(["import", str(path)]) == 0
    kept, lost = kept_and_lost(path)
    counted = sum(
        lost.get(f"nvtx_{name}", 0) for name in ("dropped", "unsaved", "unwritten", "unclosed")
    )
    assert kept + counted == before + after
    assert kept >= FEW or size == "16k"
