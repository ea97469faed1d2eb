"""The collector beside another client of CUPTI in the process, as torch's profiler is, and in
several recordings.

CUPTI has one subscriber, one pair of callbacks and one set of enabled kinds, and tells nobody who
took them.
"""

import textwrap

import pytest

from curvescope.profiling.recording.store import open_recording

from .test_cupti_rules import WAIT_FOR_KERNELS, lost

START = """
    import os, threading, time
    import curvescope
    from curvescope.profiling import native
    from fake_gpu import FakeGpu, launch

    gpu = FakeGpu(os.environ.get("TOOLKIT", "12.9"))
    numbers = iter(range(1, 1000))

    def launch_five():
        for _ in range(5):
            launch(gpu, "k", next(numbers), threading.get_native_id())
"""


@pytest.fixture
def run_blocks(tmp_path, run, on_doubles):
    """Runs a program that records blocks of itself beside the doubles; gives the folder of its
    recordings.
    """

    def run_blocks(program, **environment):
        run(textwrap.dedent(START) + textwrap.dedent(program), **on_doubles, **environment)
        return tmp_path

    return run_blocks


def status(recording):
    return recording.meta["collectors"][0]["cupti_status"]


def test_a_block_after_a_context_exists_and_one_after_a_pause_record_calls(run_blocks):
    """CUPTI accepts single calls then, and records none: of blocks on an H100 no kernel had a
    launch.
    """
    folder = run_blocks(
        """
        gpu.start()
        with curvescope.record("first"):
            launch_five()
            assert native.load().curvescope_cupti_pause()
            assert native.load().curvescope_cupti_resume()
            launch_five()
        with curvescope.record("second"):
            launch_five()
        """
    )
    for name, calls in (("first", 10), ("second", 5)):
        recording = open_recording(folder / name)
        assert recording.count_rows("api_calls") == calls
        assert lost(recording).get("device_work_without_launch", 0) == 0


@pytest.mark.slow
@pytest.mark.parametrize("traced", [{}, {"FAKE_CUDA_TRACED": "1"}], ids=["untold", "told"])
def test_buffers_that_cupti_returns_late_are_waited_for(run_blocks, traced):
    """A thread of CUPTI may hold one while it is flushed: the collector said that another client
    took its place.
    """
    folder = run_blocks(
        """
        gpu.start()
        with curvescope.record("r"):
            launch_five()
            gpu.flush()
            launch_five()
        """,
        FAKE_CUPTI_KEEPS="3",
        **traced,
    )
    recording = open_recording(folder / "r")
    assert status(recording) == "recording"
    assert recording.count_rows("kernels") == 10
    assert lost(recording) == {}


@pytest.mark.slow
def test_the_last_flush_leaves_no_buffer_with_a_record_of_itself(record_fake):
    code, recording = record_fake(
        START + "    gpu.start()\n    launch_five()\n", FAKE_CUPTI_TELLS_FLUSHES="1"
    )
    assert code == 0
    assert recording.count_rows("kernels") == 5
    assert lost(recording) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leaves", "unsaved"),
    [("clocks", None), ("sample", None), ("nothing", None), ("kernel", 1)],
)
def test_a_buffer_left_by_the_last_flush_is_lost_only_if_it_holds_gpu_work(
    record_fake, leaves, unsaved
):
    """On an H100 CUPTI's own thread samples the clocks each 50 ms, so programs that took longer to
    end left a buffer and were called not complete.
    """
    code, recording = record_fake(
        START + "    gpu.start()\n    launch_five()\n", FAKE_CUPTI_LEAVES=leaves
    )
    assert code == 0
    assert recording.count_rows("kernels") == 5
    assert lost(recording).get("cupti_unsaved") == unsaved
    assert recording.meta["status"] == ("incomplete" if unsaved else "complete")


@pytest.mark.slow
@pytest.mark.parametrize("has_kernel", [True, False])
def test_clocks_refused_before_there_is_a_context_are_asked_for_again(record_fake, has_kernel):
    """A recorded program on an H100 had no clock, and a block had them."""
    code, recording = record_fake(
        START
        + WAIT_FOR_KERNELS
        + f"""
    gpu.start()
    if {has_kernel}:
        launch_five()
        wait_for_kernels(5)
        while not gpu.cupti.fake_is_collecting(20): time.sleep(0.01)
        gpu.environment(0, 1, gpu.now(), 1980, 2619, 4)
    """,
        FAKE_CUPTI_CLOCKS_NEED_CONTEXT="1",
    )
    assert code == 0
    refused = recording.meta["collectors"][0].get("cupti_refused")
    assert refused == (None if has_kernel else ["clocks: CUPTI_ERROR_NOT_COMPATIBLE (14)"])
    assert recording.count_rows("clocks") == has_kernel


@pytest.mark.slow
def test_a_client_that_takes_the_buffers_is_noticed_and_said(record_fake):
    code, recording = record_fake(
        START
        + WAIT_FOR_KERNELS
        + """
    def is_said():
        folder = pathlib.Path(os.environ["CURVESCOPE_CHUNK_FOLDER"])
        return any("cupti_taken" in read_chunks(path).names for path in folder.glob("*.chunks"))

    gpu.start()
    launch_five()
    wait_for_kernels(5)
    gpu.cupti.fake_other_start()
    launch_five()
    gpu.cupti.fake_other_stop()
    assert gpu.cupti.fake_other_kernels() == 5
    while not is_said(): time.sleep(0.01)
    launch_five()
    """,
        FAKE_CUDA_TRACED="1",
    )
    assert code == 0
    assert recording.count_rows("kernels") == 5
    assert "Another client of CUPTI" in status(recording)
    assert lost(recording)["cupti_taken"] == 1
    assert recording.meta["status"] == "incomplete"


@pytest.mark.slow
def test_a_block_whose_buffers_went_to_another_client_says_so_at_its_end(run_blocks):
    folder = run_blocks(
        """
        gpu.start()
        with curvescope.record("r"):
            launch_five()
            gpu.cupti.fake_other_start()
            gpu.cupti.fake_other_stop()
        """
    )
    recording = open_recording(folder / "r")
    assert "Another client of CUPTI" in status(recording)
    assert lost(recording)["cupti_taken"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("traced", [{}, {"FAKE_CUDA_TRACED": "1"}], ids=["untold", "told"])
def test_whether_cupti_tells_of_the_collectors_own_call_or_not_it_is_no_row_and_nothing_is_claimed(
    run_blocks, traced
):
    folder = run_blocks(
        """
        gpu.start()
        with curvescope.record("r"):
            launch_five()
            time.sleep(0.6)  # several intervals without a record
        """,
        **traced,
    )
    recording = open_recording(folder / "r")
    assert status(recording) == "recording"
    assert recording.count_rows("api_calls") == 5
    assert lost(recording) == {}


@pytest.mark.slow
@pytest.mark.parametrize("subscribes", [True, False])
def test_a_pause_lets_another_client_in_and_the_collector_goes_on_after_it(record_fake, subscribes):
    code, recording = record_fake(
        START
        + f"""
    gpu.start()
    launch_five()
    for _ in range(2):
        assert native.load().curvescope_cupti_pause()
        assert not native.load().curvescope_cupti_pause()
        if {subscribes}: assert gpu.cupti.fake_other_subscribe() in (0, 39)  # once, for good
        gpu.cupti.fake_other_start()
        launch_five()
        gpu.cupti.fake_other_stop()
        assert native.load().curvescope_cupti_resume()
        assert not native.load().curvescope_cupti_resume()
        launch_five()
    assert gpu.cupti.fake_other_kernels() == 10
    """
    )
    assert code == 0
    assert recording.count_rows("kernels") == 15
    assert status(recording) == "recording"
    assert lost(recording) == {"cupti_paused": 2}
    assert recording.meta["collectors"][0]["cupti_pauses"] == 2
    assert recording.meta["collectors"][0]["cupti_paused_ns"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("toolkit", ["12.9", "13.0"])
def test_other_clients_find_cuptis_attributes_as_they_were(run_blocks, toolkit):
    """13.0 has a buffer per thread, and the collector one for all."""
    run_blocks(
        """
        import ctypes

        def attributes():
            value, size = ctypes.c_uint8(), ctypes.c_size_t(1)
            results = [gpu.cupti.cuptiActivityGetAttribute(n, ctypes.byref(size), ctypes.byref(value)) or value.value
                       for n in (5, 9)]
            return results

        gpu.start()
        before = attributes()
        with curvescope.record("r"):
            assert attributes() == [1, 0]
            assert native.load().curvescope_cupti_pause()
            # One buffer for all threads serves others as well, and changes only while nothing is collected.
            assert attributes() == [before[0], 0], attributes()
            assert native.load().curvescope_cupti_resume()
            assert attributes() == [1, 0]
        assert attributes() == before, attributes()
        """,  # noqa: E501
        TOOLKIT=toolkit,
    )


@pytest.mark.slow
def test_the_collector_goes_on_beside_another_client_that_collects_records(run_blocks):
    """As Kineto in PyTorch 2.11 does under a profile of the CPU alone.

    The double ends the process where an attribute changes meanwhile that may not.
    """
    recordings = run_blocks(
        """
        gpu.start()
        with curvescope.record("r"):
            assert native.load().curvescope_cupti_pause()
            assert gpu.cupti.cuptiActivityEnable(1) == 0  # copies
            assert native.load().curvescope_cupti_resume()
            launch(gpu, "after", 1, 1, stream=7)
            gpu.flush()
        """,
        TOOLKIT="13.0",
    )
    assert "after" in set(open_recording(recordings / "r").frame("kernels")["name"])


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["", "cuptiActivityGetAttribute=1"])
@pytest.mark.parametrize("takes_place", [False, True])
def test_another_client_gets_no_dirty_buffer_from_the_collector(run_blocks, takes_place, fails):
    """It does not zero its buffers, and relies on CUPTI for that: after a pause, a block, and a
    place that it took.
    """
    run_blocks(
        f"""
        def run_other():
            gpu.cupti.fake_other_start()
            launch_five()
            gpu.cupti.fake_other_stop()

        gpu.start()
        with curvescope.record("r"):
            launch_five()
            assert native.load().curvescope_cupti_pause()
            run_other()
            assert native.load().curvescope_cupti_resume()
            launch_five()
            if {takes_place}: gpu.cupti.fake_other_start()
        assert gpu.cupti.fake_dirty_buffers() == 0, gpu.cupti.fake_dirty_buffers()
        run_other()
        assert gpu.cupti.fake_other_kernels() == 10 + 5 * {takes_place}  # the collector's last, with its buffers
        assert gpu.cupti.fake_dirty_buffers() == 0, gpu.cupti.fake_dirty_buffers()
        """,  # noqa: E501
        FAKE_CUPTI_FAIL=fails,
    )


@pytest.mark.slow
def test_a_recording_that_ends_in_a_pause_says_it(run_blocks):
    folder = run_blocks(
        """
        gpu.start()
        with curvescope.record("r"):
            launch_five()
            assert native.load().curvescope_cupti_pause()
        with curvescope.record("next"):
            launch_five()
        """
    )
    assert lost(open_recording(folder / "r")) == {"cupti_paused": 1}
    following = open_recording(folder / "next")
    assert following.count_rows("kernels") == 5
    assert lost(following) == {}


@pytest.mark.slow
def test_the_collector_gives_cupti_its_clock_once(run_blocks):
    """Given again, CUPTI's times of a device are off by 1e14 ns (pytorch/pytorch#192021)."""
    folder = run_blocks(
        """
        gpu.start()
        for name in "ab":
            with curvescope.record(name):
                launch_five()
        assert gpu.cupti.fake_clock_changes() == 1
        """,
        FAKE_CUPTI_CLOCK_FAULT="1",
    )
    for name in "ab":
        recording = open_recording(folder / name)
        assert recording.count_rows("kernels") == 5
        assert lost(recording) == {}


@pytest.mark.slow
def test_work_whose_times_cupti_gives_wrongly_is_dropped_and_counted(run_blocks):
    """Another client's clock replaced the collector's, which has to be given again."""
    folder = run_blocks(
        """
        gpu.start()
        for name in "ab":
            with curvescope.record(name):
                launch_five()
            gpu.cupti.cuptiActivityRegisterTimestampCallback(None)
        """,
        FAKE_CUPTI_CLOCK_FAULT="1",
    )
    before, after = (open_recording(folder / name) for name in "ab")
    assert before.count_rows("kernels") == 5
    assert after.count_rows("kernels") == 0
    assert lost(after) == {"times_impossible": 5}
    assert after.meta["status"] == "incomplete"


@pytest.mark.slow
def test_a_subscriber_that_never_leaves_is_no_hindrance_where_it_is_known_to_be_idle(run_blocks):
    folder = run_blocks(
        """
        gpu.start()
        assert gpu.cupti.fake_other_subscribe() == 0
        with curvescope.record("unknown"):
            launch_five()
        native.load().curvescope_cupti_share(1)
        with curvescope.record("idle"):
            launch_five()
        """
    )
    unknown, idle = (open_recording(folder / name) for name in ("unknown", "idle"))
    assert "Another profiler" in status(unknown)
    assert unknown.count_rows("kernels") == 0
    assert status(idle) == "recording"
    assert idle.count_rows("kernels") == 5


@pytest.mark.slow
def test_buffers_that_the_collector_takes_from_another_client_are_counted(run_blocks):
    folder = run_blocks(
        """
        gpu.start()
        gpu.cupti.fake_other_start()
        launch_five()
        with curvescope.record("r"):
            pass
        assert gpu.cupti.fake_other_kernels() == 0
        """,
        # not to be set in the midst of another's session
        FAKE_CUPTI_FAIL="cuptiActivitySetAttribute=1",
    )
    assert lost(open_recording(folder / "r")) == {"cupti_foreign": 1}


@pytest.mark.slow
def test_a_block_after_cuda_was_initialised_has_its_devices_from_the_driver(run_blocks):
    """CUPTI tells of devices once, when CUDA is initialised."""
    folder = run_blocks(
        """
        gpu.start()
        gpu.device(0, "told before the recording")
        with curvescope.record("r"):
            gpu.device(0, "told again")
            launch_five()
        """,
        FAKE_CUDA_DEVICES="2",
    )
    meta = open_recording(folder / "r").meta
    assert [device["name"] for device in meta["devices"]] == [
        f"Test Double {i} of the driver" for i in range(2)
    ]
    assert meta["device"] == meta["device"] | {
        "kind": "cuda",
        "compute_capability": "9.0",
        "sm_count": 132,
        "memory_bytes": 80 << 30,
        "memory_bytes_per_s": 3_352_320_000_000,
        "l2_bytes": 52_428_800,
        "clock_hz": 1_980_000_000,
    }


@pytest.mark.slow
def test_the_end_of_a_block_waits_for_every_device_in_use(run_blocks):
    run_blocks(
        """
        gpu.start()
        with curvescope.record("r"):
            launch_five()
        assert [gpu.cuda.fake_synchronized(device) for device in range(3)] == [1, 1, 0]
        """,
        FAKE_CUDA_DEVICES="3",
        FAKE_CUDA_ACTIVE="2",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("toolkit", "is_right"), [("12.9", False), ("13.0", False), ("13.5", True)]
)
def test_graphs_in_a_second_block_are_mislabelled_before_cuda_13_1_and_that_is_said(
    run_blocks, toolkit, is_right
):
    folder = run_blocks(
        """
        gpu.start()
        for number in range(2):
            with curvescope.record(f"r{number}"):
                now = gpu.now()
                gpu.call(gpu.GRAPH_LAUNCH, now, now + 10, threading.get_native_id(), 7)
                gpu.kernel("in_graph", now + 20, now + 30, 7, graph=3)
        """,
        TOOLKIT=toolkit,
    )
    first, second = (open_recording(folder / f"r{number}") for number in range(2))
    assert lost(first) == {}
    assert "cupti_note" not in first.meta["collectors"][0]
    if is_right:
        assert lost(second) == lost(first)
        assert "cupti_note" not in second.meta["collectors"][0]
    else:
        assert lost(second)["device_work_without_launch"] == 1
        assert "13.1 update 1" in second.meta["collectors"][0]["cupti_note"]
