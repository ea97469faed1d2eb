"""Causes: each planted one is named, on evidence, and the amounts add up to the anomaly."""

import gzip
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.causes import CAUSES, UNEXPLAINED
from curvescope.analysis.causes.catalogue import ONLY_CONFIRMED
from curvescope.analysis.causes.context import CallsOfHost
from curvescope.analysis.causes.fixed import two_groups
from curvescope.analysis.causes.kernel_choice import graph_batches
from curvescope.analysis.causes.memory import cache_capacity
from curvescope.analysis.causes.threads import throttling
from curvescope.analysis.decompose.functionals import bend, excess
from curvescope.analysis.diagnosis.explain import diagnose, explain, explain_one
from curvescope.analysis.render.causes import verdict_sentence
from curvescope.analysis.render.notes import list_notes
from curvescope.cli import main
from curvescope.profiling.hardware.limits import hardware_of
from curvescope.profiling.recording.store import open_recording

from ...curvescope.recordings import write_planted
from ...shared import PROFILES
from ...tables import ask_each
from ..synthetic import times_of
from .planted_causes import CPU, PLANS, Plan, diagnosed, explained, planted


def test_every_cause_has_a_planted_case():
    assert set(PLANS) == set(CAUSES) - {"size of one call"}  # which only an experiment names


@pytest.mark.parametrize("cause", PLANS)
def test_a_planted_cause_is_named_with_evidence_and_a_refutation(cause):
    explanation = explained(cause)
    verdict = explanation.largest_cause
    assert verdict.cause == (UNEXPLAINED if cause in ONLY_CONFIRMED else cause)
    if cause in ONLY_CONFIRMED:
        assert verdict.terms[0].claim.cause == cause
    if cause == UNEXPLAINED:
        assert all(term.claim is None for term in verdict.terms)
        assert "no known cause" in verdict_sentence(explanation)
        return
    claiming = [term for term in verdict.terms if term.claim]
    assert claiming
    for term in claiming:
        assert term.claim.evidence
        assert all(e.table for e in term.claim.evidence)
        assert term.claim.refuted_by.endswith(".")


@pytest.mark.first_rows(8, in_ci=len(PLANS))
@pytest.mark.parametrize("cause", PLANS)
@pytest.mark.parametrize("functional", [excess(8, 16), bend(4, 8, 16)], ids=["excess", "bend"])
def test_amounts_add_up_to_the_anomaly_and_to_every_term(cause, functional):
    explanation = explained(cause, functional)
    causes = explanation.causes
    scale = sum(abs(p.value.value) for p in explanation.shares)
    assert math.fsum(c.amount for c in causes) == pytest.approx(
        explanation.value.value, rel=1e-9, abs=1e-12 * scale
    )
    by_term = {}
    for total in causes:
        for term in total.terms:
            by_term.setdefault(term.label, []).append(term.amount)
    for part in explanation.shares:
        own = part.value.value
        assert math.fsum(by_term[part.label]) == pytest.approx(own, rel=1e-9, abs=1e-12 * scale)
        assert all(amount * own >= 0 for amount in by_term[part.label])


def names_of_host_copies():
    """The names in every profile of torch's that is kept here."""
    texts = (
        gzip.decompress(path.read_bytes()).decode() for path in sorted(PROFILES.glob("*.json.gz"))
    )
    return sorted(
        {
            name
            for text in texts
            for name in re.findall(r'"name": ?"(Memcpy (?:HtoD|DtoH)[^"]*)"', text)
        }
    )


def test_a_switch_to_a_kernel_of_another_architecture_names_both():
    """Kernels that cuBLASLt took on a B200 for 128 and for 2,000 rows (CUDALibrarySamples 309)."""
    older = "cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>"
    newer = (
        "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x32x16_1x1x1_3_nnn_align1_bias_f32_relu"
    )
    switching = Plan(
        kernel=lambda b: (newer if b == 16 else older, (1.5 if b == 16 else 3.0) * b, {})
    )
    verdict = explained(switching).largest_cause
    assert verdict.cause == "algorithm switch"
    evidence = {one.what: one for one in verdict.terms[0].claim.evidence}
    named = evidence["architecture in its name"]
    assert (named.before, named.after) == ("sm_80", "sm_100")


@pytest.mark.slow
@ask_each(
    ("op", "gigaflops", "claimed"),
    [
        ("aten::mm", None, True),
        ("aten::logsumexp", None, False),
        ("aten::conv2d", 16, True),  # in place of the product, with as much work
        ("aten::conv2d", 32, False),
        ("aten::logsumexp", 16, False),
    ],
)
def test_kernels_of_an_operator_at_one_size_only_are_a_switch_of_equal_products(
    op, gigaflops, claimed
):
    flops = gigaflops and gigaflops * 10**9
    other = Plan(
        kernel=lambda b: (
            ("gemm_small", 3.0 * b, {"op": "aten::mm", "flops": 10**9 * b})
            if b < 16
            else ("kernel_at_16", 7.0 * b, {"op": op, "flops": flops})
        )
    )
    terms = {term.case.share.label: term for term in explained(other).terms}
    assert ("algorithm switch" in terms["conv3 backward"].claims) == claimed


@pytest.mark.slow
@ask_each("name", ["Memcpy HtoD", "Memcpy DtoH (Device -> Pageable)"])
def test_copies_from_and_to_the_host_are_known_by_the_beginnings_of_their_names(name):
    check_that_copies_are_known(name)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_copies_from_and_to_the_host_are_known_in_every_stored_profile():
    """The names are NVIDIA's and AMD's."""
    for name in names_of_host_copies():
        check_that_copies_are_known(name)


def check_that_copies_are_known(name):
    """Of conv3's 96 ms at 16 twice those at 8 are 48."""
    verdict = explained(
        Plan(kernel=lambda b: (name, (3.0 if b < 16 else 6.0) * b, {}))
    ).largest_cause
    assert verdict.cause == "copies from and to the host"
    assert verdict.amount == pytest.approx(48, rel=0.1)
    evidence = [evidence for term in verdict.terms for evidence in term.claim.evidence]
    (copied,) = [one for one in evidence if one.what == "copies from and to the host per step"]
    assert (copied.before, copied.after) == pytest.approx((24, 96), rel=0.1)


CALLS = {
    "allocation": "cudaMalloc cuMemAlloc_v2 cudaMallocAsync cudaFreeAsync cuMemCreate cuMemMap "
    "cuMemUnmap "
    "cuMemSetAccess",
    "synchronous copy": "cudaMemcpy",
    "launch": "cudaLaunchKernel",
    None: "cudaMemcpyAsync cuMemcpyHtoDAsync_v2 cudaMemsetAsync",
}


@ask_each(("call", "kind"), [(call, kind) for kind, of in CALLS.items() for call in of.split()])
def test_calls_that_allocate_are_known_with_those_of_growing_segments_and_of_pools(call, kind):
    steps = pd.DataFrame({"start_ns": [0], "duration_ns": [10**6]})
    calls = pd.DataFrame({"name": [call], "start_ns": [10], "duration_ns": [2000]})
    counted = CallsOfHost(calls).count_inside(steps).items()
    times = {wanted: of_kind.time_ms for wanted, of_kind in counted if of_kind.calls}
    assert times == ({kind: 0.002} if kind else {})


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("first", [1, 5])
def test_a_batch_size_that_runs_another_kernel_from_some_round_on_is_named(tmp_path, first):
    """A library that found no memory for a workspace at batch 16 keeps the other algorithm."""

    def change(steps, kernels):
        rounds = kernels["step"].map(steps.set_index("step")["round"])
        batches = kernels["step"].map(steps.set_index("step")["batch"])
        kernels.loc[(rounds >= first) & (batches == 16) & (kernels["layer"] == "conv3"), "name"] = (
            "implicit_gemm"
        )

    same = open_recording(write_planted(tmp_path / "same"))
    assert not list_notes(explain(same))
    changed = open_recording(write_planted(tmp_path / "changed", change=change))
    (note,) = list_notes(explain(changed))
    assert note.startswith(
        f"Batch 16: from round {first + 1} on implicit_gemm runs in place of dgrad_engine<"
    )


@ask_each(
    ("cause", "amount", "evidence"),
    [
        # 7 ms per sample at 16, 3 at 8: 112 - 2 * 24, times vary by 1 %
        ("algorithm switch", 64, {"its family": ("Winograd, not fused", "implicit GEMM")}),
        # Four calls of 48 ms at 16, one of 24 ms at 8: three of the four are beyond.
        ("more calls", 144, {"calls of": (1, 4), "time of calls beyond the fewest": (0, 144)}),
        # Batch 16 replays the graph of 32, 96 ms; the line from 24 ms at 8 to 96 ms at 32 has 48 ms
        # at 16.
        (
            "graph padding",
            48,
            {"batch size that the": (8, 32), "share of it": (0, 0.5), "time on the line": (24, 48)},
        ),
        # 1 and 3 waves of 30 ms: 90 - 2 * 30
        ("wave and tile quantisation", 30, {"waves of": (1.0, 2.05)}),
    ],
)
def test_a_cause_takes_what_its_evidence_says(cause, amount, evidence):
    (total,) = [one for one in explained(cause).causes if one.cause == cause]
    assert total.amount == pytest.approx(amount, rel=0.05)
    for begin, sides in evidence.items():
        (seen,) = [one for one in total.terms[0].claim.evidence if one.what.startswith(begin)]
        expected = sides if isinstance(sides[0], str) else pytest.approx(sides, rel=0.05)
        assert (seen.before, seen.after) == expected
    assert cause != "graph padding" or total.terms[0].claim.evidence[0].table == "steps.graph_batch"


@ask_each("call", ["hipGraphLaunch", "cudaGraphLaunch", "cudaLaunchKernel"])
def test_equal_kernels_in_equal_grids_replay_one_graph(call):
    """The graphs of 8 and 16; sampling, which runs outside of them, has a grid that follows the
    batch.
    """
    rows = [
        row
        for batch, graph in ((6, 8), (8, 8), (12, 16), (16, 16))
        for row in (
            {
                "batch": batch,
                "step": batch,
                "name": "gemm",
                "grid_x": graph,
                "exclusive_ms": 9.0,
                "calls": 2,
            },
            {
                "batch": batch,
                "step": batch,
                "name": "sample",
                "grid_x": batch,
                "exclusive_ms": 1.0,
                "calls": 1,
            },
        )
    ]
    times = pd.DataFrame(rows).assign(
        **dict.fromkeys(("grid_y", "grid_z", "block_x", "block_y", "block_z"), 1)
    )
    found = graph_batches(times, pd.DataFrame({"batch": [6]}), pd.DataFrame({"name": [call]}))
    sizes = {6: 8, 8: 8, 12: 16, 16: 16}
    assert found == (
        {}
        if call == "cudaLaunchKernel"
        else {batch: (size, False) for batch, size in sizes.items()}
    )


def test_the_slow_down_beside_communication_is_shared_between_the_kernels_and_the_communication():
    causes = explained("kernels beside communication").causes
    (beside,) = [c for c in causes if c.cause == "kernels beside communication"]
    # At 16 four calls of 6 ms take 12 ms each: 24 ms, half of them in the time of the all-reduce
    # beside them.
    amounts = {term.label: term.amount for term in beside.terms}
    assert amounts == {
        "conv3 backward": pytest.approx(12, rel=0.1),
        "communication": pytest.approx(12, rel=0.1),
    }


def test_a_persistent_kernel_claims_no_waves():
    """The same 40 blocks on 20 SMs at all sizes, half a wave: what they cost beyond proportion is
    not their tail.
    """
    name, _, geometry = PLANS["wave and tile quantisation"].kernel(8)
    sm_count = diagnosed("wave and tile quantisation")[1].hardware.sm_count
    for blocks, claims in ((2 * sm_count, False), (2 * sm_count - 1, True)):
        plan = Plan(
            kernel=lambda b, n=blocks: (name, 30.0 if b < 16 else 38.0, {**geometry, "grid_x": n})
        )
        assert any("wave" in cause.cause for cause in explained(plan).causes) == claims


def test_memory_takes_its_share_of_idle_and_leaves_the_rest():
    """Idle 65 - 2 * 2 = 61, of it 60 in cudaMalloc and cudaFree."""
    causes = {total.cause: total for total in explained("memory pressure").causes}
    assert causes["memory pressure"].amount == pytest.approx(60, rel=0.05)
    assert [term.label for term in causes["launch- or host-bound"].terms] == ["idle"]


def test_without_the_evidence_the_same_times_stay_unexplained():
    """The kernels of the throttled sweep, with no clock sampled: no cause is made up."""
    assert explained("throttling", clocks=None).largest_cause.cause == UNEXPLAINED


def test_two_groups_are_found_and_one_is_left_alone():
    random = np.random.default_rng(0)
    one = 100 + random.standard_normal(40)
    assert two_groups(one) is None
    both = np.concatenate([one[:20], 130 + random.standard_normal(20)])
    assert two_groups(both) == (pytest.approx(100, abs=1), pytest.approx(130, abs=1))
    assert two_groups(np.array([1.0, 1.0, 9.0])) is None
    assert two_groups(np.zeros(0)) is None


@pytest.mark.slow
def test_amounts_add_up_on_imported_gpu_profiles(tmp_path):
    """Two GPU profiles as one sweep: their networks differ, which makes every term change; what is
    tested is that the causes account for all of it, where no step ran unprofiled and nothing has an
    interval.
    """
    names = ("kineto_resnet50_w0_a.pt.trace.json.gz", "josiahdavis_lm_net_17ed.sql.gz")
    files = [str(PROFILES / name) for name in names]
    assert (
        main(["import", "--as", "sweep", *files, "--batch", "32,64", "-o", str(tmp_path / "run")])
        == 0
    )
    recording = open_recording(tmp_path / "run")
    split = explain_one(explain(recording), excess(32, 64))
    causes = {c.cause: c.amount for c in split.causes}
    assert math.fsum(causes.values()) == pytest.approx(split.value.value, rel=1e-9)
    assert {"launch- or host-bound", UNEXPLAINED} <= set(causes)
    assert "algorithm switch" not in causes  # no operator of one network is in the other
    assert "profiling overhead" not in causes


@ask_each(("cache_bytes", "possible"), [(2 << 20, True), (8 << 40, False), (None, True)])
def test_no_cache_is_outgrown_by_steps_that_fit_it(cache_bytes, possible):
    explanation = explained("cache capacity")
    case = next(term.case for term in explanation.terms if "cache capacity" in term.claims)
    hardware = replace(case.hardware, cache_bytes=cache_bytes)
    assert cache_capacity.possible(replace(case, hardware=hardware), 1.0) == possible


@ask_each(
    ("times_ms", "possible"),
    [
        ((1.4, 0.2, 0.25), False),  # up to 25 rows a slow kernel runs, and a bend is at 26
        ((0.1, 0.2, 1.2), True),
        ((0.1, 1.2, 0.2), False),  # one slow size, and none after it
    ],
)
def test_no_cache_is_outgrown_where_a_smaller_size_is_the_slow_one(times_ms, possible):
    """All operands were evicted, most of the bend at 26 was gone, and the cache was confirmed."""
    functional = bend(16, 26, 32)
    case = next(one for one in explained("cache capacity").cases if one.uses)
    times = dict(zip(functional.conditions, times_ms, strict=True))
    uses = [replace(case.uses[0], batch=batch, time_ms=ms) for batch, ms in times.items()]
    facts = dict.fromkeys(times, case.facts[16])
    bent = replace(case, functional=functional, uses=tuple(uses), facts=facts)
    assert cache_capacity.possible(bent, bent.evaluate(times.__getitem__)) == possible


@ask_each(
    ("times_ms", "switched"),
    [
        (
            {8: {"a": 2.0, "b": 1.0}, 16: {"a": 4.0, "b": 9.0}},
            False,
        ),  # one of the two just takes longer
        ({8: {"a": 2.0, "b": 1.0}, 16: {"a": 4.0, "c": 9.0}}, True),
        ({8: {"a": 2.0, "b": 1.0}, 16: {"b": 9.0}}, True),
    ],
)
def test_a_switch_is_a_kernel_that_runs_on_one_side_only(times_ms, switched):
    case = next(one for one in explained("cache capacity").cases if one.uses)
    use = case.uses[0]
    uses = [
        replace(use, batch=b, name=name, time_ms=ms)
        for b, of in times_ms.items()
        for name, ms in of.items()
    ]
    assert replace(case, uses=tuple(uses), before=8, after=16).is_switched == switched


def test_a_layer_that_only_copies_has_no_operand_that_it_copies_before_it():
    copies = Plan(
        kernel=lambda b: ("aten::copy_", (3.0 if b < 16 else 6.0) * b, {"op": "aten::copy_"}),
        hardware=CPU,
    )
    assert explained(copies).largest_cause.cause == UNEXPLAINED
    in_a_product = replace(copies, kernel=lambda b: (*copies.kernel(b)[:2], {"op": "aten::bmm"}))
    assert explained(in_a_product).largest_cause.cause == "copies of operands"


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    "name",
    [
        "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3_execute_kernel__5x_cudnn",
        "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, int>(int, float "
        "const*)",
    ],
)
def test_a_kernel_that_names_the_layout_it_works_on_copies_nothing(name):
    """On an H100, convolutions and pooling were called copies of operands."""
    works = Plan(kernel=lambda b: (name, (3.0 if b < 16 else 6.0) * b, {"op": "aten::conv2d"}))
    claimed = {cause for term in explained(works).terms for cause in term.claims}
    assert "copies of operands" not in claimed


@pytest.mark.slow
def test_threads_begin_only_where_about_one_worked_and_not_where_one_waits():
    def use(first, waiting=0):
        def of_step(batch, duration_ns):
            threads, wait = (first, 0) if batch < 16 else (first if waiting else 2 * first, waiting)
            used = {"cpu_time_ns": threads * duration_ns, "run_queue_wait_ns": wait * duration_ns}
            return {**used, "system_time_ns": 0, "page_faults": 9}

        return Plan(host_use=of_step, slow=lambda b: 2.0 if b == 16 else 1.0, hardware=CPU)

    assert explained(use(1)).largest_cause.cause == "start of threads"
    assert explained(use(2)).largest_cause.cause == UNEXPLAINED
    assert explained(use(1, waiting=1)).largest_cause.cause == "CPU contention"
    alone = hardware_of({"device": {"name": "AMD EPYC", "kind": "cpu", "threads": 1}})
    assert explained(replace(use(1), hardware=alone)).largest_cause.cause == UNEXPLAINED


@ask_each(("precision", "ridge"), [("fp32", 15.7e12 / 900e9), ("fp16", 125.3e12 / 900e9)])
def test_the_ridge_is_that_of_the_recordings_precision(precision, ridge):
    """55 FLOP/B fall to 6.9: past a V100's ridge of 17 in fp32, below its 139 in fp16 at both
    sizes.
    """
    v100 = hardware_of(
        {"device": {"name": "Tesla V100-SXM2-16GB", "kind": "cuda"}, "precision": precision}
    )
    assert v100.roof("compute").per_s / v100.roof("DRAM").per_s == pytest.approx(ridge, rel=0.01)
    claims = {
        cause for term in explained("roof change", hardware=v100).terms for cause in term.claims
    }
    assert ("roof change" in claims) == (precision == "fp32")


def claim_of(cause, plan, change):
    """The claim of one cause on the term of conv3 after a change of the kernels or of what else is
    recorded.
    """
    steps, kernels, recorded = planted(plan, 1, rounds=4)
    kernels = kernels.assign(batch=kernels["step"].map(steps.set_index("step")["batch"]))
    kernels, recorded = change(kernels, recorded)
    times = times_of(steps, kernels.drop(columns="batch"))
    split = explain_one(diagnose(replace(recorded, kernel_times=times)), excess(8, 16))
    (case,) = [one for one in split.cases if one.share.key.layer == "conv3"]
    return cause.weigh(case)


@ask_each(("misses", "claimed"), [(4, True), (1, False)])
def test_data_that_outgrew_the_cache_must_move_more_measured_bytes(misses, claimed):
    def counted(kernels, recorded):
        per_byte = kernels["batch"].map({4: 0.25, 8: 0.25, 16: 0.25 * misses})
        return kernels.assign(dram_bytes=kernels["bytes_compulsory"] * per_byte), recorded

    claim = claim_of(cache_capacity, "cache capacity", counted)
    assert (claim is not None) == claimed
    if claimed:
        traffic = next(one for one in claim.evidence if "measured DRAM" in one.what)
        assert (traffic.before, traffic.after) == (0.25, 1.0)


def test_bytes_of_some_launches_say_nothing_about_all():
    def partly(kernels, recorded):
        some = kernels.index % 2 == 0
        return kernels.assign(dram_bytes=kernels["bytes_compulsory"].where(some)), recorded

    claim = claim_of(cache_capacity, "cache capacity", partly)
    assert claim is not None
    assert not [one for one in claim.evidence if "measured DRAM" in one.what]


def cycles(hertz):
    """Cycles of kernels that run at a clock, by batch size, with samples of the clock
    or without.
    """

    def counted(samples):
        def change(kernels, recorded):
            amount = (
                (kernels["duration_ns"] / 1e9 * kernels["batch"].map(hertz)).round().astype("Int64")
            )
            return kernels.assign(sm_cycles=amount), recorded if samples else replace(
                recorded, clocks=None
            )

        return change

    return counted


def test_cycles_stand_in_for_missing_samples_of_the_clock():
    fallen = cycles({4: 1.7e9, 8: 1.7e9, 16: 1.2e9})(samples=False)
    claim = claim_of(throttling, "throttling", fallen)
    (evidence,) = claim.evidence
    assert (evidence.table, round(evidence.before), round(evidence.after)) == (
        "kernels.sm_cycles",
        1700,
        1200,
    )
    assert claim_of(throttling, "throttling", lambda k, r: (k, replace(r, clocks=None))) is None


def test_a_term_whose_own_clock_did_not_fall_is_not_throttled():
    """The step's samples fell to 1.2 GHz; the term's cycles take as long as before."""
    assert (
        claim_of(throttling, "throttling", lambda kernels, recorded: (kernels, recorded))
        is not None
    )
    assert (
        claim_of(throttling, "throttling", cycles(dict.fromkeys((4, 8, 16), 1.7e9))(samples=True))
        is None
    )


def test_operators_of_a_size_that_torch_no_longer_compiles_are_no_more_work():
    """Uncompiled, each operator of a fused kernel moves its operands by itself."""

    def kernel(batch):
        moved = 10**6 * batch
        if batch == 16:
            return "aten::mul", 20.0 * batch, {"op": "aten::mul", "bytes_compulsory": 48 * moved}
        return "cpp_fused_mul_0", 2.0 * batch, {"op": "fused", "bytes_compulsory": 2 * moved}

    eager = replace(PLANS["recompile limit"], kernel=kernel)
    assert explained(eager).largest_cause.cause == "recompile limit"
    untold = replace(eager, compiled_code=None)
    assert explained(untold).largest_cause.cause == "more work per sample"
