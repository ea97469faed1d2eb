"""The collector under the rules that NVIDIA's headers and release notes give for CUPTI, which the
test double keeps.
"""

import pytest

# Returns when the recording's file has that many kernels.
WAIT_FOR_KERNELS = """
    import os, pathlib, time
    from curvescope.profiling.collect.chunks import read_chunks

    def wait_for_kernels(count):
        folder = pathlib.Path(os.environ["CURVESCOPE_CHUNK_FOLDER"])
        while sum(read_chunks(path).table("kernels").rows for path in folder.glob("*.chunks")) < count:
            time.sleep(0.01)
"""  # noqa: E501


def lost(recording):
    return {name: entry["count"] for name, entry in recording.meta["lost"].items()}


@pytest.mark.slow
def test_a_running_kernel_keeps_one_small_buffer_from_a_process_that_exits(record_fake):
    """A flush returns no buffer with an unfinished record; the others are on disk soon after."""
    per_buffer = (64 << 10) // 208  # the first one
    code, recording = record_fake(
        WAIT_FOR_KERNELS
        + f"""
    gpu = FakeGpu()
    gpu.start()
    gpu.kernel("running", gpu.now(), 0, 1_000_000)
    gpu.emit_many(1, 50_000)
    wait_for_kernels(50_001 - {per_buffer})
    os._exit(0)
    """
    )
    assert code == 0
    assert recording.count_rows("kernels") == 50_001 - per_buffer
    assert lost(recording)["cupti_unsaved"] == 1


@pytest.mark.slow
def test_a_busy_gpu_keeps_less_than_100_ms_of_kernels_from_a_process_that_exits(record_fake):
    """One kernel always runs. With twenty flushes a second, there are 2,000 kernels a second.

    At the end, 100 kernels have come since the last flush, 100 that it brought may not be written
    yet, and the buffer that is being filled has at most 30 ms of them.
    """
    code, recording = record_fake(
        """
    import os, time
    gpu = FakeGpu()
    gpu.start()
    correlation_id = 0
    for _ in range(14):
        flushes = gpu.cupti.fake_flushes()
        while gpu.cupti.fake_flushes() == flushes:
            time.sleep(0.001)
        for _ in range(100):
            correlation_id += 1
            gpu.cupti.fake_finish_kernels(gpu.now())
            gpu.kernel("runs", gpu.now(), 0, correlation_id)
    os._exit(0)
    """
    )
    assert code == 0
    assert recording.count_rows("kernels") > 1_400 - 300


def test_work_that_ends_is_recorded_with_its_time_though_flushes_came_before(record_fake):
    _, recording = record_fake(
        WAIT_FOR_KERNELS
        + """
    gpu = FakeGpu()
    gpu.start()
    now = gpu.now()
    gpu.kernel("running", now, 0, 1)
    gpu.flush()
    gpu.finish_kernels(now + 500)
    wait_for_kernels(1)
    """
    )
    (kernel,) = recording.arrow("kernels").to_pylist()
    assert kernel["duration_ns"] == 500
    assert "without_time" not in lost(recording)


@pytest.mark.slow
def test_no_buffer_is_zeroed_in_the_programs_threads_and_none_comes_dirty(record_fake):
    code, recording = record_fake(
        """
        gpu = FakeGpu()
        gpu.start()
        for _ in range(20):
            gpu.emit_many(1, 5_000)
            gpu.flush()
        assert gpu.cupti.fake_zeroed_buffers() == 0
        assert gpu.cupti.fake_dirty_buffers() == 0
        """
    )
    assert code == 0
    assert recording.count_rows("kernels") == 100_000


# Kernels for more than 512 buffers of 512 KiB. A record takes ten times its bytes, so that fewer
# fill them.
RECORD_BYTES = 2080
TOO_MANY = f"""
    gpu = FakeGpu({{toolkit!r}})
    gpu.cupti.fake_set_record_bytes(10, {RECORD_BYTES})
    gpu.start()
    gpu.cupti.fake_hold_reader(1)
    gpu.emit_many(1, 140_000)
    gpu.cupti.fake_hold_reader(0)
"""


@pytest.mark.slow
def test_a_writer_that_is_held_up_does_not_crash_a_program_under_an_old_cupti(record_fake):
    code, recording = record_fake(TOO_MANY.format(toolkit="12.4"))
    assert code == 0
    unread = lost(recording)["cupti_unread"]
    assert unread > 0
    per_buffer = (512 << 10) // RECORD_BYTES
    assert 140_000 <= recording.count_rows("kernels") + per_buffer * unread < 140_000 + per_buffer
    assert recording.meta["status"] == "incomplete"


@pytest.mark.slow
def test_a_newer_cupti_drops_and_counts_where_it_gets_no_buffer(record_fake):
    code, recording = record_fake(TOO_MANY.format(toolkit="13.0"))
    assert code == 0
    assert recording.count_rows("kernels") + lost(recording)["cupti_dropped"] == 140_000
    assert "cupti_unread" not in lost(recording)


@pytest.mark.slow
@pytest.mark.parametrize("toolkit", ["12.9", "13.0"])
def test_many_threads_share_one_buffer(record_fake, toolkit):
    """From CUDA 13.0 each thread has its own unless the client objects, and a process takes all of
    them with it.
    """
    code, recording = record_fake(
        f"""
        import os, threading
        gpu = FakeGpu({toolkit!r})
        gpu.start()
        for number in range(20):
            thread = threading.Thread(target=gpu.kernel, args=("running", gpu.now(), 0, number + 1))
            thread.start()
            thread.join()
        os._exit(0)
        """
    )
    assert code == 0
    assert lost(recording)["cupti_unsaved"] == 1
