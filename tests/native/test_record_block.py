"""`with curvescope.record() as recording:` in processes of their own, since NVTX is attached once
per process.
"""

import pytest

from curvescope.profiling.recording.store import open_recording


def test_without_a_gpu_the_block_gives_its_ranges_and_says_what_is_missing(run, tmp_path):
    run(
        """
        import threading, curvescope, nvtx

        def work():
            with nvtx.annotate("in a thread"): pass

        with curvescope.record("r") as recording:
            with nvtx.annotate("inside"): pass
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        with nvtx.annotate("after"): pass
        assert sorted(recording.frame("ranges")["name"]) == ["in a thread", "inside"]
        assert recording.meta["status"] == "complete"
        assert "libcuda.so.1" in recording.meta["collectors"][0]["cupti_status"]
        """
    )
    assert open_recording(tmp_path / "r").meta["lost"] == {}


def test_blocks_one_after_the_other_hold_their_own(run, tmp_path, on_doubles):
    run(
        """
        import os, threading, curvescope, nvtx
        from fake_gpu import FakeGpu, launch
        gpu = FakeGpu()
        me = threading.get_native_id()
        variables = dict(os.environ)
        for number in range(3):
            with curvescope.record(f"r{number}"):
                with nvtx.annotate(f"range {number}"):
                    launch(gpu, f"kernel {number}", number + 1, me)
                nvtx.push_range("left open")
            assert not gpu.cupti.fake_is_collecting(10) and not gpu.cupti.fake_is_collecting(5)
            nvtx.pop_range()
            launch(gpu, "outside", 100, me)
        assert gpu.cuda.fake_synchronized(0) == 3
        assert dict(os.environ) == variables
        """,
        **on_doubles,
    )
    for number in range(3):
        recording = open_recording(tmp_path / f"r{number}")
        assert list(recording.frame("kernels")["name"]) == [f"kernel {number}"]
        assert list(recording.frame("ranges")["name"]) == [f"range {number}"]
        assert {name: e["count"] for name, e in recording.meta["lost"].items()} == {
            "nvtx_unclosed": 1
        }


def test_another_profiler_in_the_process_is_said_and_left_alone(run, on_doubles):
    run(
        """
        import ctypes, curvescope
        from fake_gpu import FakeGpu
        gpu = FakeGpu()
        handle = ctypes.c_void_p()
        assert gpu.cupti.cuptiSubscribe(ctypes.byref(handle), None, None) == 0
        with curvescope.record("r") as recording: pass
        assert "Another profiler" in recording.meta["collectors"][0]["cupti_status"]
        assert gpu.cupti.cuptiSubscribe(ctypes.byref(handle), None, None) == 39  # the other's place is still its own
        """,  # noqa: E501
        **on_doubles,
    )


@pytest.mark.slow
def test_torchs_profiler_inside_a_block_gets_cupti_and_the_block_goes_on_beside_it(
    run, tmp_path, on_doubles
):
    """Like Kineto, the profiler subscribes at its first use and stays subscribed."""
    run(
        """
        import ctypes, curvescope, sys, threading
        from fake_gpu import FakeGpu, launch
        from types import SimpleNamespace
        gpu, me, subscribed = FakeGpu(), threading.get_native_id(), []

        def prepare(config, activities):
            handle = ctypes.c_void_p()
            subscribed.append(gpu.cupti.cuptiSubscribe(ctypes.byref(handle), None, None))

        profiler = SimpleNamespace(_prepare_profiler=prepare, _enable_profiler=max, _disable_profiler=lambda: None)
        idle = SimpleNamespace(_profiler_type=lambda: SimpleNamespace(name="NONE"))
        sys.modules["torch"] = SimpleNamespace(
            version=SimpleNamespace(cuda="13.0"),
            autograd=SimpleNamespace(profiler=profiler),
            _C=SimpleNamespace(_autograd=idle),
            get_num_threads=lambda: 1,
        )
        with curvescope.record("r0"):
            launch(gpu, "before", 1, me)
            profiler._prepare_profiler("config", [SimpleNamespace(name="CUDA")])
            profiler._disable_profiler()
            launch(gpu, "after", 2, me)
        assert subscribed == [0], subscribed
        assert profiler._prepare_profiler is prepare
        with curvescope.record("r1"):  # the profiler is still subscribed, and idle
            launch(gpu, "later", 3, me)
        """,  # noqa: E501
        **on_doubles,
    )
    first, second = (open_recording(tmp_path / name) for name in ("r0", "r1"))
    assert list(first.frame("kernels")["name"]) == ["before", "after"]
    assert list(second.frame("kernels")["name"]) == ["later"]
    assert first.meta["collectors"][0]["cupti_pauses"] == 1
    assert {one.meta["collectors"][0]["cupti_status"] for one in (first, second)} == {"recording"}


def test_a_block_inside_a_block_is_refused_and_the_outer_one_goes_on(run):
    run(
        """
        import curvescope, nvtx
        with curvescope.record("outer") as recording:
            try:
                with curvescope.record("inner"): pass
            except curvescope.CurvescopeError as error:
                assert "recorded already" in str(error)
            else:
                raise AssertionError
            with nvtx.annotate("kept"): pass
        assert list(recording.frame("ranges")["name"]) == ["kept"]
        """
    )


def test_an_exception_in_the_block_keeps_what_was_recorded(run, tmp_path):
    run(
        """
        import curvescope, nvtx
        try:
            with curvescope.record("r"):
                with nvtx.annotate("kept"): pass
                raise KeyError("the program's own")
        except KeyError:
            pass
        """
    )
    recording = open_recording(tmp_path / "r")
    assert recording.meta["status"] == "interrupted"
    assert list(recording.frame("ranges")["name"]) == ["kept"]


def test_nvtx_used_before_is_said_not_silently_missed(run):
    run(
        """
        import curvescope, nvtx
        nvtx.push_range("before"), nvtx.pop_range()
        with curvescope.record("r") as recording:
            with nvtx.annotate("missed"): pass
        assert recording.frame("ranges").empty
        assert "curvescope record" in recording.meta["collectors"][0]["nvtx_status"]
        """
    )


def test_a_child_forked_in_the_block_is_recorded_too(run, tmp_path):
    run(
        """
        import os, sys, curvescope, nvtx
        with curvescope.record("r"):
            child = os.fork()
            if child == 0:
                with nvtx.annotate("child"): pass
                import ctypes
                ctypes.CDLL(None).exit(0)
            assert os.waitpid(child, 0)[1] == 0
            with nvtx.annotate("parent"): pass
        """
    )
    ranges = open_recording(tmp_path / "r").frame("ranges")
    assert sorted(ranges["name"]) == ["child", "parent"]
    assert ranges["process"].nunique() == 2
