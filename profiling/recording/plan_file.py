"""The plan of a run of many visits, as a document in the run's folder: a run that was cut off goes on by it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import CurvescopeError
from ..masking import without_secrets
from .atomic_files import atomic_file, claim_remote, claimed_folder
from .remote_store import AnyPath, RemotePath

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


@dataclass(frozen=True)
class PlanFile:
    """The document that holds the plans of one command.

    Attributes:
        name: of the file.
        command: that makes such runs and goes on with them.
        run: what to call one to the user.
        version: of the document; a later one is not read.
    """

    name: str
    command: str
    run: str
    version: int

    def write(self, folder: AnyPath, plan: DataclassInstance) -> None:
        """Begin a run in a new folder.

        Args:
            folder: to be made; it must not exist, or be empty.
            plan: fields that JSON has.

        Raises:
            CurvescopeError: something is already there, or it cannot be written.
        """
        head = {"format": self._format, "version": self.version, "argv": without_secrets(sys.argv[1:])}
        resume = f"Or go on with the {self.run} that is there: `curvescope {self.command} --resume {folder}`."
        document = json.dumps({**head, **asdict(plan)}, indent=1).encode()
        if isinstance(folder, RemotePath):
            claim_remote(folder, self.name, document, resume)
            return
        with claimed_folder(folder, resume), atomic_file(folder / self.name) as file:
            file.write(document)

    def read(self, folder: AnyPath, plan_of: Callable[[dict[str, Any]], T]) -> T:
        """The plan of a run.

        Args:
            folder: of the run.
            plan_of: makes it of its fields; a KeyError, TypeError or ValueError says that they are no plan.

        Raises:
            CurvescopeError: there is none in the folder, or it is not to be read.
        """
        path = folder / self.name
        try:
            document = json.loads(path.read_bytes())
            if document.pop("format") != self._format or document.pop("version") > self.version:
                raise CurvescopeError(f"{path} was written by another Curvescope; go on with that one.")
            del document["argv"]
            return plan_of(document)
        except FileNotFoundError:
            raise CurvescopeError(f"{folder} holds no {self.run} (no {self.name} in it).") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CurvescopeError(f"{path} cannot be read ({error}).") from error

    @property
    def _format(self) -> str:
        return f"curvescope {self.command}"
