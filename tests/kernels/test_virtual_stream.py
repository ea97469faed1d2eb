"""What is reported over a stream on a virtual clock is the device's time: benches, the flush,
launches and replays.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from curvescope.experiments.replay import site
from curvescope.experiments.replay.run import run_term
from curvescope.kernels import backends
from curvescope.kernels.backends import Prepared
from curvescope.kernels.backends.cuda_device import prepare_launch
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.launch import QUEUED
from curvescope.kernels.method import BenchMeasurement, Method
from curvescope.kernels.timers import PerfCounter
from curvescope.profiling.recording.experiments import Stage
from curvescope.profiling.recording.operators import TensorArgument
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ..experiments.planted_experiments import experiment, operator
from .fakes import FakeWatch, VirtualStream

FLUSH_NS, HOST_USE_NS = 100_000, 1_000_000  # an H100 reads its L2 twice; counters of 40 threads


class Backend(backends.Backend):
    """A GPU whose stream is virtual; `prepare` gives what the test wants to run."""

    def __init__(self, stream: VirtualStream, prepared: Prepared | None = None) -> None:
        super().__init__(4096)
        self.stream, self.timer, self._prepared = stream, stream.timer(), prepared
        self.watch = FakeWatch(SimpleNamespace(now_ns=0))

    def prepare(self, problem: Any, operands: Any) -> Prepared:
        assert self._prepared is not None
        return self._prepared

    def describe(self) -> dict[str, Any]:
        return {}

    def _buffer_pass(self, size_bytes: int) -> Any:
        return partial(self.stream.launch, FLUSH_NS)

    def _synchronize(self) -> None:
        self.stream.synchronize()


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> VirtualStream:
    stream = VirtualStream()
    monkeypatch.setattr(backends, "time", SimpleNamespace(perf_counter_ns=lambda: stream.host_ns))
    return stream


def close(expected_ns: float, calls: int = 1) -> Any:
    """Within 2 µs of a sample or 2 %."""
    return pytest.approx(expected_ns, rel=0.02, abs=2_000 / calls)


def measured(backend: Backend, method: Method, visits: int = 3) -> BenchMeasurement:
    measurement = BenchMeasurement(Gemm(1, 1, 1))
    for _ in range(visits):
        measurement.take(backend, method)
    return measurement


@pytest.mark.parametrize("cache", ["cold", "hot"])
@pytest.mark.parametrize("kernel_us", [2, 5, 20, 60, 200, 5_000])
def test_a_bench_reports_the_kernel(stream: VirtualStream, cache: str, kernel_us: int) -> None:
    prepared = Prepared(partial(stream.launch, 1000 * kernel_us), lambda: None, "kernel")
    backend = Backend(stream, prepared)
    measurement = measured(backend, Method(cache=cache))
    durations_ns = measurement.durations_ns()
    assert min(durations_ns) == close(1000 * kernel_us, measurement.calls) == max(durations_ns)
    assert measurement.discarded["waited for the host"] == 0
    if cache == "cold":
        assert FLUSH_NS <= backend.flush_ns < FLUSH_NS + 20_000


@pytest.mark.parametrize("launch_ns", [1_500, 2_500])
def test_the_throughput_of_launches_is_the_devices_at_little_cost(
    stream: VirtualStream, launch_ns: int
) -> None:
    """Python queues a launch in 7 µs; the device needs a fraction of that."""
    prepared = prepare_launch(
        "throughput", "empty", partial(stream.launch, launch_ns), stream.synchronize
    )
    backend, measurement = Backend(stream, prepared), BenchMeasurement(Gemm(1, 1, 1))
    measurement.take(backend, Method(cache="hot"))
    began_ns = stream.host_ns
    durations_ns = [sample.duration_ns for sample in measurement.take(backend, Method(cache="hot"))]
    assert min(durations_ns) == close(launch_ns, QUEUED) == max(durations_ns)
    host_ns = QUEUED * 7_000
    assert stream.host_ns - began_ns < (len(durations_ns) + 1) * 3 * host_ns


@pytest.mark.parametrize(("kind", "expected_ns"), [("call", 7_000), ("synchronize", 7_000 + 1_500)])
def test_a_launch_on_the_hosts_clock_is_the_call_or_with_the_wait_the_kernel_too(
    stream: VirtualStream, kind: str, expected_ns: int
) -> None:
    """Work that is left in the stream, here 40 ms, is waited for outside the time."""
    prepared = prepare_launch(kind, "empty", partial(stream.launch, 1_500), stream.synchronize)
    prepared = prepared._replace(timer=PerfCounter(lambda: stream.host_ns))
    stream.launch(40_000_000)
    durations_ns = measured(Backend(stream, prepared), Method(cache="hot")).durations_ns()
    assert min(durations_ns) == close(expected_ns, prepared.inner) == max(durations_ns)


def test_samples_that_waited_for_the_host_are_dropped_and_counted(stream: VirtualStream) -> None:
    """Every fourth run stalls the host for 5 ms."""
    runs = iter(range(10_000))

    def sometimes_late() -> None:
        stream.work_on_host(5_000_000 * (next(runs) % 4 == 3))
        stream.launch(60_000)

    backend = Backend(stream, Prepared(sometimes_late, lambda: None, "kernel"))
    measurement = measured(backend, Method(samples_per_visit=(20, 20)), visits=1)
    durations_ns = measurement.durations_ns()
    assert (len(durations_ns), measurement.discarded["waited for the host"]) == (15, 5)
    assert min(durations_ns) == close(60_000) == max(durations_ns)


def test_work_that_waits_for_the_host_by_itself_is_kept_with_a_note(stream: VirtualStream) -> None:
    def copy_from_pageable_memory() -> None:
        stream.launch(50_000)
        stream.synchronize()

    backend = Backend(stream, Prepared(copy_from_pageable_memory, lambda: None, "copy"))
    measurement = measured(backend, Method(), visits=1)
    assert measurement.durations_ns()
    assert "waited for the host" not in measurement.discarded
    assert "host-bound" in {note.kind for note in measurement.notes(backend, Method())}


@pytest.mark.parametrize("kernel_us", [5, 20, 60, 200])
def test_a_replay_reports_the_kernels_of_its_calls(
    stream: VirtualStream, kernel_us: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators run here, and each product puts a kernel into the stream; the counters of the host
    take 1 ms.
    """
    pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    class Launches(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            stream.launch(1000 * kernel_us if func.name() == "aten::mm" else 3_000)
            return func(*args, **(kwargs or {}))

    backend = Backend(stream)
    backend.cache_bytes = 1  # every run flushes
    monkeypatch.setattr(site, "read_host_use", lambda: stream.work_on_host(HOST_USE_NS))
    with RecordingWriter(tmp_path / "run", {"device": {"kind": "cpu"}}) as writer, Launches():
        operands = {
            b: [TensorArgument(shape, "float") for shape in ((b, 8), (8, 8))] for b in (2, 4)
        }
        writer.write(
            "operators",
            columns_of([operator(b, "aten::mm", of_b, calls=3) for b, of_b in operands.items()]),
        )
        facts = {
            "functional": ((4, 1.0), (2, -2.0)),
            "functional_kind": "excess",
            "batches": (2, 4),
            "layer": "fc",
        }
        wanted = experiment(stage=Stage.SCREEN, factors=(), rounds=(2, 2), done=False, **facts)
        run_term(open_recording(writer.path), wanted, writer, backend=backend)
    durations_ns = open_recording(tmp_path / "run").frame("experiments").duration_ns
    assert len(durations_ns) >= 2 * 2 * 8
    assert durations_ns.min() == close(3 * 1000 * kernel_us) == durations_ns.max()
