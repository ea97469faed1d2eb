"""The documents that `--json` prints: one type per kind, encoded by msgspec. A value that is infinite or NaN is null.

Fields in `_s`, `_ms`, `_ns` are times, in `_bytes` sizes, in `_per_s` rates; a share is a fraction of 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ...profiling.recording.axis import axis_of
from ...profiling.recording.store import Recording
from ..causes import Evidence
from ..decompose.curve import UNKNOWN
from ..decompose.functionals import Condition
from ..diagnosis.suggested import Advice, LongGap
from ..verdicts.words import Verdict

# A field that is renamed, removed or gets another meaning makes it the next number; new fields do not.
DOCUMENT_VERSION = 1
_BEYOND_ASCII = re.compile("[^ -~]")


def kind_of(document: type) -> str:
    """The kind and version of a type of documents, e.g. `curvescope.explain/1` of `ExplainDocument`."""
    return f"curvescope.{document.__name__.removesuffix('Document').lower()}/{DOCUMENT_VERSION}"


def json_text(document: Any) -> str:
    """Anything made of documents as JSON."""
    return msgspec.json.encode(document, enc_hook=_plain).decode()


def document_text(document: Any) -> str:
    """A document as JSON on one line; its first field, `schema`, names its kind and version."""
    return f'{{"schema":"{kind_of(type(document))}",{json_text(document)[1:]}'


def print_document(document: Any) -> None:
    """Print a document on standard output; what a terminal may obey is escaped, as everything beyond ASCII."""
    print(_BEYOND_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], document_text(document)))


def _plain(value: Any) -> Any:
    """A mapping of any type, or a number of NumPy, as msgspec takes it."""
    return dict(value) if isinstance(value, Mapping) else value.item()


def known_batch(condition: Condition) -> int | None:
    """The batch size of a condition; None if no one knows it."""
    return None if condition == UNKNOWN else condition


@dataclass(frozen=True, kw_only=True)
class SuggestedChange:
    """What one cause suggests of a profile; nothing was tried."""

    cause: str  # name of the cause
    verdict: str  # untested
    what: str  # what the step does or waits for, as a clause
    do: str  # what to do, as an instruction
    how: str | None  # how to do it; null if `do` says it
    at_most_ms: float  # what it saves at most, per step
    at_most_share: float | None  # the same as a share of the step; null for a step without time
    where: str | None  # layer, operator, range or call with most of it; null if unknown
    stack: Sequence[str]  # functions of the program, the outermost first; empty if unknown
    factors: Sequence[str]  # factors of complete steps that `diagnose` tests it with
    evidence: Sequence[Evidence]  # facts of the profile: each value is `after`


@dataclass(frozen=True, kw_only=True)
class AdviceDocument:
    """What one profile, or one batch size, suggests: `explain` without a curve."""

    recording: str  # folder or URL of the recording
    headline: str  # how long a step takes, and where that goes, in a sentence
    unit: str  # what the times are of: step, or recording where no step is known
    batch: int | None  # samples in a step; null if unknown
    time_ms: float  # mean time of the steps used
    steps: int  # number of these steps
    suggested: Sequence[SuggestedChange]  # the largest bound first; bounds do not add up
    gaps: Sequence[LongGap]  # the longest gaps in the device work, one by one
    families: Sequence[tuple[str, float, float]]  # kernel family, ms and calls per step
    commands: Sequence[str]  # what to run next

    @classmethod
    def of(cls, path: object, recording: Recording, advice: Advice) -> AdviceDocument:
        """The document of advice on the recording or profile that a user named by a path."""
        from .advice import next_commands
        from .breakdown import breakdown_verdict

        whole_ms = advice.step.time_ms
        return cls(
            recording=str(path),
            headline=breakdown_verdict(advice.breakdown, axis_of(recording.meta), advice.step.idle),
            unit=advice.breakdown.unit,
            batch=advice.breakdown.batch,
            time_ms=whole_ms,
            steps=advice.step.steps,
            suggested=[
                SuggestedChange(
                    cause=one.suggestion.cause,
                    verdict=Verdict.UNTESTED,
                    what=one.suggestion.what,
                    do=one.do,
                    how=one.how,
                    at_most_ms=one.suggestion.at_most_ms,
                    at_most_share=one.suggestion.at_most_ms / whole_ms if whole_ms else None,
                    where=one.suggestion.where,
                    stack=one.suggestion.stack,
                    factors=one.suggestion.factors,
                    evidence=one.suggestion.evidence,
                )
                for one in advice.advised
            ],
            gaps=advice.gaps,
            families=advice.families,
            commands=[command for _, command in next_commands(path, advice)],
        )
