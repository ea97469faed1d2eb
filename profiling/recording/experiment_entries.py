"""Writes experiments into a recording, and says why nothing of a recording can run again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, replace

from ...base.masking import mask_text
from .experiments import Experiment, FactorFacts
from .remote_store import AnyPath
from .store import Recording, RecordingWriter


def record_experiment(
    writer: RecordingWriter, experiment: Experiment, facts: Iterable[FactorFacts] = ()
) -> None:
    """Write the entry of an experiment, in the place of an earlier one with its number, and facts
    on its factors.
    """
    untested = {name: mask_text(why) for name, why in experiment.untested.items()}
    experiment = replace(experiment, untested=untested)
    recorded = writer.meta.get("experiments", ())
    entries = [entry for entry in recorded if entry["number"] != experiment.number]
    entries.append(experiment.to_entry())
    entries.sort(key=lambda entry: int(entry["number"]))
    factors = dict(writer.meta.get("factors", {}))
    of_scope = dict(factors.get(experiment.scope, {}))
    of_scope |= {fact.name: asdict(fact) for fact in facts}
    factors[experiment.scope] = of_scope
    writer.update(experiments=entries, factors=factors)


def why_not_replayed(recording: Recording) -> str | None:
    """The reason why nothing of a recording can run again, as a clause without a subject; None if
    something can.
    """
    kind = recording.meta.get("recording_type")
    imported = recording.meta.get("imported_from")
    if kind == "model":
        return "is modelled: nothing ran, so there is nothing to run again"
    if kind not in ("sweep", "profile"):
        return f"is no recording of a sweep ({kind}): there is no anomaly to test"
    if recording.meta.get("torch_device") is not None or recording.count_rows("operators"):
        return None
    if imported is not None:
        return (
            f"was imported from {imported}, which does not name the operators with their shapes, "
            "so nothing can run again. A trace of torch.profiler with record_shapes=True does; "
            "`curvescope diagnose` measures with it"
        )
    return (
        "does not say how to run its steps again: measure with `curvescope diagnose` or `sweep` of "
        "this version"
    )


def part_of(number: int, round_: int) -> str:
    """The name of the part file with the rows of an experiment from one round on."""
    return f"{_part_prefix(number)}{round_:05d}"


def _part_prefix(number: int) -> str:
    return f"e{number:05d}_r"


def parts_without(recording: Recording, numbers: Collection[int]) -> list[AnyPath]:
    """The part files that may hold rows of other experiments than these."""
    prefixes = tuple(map(_part_prefix, numbers))
    return [part for part in recording.parts("experiments") if not part.name.startswith(prefixes)]
