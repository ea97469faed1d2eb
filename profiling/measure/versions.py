"""Versions of a step measured together, e.g. two revisions: visited in turn, each in processes of
its own.

Equal processes differ by 3 to 36 %, by where their memory lies, for as long as they live. So every
version gets fresh processes after a few rounds, and these are the unit of resampling. Recordings
say how many rounds a process made: where a time limit was given, at most as many as let six
processes of each version fit.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import sysconfig
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...base.errors import CurvescopeError
from ...base.harmless import mask_path
from ...base.masking import without_secrets
from ...base.programs import find_program
from ..recording.axis import BATCH
from ..recording.store import TOGETHER, RecordingWriter
from ..workload.losses import read_losses
from ..workload.program import Program
from .configuration import Configuration
from .loop import Loop, Progress, VisitWriter
from .machine import Machine, describe_machine
from .processes import InterpreterOfVersion
from .protocol import Protocol
from .repository import commit_entry, run_git
from .sites.command import IN_TURN, Command
from .sites.here import LocalSteps, build_workload
from .sites.process import Process
from .sites.site import STAYS
from .stopping import Complete, Until
from .sweep import describe_sweep
from .visit import prepare
from .visits import Empty, Look, StepRow, Visit, VisitPlan

ROUNDS_OF_PROCESS = 4
LEAST_PROCESSES, MOST_PROCESSES = 6, 40  # of each version
# Processes whose last round is also profiled: the rows of a comparison need no more. Where steps
# are so slow that processes make fewer rounds, profiled ones would take the time of timed ones.
_PROFILED = 6
_PROFILED_SLOW = 3
PROTOCOL = Protocol(
    "versions",
    (LEAST_PROCESSES * ROUNDS_OF_PROCESS, MOST_PROCESSES * ROUNDS_OF_PROCESS),
    1,
    (1, 16),
    0.15,
    4,
    600.0,
)
# Of programs, whose every visit is a process: as many processes, with one round each.
PROGRAMS = replace(PROTOCOL, rounds=(LEAST_PROCESSES, MOST_PROCESSES))
_NAME = re.compile(r"[\w.-]+")
_VARIABLE = re.compile(r"(\w+)=(.*)", re.DOTALL)

Measured = tuple[str, int]  # version and batch size


@dataclass(frozen=True)
class Version:
    """A version of the user's code."""

    name: str
    place: str  # folder, or revision of the repository of the working directory
    python: str = sys.executable  # interpreter that runs it
    variables: tuple[tuple[str, str], ...] = ()  # of its environment
    folder: Path = Path()  # of a revision only once it is checked out
    # a command that is measured as it is, in place of a step
    program: tuple[str, ...] | None = None
    configuration: Configuration | None = None  # of a network in one framework
    step_range: str | None = None  # of a program: this and the next two as of `Program`
    step_line: str | None = None
    step_function: str | None = None

    @property
    def shown_place(self) -> str:
        """Its place, or its command, as it is recorded."""
        if self.program is not None:
            return shlex.join(without_secrets(self.program))
        return mask_path(self.place)

    @classmethod
    def parse(cls, text: str) -> Version:
        """The version that a value of `--measure` names."""
        name, _, rest = text.partition("=")
        program = _command(rest)
        if program is not None and _NAME.fullmatch(name):
            return cls(name, rest, program=program)
        where, *settings = rest.split(",")
        place, _, python = where.rpartition("@")
        if not (place and os.access(python, os.X_OK) and Path(python).is_file()):
            place = where
            python = sys.executable
        variables = [_VARIABLE.fullmatch(setting) for setting in settings]
        if not _NAME.fullmatch(name) or not place or not all(variables):
            raise CurvescopeError(
                f"--measure {text}: write NAME=FOLDER or NAME=REVISION, e.g. base=main head=. ; "
                "@PYTHON after it names an interpreter, ,VARIABLE=VALUE sets environment "
                "variables. A program is NAME='COMMAND ARGUMENTS'."
            )
        return cls(
            name,
            place,
            python,
            tuple((variable[1], variable[2]) for variable in variables if variable),
        )


def _command(text: str) -> tuple[str, ...] | None:
    """The words of a command that can be run, with arguments; None if it is a folder or
    a revision.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    return tuple(words) if len(words) > 1 and find_program(words[0]) is not None else None


@contextmanager
def checked_out(versions: Sequence[Version]) -> Iterator[list[Version]]:
    """The versions with their folders; of revisions temporary worktrees, which end with the
    context.
    """
    with ExitStack() as made:
        yield [
            replace(version, folder=made.enter_context(_folder(version))) for version in versions
        ]


@contextmanager
def _folder(version: Version) -> Iterator[Path]:
    """The folder of a version; of a revision the working directory in a temporary worktree."""
    if version.program is not None:
        yield Path.cwd()
        return
    if Path(version.place).is_dir():
        yield Path(version.place).resolve()
        return
    commit = run_git(
        "rev-parse", "--verify", "--quiet", "--end-of-options", f"{version.place}^{{commit}}"
    )
    if commit is None:
        raise CurvescopeError(
            f"--measure {version.name}={version.place}: there is no such folder, and no such "
            "revision in the git repository of the working directory. In CI fetch it first, e.g. "
            "`git fetch --depth 1 origin main` for FETCH_HEAD."
        )
    inside = run_git("rev-parse", "--show-prefix") or ""
    with TemporaryDirectory(prefix="curvescope-") as folder:
        tree = Path(folder, version.name)
        try:
            if (
                run_git("worktree", "add", "--detach", str(tree), commit) is None
                or not (tree / inside).is_dir()
            ):
                raise CurvescopeError(
                    f"--measure {version.name}={version.place}: git cannot check it out here."
                )
            yield tree / inside
        finally:
            run_git("worktree", "remove", "--force", str(tree))


class KeptSteps(LocalSteps):
    """In a process of a version: its steps, built once, and visited again and again."""

    def __init__(self, configuration: Configuration) -> None:
        """Build the steps."""
        if (source := Path("src").resolve()).is_dir():
            sys.path.insert(0, str(source))
        super().__init__(build_workload(configuration), STAYS)

    def describe(self) -> Machine:
        """Describe the machine, with the versions of this environment."""
        return describe_machine(self.workload.device)

    def prepare(self, batch: int) -> int | Empty:
        """Make the steps of a batch size and run one; how long that took, nanoseconds."""
        return prepare(self.workload, batch)

    def losses(self, batch: int) -> list[float | None]:
        """The losses of the first steps, see `read_losses`."""
        return read_losses(self.workload, batch)

    def files(self) -> list[str]:
        """Files of the loaded modules that belong to no package or library."""
        others = (str(Path(__file__).parents[2]), sysconfig.get_path("stdlib"), "-packages")
        files = [
            str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())
        ]
        return [
            str(Path(file).resolve())
            for file in files
            if file and not any(other in file for other in others)
        ]


def measure_versions(
    versions: Sequence[Version],
    configuration: Configuration | None,
    batches: Sequence[int],
    protocol: Protocol,
    folder: Path,
    decided: Callable[[Sequence[StepRow], int], bool] = lambda _, __: False,
    report: Callable[[Progress], object] = lambda _: None,
    start: Callable[..., Any] = InterpreterOfVersion,
) -> list[Path]:
    """Measure versions of a step together; each gets a recording in the new folder, by its name.

    `decided` says whether the rows so far, whose `factor` is the version, are enough, of so many
    rounds of a process; it is asked when processes end. `start` starts a process, see
    `InterpreterOfVersion`. A version that runs another's code, or whose step fails, is an error.
    """
    run = _Run(versions, configuration, protocol, start)
    together = {"run": uuid.uuid4().hex}
    with ExitStack() as opened:
        opened.callback(run.end)
        run.start_processes()
        for version in versions:
            own = configuration_of_version(version, configuration)
            if own.program is not None:
                machine = describe_machine(own.device)
            else:
                machine = run.time_call(version.name, "describe")
            meta = describe_sweep(own.entry, batches, protocol) | machine.entry
            meta |= {"commit": None} | commit_entry({}, version.folder)
            meta[TOGETHER] = {
                **together,
                "rounds_of_process": run.rounds_of_process,
                "name": version.name,
                "place": version.shown_place,
            }
            writer = opened.enter_context(RecordingWriter(folder / version.name, meta))
            run.writers[version.name] = VisitWriter(writer, own.mode)
        complete = _WithinTime(run, protocol)
        Loop(
            conditions=[(version.name, batch) for batch in batches for version in versions],
            visit=run.visit,
            rule=Until(
                complete,
                lambda rows: run.between_processes and decided(rows, run.rounds_of_process),
            ),
            begin_round=run.begin_round,
            rows=run.rows,
            label=lambda measured: f"{measured[0]} at batch {measured[1]}",
            report=report,
        ).run()
        for name, writer_of in run.writers.items():
            if run.runs_programs:
                described = run.tell(name, machine.entry)
            else:
                described = {"losses": run.read_losses(name, batches[-1])}
            writer_of.writer.update(rounds=run.rounds, **described)
    return [folder / version.name for version in versions]


def estimate_unprofiled_s(result: Visit) -> float:
    """Seconds that the steps of a visit take without profiled ones."""
    steps = [row["duration_ns"] for row in result.unprofiled]
    mean_ns = float(sum(steps) / len(steps))
    return mean_ns * (len(steps) + result.discarded_steps) / 1e9


def configuration_of_version(
    version: Version, configuration: Configuration | None
) -> Configuration:
    """The step of a version: its program, or the step of all."""
    if version.program is not None:
        how = version.step_range, version.step_line
        program = Program(version.program, *how, step_function=version.step_function)
        return Configuration.of_program(program, BATCH, {})
    if version.configuration is not None:
        return version.configuration
    assert configuration is not None
    return configuration


class _WithinTime(Complete[Measured]):
    """Rounds within the time, of which one that begins with fresh processes takes longer by their
    start.
    """

    def __init__(self, run: _Run, protocol: Protocol) -> None:
        super().__init__(protocol.rounds, protocol.time_limit_s)
        self._run = run

    def next_round(self, look: Look[Measured]) -> Sequence[Measured] | None:
        """All versions and batch sizes; the time of a visit is without the start of its process."""
        if look.round_ == 1:
            self._run.choose_rounds()
        start_s = self._run.start_s if self._run.between_processes else 0.0
        from_start = replace(
            look, elapsed_s=look.elapsed_s + start_s, visit_s=dict(self._run.visit_s)
        )
        return super().next_round(from_start)


class _Run:
    """The processes of a run, and their measurements."""

    def __init__(
        self,
        versions: Sequence[Version],
        configuration: Configuration | None,
        protocol: Protocol,
        start: Callable[..., Any],
    ) -> None:
        self._versions = versions
        self._configuration = configuration
        self._protocol = protocol
        self._start = start
        self.runs_programs = any(version.program is not None for version in versions)
        self.rounds_of_process = 1 if self.runs_programs else ROUNDS_OF_PROCESS
        self._sites: dict[str, Process | Command] = {}
        self._programs: dict[str, Command] = {}
        self.writers: dict[str, VisitWriter] = {}
        self.rounds = 0
        self.start_s = 0.0  # of the last processes, until each had run a step
        self.visit_s: dict[Measured, float] = {}
        self._unprofiled_s: dict[Measured, float] = {}  # of visits of the first round
        # Whether a time limit decides, and not the number of processes.
        self._time_decides = protocol.rounds[0] < self.rounds_of_process

    @property
    def between_processes(self) -> bool:
        """Whether the processes have made their rounds."""
        return self.rounds % self.rounds_of_process == 0

    def choose_rounds(self) -> None:
        """After the first round: give each process as many as let six of each fit the time."""
        limit_s = self._protocol.time_limit_s
        if self.runs_programs or not self._time_decides or limit_s is None:
            return
        round_s = max(sum(self._unprofiled_s.values()), 1e-3)
        fit = int((limit_s / LEAST_PROCESSES - self.start_s) / round_s)
        self.rounds_of_process = max(1, min(ROUNDS_OF_PROCESS, fit))
        for visits in self.writers.values():
            together = visits.writer.meta[TOGETHER]
            visits.writer.update(
                **{TOGETHER: {**together, "rounds_of_process": self.rounds_of_process}}
            )

    def start_processes(self) -> None:
        """Start fresh processes; they load their libraries at the same time, before anything is
        measured.
        """
        self.end()
        self.start_s = 0.0
        for version in self._versions:
            if version.program is not None:
                configuration = configuration_of_version(version, None)
                program = Command.of(configuration, facts=IN_TURN)
                self._sites[version.name] = self._programs.setdefault(version.name, program)
                continue
            child = self._start(
                version.python,
                version.folder,
                dict(version.variables),
                KeptSteps,
                configuration_of_version(version, self._configuration),
            )
            self._sites[version.name] = Process(child)

    def end(self) -> None:
        while self._sites:
            self._sites.popitem()[1].end()

    def begin_round(self) -> None:
        if self.rounds and self.between_processes:
            self.start_processes()
        self.rounds += 1

    def visit(self, measured: Measured, round_: int) -> None:
        name, batch = measured
        process, number = divmod(round_, self.rounds_of_process)
        setup_ns = None
        if number == 0 and name not in self._programs:
            setup_ns = self.time_call(name, "prepare", batch, at=batch)
        # Of few rounds the first is profiled: the last of a process may not come.
        profiles = self.between_processes or (round_ == 0 and self._time_decides)
        slow = self.rounds_of_process < ROUNDS_OF_PROCESS and not self.runs_programs
        profiles = profiles and process < (_PROFILED_SLOW if slow else _PROFILED)
        most = self._protocol.profiled_steps if profiles else 0
        began_s = time.monotonic()
        how = VisitPlan(replace(self._protocol, profiled_steps=most))
        result: Visit = self._refuse_empty(name, self._sites[name].visit(batch, how), at=batch)
        self.visit_s[measured] = time.monotonic() - began_s
        if round_ == 0:
            self._unprofiled_s[measured] = estimate_unprofiled_s(result)
            self._check_files(name)
        self.writers[name].write(batch, round_, replace(result, setup_ns=setup_ns))

    def time_call(self, name: str, method: str, *arguments: Any, at: int | None = None) -> Any:
        """Call a version's process for what belongs to its start."""
        began_s = time.monotonic()
        result = self._call(name, method, *arguments, at=at)
        self.start_s += time.monotonic() - began_s
        return result

    def _call(self, name: str, method: str, *arguments: Any, at: int | None = None) -> Any:
        """Call the process that keeps a version's steps."""
        site = self._sites[name]
        assert isinstance(site, Process)
        return self._refuse_empty(name, site.child.call(method, *arguments), at)

    def read_losses(self, name: str, batch: int) -> list[float | None]:
        """The losses of a version's first steps; empty where its process gives none."""
        site = self._sites[name]
        assert isinstance(site, Process)
        losses = site.child.call("losses", batch)
        return [] if isinstance(losses, Empty) else list(losses)

    def _refuse_empty(self, name: str, result: Any, at: int | None = None) -> Any:
        """The result of a version; an error where there is none."""
        if not isinstance(result, Empty):
            return result
        where = f"--measure {name}" + ("" if at is None else f" at batch {at}")
        version = next(
            version_of_name for version_of_name in self._versions if version_of_name.name == name
        )
        if version.python == sys.executable:
            advice = ""
        else:
            advice = f" {version.python} needs Curvescope's packages and torch."
        raise CurvescopeError(f"{where}: {result.why} ({result.detail}).{advice}")

    def tell(self, name: str, machine: Mapping[str, Any]) -> dict[str, Any]:
        """Entries of `recording.json` that only the runs of a program tell."""
        program = self._programs[name]
        return {**program.machine_entry(machine), **program.closing_entry()}

    def rows(self) -> list[StepRow]:
        """The rows of all versions so far."""
        return [
            {**row, "factor": name} for name, visits in self.writers.items() for row in visits.steps
        ]

    def _check_files(self, name: str) -> None:
        """Refuse a version that imports code of another one, e.g. a package that is installed from
        there.
        """
        if name in self._programs:  # a program may load anything
            return
        roots = {version.name: version.folder for version in self._versions}
        for file in map(Path, self._call(name, "files")):
            if file.is_relative_to(roots[name]):
                continue
            for other, root in roots.items():
                if file.is_relative_to(root):
                    raise CurvescopeError(
                        f"{name} imports {file}, which is of {other}: both would run that code. "
                        "Install each version in an environment of its own and name it, "
                        f"{name}=FOLDER@PYTHON, or uninstall it."
                    )
