"""Whether the steps of a recording, or their operators, can run again for experiments."""

from __future__ import annotations

from .store import Recording


def why_not_replayed(recording: Recording) -> str | None:
    """The reason why nothing of a recording can run again, as a clause without a subject; None if something can."""
    kind, imported = recording.meta.get("recording_type"), recording.meta.get("imported_from")
    if kind == "model":
        return "is modelled: nothing ran, so there is nothing to run again"
    if kind not in ("sweep", "profile"):
        return f"is no recording of a sweep ({kind}): there is no anomaly to test"
    if recording.meta.get("torch_device") is not None or recording.count_rows("operators"):
        return None
    if imported is not None:
        return (
            f"was imported from {imported}, which does not name the operators with their shapes, so nothing can run "
            "again. A trace of torch.profiler with record_shapes=True does; `curvescope diagnose` measures with it"
        )
    return "does not say how to run its steps again: measure with `curvescope diagnose` or `sweep` of this version"
