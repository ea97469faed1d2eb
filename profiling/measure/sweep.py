"""A sweep: steps of one network over several batch sizes, timed and profiled in interleaved rounds.

A batch size that does not fit the memory is a result: it is named in `recording.json`, and the
others continue.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ...base.errors import CurvescopeError
from ...base.masking import without_secrets
from ..recording.hidden_commands import hide_commands
from ..recording.named_code import describe_code, signature_entry
from ..recording.remote_store import AnyPath
from ..recording.store import RecordingWriter
from ..workload.own_step import MakeStep, OwnStep
from .affordable import ROUNDS, Affordable
from .loop import SEED, Loop, Progress, VisitWriter
from .machine import describe_machine
from .probing import Probing, protocol_of_probes
from .protocol import Protocol
from .repository import commit_entry
from .sites.here import Here
from .sites.site import SweptSite
from .stopping import Complete, StoppingRule
from .visits import FAILED, Empty, StepRow, Visit, VisitPlan

LEFT_OUT = "does not fit the time limit"
Precise = Callable[[Sequence[StepRow]], bool]


def run_sweep(
    site: SweptSite,
    batches: Sequence[int],
    protocol: Protocol,
    path: AnyPath,
    report: Callable[[Progress], None] = lambda _: None,
    rule: StoppingRule[int] | None = None,
    clock_s: Callable[[], float] = time.monotonic,
    probe_s: float = 0.0,
) -> None:
    """Measure and record the steps of a site over increasing batch sizes, in a new folder.

    The recording grows visit by visit. After an interruption it is readable up to its last complete
    visit. By default the protocol sets the rounds. Probes of sizes between the batch sizes take
    `probe_s`; a compiled step has none: it would be compiled for each.
    """
    began_s = clock_s()
    site.begin(batches, protocol, path)
    spec = site.spec

    def probe(batch: int) -> Visit | Empty:
        if site.facts().compiles:
            return Empty(FAILED, "it would be compiled")
        if not affordable.leaves_probes():
            return Empty(LEFT_OUT, "sizes that were asked for take it")
        return site.visit(batch, VisitPlan(protocol_of_probes(protocol), is_probe=True))

    rule = rule or Complete.of(protocol)
    limit_s = 0.0 if spec["compiled"] else probe_s
    probing = Probing(rule, batches, limit_s, probe)
    affordable = Affordable(probing, protocol, site, clock_s, began_s)
    machine = site.machine_entry(describe_machine(spec["torch_device"]).entry)

    def measure(batch: int) -> Visit | Empty:
        if probing.ended:
            site.keep_only(probing.sizes)
        how = affordable.plan(batch, operators=not visits.has_operators(batch))
        return site.visit(batch, how)

    try:
        with RecordingWriter(path, describe_sweep(spec, batches, protocol) | machine) as writer:
            visits = VisitWriter(writer, spec["mode"])
            why = sweep_batches(visits, measure, affordable, report, clock_s)
            _close(writer, site.closing_entry(), why)
    finally:
        site.end()


def _close(writer: RecordingWriter, entry: dict[str, Any], why: str | None) -> None:
    """Record what all visits showed; an error where no batch size could be measured."""
    if "warnings" in entry:
        entry["warnings"] = [*writer.meta.get("warnings", []), *entry["warnings"]]
    writer.update(**entry)
    if why is not None:
        failed = any(entry["why"] == FAILED for entry in writer.meta["unmeasured"])
        advice = "" if failed else " Choose smaller sizes with --batch."
        raise CurvescopeError(f"No batch size could be measured; {why}.{advice}")


def sweep_callable(
    name: str,
    make_step: MakeStep,
    batches: Sequence[int],
    protocol: Protocol,
    path: AnyPath,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> None:
    """Time and record the steps of a function; errors of the step are passed on. Steps of a program
    that has not loaded torch are not profiled.
    """
    workload = OwnStep(make_step, name=name, errors_are_results=False, clock_ns=clock_ns)
    if "torch" not in sys.modules:
        protocol = replace(protocol, profiled_steps=0)
    run_sweep(Here(workload), batches, protocol, path)


def describe_sweep(
    spec: Mapping[str, Any], batches: Sequence[int], protocol: Protocol
) -> dict[str, Any]:
    """Entries of `recording.json` that every sweep has, besides its machine's; `spec` describes the
    steps.
    """
    return {
        "recording_type": "sweep",
        **commit_entry(spec),
        "argv": without_secrets(sys.argv[1:]),
        **hide_commands(spec),
        **signature_entry(describe_code(spec)),
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
) -> str | None:
    """Make the visits that are missing in a sweep's recording; returns why no batch size could be
    measured, or None.

    Sizes that the time leaves out are named in the recording.
    """
    writer = visits.writer
    affordable = rule if isinstance(rule, Affordable) else None
    probing = affordable.probing if affordable else None
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
        rule=rule,
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
    if probing:
        measured = {row["batch"] for row in visits.steps}
        reported = {entry["batch"] for entry in writer.meta["unmeasured"]}
        for batch in sorted({*probing.sizes} - measured - reported):
            visits.write_unmeasured(batch, rounds, Empty(LEFT_OUT, "it was found too late"))
    writer.update(rounds=rounds)
    return None if visits.steps else why_unmeasured(writer.meta)


def why_unmeasured(meta: Mapping[str, Any]) -> str:
    """The smallest batch size of a sweep that could not be measured, and the reason."""
    smallest = min(meta["unmeasured"], key=lambda entry: entry["batch"])
    return f"batch {smallest['batch']}: {smallest['why']} ({smallest['detail']})"
