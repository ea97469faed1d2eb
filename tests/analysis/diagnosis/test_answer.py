"""Which cause an answer names."""

from dataclasses import replace
from types import SimpleNamespace

from curvescope.analysis.causes import NOT_SIGNIFICANT, UNEXPLAINED, CauseTotal, TermCause
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.decompose.statistics import Estimate
from curvescope.analysis.decompose.terms import KERNELS, Key
from curvescope.analysis.diagnosis.answer import find_remedy
from curvescope.analysis.diagnosis.explanation import Explanation, TermEvidence
from curvescope.analysis.render.answer_words import finding, why
from curvescope.analysis.render.answer_words import remedy as say_remedy
from curvescope.analysis.verdicts.words import Reproduction, Verdict
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.experiments import Stage

from ...tables import ask_each

TEN_MS = Estimate(10.0, 9.0, 11.0, 0.0)


def explained(terms, *causes, evidence=()):
    """An excess of 10 ms, by term."""
    shares = [
        SimpleNamespace(
            key=Key.of(name, None, KERNELS),
            label=name,
            value=replace(TEN_MS, value=ms),
            line=None,
        )
        for name, ms in terms.items()
    ]
    split = tuple(SimpleNamespace(case=SimpleNamespace(share=share)) for share in shares)
    return Explanation(
        functional=excess(4, 8), value=TEN_MS, terms=split, causes=causes, evidence=evidence
    )


def page_faults(amount, verdict):
    """Page faults as the cause of fc6."""
    return CauseTotal("page faults", amount, (TermCause("fc6", amount, None, ()),), verdict=verdict)


@ask_each(
    ("amounts", "leading"),
    [
        ({"page faults": 3.0, "idle threads": 7.0}, "idle threads"),
        ({"page faults confirmed": 2.0, "idle threads": 8.0}, "page faults"),
        ({"page faults confirmed": 0.9, "idle threads": 9.1}, "idle threads"),
        ({"page faults": -3.0, "idle threads": 1.5, NOT_SIGNIFICANT: 11.5}, "idle threads"),
        # most of it is not significant: a tenth of it is no answer
        ({"page faults": 0.9, NOT_SIGNIFICANT: 9.1}, None),
    ],
)
def test_a_confirmed_cause_leads_then_the_largest_if_it_makes_a_tenth(amounts, leading):
    """Of an excess of 10 ms."""
    totals = tuple(
        CauseTotal(name.removesuffix(" confirmed"), amount, (), verdict=verdict)
        for name, amount in amounts.items()
        for verdict in [Verdict.CONFIRMED if name.endswith("confirmed") else Verdict.UNTESTED]
    )
    found = explained({}, *totals).leading
    assert (found and found.cause) == leading


@ask_each(("unknown_ms", "leading"), [((3.0, 2.0, 1.0), "idle threads"), ((5.0, 1.0), UNEXPLAINED)])
def test_what_is_unexplained_counts_by_its_largest_term(unknown_ms, leading):
    """A sum of terms without a cause is no cause."""
    terms = [TermCause(f"fc{place}", ms, None, ()) for place, ms in enumerate(unknown_ms)]
    unknown = CauseTotal(UNEXPLAINED, sum(unknown_ms), tuple(terms))
    known_ms = 10.0 - unknown.amount
    known = CauseTotal("idle threads", known_ms, (TermCause("fc6", known_ms, None, ()),))
    assert explained({}, unknown, known).leading.cause == leading


@ask_each(
    ("terms", "said"),
    [
        ({"fc6": 6.0, "fc7": 2.0}, "is mostly fc6: page faults"),
        ({"fc6": 4.0, "fc7": 2.0}, "is largest in fc6: page faults"),
        ({"fc6": 4.0, "fc7": 5.0}, "is partly fc6: page faults"),
        ({"fc6": 4.0, "fc7": -5.0}, "is largest in fc6: page faults"),
    ],
)
def test_an_answer_calls_a_term_the_largest_only_if_it_is(terms, said):
    """The cause is that of fc6, of an excess of 10 ms."""
    said_of = finding(explained(terms, page_faults(terms["fc6"], Verdict.UNTESTED)))
    assert said_of.startswith(f"The excess from 4 to 8 (+10.0 ms) {said}")


@ask_each(
    ("portion", "taken", "gone"),
    [
        (0.6, 0.95, "it is gone"),
        (0.6, 0.70, "most of it is gone"),
        (0.4, 0.95, "that share is gone"),
        (0.4, 0.70, "most of that share is gone"),
    ],
)
def test_of_a_term_that_is_a_smaller_part_only_its_share_is_said_to_be_gone(portion, taken, gone):
    outcome = SimpleNamespace(
        factor="reused_memory",
        verdict=Verdict.CONFIRMED,
        taken=Estimate(taken, 0.6, 1.0, 0.0),
        facts=SimpleNamespace(what="memory is kept"),
    )
    tested = TermEvidence("fc6", TEN_MS, None, Reproduction.REPRODUCES, None, (outcome,))
    total = page_faults(4.0, Verdict.CONFIRMED)
    answer = explained({"fc6": 10 * portion}, total, evidence=(tested,))
    assert why(answer) == f"page faults; when memory is kept, {gone}"


def faster_alone(factor, batch):
    """The experiment in which a factor saves 90 % of fc6 at a batch size."""
    outcome = SimpleNamespace(
        factor=factor,
        facts=SimpleNamespace(remedy="change {where}", how="so", how_training=None),
        gain_index=0,
        gains=(Estimate(0.9, 0.8, 1.0, 0.0),),
        batches=(batch,),
        times_ms=(TEN_MS,),
        experiment=SimpleNamespace(stage=Stage.CONFIRM, batches=(1, batch)),
        changed_results=None,
    )
    return (TermEvidence("fc6", TEN_MS, None, Reproduction.REPRODUCES, None, (outcome,)),)


@ask_each(("factor", "advised"), [("reused_memory", True), ("before_switch", False)])
def test_what_made_a_term_faster_alone_is_advised_if_it_tests_the_cause(factor, advised):
    """The cause is page faults, and no complete step ran with the factor."""
    tested = faster_alone(factor, 8)
    answer = replace(explained({"fc6": 8.0}, page_faults(8.0, Verdict.UNDECIDED)), terms=())
    remedies = SimpleNamespace(savings=())
    grounds = SimpleNamespace(remedies=remedies, curve=None, trains=False, weights=())
    remedy = find_remedy(answer, answer.intervention, tested, grounds)
    assert (remedy is not None) == advised


@ask_each(
    ("batch", "times_ms", "said"),
    [
        (25, {25: 2.0, 32: 0.5}, "; 32 takes 0.500 ms in place of 2.00."),
        (25, {25: 2.0}, "."),  # whoever pads finds out
        (20, {20: 2.0, 24: 1.97}, None),  # the sweep measured that it is no faster
        (24, {24: 2.0}, None),  # a multiple of 8 is padded to itself
        (24, {}, None),
    ],
)
def test_padding_is_advised_to_a_size_that_the_sweep_does_not_refute(batch, times_ms, said):
    answer = replace(explained({"fc6": 8.0}, page_faults(8.0, Verdict.UNDECIDED)), terms=())
    grounds = SimpleNamespace(
        remedies=SimpleNamespace(savings=()),
        terms=SimpleNamespace(time_ms=lambda _, size: times_ms.get(size)),
        curve=None,
        trains=False,
        weights=(),
    )
    remedy = find_remedy(answer, None, faster_alone("padded_batch", batch), grounds)
    if said is None:
        assert remedy is None
    else:
        lead = "Pad fc6 from 25 to 32: -90 % of its time at batch 25"
        assert say_remedy(remedy, Axis()) == lead + said
