"""Plan files: the plan of a run of many visits, stored in the run's folder to resume interrupted
runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ...base.errors import CurvescopeError
from ...base.limits import META_BYTES
from ...base.masking import without_secrets
from .atomic_files import claim
from .hidden_commands import VALUES, hide_commands, restore_commands
from .named_code import SIGNATURE, check_code, signature_entry
from .remote_store import AnyPath, read_entries

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


@dataclass(frozen=True)
class PlanFile(Generic[T]):
    """Format of one command's plan file."""

    name: str
    command: str  # name of the command that creates and resumes such runs
    run: str  # noun for such a run in messages
    version: int  # version of the format; later versions are refused
    plan: type[T]

    def write(self, folder: AnyPath, plan: T) -> None:
        """Begin a run in a new or empty folder; the plan is a dataclass with JSON-serialisable
        fields.
        """
        entries = asdict(plan)
        head = {
            "format": self._format,
            "version": self.version,
            "argv": without_secrets(sys.argv[1:]),
            **signature_entry(entries),
        }
        resume = f"Or resume the {self.run} in it: `curvescope {self.command} --resume {folder}`."
        document = json.dumps({**head, **hide_commands(entries)}, indent=1)
        claim(folder, self.name, document.encode(), resume)

    def read(self, folder: AnyPath) -> T:
        """Read the plan of a run. CurvescopeError: the folder has no plan, or it is unreadable."""
        return self._read(folder)[0]

    def read_to_run(self, folder: AnyPath, run_its_code: bool) -> T:
        """Read the plan of a run to resume it; also an error: it names code of somebody else, see
        `check_code`.
        """
        plan, signature = self._read(folder, to_run=True)
        recorded = asdict(self.read(folder))
        check_code(folder / self.name, asdict(plan), signature, run_its_code, recorded)
        return plan

    def _read(self, folder: AnyPath, to_run: bool = False) -> tuple[T, object]:
        """The plan, to run with whole commands, and the signature of the code that it names."""
        path = folder / self.name
        try:
            document = json.loads(read_entries(path, META_BYTES, f"bytes in {self.name}"))
            if document.pop("format") != self._format or document.pop("version") > self.version:
                raise CurvescopeError(
                    f"{path} was written by another version of Curvescope; resume with that "
                    "version."
                )
            del document["argv"]
            signature = document.pop(SIGNATURE, None)
            values = document.pop(VALUES, None)
            if to_run:
                document = restore_commands(path, document, values)
            return self._plan_of(document), signature
        except FileNotFoundError:
            raise CurvescopeError(
                f"{folder} contains no {self.run} ({self.name} is missing)."
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CurvescopeError(f"{path} cannot be read ({error}).") from error

    def _plan_of(self, document: dict[str, Any]) -> T:
        """The plan in a document; ValueError if it does not fit, also for an unknown field."""
        plan = msgspec.convert(document, self.plan)
        if unknown := sorted(_unknown(msgspec.to_builtins(plan), document)):
            raise ValueError(f"a plan has no {', '.join(unknown)}")
        return plan

    @property
    def _format(self) -> str:
        return f"curvescope {self.command}"


def _unknown(allowed: Any, entry: Any) -> Iterator[str]:
    """Names in a document, at any depth, that are no fields of the plan that was made of it."""
    if isinstance(entry, dict):
        yield from entry.keys() - allowed.keys()
        for name in entry.keys() & allowed.keys():
            yield from _unknown(allowed[name], entry[name])
    elif isinstance(entry, list):
        for item, other in zip(allowed, entry, strict=True):
            yield from _unknown(item, other)
