"""PyTorch on the virtual card: the devices it sees, the order of its work, and what CUPTI tells of
it.
"""

import pytest

from curvescope.profiling.hardware.devices import get_device

from .card import DRIVER_NAMES, Card


@pytest.mark.parametrize("name", ["k40", "gtx1080", "titanx_pascal", "v100", "h100"])
def test_pytorch_sees_the_card_of_the_table(answer_of, name):
    device = get_device(name)
    seen = answer_of(
        Card([name]),
        """
        import json, torch
        seen = torch.cuda.get_device_properties(0)
        print(json.dumps([seen.name, seen.multi_processor_count, seen.total_memory, seen.L2_cache_size]))
        """,
    )
    assert seen == [DRIVER_NAMES[name], device.sm_count, device.memory_bytes, device.l2_bytes]


def test_torchs_profiler_gets_the_kernels_of_a_step_with_their_names_and_operators(answer_of):
    found = answer_of(
        Card(),
        """
        import json, torch
        net, a = torch.nn.Linear(256, 512).cuda(), torch.randn(4096, 256, device="cuda")
        net(a).relu().sum().backward()
        with torch.autograd.profiler.profile(use_device="cuda", use_kineto=True) as profiler:
            net(a).relu().sum().backward()
            torch.cuda.synchronize()
        events = profiler.kineto_results.events()
        host = {e.correlation_id(): e.name() for e in events if e.device_type().name == "CPU"}
        print(json.dumps([
            [e.name(), host.get(e.linked_correlation_id()), e.duration_ns(), e.start_ns()]
            for e in events if e.device_type().name != "CPU"
        ]))
        """,
    )
    operators = {operator for _, operator, _, _ in found}
    assert {
        "aten::addmm",
        "aten::clamp_min",
        "aten::sum",
        "aten::threshold_backward",
        "aten::mm",
    } <= operators
    names = " ".join(name for name, _, _, _ in found)
    for family in ("xmma_gemm_f32f32", "vectorized_elementwise_kernel", "reduce_kernel"):
        assert family in names
    assert all(duration_ns > 0 for _, _, duration_ns, _ in found)
    starts = [start_ns for *_, start_ns in found]
    assert max(starts) - min(starts) < 10e9  # one clock


def test_memory_runs_out_where_the_card_ends(answer_of):
    error, free, again = answer_of(
        Card(["gtx1080"]),
        """
        import json, torch
        kept = torch.empty(7 << 30, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            text = str(error)
        free = torch.cuda.mem_get_info()[0]
        del kept
        torch.cuda.empty_cache()
        print(json.dumps([text, free, torch.cuda.mem_get_info()[0]]))
        """,
    )
    assert "out of memory" in error
    assert "this process has 7.00 GiB memory in use" in error  # by NVML
    assert free < 2 << 30 < again


def test_work_of_several_cards_and_streams_keeps_its_order(answer_of):
    first_ms, both_ms, name = answer_of(
        Card(["h100", "v100"], virtual_time=True),
        """
        import json, torch
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        torch.cuda.set_device(1)
        side, events = torch.cuda.Stream(), [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        events[0].record()
        torch.cuda._sleep(10_000_000)
        events[1].record()
        with torch.cuda.stream(side):
            side.wait_event(events[1])
            torch.cuda._sleep(10_000_000)
            events[2].record()
        torch.cuda.synchronize()
        print(json.dumps([events[0].elapsed_time(events[1]), events[0].elapsed_time(events[2]), names[1]]))
        """,
    )
    assert "V100" in name
    each_ms = 10e6 / get_device("v100").clock_hz * 1e3
    assert first_ms == pytest.approx(each_ms, rel=0.002)
    assert both_ms == pytest.approx(2 * each_ms, rel=0.002)


def test_virtual_time_is_the_same_in_each_run_and_in_all_processes(answer_of):
    program = """
        import json, subprocess, sys, threading, time, torch
        a = torch.ones(1 << 20, device="cuda")
        torch.cuda.synchronize()
        took = []
        for _ in range(3):
            began = time.perf_counter_ns()
            for _ in range(10):
                a += 1
            torch.cuda.synchronize()
            took.append(time.perf_counter_ns() - began)
        began = time.monotonic()
        time.sleep(100)
        child = "import time; b = time.monotonic(); time.sleep(50); print(time.monotonic() - b)"
        slept = float(subprocess.run([sys.executable, "-S", "-c", child], stdout=-1, timeout=900).stdout)
        threading.Event().wait(25)
        print(json.dumps([took, slept, time.monotonic() - began]))
    """
    card = Card(virtual_time=True)
    took_ns, slept_s, all_s = answer_of(card, program)
    assert took_ns == [took_ns[0]] * 3
    assert slept_s == pytest.approx(50, abs=0.1)
    assert all_s == pytest.approx(175, abs=0.1)
    assert answer_of(card, program)[0] == took_ns


def test_the_host_waits_while_a_stream_holds_a_thousand_launches(answer_of):
    launches_ns, synchronize_ns = answer_of(
        Card(virtual_time=True, costs={"kernel_ns": 100_000}),
        """
        import json, time, torch
        a = torch.ones(1, device="cuda")
        torch.cuda.synchronize()
        began = time.perf_counter_ns()
        for _ in range(1500):
            a += 1
        queued = time.perf_counter_ns()
        torch.cuda.synchronize()
        print(json.dumps([queued - began, time.perf_counter_ns() - queued]))
        """,
    )
    assert launches_ns == pytest.approx(
        476 * 101_200, rel=0.05
    )  # the gap between two kernels is 1.2 us
    assert synchronize_ns == pytest.approx(1024 * 101_200, rel=0.05)


def test_a_pageable_copy_holds_the_host_and_a_pinned_one_does_not(answer_of):
    pageable_ns, pinned_ns = answer_of(
        Card(virtual_time=True),
        """
        import json, time, torch
        took = []
        for pinned in (False, True):
            a = torch.zeros(64 << 20, dtype=torch.uint8)
            a = a.pin_memory() if pinned else a
            b = torch.empty_like(a, device="cuda")
            torch.cuda.synchronize()
            began = time.perf_counter_ns()
            b.copy_(a, non_blocking=True)
            took.append(time.perf_counter_ns() - began)
        print(json.dumps(took))
        """,
    )
    assert pageable_ns == pytest.approx((64 << 20) / 6e9 * 1e9, rel=0.05)
    assert pinned_ns < 20_000


def test_a_graph_launches_what_two_streams_captured(answer_of):
    program = """
        import json, time, torch
        a, b = (torch.ones(1 << 22, device="cuda") for _ in range(2))
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

        def step():
            side.wait_stream(torch.cuda.current_stream())
            for _ in range(20):
                a.add_(1)
            with torch.cuda.stream(side):
                b.mul_(2)
            torch.cuda.current_stream().wait_stream(side)

        def timed(run):
            torch.cuda.synchronize()
            began = time.perf_counter_ns()
            run()
            torch.cuda.synchronize()
            return time.perf_counter_ns() - began

        step()
        eager_ns = timed(step)
        with torch.cuda.graph(graph):
            step()
        with torch.autograd.profiler.profile(use_device="cuda", use_kineto=True) as profiler:
            graph.replay()
            torch.cuda.synchronize()
        events = profiler.kineto_results.events()
        calls = [e.name() for e in events if e.device_type().name == "CPU"]
        kernels = [e.name() for e in events if e.device_type().name != "CPU"]
        print(json.dumps([eager_ns, timed(graph.replay), calls, kernels]))
    """
    eager_ns, graphed_ns, calls, kernels = answer_of(Card(virtual_time=True), program)
    assert "cudaGraphLaunch" in calls
    assert "cudaLaunchKernel" not in calls
    assert len([name for name in kernels if "OnSelf_add<" in name]) == 20
    assert len([name for name in kernels if "mul" in name.lower()]) == 1
    assert graphed_ns < eager_ns


@pytest.mark.parametrize(
    ("name", "forward", "filter_gradient"),
    [
        ("h100", "sm90_xmma_fprop_implicit_gemm", "xmma_wgrad"),
        ("gtx1080", "maxwell_scudnn", "stridedB_splitK"),
    ],
)
def test_convolutions_run_by_cudnns_backend(answer_of, name, forward, filter_gradient):
    kernels = answer_of(
        Card([name]),
        """
        import json, torch
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.BatchNorm2d(64), torch.nn.ReLU()).cuda()
        a = torch.randn(16, 3, 32, 32, device="cuda")
        net(a).sum().backward()
        with torch.autograd.profiler.profile(use_device="cuda", use_kineto=True) as profiler:
            net(a).sum().backward()
            torch.cuda.synchronize()
        print(json.dumps([e.name() for e in profiler.kineto_results.events() if e.device_type().name != "CPU"]))
        """,
    )
    text = " ".join(kernels)
    for family in (
        forward,
        filter_gradient,
        "cudnn::bn_fw_tr_1C11_kernel_NCHW",
        "cudnn::bn_bw_1C11_kernel_new",
    ):
        assert family in text


def test_a_clock_that_one_process_locks_holds_for_all(answer_of):
    """As a driver's does, also after the process is gone."""
    usual_ms, locked_ms = answer_of(
        Card(virtual_time=True),
        """
        import json, os, torch
        import pynvml

        def spin_ms():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            torch.cuda._sleep(20_000_000)
            end.record()
            end.synchronize()
            return start.elapsed_time(end)

        taken = [spin_ms()]
        if (child := os.fork()) == 0:
            pynvml.nvmlInit()
            pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 990, 990)
            os._exit(0)
        os.waitpid(child, 0)
        print(json.dumps([*taken, spin_ms()]))
        """,
    )
    assert locked_ms == pytest.approx(usual_ms * get_device("h100").clock_hz / 990e6, rel=0.01)


def test_a_limit_of_a_lock_ends_in_the_time_of_the_card(answer_of):
    """Found by use: what a recorder waited for at the end of a program was over at once, as real
    time runs ahead, and the kernels were lost.
    """
    results = answer_of(
        Card(virtual_time=True),
        """
        import ctypes, json, threading, time

        class Time(ctypes.Structure):
            _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]

        library, mutex, results = ctypes.CDLL(None), ctypes.create_string_buffer(64), []

        def lock():
            until = Time(*divmod(time.clock_gettime_ns(time.CLOCK_REALTIME) + 1, 10**9))
            results.append(library.pthread_mutex_timedlock(mutex, ctypes.byref(until)))

        library.pthread_mutex_lock(mutex)
        waiting = threading.Thread(target=lock)
        waiting.start()
        sum(range(1_000_000))
        library.pthread_mutex_unlock(mutex)
        waiting.join()
        print(json.dumps(results))
        """,
    )
    assert results == [0]


def test_the_allocator_can_grow_its_segments(answer_of):
    """It then asks NVML for the card by its address on the bus, with a domain of eight digits."""
    expandable = answer_of(
        Card(),
        """
        import json, torch
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
        x = torch.empty(64 << 20, device="cuda")
        print(json.dumps([segment["is_expandable"] for segment in torch.cuda.memory_snapshot()]))
        """,
    )
    assert expandable == [True]


def test_the_first_work_opens_a_context(answer_of):
    before, after = answer_of(
        Card(),
        """
        import ctypes, json
        card, context, stream, opened = ctypes.CDLL(None), ctypes.c_void_p(), ctypes.c_void_p(), []
        for call in (card.cuInit, lambda _: card.cudaStreamCreate(ctypes.byref(stream))):
            assert call(0) == 0
            assert card.cuCtxGetCurrent(ctypes.byref(context)) == 0
            opened.append(bool(context.value))
        assert card.cuCtxSetLimit(0, ctypes.c_size_t(4096)) == 0
        print(json.dumps(opened))
        """,
    )
    assert (before, after) == (False, True)


def test_a_context_that_is_popped_leaves_the_one_before_it(answer_of):
    """numba-cuda pops the first context of a thread again."""
    found = answer_of(
        Card(["h100", "v100"]),
        """
        import ctypes, json
        card, contexts, popped = ctypes.CDLL(None), [], ctypes.c_void_p()

        def current():
            found = ctypes.c_void_p()
            assert card.cuCtxGetCurrent(ctypes.byref(found)) == 0
            return found.value

        for device in (0, 1):
            context = ctypes.c_void_p()
            assert card.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
            contexts.append(context.value)
        assert card.cuCtxSetCurrent(ctypes.c_void_p(contexts[0])) == 0
        assert card.cuCtxPushCurrent_v2(ctypes.c_void_p(contexts[1])) == 0
        seen = []
        for _ in range(3):
            seen.append([current(), card.cuCtxPopCurrent_v2(ctypes.byref(popped)) == 0])
        print(json.dumps([contexts, seen]))
        """,
    )
    (first, second), seen = found
    assert seen == [[second, True], [first, True], [None, False]]


def test_a_thread_that_asks_for_python_while_it_ends_does_not_end_the_program(run_on):
    """PyTorch's backward thread does; unwound, it aborts the program. Here the thread's end would
    be seen by the destructor of its own data, which ends the process with 7.
    """
    run_on(
        Card(),
        """
        import ctypes, os, threading
        c = ctypes.CDLL(None)
        key, (reads, writes) = ctypes.c_uint(), os.pipe()
        c.pthread_key_create(ctypes.byref(key), ctypes.cast(c._exit, ctypes.c_void_p))
        started = threading.Event()

        def wait():
            c.pthread_setspecific(key, ctypes.c_void_p(7))
            started.set()
            c.read(reads, ctypes.create_string_buffer(1), 1)  # returns while Python ends

        class Last:
            def __del__(self, c=c, writes=writes):
                c.write(writes, b"x", 1)
                c.usleep(500_000)

        threading.Thread(target=wait, daemon=True).start()
        started.wait()
        threading.last = Last()  # deleted with its module
        """,
        as_any_program=True,
    )


def test_a_program_that_resets_the_signal_of_a_page_fault_still_has_a_virtual_time(run_on):
    """As compilers do that a program calls: the C library reads the time by the instruction that
    this signal answers.
    """
    run_on(
        Card(virtual_time=True),
        """
        import ctypes, os, signal, torch
        torch.cuda.init()
        c = ctypes.CDLL(None)
        c.signal(signal.SIGSEGV, ctypes.c_void_p(0))  # SIG_DFL
        name = ctypes.create_string_buffer(b"nameXXXXXX")
        os.close(c.mkstemp(name))
        """,
    )


def test_cuda_and_nvml_name_a_card_alike(answer_of):
    found = answer_of(
        Card(["h100", "h100"]),
        """
        import json, pynvml, torch
        pynvml.nvmlInit()
        names = []
        for number in range(2):
            by_nvml = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(number))
            again = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(by_nvml))
            by_cuda = f"GPU-{torch.cuda.get_device_properties(number).uuid}"
            names.append([by_cuda, by_nvml, again])
        print(json.dumps(names))
        """,
    )
    assert all(len(set(names)) == 1 for names in found)
    assert found[0] != found[1]


def test_numbas_kernels_run(answer_of):
    """It loads its kernels by the driver's libraries, of which every name is there."""
    pytest.importorskip("numba_cuda")
    elapsed_ms = answer_of(
        Card(virtual_time=True),
        """
        import json, numpy as np, warnings
        warnings.simplefilter("ignore")
        from numba import cuda

        @cuda.jit
        def add(a):
            i = cuda.grid(1)
            if i < a.size:
                a[i] += 1

        a = cuda.to_device(np.zeros(1 << 20, np.float32))
        add[4096, 256](a)
        start, end = cuda.event(), cuda.event()
        start.record()
        add[4096, 256](a)
        end.record()
        end.synchronize()
        print(json.dumps(cuda.event_elapsed_time(start, end)))
        """,
    )
    assert 0 < elapsed_ms < 1
