"""What each factor of complete steps does to a workload that only counts."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

from curvescope.base.errors import CurvescopeError
from curvescope.experiments.factor import Target
from curvescope.experiments.factors import memory, processor, step_change
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.workload.any_workload import AnyWorkload
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import Network

from ..tables import ask_each

OWN = Configuration.of_step("steps.py:make_step", "cpu")


class Counting:
    """A workload whose step takes a microsecond per sample; `log` has what it was asked for."""

    device, mode, precision, compiled, is_users, errors_are_results = (
        "cpu",
        "training",
        "fp32",
        False,
        False,
        False,
    )
    compiled_before = None

    def __init__(self, model=None):
        self.model, self.log, self.now_ns, self._batch = model, [], 0, None

    def clock_ns(self):
        return self.now_ns

    def trainables(self):
        return []

    def load(self, batch):
        self._batch = batch
        self.log.append(f"load {batch}")

    def run(self, _ranges):
        self.log.append("run")

    def submit(self):
        self.log.append("submit")
        return 5.0

    def time_step(self):
        self.log.append("step")
        return 70, 1000 * self._batch


def changed(name, workload, batches=(3, 5), configuration=OWN):
    return step_change(name).change(workload, Target(configuration, batches))


def test_an_own_step_is_split_into_two_steps_of_half_the_batch():
    steps = changed("split_batch", workload := Counting())
    steps.load(5)
    assert steps.time_step() == (70, 5000)
    assert workload.log == ["load 2", "load 2", "step", "load 3", "step"]
    steps.load(1)
    assert steps.time_step() == (70, 1000)


@pytest.mark.slow
@ask_each("samples", [4, 5, 1])
def test_a_network_that_is_split_computes_the_gradients_of_the_complete_batch(samples):
    """Shares weight the halves of an odd batch."""

    def build():
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    whole, split = (Workload(Network("net", "a test's", (6,), build, classes=3)) for _ in range(2))
    assert changed("split_batch", split, configuration=Configuration("net")) is split
    losses = []
    for workload in (whole, split):
        workload.load(samples)
        losses.append(float(workload.submit().detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for one, other in zip(whole.model.parameters(), split.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
        torch.testing.assert_close(one, other)


def test_the_outputs_of_a_split_forward_pass_are_those_of_the_batch():
    whole, split = (
        Workload(
            Network("net", "a test's", (6,), lambda: nn.Linear(6, 3), classes=3),
            mode="forward",
            halved=halved,
        )
        for halved in (False, True)
    )
    whole.load(5)
    split.load(5)
    torch.testing.assert_close(torch.cat(split.submit()), whole.submit())


def test_steps_of_the_next_multiple_run_for_a_padded_batch():
    steps = changed("padded_batch", workload := Counting(), (3, 8))
    for batch in (3, 8):
        steps.load(batch)
    assert workload.log == ["load 8", "load 8"]


def test_factors_of_the_batch_refuse_what_they_cannot_change():
    pixels = replace(OWN, axis="pixels")
    why = {
        (name, configuration.axis, batches): step_change(name).reason_against(
            Target(configuration, batches)
        )
        for name in ("padded_batch", "split_batch")
        for configuration, batches in ((OWN, (32, 64)), (OWN, (1,)), (pixels, (3, 5)))
    }
    assert why == {
        ("padded_batch", "batch", (32, 64)): "every size is a multiple of 32",
        ("padded_batch", "batch", (1,)): None,
        ("padded_batch", "pixels", (3, 5)): "an axis of pixels is not padded",
        ("split_batch", "batch", (32, 64)): None,
        ("split_batch", "batch", (1,)): "a batch of one sample has no halves",
        ("split_batch", "pixels", (3, 5)): "the axis is pixels, and only a batch has halves",
    }


def test_tokens_are_padded_where_the_axis_counts_them():
    tokens = replace(OWN, axis="tokens")
    assert step_change("padded_batch").reason_against(Target(tokens, (3, 5))) is None
    steps = changed("padded_batch", workload := Counting(), (30, 40), tokens)
    steps.load(30)
    assert workload.log == ["load 32"]


class Words(nn.Module):
    """A language model whose head has the weight of its words."""

    def __init__(self, words=1009):
        super().__init__()
        self.words, self.head = nn.Embedding(words, 8), nn.Linear(8, words)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        return self.head(self.words(tokens))


def test_a_padded_vocabulary_gives_the_results_and_gradients_of_the_plain_one():
    tokens, targets = torch.randint(1009, (2, 6)), torch.randint(1009, (12,))
    torch.manual_seed(0)
    plain = Words()
    torch.manual_seed(0)
    padded = Words()
    steps = changed("padded_vocabulary", Counting(padded))
    steps.load(3)
    steps.load(5)  # changed once
    assert padded.head.weight.shape == (1024, 8)
    assert padded.head.bias.shape == (1024,)
    assert padded.head.weight is padded.words.weight
    for model in (plain, padded):
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets).backward()
    torch.testing.assert_close(padded(tokens), plain(tokens))
    torch.testing.assert_close(padded.head.weight.grad[:1009], plain.head.weight.grad)
    assert not padded.head.weight.grad[1009:].any()
    with pytest.raises(CurvescopeError, match="no linear layer of 1000 outputs or more"):
        changed("padded_vocabulary", Counting(Words(1024))).load(3)
    against = step_change("padded_vocabulary").reason_against
    assert against(Target(OWN, (1, 2), operators=frozenset({"aten::embedding"}))) is None
    known = Target(OWN, (1, 2), operators=frozenset({"aten::conv2d"}))
    assert against(known) == "the steps look up no words"


ATTENTION = {
    "cudnn_attention": "cudnn",
    "flash_attention": "flash",
    "efficient_attention": "mem_efficient",
    "math_attention": "math",
}


@ask_each("name", ATTENTION)
def test_attention_runs_by_one_kernel_only(name):
    switches = {
        kind: (getattr(torch.backends.cuda, f"{kind}_sdp_enabled"), kind)
        for kind in ATTENTION.values()
    }
    before = {kind: enabled() for kind, (enabled, _) in switches.items()}
    try:
        step_change(name).prepare(Target(OWN, (1, 2)))
        left = {kind for kind, (enabled, _) in switches.items() if enabled()}
    finally:
        for kind, was in before.items():
            getattr(torch.backends.cuda, f"enable_{kind}_sdp")(was)
    assert left == {ATTENTION[name]}


def test_attention_is_changed_where_there_is_some_that_runs_otherwise():
    def against(*operators):
        target = Target(OWN, (1, 2), operators=frozenset(operators))
        return step_change("flash_attention").reason_against(target)

    assert against() is None
    assert against("aten::linear") == "the steps have no fused attention"
    assert against("aten::_scaled_dot_product_cudnn_attention") is None
    assert against("aten::_scaled_dot_product_flash_attention") == "its attention runs so already"


def test_a_module_is_compiled_with_max_autotune_unless_its_user_compiles(monkeypatch):
    import torch._inductor.config as config

    with config.patch(max_autotune=False, coordinate_descent_tuning=False, compile_threads=1):
        step_change("max_autotune").prepare(Target(OWN, (1, 2)))
        assert config.max_autotune
        assert config.coordinate_descent_tuning
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda call, **_: compiled.append(call) or call)
    changed("max_autotune", Counting(nn.Linear(2, 2))).load(3)
    assert len(compiled) == 1
    own = Target(OWN, (3, 5), compiled_code={3: "code"})
    workload = Counting(nn.Linear(2, 2))
    assert step_change("max_autotune").change(workload, own) is workload


def test_a_pause_is_as_long_as_the_step_before_it(monkeypatch):
    slept = []
    monkeypatch.setattr("curvescope.experiments.factors.processor.time.sleep", slept.append)
    steps = changed("pauses", Counting())
    for batch in (2, 2, 10**7):
        steps.load(batch)
        assert steps.time_step() == (70, 1000 * batch)
    steps.time_step()
    assert slept == [0.0, 2e-6, 2e-6, 1.0]


@pytest.mark.parametrize(
    ("allocator", "takes_effect"), [("cudaMallocAsync", True), ("native", False)]
)
def test_another_allocator_counts_only_where_torch_took_it_from_the_environment(
    monkeypatch, allocator, takes_effect
):
    assert step_change("malloc_async").environment == {
        "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"
    }
    monkeypatch.setattr(torch.cuda.memory, "get_allocator_backend", lambda: allocator)
    workload = Counting()
    if takes_effect:
        assert changed("malloc_async", workload) is workload
        return
    with pytest.raises(CurvescopeError, match="does not take its allocator from the environment"):
        changed("malloc_async", workload)


@pytest.mark.parametrize("name", ["expandable_segments", "malloc_async"])
def test_an_allocator_that_the_user_has_set_stays(monkeypatch, name):
    on_a_gpu = Target(replace(OWN, device="cuda:0"), (1, 2))
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    assert step_change(name).reason_against(on_a_gpu) is None
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128")
    assert step_change(name).reason_against(on_a_gpu) == "PYTORCH_CUDA_ALLOC_CONF is set already"


@ask_each("name", ["cudnn_workspace", "cudnn_benchmark", "channels_last"])
def test_what_changes_convolutions_is_not_tried_on_steps_without_one(name):
    on_a_gpu = Target(replace(OWN, device="cuda:0"), (1, 2))
    against = step_change(name).reason_against
    assert against(on_a_gpu) is None
    assert against(replace(on_a_gpu, operators={"aten::linear", "aten::conv2d"})) is None
    assert "convolution" in against(replace(on_a_gpu, operators={"aten::linear"}))


def test_growing_segments_are_a_setting_that_torch_takes(monkeypatch):
    taken = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", taken.append, raising=False)
    step_change("expandable_segments").prepare(Target(OWN, (1, 2)))
    assert taken == ["expandable_segments:True"]


def test_a_module_is_changed_once_and_needs_convolutions_to_lie_channels_last():
    convolution = nn.Conv2d(2, 4, 3)
    steps = changed("channels_last", Counting(convolution))
    steps.load(2)
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)
    convolution.weight.data = convolution.weight.data.contiguous()
    steps.load(3)
    assert not convolution.weight.is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(CurvescopeError, match="no two-dimensional convolution"):
        changed("channels_last", Counting(nn.Linear(2, 2))).load(2)
    with pytest.raises(CurvescopeError, match="give it the attribute `module`"):
        changed("compiled", Counting()).load(2)


def test_each_batch_size_gets_the_memory_that_makes_it_as_full_as_the_largest(monkeypatch):
    """Of 80 bytes, contexts take 8; the process has 12 of the rest and can get 60.

    Half of the peak gets half of 72.
    """
    limits, emptied = [], []
    monkeypatch.setattr(memory, "limit_memory", lambda device, size: limits.append((device, size)))
    monkeypatch.setattr(memory, "empty_cache", lambda device: emptied.append(len(limits)))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60, 80))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 12)
    target = Target(replace(OWN, device="cuda:0"), (1, 2), {1: 0.5, 2: 1.0})
    change = step_change("smaller_memory")
    assert change.reason_against(target) is None
    steps = change.change(workload := Counting(), target)
    for batch in (2, 1):
        steps.load(batch)
    assert (limits, emptied, workload.log) == (
        [("cpu", 72), ("cpu", 36)],
        [0, 1],
        ["load 2", "load 1"],
    )
    limited = replace(target, configuration=replace(target.configuration, memory_limit_bytes=40))
    change.change(workload, limited).load(1)
    assert limits[-1] == ("cpu", 20)
    assert change.reason_against(replace(target, memory_shares={1: 0.5})) is not None


def fake_cuda_graphs(monkeypatch, workload, capture=nullcontext):
    """Lets torch capture steps of a `Counting` without a device; a replay takes 30 ns."""

    class Stream:
        def wait_stream(self, _other):
            pass

    class Graph:
        def replay(self):
            workload.log.append("replay")
            workload.now_ns += 30

    for name, fake in {
        "Stream": lambda _device: Stream(),
        "current_stream": lambda _device: Stream(),
        "stream": lambda _stream: nullcontext(),
        "CUDAGraph": Graph,
        "device": lambda device: nullcontext(),
        "graph": lambda _graph: capture(),
        "synchronize": lambda _device: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)


def test_a_graph_is_captured_for_each_batch_size_and_replayed_for_each_step(monkeypatch):
    workload = Counting()
    fake_cuda_graphs(monkeypatch, workload)
    steps = changed("cuda_graph", workload)
    for batch in (2, 2, 3):
        steps.load(batch)
    assert workload.log == [
        *("load 2", "run", "run", "run", "submit"),
        *("load 3", "run", "run", "run", "submit"),
    ]
    workload.log.clear()
    assert [steps.time_step(), steps.time_step()] == [(0, 30), (30, 30)]
    assert workload.log == ["replay", "replay"]
    assert steps.submit() == 5.0


def test_a_replay_is_the_same_step_of_a_training_as_without_a_graph(monkeypatch):
    """Of ResNet-50 on an H100 the fourth step was compared with the first: *differs by 0.15*."""

    def trained():
        def build():
            layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5)
            return nn.Sequential(*layers)

        network = Network("small", "a test's", (3, 8, 8), build, classes=5)
        return Workload(network, "cpu", "training")

    def after_a_step(steps, workload, batch):
        steps.load(batch)
        steps.submit()
        gradients = [parameter.grad.clone() for parameter in workload.model.parameters()]
        return [*gradients, *(buffer.clone() for buffer in workload.model.buffers())]

    plain, captured = trained(), trained()
    fake_cuda_graphs(monkeypatch, captured)
    graph = type("Graph", (), {"replay": lambda _: captured.submit()})
    monkeypatch.setattr(torch.cuda, "CUDAGraph", graph)
    graphed = changed("cuda_graph", captured)
    for batch in (4, 8):
        expected = after_a_step(plain, plain, batch)
        found = after_a_step(graphed, captured, batch)
        assert all(map(torch.equal, expected, found))
        assert len(expected) == len(found) == 9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_a_compiled_module_computes_the_same(monkeypatch):
    """Without Inductor's C++, which tests of the readers of its kernels compile."""
    from torch._inductor import compile_fx

    monkeypatch.setattr(compile_fx, "compile_fx", lambda graph, _inputs, **_options: graph)
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU())
    x = torch.randn(3, 4)
    expected = model(x)
    changed("compiled", Counting(model)).load(3)
    torch._dynamo.utils.counters.clear()
    torch.testing.assert_close(model(x), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


class Scheduler:
    """The system's calls for priorities; nice values below `allowed` are refused."""

    def __init__(self, monkeypatch, allowed, usual=0):
        self.allowed, self.nice = allowed, {0: usual}
        monkeypatch.setattr(processor.os, "getpriority", lambda _, process: self.nice[process])
        monkeypatch.setattr(processor.os, "setpriority", self._set)
        monkeypatch.setattr(processor.os, "sched_setscheduler", lambda *_: None)
        monkeypatch.setattr(processor, "_leave_autogroup", lambda _: None)
        monkeypatch.setattr(processor, "_threads", lambda: [71, 72])

    def _set(self, _, process, nice):
        if nice < self.allowed:
            raise PermissionError
        self.nice[process] = nice


@pytest.mark.parametrize(("allowed", "nice"), [(-20, -20), (-15, -10)])
def test_every_thread_of_the_step_runs_at_the_raised_priority(monkeypatch, allowed, nice):
    scheduler = Scheduler(monkeypatch, allowed)
    target = Target(OWN, (3, 5))
    step_change("priority").prepare(target)
    steps = step_change("priority").change(workload := Counting(), target)
    assert scheduler.nice == {0: nice}
    steps.load(3)
    assert scheduler.nice == {0: nice, 71: nice, 72: nice}
    assert steps.time_step() == (70, 3000)
    assert workload.log == ["load 3", "step"]


def test_a_priority_that_cannot_be_raised_says_what_would_allow_it(monkeypatch):
    Scheduler(monkeypatch, allowed=0)
    with pytest.raises(CurvescopeError, match="needs the capability CAP_SYS_NICE: run as root"):
        step_change("priority").prepare(Target(OWN, (3, 5)))
    Scheduler(monkeypatch, allowed=-20, usual=-20)
    with pytest.raises(CurvescopeError, match=r"already \(nice -20\)"):
        step_change("priority").prepare(Target(OWN, (3, 5)))


@ask_each(
    ("waits", "effect"), [((50, 5), True), ((50, 40), False), ((2, 2), True), ((None, None), True)]
)
def test_a_priority_takes_effect_where_threads_wait_less(waits, effect):
    """Of 100 ns that threads could run."""
    rows = [[{"cpu_time_ns": 100 - (wait or 0), "run_queue_wait_ns": wait}] for wait in waits]
    why = step_change("priority").without_effect(*rows)
    assert (why is None) == effect
    assert effect or why.startswith(
        "its threads waited for a core in 50% of their time without the priority and in 40%"
    )


class OneProduct(AnyWorkload):
    """A workload of one product, on the CPU."""

    device, batch = "cpu", None

    def load(self, batch):
        self.x = torch.ones(batch, 8)

    def submit(self):
        return (self.x @ self.x.t()).sum()

    def clock_ns(self):
        return 70


def test_replayed_operators_are_those_of_the_loaded_batch_size():
    steps = changed("replayed_operators", OneProduct())
    for batch in (3, 5):
        steps.load(batch)
        assert float(steps.submit()) == 8 * batch**2
        assert steps.time_step() == (70, 0)


@ask_each(
    ("unchanged", "replayed", "why"),
    [
        ((0, 2_000), (0, 1_900), None),
        ((0, 300), (0, 0), None),  # every step takes some
        ((0, 2_000), (0, 30), "it takes 30 page faults a step, and the unmodified step 2,000"),
        ((50, 0), (45, 0), None),
        (
            (50, 0),
            (1, 0),
            "its threads wait for a core in 1% of their time, and those of the unmodified step in "
            "50%",
        ),
    ],
)
def test_a_replay_counts_only_if_no_more_than_the_hosts_work_goes_away(unchanged, replayed, why):
    """Of 100 ns that threads could run: what they waited for a core, and page faults."""
    rows = [
        [{"cpu_time_ns": 100 - wait, "run_queue_wait_ns": wait, "page_faults": faults}]
        for wait, faults in (unchanged, replayed)
    ]
    found = step_change("replayed_operators").without_effect(*rows)
    assert found is None if why is None else found.startswith(why)
