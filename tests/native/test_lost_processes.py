"""What processes take with them: lost ranges are counted exactly, and no recording that lost any is complete.

Each program begins a known number of ranges; those in the recording and those counted as lost must be that many.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from curvescope.cli import main
from curvescope.profiling.collect.inject import FOLDER_VARIABLE, NVTX_VARIABLE
from curvescope.profiling.collect.merge import merge_chunks
from curvescope.profiling.native import library_path
from curvescope.profiling.recording.store import RecordingWriter, open_recording


def record(tmp_path, program):
    """The recording of a Python program and what it lost, by name."""
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    assert main(["record", "-o", str(tmp_path / "r"), "--", sys.executable, str(tmp_path / "program.py")]) == 0
    recording = open_recording(tmp_path / "r")
    return recording, {name: entry["count"] for name, entry in recording.meta["lost"].items()}


RANGES = """
    import multiprocessing, os, signal, sys, nvtx

    def work(end):
        for _ in range(500):
            with nvtx.annotate("r"):
                pass
        end()

    def run(end, children, wanted):
        fork = multiprocessing.get_context("fork")
        started = [fork.Process(target=work, args=(end,)) for _ in range(children)]
        for child in started: child.start()
        for child in started: child.join()
        assert [child.exitcode for child in started] == [wanted] * children, started
"""
ENDINGS = {
    "os._exit in four children": "run(lambda: os._exit(0), 4, 0)",
    "the end of a child of multiprocessing": "run(lambda: None, 1, 0)",
    "a kill": "run(lambda: os.kill(os.getpid(), signal.SIGKILL), 1, -signal.SIGKILL)",
    "exec of a program that records nothing": 'run(lambda: os.execv("/bin/true", ["true"]), 1, 0)',
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_range_is_recorded_or_counted_however_its_process_ends(tmp_path, ending):
    program = textwrap.dedent(RANGES) + f"work(lambda: None)\n{ENDINGS[ending]}\n"
    recording, lost = record(tmp_path, program)
    begun = 500 * (5 if "four" in ending else 2)
    unsaved = lost.pop("nvtx_unsaved", 0)
    open_ = lost.pop("nvtx_unclosed", 0)  # its begin is on disk, its end was not written
    lost.pop("torn_bytes", None)
    assert lost == {}
    assert recording.count_rows("ranges") + open_ + unsaved == begun
    assert (recording.meta["status"] == "complete") == (unsaved == 0)
    assert recording.count_rows("ranges") >= 500  # those of the parent, which ended well


def test_what_the_file_lacks_was_lost_to_the_last_range(tmp_path):
    """A process that ended well, whose file is cut as if the rest had not been written."""
    program = "import nvtx\nfor _ in range(500):\n    with nvtx.annotate('r'): nvtx.mark('m')\n"
    chunks = tmp_path / "chunks"
    chunks.mkdir()
    environment = {**os.environ, NVTX_VARIABLE: str(library_path()), FOLDER_VARIABLE: str(chunks)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    (path,) = chunks.glob("*.chunks")
    for size in (path.stat().st_size, path.stat().st_size - 1, 0):
        os.truncate(path, size)
        with RecordingWriter(tmp_path / f"r{size}", {}) as writer:
            merge_chunks(chunks, writer)
        recording = open_recording(tmp_path / f"r{size}")
        lost = recording.meta["lost"].get("nvtx_unsaved", {"count": 0})["count"]
        unclosed = recording.meta["lost"].get("nvtx_unclosed", {"count": 0})["count"]
        assert recording.count_rows("ranges") + unclosed + lost == 1000
        assert (lost == 0) == (recording.meta["status"] == "complete")
    assert lost == 1000


def test_exec_of_a_program_that_records_too_keeps_the_counts_of_both(tmp_path):
    recording, lost = record(
        tmp_path,
        """
        import os, sys, nvtx
        for _ in range(500):
            with nvtx.annotate("r"):
                pass
        if len(sys.argv) == 1:
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        """,
    )
    assert recording.count_rows("ranges") + lost.get("nvtx_unsaved", 0) + lost.get("nvtx_unclosed", 0) == 1000
    assert recording.count_rows("ranges") >= 500


def test_gpu_records_that_a_process_takes_with_it_are_counted_by_buffers(record_fake):
    _, recording = record_fake("""
        import os
        gpu = FakeGpu()
        assert gpu.start() == 0
        for i in range(1, 101):
            gpu.kernel("k", gpu.now(), gpu.now() + 1, i)
        os._exit(0)
    """)
    lost = recording.meta["lost"].get("cupti_unsaved", {"count": 0})["count"]
    assert (recording.count_rows("kernels"), lost) in {(0, 1), (100, 0)}  # the writer asks CUPTI every 100 ms
    assert (recording.meta["status"] == "complete") == (lost == 0)
