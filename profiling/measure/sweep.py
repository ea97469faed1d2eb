"""A sweep: steps of one network over several batch sizes, timed and profiled in interleaved rounds.

A batch size that does not fit the memory is a result: it is named in `recording.json`, and the
others continue.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ...base.errors import CurvescopeError
from ...base.masking import without_secrets
from ..hardware.clocks import ClockSampler
from ..hardware.reference import Reference
from ..recording.axis import axis_of
from ..recording.disturbed import is_disturbed
from ..recording.hidden_commands import hide_commands
from ..recording.named_code import described_code, signature_entry
from ..recording.remote_store import AnyPath
from ..recording.store import RecordingWriter
from ..workload.any_workload import AnyWorkload
from ..workload.own_step import MakeStep, OwnStep
from .affordable import ROUNDS, Affordable
from .loop import SEED, Loop, Progress, VisitWriter
from .machine import describe_machine
from .probing import Probing, protocol_of_probes
from .protocol import Protocol
from .round_processes import RoundProcesses
from .step_checks import StepChecks
from .stopping import Complete, StoppingRule
from .visit import are_light, count_page_faults, visit, warm_up_ns
from .visits import FAILED, Empty, StepRow, Visit

LEFT_OUT = "does not fit the time limit"
Precise = Callable[[Sequence[StepRow]], bool]


def run_sweep(
    workload: AnyWorkload,
    batches: Sequence[int],
    protocol: Protocol,
    path: AnyPath,
    report: Callable[[Progress], None] = lambda _: None,
    rule: StoppingRule[int] | None = None,
    clock_s: Callable[[], float] = time.monotonic,
    probe_s: float = 0.0,
    start: Callable[[Sequence[int]], Any] | None = None,
) -> None:
    """Measure and record one workload over increasing batch sizes, in this process, in a new
    folder.

    The recording grows visit by visit. After an interruption it is readable up to its last complete
    visit. By default the rounds are those of the protocol. Probes of sizes between the batch sizes
    take `probe_s`; a compiled step has none: it would be compiled for each. Where steps are short,
    rounds after the first run in processes of their own, if `start` says how to start one, see
    `round_processes`.
    """
    began_s = clock_s()
    workload.try_step(min(batches))
    first_s = clock_s() - began_s
    clocks = ClockSampler(workload.device)
    machine = workload.machine_entry(describe_machine(workload.device).entry)
    meta = describe_sweep(workload.spec, batches, protocol) | machine
    checks = StepChecks(axis_of(meta), workload.device, workload.compiled_before)

    warm_up_s = 0.0 if workload.runs_elsewhere else warm_up_ns(workload.device) / 1e9
    profiles = _Profiles(protocol.profiled_rounds, every_round=not warm_up_s)
    marked: set[int] = set()
    light: set[int] = set()  # batch sizes whose marks cost next to nothing
    # Published protocols are measured as they were published.
    on_cpu = workload.device == "cpu" and not workload.runs_elsewhere
    reference = Reference(workload.clock_ns) if on_cpu and not protocol.is_fixed else None

    in_rounds = RoundProcesses(None if protocol.is_fixed else start, protocol, clock_s)

    def measure(batch: int) -> Visit | Empty:
        if probing.ended:
            workload.free_others(probing.sizes)
        elsewhere = None
        if batch in marked:
            elsewhere = in_rounds.visit(batch, visits.steps, light=batch in light)
            for row in () if elsewhere is None else elsewhere.unprofiled:
                row["compiled_code"] = checks.code(batch)
        needs_checks = workload.is_users and checks.need(batch)
        if elsewhere is not None and not is_profiled(batch) and not needs_checks:
            return elsewhere
        here = measure_here(batch)
        if isinstance(here, Empty) or elsewhere is None:
            return here
        return replace(here, unprofiled=elsewhere.unprofiled, marked=elsewhere.marked)

    def is_profiled(batch: int) -> bool:
        is_named = batch in marked and profiles.suffice(batch)
        is_due = profiles.are_due(batch, affordable.round_)
        return is_due and not is_named and affordable.profile_fits(batch)

    def measure_here(batch: int) -> Visit | Empty:
        how: dict[str, Any] = {}
        if not workload.runs_elsewhere:
            how = {"light": batch in light and not protocol.is_fixed, "reference": reference}
        with clocks:
            result: Visit | Empty = workload.visit(
                visit,
                batch,
                protocol,
                clocks.sample_sometimes,
                spare_s=affordable.spare_s(batch),
                profile=is_profiled(batch),
                **how,
            )
        if isinstance(result, Empty):
            return result
        profiles.count(batch, result)
        marked.update([batch] if any(result.marked) else [])
        light.update([batch] if are_light(result.marked) else [])
        if not workload.runs_elsewhere:
            if not visits.has_operators(batch):
                count_page_faults(workload, result)
            checks.note(batch, result)
            for row in result.unprofiled:
                row["compiled_code"] = checks.code(batch)
        return replace(result, clocks=clocks.take())

    few_steps = protocol_of_probes(protocol)

    def probe(batch: int) -> Visit | Empty:
        if workload.runs_compiled_graphs:
            return Empty(FAILED, "it would be compiled")
        if not affordable.leaves_probes():
            return Empty(LEFT_OUT, "sizes that were asked for take it")
        probed: Visit | Empty = workload.visit(visit, batch, few_steps)
        return probed

    rule = rule or Complete.of(protocol)
    probing = Probing(rule, batches, 0.0 if workload.compiled else probe_s, probe)
    if workload.runs_elsewhere:
        first_s = math.inf  # most of it is the start

    def start_s(batch: int) -> float | None:
        """Seconds of a visit beside its steps, as expected."""
        if workload.runs_elsewhere:
            return workload.start_s(batch)
        return in_rounds.start_s(visits.steps) / len(batches)

    affordable = Affordable(
        probing, protocol, probing.sizes, clock_s, began_s, first_s, start_s, warm_up_s
    )
    try:
        with RecordingWriter(path, meta) as writer:
            visits = VisitWriter(writer, workload.mode)
            why = sweep_batches(visits, measure, probing, report, clock_s, affordable)
            writer.update(**workload.closing_entry())
            if not workload.runs_elsewhere:
                writer.update(processes=1 + in_rounds.count)
            if workload.is_users:
                writer.update(warnings=[*writer.meta.get("warnings", []), *checks.warnings()])
            if why is not None:
                failed = any(entry["why"] == FAILED for entry in writer.meta["unmeasured"])
                advice = "" if failed else " Choose smaller sizes with --batch."
                raise CurvescopeError(f"No batch size could be measured; {why}.{advice}")
    finally:
        in_rounds.end()
        workload.release()


class _Profiles:
    """Rounds with a profile, by batch size: so many name the kernels of a layer, which marks time
    in every round.

    On a GPU, which has no marks, every second round after them has profiles: kernels take nearly
    the same time in each, and a profile takes as long as a visit without.
    """

    def __init__(self, enough: int | None, *, every_round: bool = True) -> None:
        """Define how many suffice; None: a batch size is profiled in every round."""
        self._enough, self._every_round = math.inf if enough is None else enough, every_round
        self._rounds: dict[int, float] = {}

    def count(self, batch: int, visit: Visit) -> None:
        """Count the profile of a visit, if it has one; two disturbed ones count as one."""
        if visit.profiled:
            counts = 0.5 if is_disturbed(visit.unprofiled) else 1.0
            self._rounds[batch] = self._rounds.get(batch, 0.0) + counts

    def are_due(self, batch: int, round_: int) -> bool:
        """Whether a batch size is profiled in a round, counted from 0, if the time allows it."""
        return self._every_round or not self.suffice(batch) or round_ % 2 == 1

    def suffice(self, batch: int) -> bool:
        """Whether a batch size has enough."""
        return self._rounds.get(batch, 0.0) >= self._enough


def sweep_callable(
    name: str,
    make_step: MakeStep,
    batches: Sequence[int],
    protocol: Protocol,
    path: AnyPath,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> None:
    """Time and record the steps of a function; nothing is profiled, and errors of the step are
    passed on.
    """
    workload = OwnStep(make_step, name=name, errors_are_results=False, clock_ns=clock_ns)
    run_sweep(workload, batches, replace(protocol, profiled_steps=0), path)


def describe_sweep(
    spec: Mapping[str, Any], batches: Sequence[int], protocol: Protocol
) -> dict[str, Any]:
    """Entries of `recording.json` that every sweep has, besides its machine's; `spec` describes the
    steps.
    """
    return {
        "recording_type": "sweep",
        "argv": without_secrets(sys.argv[1:]),
        **hide_commands(spec),
        **signature_entry(described_code(spec)),
        "batches": list(batches),
        "protocol": asdict(protocol),
        "seed": SEED,
        "unmeasured": [],
    }


def sweep_batches(
    visits: VisitWriter,
    measure: Callable[[int], Visit | Empty],
    rule: StoppingRule[int],
    report: Callable[[Progress], None] = lambda _: None,
    clock_s: Callable[[], float] = time.monotonic,
    affordable: Affordable | None = None,
) -> str | None:
    """Make the visits that are missing in a sweep's recording; returns why no batch size could be
    measured, or None.

    Sizes that `affordable`, around the rule, leaves out are named in the recording.
    """
    writer = visits.writer
    probing = rule if isinstance(rule, Probing) else None
    sizes = probing.sizes if probing else writer.meta["batches"]

    def run_visit(batch: int, round_: int) -> None:
        if probing and batch not in sizes:
            probing.probe(batch, round_, clock_s)
            return
        began_s = clock_s()
        result = measure(batch)
        if isinstance(result, Empty):
            visits.write_unmeasured(batch, round_, result)
        else:
            visits.write(batch, round_, result)
        if affordable:
            affordable.note(batch, result, clock_s() - began_s)

    def note(progress: Progress) -> None:
        writer.update(elapsed_s=round(progress.elapsed_s, 3))
        report(replace(progress, steps=visits.steps))

    def note_sizes() -> None:
        if probing and probing.visited:
            writer.update(batches=list(sizes), probes=probing.entry)

    rounds = Loop(
        conditions=sizes,
        visit=run_visit,
        rule=affordable or rule,
        finished=lambda batch: any(entry["batch"] == batch for entry in writer.meta["unmeasured"]),
        visited=visits.has,
        begin_round=note_sizes,
        rows=lambda: visits.steps,
        label=lambda batch: f"batch {batch}",
        report=note,
        elapsed_s=float(writer.meta.get("elapsed_s", 0.0)),
        clock_s=clock_s,
    ).run()
    note_sizes()
    for batch in sorted(affordable.left_out) if affordable else ():
        visits.write_unmeasured(
            batch, rounds, Empty(LEFT_OUT, f"{ROUNDS} rounds of it take longer")
        )
    writer.update(rounds=rounds)
    return None if visits.steps else why_unmeasured(writer.meta)


def why_unmeasured(meta: Mapping[str, Any]) -> str:
    """The smallest batch size of a sweep that could not be measured, and the reason."""
    smallest = min(meta["unmeasured"], key=lambda entry: entry["batch"])
    return f"batch {smallest['batch']}: {smallest['why']} ({smallest['detail']})"
