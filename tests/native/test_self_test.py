"""The collector's self-test on the doubles of driver and libcupti."""

import json

import pytest


@pytest.fixture
def answer(run, on_doubles):
    """Runs a program on the doubles, and reads the JSON that it prints."""
    return lambda program, **environment: json.loads(run(program, **on_doubles | environment))


_PROGRAM = """
    import json
    from dataclasses import asdict
    from fake_gpu import FakeGpu
    gpu = FakeGpu()  # tells the double how large its records are
    from curvescope.profiling.collect import self_test
    test = self_test._test_this_process()
    print(json.dumps({**asdict(test), "passed": test.has_passed}))
"""


def test_every_kernel_of_the_self_test_is_recorded_with_its_geometry(answer, doubles):
    seen = answer(_PROGRAM)
    assert (seen["launched"], seen["recorded"], seen["with_geometry"]) == (1000, 1000, 1000)
    assert seen["status"] == "recording"
    assert seen["cupti_path"] == str(doubles / "libcupti.so.12")
    assert seen["passed"]


def test_a_collector_without_libcupti_fails_the_self_test_and_says_why(answer):
    seen = answer(_PROGRAM, CURVESCOPE_CUPTI="off")
    assert (seen["launched"], seen["recorded"], seen["passed"]) == (1000, 0, False)
    assert "CURVESCOPE_CUPTI=off" in seen["status"]


_COUNTING = """
    import json, os
    from curvescope.profiling.collect import self_test
    try:
        print(json.dumps(self_test.run_counter_test(os.environ["FAKE_CUPTI"])))
    except self_test.BackendMissingError as error:
        print(json.dumps(str(error)))
"""


def test_ten_kernels_are_counted_in_the_process_itself(answer):
    assert answer(_COUNTING) == 10


def test_counters_that_are_kept_for_root_are_said_with_the_remedy(answer):
    said = answer(_COUNTING, FAKE_CUPTI_FAIL="cuptiRangeProfilerEnable=35")
    assert said.startswith(
        "cuptiRangeProfilerEnable: only administrators may read performance counters"
    )


@pytest.mark.parametrize(("index", "passes"), [(0, True), (1, False)])
def test_a_device_that_the_driver_refuses_is_an_error_that_names_the_call(answer, index, passes):
    seen = answer(
        f"""
        import json
        from curvescope.base.errors import BackendMissingError
        from curvescope.profiling.hardware.cuda_driver import CudaDriver
        said = ""
        try:
            with CudaDriver().empty_kernel({index}) as launch: launch()
        except BackendMissingError as error:
            said = str(error)
        print(json.dumps({{"version": CudaDriver().version(), "count": CudaDriver().count_devices(), "said": said}}))
        """  # noqa: E501
    )
    assert (seen["version"], seen["count"]) == ("13.5", 1)
    assert seen["said"] == ("" if passes else "cuDeviceGet answered error (101).")


def test_the_clock_of_a_step_is_counted_through_the_driver(answer):
    """The double's 132 SMs count 1.5 million cycles in the millisecond between two launches."""
    program = """
        import json
        from curvescope.profiling.hardware.stream_clock import StreamClock
        clock = StreamClock("cuda:0", lambda: 0)
        clock.begin()
        print(json.dumps(clock.end()))
        """
    assert answer(program) == 1_500_000_000
