"""What every renderer takes: a diagnosis, and what of it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from ...profiling.recording.axis import Axis
from ...profiling.recording.store import Recording, is_modelled
from ..diagnosis.explanation import Explanation
from ..diagnosis.result import Diagnosis
from ..diagnosis.suggested import Advice

Output = TypeVar("Output", covariant=True)


@dataclass(frozen=True)
class Shown:
    """A diagnosis as it is shown."""

    diagnosis: Diagnosis
    explanations: tuple[Explanation, ...]  # the anomalies, or what was asked for in their place
    advice: Advice | None = None  # what the profiled steps suggest beside it
    everything: bool = False  # whether rows of little weight are shown, too

    @classmethod
    def whole(cls, diagnosis: Diagnosis) -> Shown:
        """A diagnosis with all of its anomalies."""
        return cls(diagnosis, diagnosis.explanations)

    @property
    def axis(self) -> Axis:
        """What the steps vary."""
        return self.diagnosis.axis

    @property
    def recording(self) -> Recording:
        """The recording that it is of."""
        assert self.diagnosis.recording is not None
        return self.diagnosis.recording

    @property
    def is_modelled(self) -> bool:
        """Whether a cost model predicted the times."""
        return is_modelled(self.recording.meta)

    @property
    def is_asked(self) -> bool:
        """Whether it shows the choice of the user in place of the anomalies."""
        return self.explanations is not self.diagnosis.explanations


class Renderer(Protocol[Output]):
    """Draws a diagnosis: as blocks for a terminal, a document of `--json`, HTML for a notebook, or
    a run of the report.
    """

    def __call__(self, shown: Shown, /) -> Output:
        """Draw it."""
