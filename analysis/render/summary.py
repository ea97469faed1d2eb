"""What an answer says first, in words: the recording, the verdict, and the size to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number
from ...profiling.recording.axis import BATCH
from ...profiling.recording.disturbed import count_visits
from ...profiling.recording.store import STEP, Recording, is_modelled
from ..decompose.curve import UNKNOWN
from ..decompose.findings import UNDECIDED
from ..decompose.functionals import Condition
from ..decompose.slow_steps import leading
from ..diagnosis.explanation import Remedy
from ..diagnosis.remedies import Throughput, throughput_of
from ..diagnosis.result import Diagnosis
from ..diagnosis.suggested import Advice
from .facts import facts_of
from .found import CONFIRMED, MEASURED, Found, find_all, say_share
from .remedies import is_memory_full
from .words import begin_sentence, join_texts, list_values

_NAMED = 3  # slow sizes in the verdict
_NEARLY = 0.995  # of the most samples a second, which would be printed as 100 %
LEAST_FOUND = 3  # findings that every page lists; the change to make is of one of them


@dataclass(frozen=True)
class Summary:
    """A diagnosis and its findings, as sentences that every page begins with."""

    diagnosis: Diagnosis
    entries: tuple[Found, ...]

    @property
    def recording(self) -> Recording | None:
        """None where the diagnosis is of no recording: what only that tells is left out."""
        return self.diagnosis.recording

    @property
    def slow_sizes(self) -> set[Condition]:
        """The sizes that are slow beside others."""
        return {entry.at for entry in self.entries if entry.is_slow_size and entry.at is not None}

    def facts(self, width: int) -> str:
        """The recording and its machine, in as many words as there is room for."""
        return "" if self.recording is None else facts_of(self.recording, width)

    def how_quiet(self) -> Text:
        """How long it was measured, and how much of that was disturbed."""
        if self.recording is None:
            return Text()
        if self.is_modelled:
            return Text("MODELLED, not measured", "yellow")
        seconds = self.recording.meta.get("elapsed_s")
        took = f"{seconds:.0f} s" if seconds else ""
        disturbed = self.diagnosis.disturbances
        if disturbed is None:
            visits = count_visits(self.diagnosis.recorded.steps)
            quiet = counted(visits, "quiet measurement") if visits else ""
            return Text(join_texts([took, quiet]))
        share = f"{disturbed.disturbed} of {counted(disturbed.visits, 'measurement')}"
        if disturbed.prevail:
            return Text(join_texts([took, f"DISTURBED: {share}"]), "yellow")
        return Text(join_texts([took, f"{share} disturbed"]))

    def say_verdict(self, most: int = _NAMED) -> str:
        """The verdict in plain words, the claims first; at most so many slow sizes are named."""
        said = [*self._claims(), self._slow_sizes(most), self._unproven()]
        return " ".join(filter(None, said))

    def _claims(self) -> list[str]:
        """The slow steps, and what is proven to save."""
        diagnosis = self.diagnosis
        said = []
        slow = leading(diagnosis.slow_steps)
        if slow is not None:
            often = begin_sentence(slow.often)
            if slow.batch is not None:
                often += f" at {diagnosis.axis.name_size(slow.batch)}"
            ratio = number(slow.slow_ms / slow.usual_ms, 2)
            share = say_share(slow.share)
            said.append(f"{often} {slow.verb} {ratio} times as long: {share} of the time.")
        saving = [entry for entry in self.entries if entry.saving and entry.sure == CONFIRMED]
        if saving:
            best = saving[0]
            at, share = best.worth[0]
            said.append(f"{begin_sentence(best.what)}: {share} saved at {at}.")
        return said

    def _unproven(self) -> str:
        """That no change is proven to save, where some were tried."""
        remedies = self.diagnosis.remedies
        if remedies.helping or not remedies.attempts:
            return ""
        where = " on a quiet machine" if remedies.beside_work else ""
        tried = len(remedies.attempts)
        said = "The change tried" if tried == 1 else f"None of {tried} changes tried"
        return f"{said} is {'not ' if tried == 1 else ''}proven to save time{where}."

    def _slow_sizes(self, most: int = _NAMED) -> str:
        """How many sizes are slow beside others, and which, if they are few."""
        diagnosis, axis = self.diagnosis, self.diagnosis.axis
        if diagnosis.difference is not None or UNKNOWN in diagnosis.curve.conditions:
            return "Nothing is tested: each size was measured once."
        if not diagnosis.findings:
            return f"One {axis.value}: there is no curve to compare it with."
        slow = [entry for entry in self.entries if entry.is_slow_size]
        sizes = sorted(self.slow_sizes)
        if not sizes and not any(entry.at for entry in self.entries):
            sizes = sorted({finding.tested.at for finding in diagnosis.anomalies})
        if not sizes:
            open_ = all(finding.verdict in UNDECIDED for finding in diagnosis.findings)
            how = "shown to be slow" if open_ or diagnosis.is_disturbed else "slow"
            return f"No {axis.value} is {how}."
        placed = _choose_told(slow)
        if len(sizes) == 1 and placed is not None and placed.certain is not None:
            # The step as a whole may be in line.
            return _say_cost(placed, axis.name_size(sizes[0]))
        if len(sizes) == 1:
            said = f"{begin_sentence(axis.name_size(sizes[0]))} is slow"
            if placed is not None:
                said += f": {_place_and_cause(placed)}"
            return f"{said}."
        noun = "sizes" if axis.name == BATCH else "values"
        said = f"{len(sizes)} slow {noun}"
        if len(sizes) <= most:
            said += f": {list_values(sizes)}"
        if placed is None:
            return f"{said}."
        if placed.certain is not None:
            return f"{said}. {_say_cost(placed, str(placed.at))}"
        return f"{said}. At {placed.at}: {_place_and_cause(placed)}."

    def size_to_take(self) -> str:
        """The batch size to take, e.g. `Take batch 32 or more`; empty where rates are unknown."""
        throughput = self.find_throughput()
        if throughput is None:
            return ""
        take = f"Take {self.diagnosis.axis.name} {throughput.batch}"
        if throughput.grows and not self.memory_is_full:
            return f"{take} or more"
        return take

    def why_to_take(self) -> str:
        """Why to take that size: it has the most samples a second, or nearly as many."""
        throughput = self.find_throughput()
        most = f"most {self.diagnosis.axis.unit}/s"
        if throughput is None or throughput.batch == throughput.best:
            return most
        share = throughput.per_s / throughput.best_per_s
        if share >= _NEARLY:
            return f"nearly the {most}"
        return f"{say_share(share)} of the {most}"

    def find_throughput(self) -> Throughput | None:
        """The batch size to take and its rate; None where rates are unknown."""
        if self.diagnosis.axis.name != BATCH or not self.has_rates:
            return None
        return throughput_of(self.diagnosis.curve)

    @property
    def has_rates(self) -> bool:
        """Whether larger sizes are more samples in one step."""
        same = self.recording is not None and self.recording.meta.get("same_shapes")
        return self.diagnosis.curve.unit == STEP and not same

    @property
    def is_modelled(self) -> bool:
        """Whether the times come from a model."""
        return self.recording is not None and is_modelled(self.recording.meta)

    @property
    def memory_is_full(self) -> bool:
        """Whether the next size did not fit in memory."""
        return self.recording is not None and is_memory_full(self.recording.meta)

    def find_remedy(self) -> tuple[int, Remedy] | None:
        """The first measured remedy, with the number of its finding."""
        for index, entry in enumerate(self.entries[:LEAST_FOUND], 1):
            for answer in entry.answers[:1]:
                if answer.remedy is not None:
                    return index, answer.remedy
        return None


def summarize(diagnosis: Diagnosis, advice: Advice | None = None) -> Summary:
    """The summary of a diagnosis, with what its profiled steps suggest."""
    return Summary(diagnosis, find_all(diagnosis, advice))


def _choose_told(slow: Sequence[Found]) -> Found | None:
    """The slow place that the verdict tells: the first, or what is confirmed at the same size."""
    placed = next((entry for entry in slow if entry.where), None)
    confirmed = next((entry for entry in slow if entry.sure == CONFIRMED and entry.why), None)
    if placed is None or confirmed is None or placed.sure == CONFIRMED:
        return placed
    return confirmed if confirmed.at == placed.at else placed


def _say_cost(entry: Found, size: str) -> str:
    """That a layer costs more, from which size on, and why."""
    when = f"from {size} on" if entry.is_lasting else f"at {size}"
    comma = "," if entry.certain is not None and entry.certain.line else ""
    return f"{entry.where}{comma} costs more {when}: {entry.why} ({entry.sure})."


def _place_and_cause(entry: Found) -> str:
    """Where a size is slow, why, and how sure the cause is."""
    of_what = "" if entry.sure == MEASURED else "cause "
    return f"{join_texts([entry.where, entry.why])} ({of_what}{entry.sure})"
