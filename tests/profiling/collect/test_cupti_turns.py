"""torch's profiler and the collector take turns with CUPTI: the order of calls to both."""

import os
import sys
from types import SimpleNamespace

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.collect import inject
from curvescope.profiling.collect.cupti_turns import find_loaded_collector, profiles_now, take_turns

from ...tables import ask_each

torch = pytest.importorskip("torch")
from torch.autograd import profiler  # noqa: E402

CPU, CUDA = torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA
PAUSE, RESUME = ["share 0", "pause"], ["share 1", "resume"]


class Collector:
    """Notes its calls among those of the profiler."""

    def __init__(self, log):
        self.log = log

    def curvescope_cupti_share(self, other_is_idle):
        self.log.append(f"share {other_is_idle}")

    def curvescope_cupti_pause(self):
        self.log.append("pause")
        return 1

    def curvescope_cupti_resume(self):
        self.log.append("resume")
        return 1


@pytest.fixture
def log():
    return []


@pytest.fixture
def hooked(log):
    """A profiler whose calls are noted and return their own names, with the hooks on it."""

    def note(name):
        return lambda *_, **__: log.append(name) or name

    fake = SimpleNamespace(
        _prepare_profiler=note("prepare"),
        _enable_profiler=note("enable"),
        _disable_profiler=note("disable"),
    )
    take_turns(fake, lambda: Collector(log))
    return fake


def test_the_collector_pauses_from_preparation_to_the_end_of_a_profile_of_cuda(hooked, log):
    activities = {CPU, CUDA}
    assert hooked._prepare_profiler("config", activities, activity_filter=None) == "prepare"
    assert hooked._enable_profiler("config", activities) == "enable"
    assert hooked._disable_profiler() == "disable"
    assert log == [*PAUSE, "prepare", *PAUSE, "enable", "disable", *RESUME]


def test_a_profile_of_the_cpu_alone_leaves_the_kernels_to_the_collector_and_ranges_pause_nothing(
    hooked, log
):
    hooked._prepare_profiler("config", {CPU})
    hooked._enable_profiler("config", set())  # for NVTX
    assert log == [*PAUSE, "prepare", *RESUME, "enable"]


def test_the_collector_resumes_after_an_error(log):
    def fail(*_):
        raise RuntimeError("Profiler is already enabled")

    fake = SimpleNamespace(_prepare_profiler=fail, _enable_profiler=fail, _disable_profiler=fail)
    take_turns(fake, lambda: Collector(log))
    with pytest.raises(RuntimeError, match="already enabled"):
        fake._prepare_profiler("config", {CUDA})
    assert log == [*PAUSE, *RESUME]


def test_hooks_of_torchs_own_profiler_pass_on_what_it_gives_and_are_taken_away(log):
    before = profiler._prepare_profiler, profiler._enable_profiler, profiler._disable_profiler
    undo = take_turns(profiler, lambda: Collector(log))
    try:
        with torch.profiler.profile(activities=[CPU], acc_events=True) as profile:
            torch.ones(2) + 1
    finally:
        undo()
    assert {"aten::add", "aten::ones"} <= {event.name for event in profile.events()}
    assert log.count("pause") >= 1
    assert log[-2:] == RESUME
    assert before == (
        profiler._prepare_profiler,
        profiler._enable_profiler,
        profiler._disable_profiler,
    )


def test_without_a_loaded_collector_nothing_changes(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)
    assert find_loaded_collector() is None
    assert find_loaded_collector(str(tmp_path / "none.so")) is None
    fake = SimpleNamespace(
        _prepare_profiler=set.union, _enable_profiler=set.union, _disable_profiler=lambda: "disable"
    )
    take_turns(fake, lambda: None)
    assert fake._prepare_profiler({CPU}, {CPU, CUDA}) == {CPU, CUDA}
    assert fake._disable_profiler() == "disable"


@ask_each(
    ("cuda", "active", "expected"),
    [
        ("13.0", "KINETO", True),
        ("13.0", "NVTX", False),
        ("13.0", "NONE", False),
        (None, "KINETO", False),
    ],
)
def test_only_a_profile_of_a_torch_for_cuda_is_in_the_way(cuda, active, expected):
    autograd = SimpleNamespace(_profiler_type=lambda: SimpleNamespace(name=active))
    fake = SimpleNamespace(
        version=SimpleNamespace(cuda=cuda), _C=SimpleNamespace(_autograd=autograd)
    )
    assert profiles_now(fake) is expected


def test_a_block_inside_a_profile_of_torch_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(inject, "profiles_now", lambda _: True)
    with (
        pytest.raises(CurvescopeError, match="end that profile first"),
        inject.record(tmp_path / "r"),
    ):
        pass
    assert not (tmp_path / "r").exists()


def test_a_command_gets_the_libcupti_of_curvescopes_own_python(monkeypatch, tmp_path):
    (tmp_path / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    (tmp_path / "nvidia" / "cuda_cupti" / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), str(tmp_path / "other")])
    wheels = (tmp_path / "nvidia" / "cu13" / "lib", tmp_path / "nvidia" / "cuda_cupti" / "lib")
    assert inject._own_cupti_folders() == os.pathsep.join(map(str, wheels))
