"""What single profiles suggest: each cause in a file that others recorded, and in files in which it
must not be.
"""

import gzip
import json
import re
from dataclasses import replace
from itertools import groupby

import pandas as pd
import pytest

from curvescope.analysis.causes.host import compilation, host_waits, one_gap, waiting_for_input
from curvescope.analysis.causes.single_profile import ProfiledStep
from curvescope.analysis.decompose.host_functions import HostCode
from curvescope.analysis.diagnosis.suggested import advise, suggest_shares
from curvescope.experiments.factors import FACTORS, all_facts
from curvescope.profiling.hardware.limits import Hardware
from curvescope.profiling.recording.experiments import Scope
from curvescope.profiling.recording.store import open_recording

from ...profiling.readers.made_profiles import query
from ...shared import PROFILES
from ...tables import grade

RESNET = "kineto_resnet50_w0_a.pt.trace.json.gz"
LOADER = "param_resnet.json.gz"
OFFLOAD = "nsysai_h100_2gpu_1s.sqlite.gz"
VIDEO = "tl_h100_timesformer.json.gz"
DDP = "tl_mi300_ddp_resnet18.json.gz"
CHECKPOINTED = "tl_mi300_resnet_act.json.gz"
DECODE = "tl_vllm_decode.json.gz"
HPC = "pipit_cloverleaf.sqlite.gz"
EAGER = "tl_b200_eager.json.gz"
FIRST = "syed-ahmed_tf_out.nvvp.gz"
ALEXNET = "hta_alexnet_trace.json.gz"
SMALL = "hta_amd_mi250_kineto.json.gz"
SEPARATE = "parttrans_bs128.pt.trace.json.gz"
CAPTURE = "tl_sglang_capture_bs32.json.gz"
REPLAY = "tl_sglang_decode.json.gz"
JAX = "tl_jax08_attention.xplane.pb"
NO_CALLS = "magus_gtx1080ti_convolutionFFT2D_trace.csv"
NO_TIMELINE = "averyclapp_metrics_long.csv"
BERT = "tl_h100_bert_small.json.gz"
GPUS = "nsysai_mfu_2gpu.sqlite.gz"
MPI = "pipit_saxpy.sqlite.gz"
EXPERTS = "switch_a100.json.gz"
RESIZED = "tl_h100_owlv2.json.gz"
NORMALISED = "tl_mi300_normalization.json.gz"
COPIED = "torchbench_copies.json.gz"
STEPS = "hta_gp100_steps.json.gz"
REDUCED = "hta_v100_allreduces.json.gz"
GPU_ONLY = "tl_mi210_gpu_only.json.gz"
COMPILED = "tl_torch_compile_triton.json.gz"
PAGES = "aws_t4_managed.sqlite.gz"

# Each cause, a file that shows it with the bound in ms per step, and files that must not.
SHOWN = [
    ("waiting for input", RESNET, 58.73, (VIDEO, EAGER, OFFLOAD)),
    ("waiting for input", LOADER, 163.0, (CHECKPOINTED, HPC)),
    ("host code in one gap", VIDEO, 218.1, (RESNET, LOADER, OFFLOAD)),
    ("host code in one gap", SEPARATE, 292.9, (CAPTURE, REPLAY)),
    ("host code in one gap", NO_CALLS, 1950.2, (STEPS, COPIED)),
    ("copies from and to the host", OFFLOAD, 514.6, (RESNET, DECODE, VIDEO)),
    ("copies from and to the host", LOADER, 20.86, (EAGER, DDP)),
    ("host waits for the device", HPC, 3.002, (RESNET, VIDEO, FIRST, MPI)),
    ("memory pressure", DDP, 601.8, (RESNET, EAGER, VIDEO)),
    ("memory pressure", EXPERTS, 16.31, (LOADER, DECODE, ALEXNET)),
    ("launch- or host-bound", EAGER, 63.96, (DECODE, OFFLOAD, LOADER)),
    ("launch- or host-bound", BERT, 4.117, (CAPTURE, NO_CALLS, NO_TIMELINE)),
    ("optimizer work", SMALL, 0.2662, (RESNET, EAGER, VIDEO)),
    ("copies of operands", CHECKPOINTED, 0.585, (RESNET, VIDEO, OFFLOAD)),
    ("precision", RESNET, 57.48, (VIDEO, DDP, EAGER)),
    ("precision", LOADER, 67.73, (OFFLOAD, DECODE)),
    ("exposed communication", CHECKPOINTED, 10.72, (RESNET, OFFLOAD, DDP)),
    ("work of a first use", FIRST, 2309.7, (RESNET, EAGER, VIDEO)),
    ("work of a first use", ALEXNET, 12711.6, (LOADER, CHECKPOINTED)),
    ("work of a first use", SMALL, 6.546, (BERT, REPLAY)),
    ("work of a first use", SEPARATE, 629.6, (HPC, JAX)),
    ("work of a first use", CAPTURE, 30.60, (DECODE, NO_CALLS)),
    ("exposed communication", GPUS, 17.17, (MPI, EXPERTS, RESIZED)),
    ("exposed communication", REDUCED, 59.57, (STEPS, COPIED)),
    ("precision", EXPERTS, 51.71, (STEPS, GPUS)),
    ("waiting for input", RESIZED, 621.2, (EXPERTS, NORMALISED, COPIED)),
    ("work of a first use", NORMALISED, 981.8, (RESIZED, STEPS)),
    ("copies from and to the host", COPIED, 67.58, (STEPS, NORMALISED)),
    ("launch- or host-bound", STEPS, 1.443, (MPI, COPIED, GPUS)),
    ("optimizer work", REDUCED, 12.88, (GPUS, RESIZED)),
    ("attention in several kernels", VIDEO, 89.61, (BERT, EAGER, RESNET)),
    ("attention in several kernels", RESIZED, 505.1, (EXPERTS, REPLAY, DECODE)),
    ("migration of managed memory", PAGES, 263.3, (COPIED, MPI, OFFLOAD)),
    ("pointwise kernels in a row", GPU_ONLY, 0.356, (COMPILED, DDP, VIDEO)),
]

# The first file of each cause; the others ask the same question.
FIRST_SHOWN = {cause: name for cause, name, *_ in reversed(SHOWN)}
FIRST_ROWS = [row for row in SHOWN if FIRST_SHOWN[row[0]] == row[1]]
NAMES = sorted({name for _, name, _, _ in SHOWN})
SHORT = {COPIED, STEPS, NORMALISED}
QUICK_ROWS = [row for row in SHOWN if {row[1], *row[3]} <= SHORT]


@pytest.fixture(scope="module")
def advice(imported_profile):
    """Advice on a profile."""
    found = {}

    def get(name):
        if name not in found:
            found[name] = advise(
                open_recording(imported_profile(name)), all_facts(Scope.STEP, "cuda")
            )
        return found[name]

    return get


@pytest.mark.parametrize(
    ("cause", "name", "at_most_ms", "not_in"),
    grade(SHOWN, quick=QUICK_ROWS, in_ci=FIRST_ROWS),
)
def test_a_profile_suggests_a_cause_with_its_bound(cause, name, at_most_ms, not_in, advice):
    causes = {one.suggestion.cause: one for one in advice(name).advised}
    assert causes[cause].suggestion.at_most_ms == pytest.approx(at_most_ms, rel=0.005)
    assert causes[cause].do
    assert causes[cause].suggestion.evidence
    for other in not_in:
        assert cause not in {one.suggestion.cause for one in advice(other).advised}, other


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (NO_TIMELINE, "the profile has no timeline"),
        (
            REPLAY,
            "98% of the time launched work waits for an event, or for work that is not recorded",
        ),
        (DECODE, "41% of the time launched work waits"),
    ],
)
def test_where_a_profile_cannot_tell_it_says_so(name, said, text_of, imported_profile):
    text = " ".join(text_of("explain", imported_profile(name)).split())
    assert f"Nothing can be suggested: {said}" in text
    assert "no wait of the host" not in text


@pytest.mark.slow
def test_factors_save_at_most_what_the_suggestions_do_that_name_them(advice, imported_profile):
    shares = suggest_shares(open_recording(imported_profile(SMALL)))
    found = advice(SMALL)
    named = {factor for one in found.advised for factor in one.suggestion.factors}
    assert set(shares) == named
    with_factors = [one.suggestion for one in found.advised if one.suggestion.factors]
    assert max(shares.values()) == with_factors[0].at_most_ms / found.step.time_ms
    (optimizer,) = (one for one in with_factors if one.cause == "optimizer work")
    share = optimizer.at_most_ms / found.step.time_ms
    assert all(shares[factor] >= share for factor in optimizer.factors)


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("name", [JAX, NO_CALLS, FIRST])
def test_a_program_without_torch_is_not_told_to_call_it(name, text_of, imported_profile):
    text = text_of("explain", imported_profile(name))
    assert "torch" not in text
    assert "curvescope diagnose" not in text


@pytest.mark.slow
def test_a_count_of_a_whole_recording_is_not_of_a_step(text_of, imported_profile):
    """No step is known in this file."""
    path = imported_profile("josiahdavis_lm_net_17ed.sql.gz")
    text = " ".join(text_of("explain", path, "--all").split())
    assert "calls of cudaMalloc: 2." in text
    assert "per step" not in text


@pytest.mark.parametrize("name", grade(NAMES, quick=(SMALL, BERT), in_ci={*FIRST_SHOWN.values()}))
def test_no_bound_is_more_than_the_step(name, advice):
    found = advice(name)
    for one in found.advised:
        assert 0 < one.suggestion.at_most_ms <= found.step.time_ms
        assert set(one.suggestion.factors) <= set(FACTORS)
    bounds = [one.suggestion.at_most_ms for one in found.advised]
    assert bounds == sorted(bounds, reverse=True)


@pytest.mark.slow
def test_copies_that_nothing_hides_by_hand(advice):
    """Time in which a copy from the host runs and nothing else, by a sweep over the file's own
    events.
    """
    trace = json.loads(gzip.decompress((PROFILES / LOADER).read_bytes()))["traceEvents"]
    steps = sorted(e["ts"] + e["dur"] for e in trace if e["name"] == "Optimizer.step#SGD.step")
    edges = []
    for event in trace:
        if event["cat"] in ("kernel", "gpu_memcpy"):
            copies = event["cat"] == "gpu_memcpy" and "HtoD" in event["name"]
            edges += [(event["ts"], 1, copies), (event["ts"] + event["dur"], -1, copies)]
    exposed_us, running, copying, last = 0.0, 0, 0, 0.0
    for at, change, copies in sorted(edges):
        if running and running == copying:
            exposed_us += max(0.0, min(at, steps[-1]) - max(last, steps[0]))
        running += change
        copying += change * copies
        last = at
    assert advice(LOADER).step.exposed_ms["HtoD"] == pytest.approx(exposed_us / 1e3 / 29, rel=0.01)


def test_pages_are_no_launches_and_no_copies_of_the_program(advice, tmp_path):
    """One kernel and 2,370 pages were 2,371 short kernels that the host launches too slowly."""
    found = advice(PAGES)
    causes = {one.suggestion.cause for one in found.advised}
    assert not causes & {"launch- or host-bound", "copies from and to the host"}
    (rows,) = query(
        PROFILES / PAGES,
        tmp_path,
        "SELECT count(*), sum(end - start) / 1e6, avg(bytes) / 1e3 "
        "FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind IN (11, 12)",
    )
    (pages,) = (one for one in found.advised if one.suggestion.cause.startswith("migration"))
    facts = [fact.after for fact in pages.suggestion.evidence]
    assert facts[:3] == pytest.approx(list(rows), rel=1e-6)


@pytest.mark.slow
def test_the_longest_gap_names_the_program(advice):
    first, *_ = advice(VIDEO).gaps
    assert (round(first.time_ms, 1), first.step) == (218.1, 0)
    own = dict(first.code.own_ms)
    assert own["image_transforms.py(390): normalize"] == pytest.approx(106.2, abs=0.1)
    assert any(name.endswith("read_video_pyav") for name in own)
    assert advice(RESNET).gaps[0].code is None


@pytest.mark.slow
def test_attention_in_several_kernels_by_hand(advice):
    """The softmax of every layer, by the kernels of the file; products stand around each."""
    trace = json.loads(gzip.decompress((PROFILES / VIDEO).read_bytes()))["traceEvents"]
    kernels = [e for e in trace if e["cat"] == "kernel" and "softmax" in e["name"].lower()]
    softmax_ms = sum(event["dur"] for event in kernels) / 1e3
    (one,) = (a for a in advice(VIDEO).advised if a.suggestion.cause.startswith("attention in"))
    facts = {fact.what: fact.after for fact in one.suggestion.evidence}
    assert facts["softmax, per step"] == pytest.approx(softmax_ms, rel=1e-6)
    assert facts["its calls per step"] == len(kernels)
    assert one.suggestion.at_most_ms > softmax_ms
    assert "scaled_dot_product_attention" in one.how


def test_pointwise_kernels_in_a_row_by_hand(advice):
    """Runs of PyTorch's own pointwise kernels in each stream, whose shortest kernel is what one
    would take.
    """
    trace = json.loads(gzip.decompress((PROFILES / GPU_ONLY).read_bytes()))["traceEvents"]
    streams = {}
    for event in sorted(trace, key=lambda event: event["ts"]):
        if event["cat"] == "kernel":
            own = re.search(r"at::native\S*(elementwise|CatArray)", event["name"]) is not None
            streams.setdefault(event["tid"], []).append((own, event["dur"]))
    saved_us = 0.0
    for kernels in streams.values():
        for own, run in groupby(kernels, key=lambda kernel: kernel[0]):
            times = [time for _, time in run]
            saved_us += own * (sum(times) - min(times))
    (one,) = (a for a in advice(GPU_ONLY).advised if a.suggestion.cause.startswith("pointwise"))
    assert one.suggestion.at_most_ms == pytest.approx(saved_us / 1e3, rel=0.02)


def test_ranges_of_one_kind_are_one_reason():
    """Eight gaps of a token, each in `ensure_layer_N_weights`: 90 % of it, and none was long."""
    gaps = [(12 * i, 12 * i + 11) for i in range(8)]
    names = [f"host in range ensure_layer_{i}_weights" for i in range(8)]
    step = step_of(gaps)
    step = replace(step, gaps=step.gaps.assign(reason=names))
    found = one_gap.suggest(step)
    assert (found.at_most_ms, found.where) == (pytest.approx(88), "ensure_layer_*_weights")
    same = replace(step, gaps=step.gaps.assign(reason="host in range token_processing"))
    assert one_gap.suggest(same) is None


def test_the_longest_gaps_are_looked_at_for_the_compiler():
    """Only the last gaps of the profile were, so that one compilation before many short gaps was
    not seen.
    """
    code = HostCode((("convert_frame.py(1061): _compile", 25.0),), ("train.py(9): step",))
    gaps = [(0, 30), *((40 + 2 * i, 41 + 2 * i) for i in range(25))]
    step = step_of(gaps)
    step = replace(step, code_in=lambda begin, _end: code if begin == 0 else None)
    assert compilation.suggest(step).at_most_ms == pytest.approx(30)


def test_families_add_up_to_the_busy_time(advice):
    found = advice(SMALL)
    busy = sum(row.time_ms for row in found.breakdown.groups)
    assert sum(time_ms for _, time_ms, _ in found.families) == pytest.approx(busy)


def step_of(gaps, calls=(), code=None):
    """A step of 100 ms with some gaps, each a begin and an end in ms, and waiting calls alike."""
    million = 1_000_000
    rows = [
        {
            "step": 0,
            "begin_ns": a * million,
            "end_ns": b * million,
            "reason": None,
            "before": None,
            "kernel": None,
        }
        for a, b in gaps
    ]
    made = [
        {
            "name": "cudaStreamSynchronize",
            "start_ns": a * million,
            "end_ns": b * million,
            "waits": True,
            "in_used": True,
        }
        for a, b in calls
    ]
    groups = pd.DataFrame(
        {c: [] for c in ("layer", "op", "name", "phase", "ms", "own_ms", "calls")}
    )
    return ProfiledStep(
        time_ms=100.0,
        batch=None,
        steps=1,
        trains=True,
        on_host=False,
        hardware=Hardware(None, None),
        groups=groups,
        copies=pd.DataFrame(),
        gaps=pd.DataFrame(rows),
        calls=pd.DataFrame(made),
        code_in=lambda _begin, _end: code,
    )


def test_a_wait_saves_no_more_than_it_took():
    """A program that computes for 40 ms after a wait of 3 ms would still compute without it."""
    suggested = host_waits.suggest(step_of([(10, 50)], [(7, 10)]))
    assert suggested.at_most_ms == pytest.approx(3)
    assert host_waits.suggest(step_of([(10, 50)], [(5, 6)])) is None


def test_a_gap_of_host_code_is_not_told_as_a_wait_too():
    """The program reads its result, then computes for 20 ms: the gap is that of its code."""
    step = step_of([(10, 30)], [(7, 10)])
    told = replace(step, gaps=step.gaps.assign(reason="host in range save_image"))
    assert one_gap.suggest(told).at_most_ms == pytest.approx(20)
    assert host_waits.suggest(told) is None
    # Many gaps are of what the program does all the time: each read of a result is why.
    reads = [(10 * at, 10 * at + 1) for at in range(10)]
    gaps = [(10 * at + 1, 10 * at + 2) for at in range(10)]
    step = step_of(gaps, reads)
    told = replace(step, gaps=step.gaps.assign(reason="host in range save_image"))
    assert host_waits.suggest(told).at_most_ms == pytest.approx(10)


def test_a_gap_in_which_the_compiler_runs_is_compilation():
    code = HostCode((("convert_frame.py(1061): _compile", 25.0),), ("train.py(9): step",))
    compiling = step_of([(10, 40)], code=code)
    suggested = compilation.suggest(compiling)
    assert (suggested.at_most_ms, suggested.stack[-1]) == (
        pytest.approx(30),
        "convert_frame.py(1061): _compile (25 ms)",
    )
    plain = HostCode((("loader.py(3): read", 25.0),), ())
    assert compilation.suggest(replace(compiling, code_in=lambda _begin, _end: plain)) is None
    assert compilation.suggest(replace(compiling, code_in=lambda _begin, _end: None)) is None


def test_code_that_runs_what_was_compiled_compiles_nothing():
    """`eval_frame.py: _fn` and `aot_autograd.py: forward` are around every call of
    compiled code.
    """
    path = ("eval_frame.py(1039): _fn", "aot_autograd.py(1126): forward", "jit.py(9): run")
    running = HostCode((("compiler.py(441): _init_handles", 25.0),), path)
    assert compilation.suggest(step_of([(10, 40)], code=running)) is None


def test_a_gap_of_torchs_own_clock_around_the_compiler_is_compilation():
    timed = step_of([(10, 40)])
    reason = "host in range _compile.compile_inner (dynamo_timed)"
    timed = replace(timed, gaps=timed.gaps.assign(reason=reason))
    assert compilation.suggest(timed).at_most_ms == pytest.approx(30)


def test_operators_of_the_host_that_make_a_batch_are_input():
    """On a CPU a slow transform is work, not idle time."""
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    rows = [(loader, "aten::div", 20.0), ("1", "aten::mm", 50.0)]
    groups = pd.DataFrame(
        [
            {
                "layer": layer,
                "op": op,
                "name": op,
                "phase": None,
                "ms": ms,
                "own_ms": ms,
                "calls": 1,
            }
            for layer, op, ms in rows
        ]
    )
    step = replace(step_of([]), on_host=True, groups=groups)
    found = waiting_for_input.suggest(step)
    assert (found.at_most_ms, found.where) == (20.0, loader)
    assert waiting_for_input.suggest(replace(step, on_host=False)) is None


@pytest.mark.slow
def test_the_gpu_that_waits_least_comes_last(advice):
    told = {one.suggestion.cause: one for one in advice(GPUS).advised}
    one = told["exposed communication"]
    assert one.do.endswith("GPU 1 comes last: it waits least, and the others for it")


@pytest.mark.slow
def test_a_bound_of_pointwise_kernels_is_of_one_gpu(advice):
    """Two GPUs run the same runs at the same time."""
    told = {one.suggestion.cause: one.suggestion for one in advice(GPUS).advised}
    assert told["pointwise kernels in a row"].at_most_ms == pytest.approx(74.25, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", [REDUCED, CHECKPOINTED, RESIZED])
def test_no_one_comes_last_where_one_gpu_is_recorded(name, advice):
    assert not any("comes last" in one.do for one in advice(name).advised)
