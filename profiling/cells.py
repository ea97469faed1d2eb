"""A sweep over several networks and settings, each visit in a process of its own.

A visit that runs out of memory, or takes its process down, costs one cell. The plan lies beside the recordings, so that
a sweep that was cut off, however it was, goes on with what is missing. Processes are forked from a server that has
torch loaded and has never used a device.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from . import ceilings
from .clocks import ClockSampler
from .errors import CurvescopeError
from .memory_use import limit_memory
from .networks import Network, from_factory, get_network
from .plan_file import PlanFile
from .protocol import Protocol, doubled
from .store import META_FILE, RecordingWriter, open_recording
from .sweep import Progress, Rounds, StepRow, describe_sweep
from .visit import OUT_OF_MEMORY, Empty, Visit, visit
from .workload import Workload

PLAN_FILE = PlanFile("sweep.json", "sweep", "sweep", 1)
_SAMPLING_S = 0.5
_MOST = 1 << 16  # the largest batch size that a search tries
# Optimizers and the profiler import torch._dynamo, 1.5 s of CPU that every visit would pay. None of these asks for a
# device or starts a thread, which a fork would not survive.
PRELOADED = ("torch", "torch._dynamo", "torch.profiler")


@dataclass(frozen=True)
class Setting:
    """One network in one way to run it: what one recording of a sweep holds.

    Attributes:
        network: a name, or `package.module:function`.
        input_shape: shape of one sample, for a function of the user's; else null.
        sequence_length: tokens of one sample, for networks that read text; null for the published number.
        device: `cpu` or `cuda:N`.
        kind: see `Workload`.
        precision: see `Workload`.
        compiled: see `Workload`.
        memory_limit_bytes: cap of the memory of each visit; null for none.
    """

    network: str
    input_shape: tuple[int, ...] | None = None
    sequence_length: int | None = None
    device: str = "cpu"
    kind: str = "training"
    precision: str = "fp32"
    compiled: bool = False
    memory_limit_bytes: int | None = None

    @property
    def label(self) -> str:
        """Name of its folder."""
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in self.network)
        return "_".join([name, self.kind, self.precision, *(["compiled"] if self.compiled else [])])

    def find_network(self) -> Network:
        """The network it names.

        Raises:
            CurvescopeError: there is none.
        """
        if ":" in self.network:
            return from_factory(self.network, self.input_shape or ())
        return get_network(self.network, self.sequence_length)


@dataclass(frozen=True)
class Plan:
    """What a sweep is to measure.

    Attributes:
        settings: one recording each.
        batches: batch sizes, increasing.
        up_to_largest: go on doubling from the last of `batches` to the largest that fits, which is found by search and
            measured too; without `batches` it alone is measured.
        protocol: how each is measured.
    """

    settings: tuple[Setting, ...]
    batches: tuple[int, ...]
    up_to_largest: bool
    protocol: Protocol


def write_plan(folder: Path, plan: Plan) -> None:
    """Begin a sweep in a new folder.

    Raises:
        CurvescopeError: something is already there, or it cannot be written.
    """
    PLAN_FILE.write(folder, plan)


def read_plan(folder: Path) -> Plan:
    """The plan of a sweep.

    Raises:
        CurvescopeError: there is none in the folder, or it is not to be read.
    """
    return PLAN_FILE.read(folder, _plan_from)


def _plan_from(entry: dict[str, Any]) -> Plan:
    settings = tuple(setting_from(setting) for setting in entry["settings"])
    protocol = protocol_from(entry["protocol"])
    return Plan(**{**entry, "settings": settings, "batches": tuple(entry["batches"]), "protocol": protocol})


def setting_from(entry: Mapping[str, Any]) -> Setting:
    """The setting that a plan holds."""
    shape = entry["input_shape"]
    return Setting(**{**entry, "input_shape": None if shape is None else tuple(shape)})


def protocol_from(entry: Mapping[str, Any]) -> Protocol:
    """The protocol that a plan holds."""
    return Protocol(**{**entry, **{name: tuple(entry[name]) for name in ("rounds", "steps_per_visit")}})


def list_cells(folder: Path) -> list[Path]:
    """Folders of the recordings of a sweep that have begun, in the plan's order."""
    labels = [setting.label for setting in read_plan(folder).settings]
    return [folder / label for label in labels if (folder / label / META_FILE).is_file()]


def run_plan(
    folder: Path,
    plan: Plan,
    report: Callable[[str, Progress], None] = lambda _, __: None,
    precise: Callable[[Sequence[StepRow]], bool] = lambda _: False,
) -> list[tuple[Setting, str]]:
    """Measure all of a plan that `folder` does not have yet.

    Args:
        folder: where the plan lies and the recordings go.
        plan: what to measure.
        report: told after every visit which setting stands where.
        precise: given the steps so far of a setting after every round, whether they are enough.

    Returns:
        Settings that no batch size could be measured of, and why.

    Raises:
        CurvescopeError: a recording cannot be written.
        KeyboardInterrupt: passed on; what is recorded stays, to be gone on with.
    """
    failed = []
    with _Processes() as processes:
        for setting in plan.settings:
            if why := _run_setting(folder / setting.label, setting, plan, processes, report, precise):
                failed.append((setting, why))
    return failed


def _run_setting(
    path: Path,
    setting: Setting,
    plan: Plan,
    processes: _Processes,
    report: Callable[[str, Progress], None],
    precise: Callable[[Sequence[StepRow]], bool],
) -> str | None:
    if (path / META_FILE).is_file():
        if (before := open_recording(path)).complete:
            return _why_nothing(before.meta, before.parts("steps"))
        writer = RecordingWriter.resume(path, "steps")
    else:
        described = processes.ask(_describe, setting.device)
        if isinstance(described, Empty):
            return described.detail
        meta = describe_sweep(setting.network, setting.kind, plan.batches, plan.protocol)
        meta |= {key: value for key, value in asdict(setting).items() if key not in ("network", "kind")}
        # CUDNN_CONV_WSCAP_DBG caps the workspace of cuDNN's convolutions, in MiB.
        meta |= {"device": described, "ceilings": ceilings.entry_for(described)}
        meta |= {"cudnn_workspace_limit_mib": os.environ.get("CUDNN_CONV_WSCAP_DBG")}
        writer = RecordingWriter(path, meta)
    clocks = ClockSampler(setting.device)

    def measure(batch: int, profile: bool) -> Visit | Empty:
        with clocks:
            found = processes.ask(_visit, setting, batch, plan.protocol, profile, while_waiting=clocks.sample)
        assert isinstance(found, (Visit, Empty))
        return found

    def fits(batch: int) -> bool:
        report(setting.label, Progress(0.0, 0.0, f"does batch {batch} fit?"))
        return not isinstance(processes.ask(_try, setting, batch), Empty)

    with writer:
        writer.update(clocks_missing=clocks.missing)
        if plan.up_to_largest and "largest_batch" not in writer.meta:
            first = plan.batches[-1] if plan.batches else 1
            largest, too_large = find_largest(fits, first)
            between = doubled(first, largest) if plan.batches else ()
            batches = sorted({*plan.batches, *between, max(largest, 1)})
            writer.update(largest_batch=largest, smallest_too_large=too_large, batches=batches)
        rounds = Rounds(
            measure,
            clocks,
            writer.meta["batches"],
            plan.protocol,
            writer,
            lambda standing: report(setting.label, standing),
            precise,
        )
        rounds.run()
    return _why_nothing(writer.meta, rounds.steps)


def _why_nothing(meta: Mapping[str, Any], measured: Sequence[object]) -> str | None:
    if measured:
        return None
    first = meta["empty"][0]
    return f"batch {first['batch']}: {first['why']} ({first['detail']})"


def find_largest(fits: Callable[[int], bool], first: int) -> tuple[int, int | None]:
    """The largest batch size that fits, by doubling and then by halving the gap, and the smallest found too large.

    The search ends when the gap is within a 32nd of the size. Where not even `first` fits, smaller sizes are tried;
    0 where none does.
    """
    good, bad = 0, None
    tried = first
    while tried <= _MOST and fits(tried):
        good, tried = tried, tried * 2
    if tried > _MOST:
        return good, None
    bad = tried
    while bad - good > max(1, good // 32):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good, bad


FAILED = "failed"
KILLED = "killed"


class _Processes:
    """Runs functions each in a process of its own."""

    def __init__(self) -> None:
        from .recorders.onednn import prepare_libraries

        prepare_libraries()  # the server takes this process's environment, and loads torch with it
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED, __name__])
        self._running: Any = None

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.join()

    def ask(
        self, function: Callable[..., Any], *arguments: Any, while_waiting: Callable[[], None] = lambda: None
    ) -> Any:
        """What the function returns there, or how it failed or its process ended instead (`Empty`)."""
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_answer, args=(theirs, function, arguments))
        process.start()
        self._running = process  # from here on there is something to kill; before, it ends with the server
        theirs.close()
        answer: Any = None
        while answer is None:
            try:
                if ours.poll(_SAMPLING_S):
                    answer = ours.recv()
                else:
                    while_waiting()
            except EOFError:
                break
        process.join()
        self._running = None
        ours.close()
        if answer is None:
            return _ended(process.exitcode)
        return answer


def _ended(exitcode: int | None) -> Empty:
    """A process that ended without an answer."""
    if exitcode == -signal.SIGKILL:
        return Empty(KILLED, "SIGKILL, which the system sends when memory runs out")
    if exitcode is not None and exitcode < 0:
        return Empty(KILLED, signal.Signals(-exitcode).name)
    return Empty(KILLED, f"its process ended with exit code {exitcode}")


def _answer(connection: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """In the process of its own: run the function and send what it returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the asking process is interrupted, and ends this one
    end_with_parent()
    try:
        answer = function(*arguments)
    except CurvescopeError as error:
        answer = Empty(FAILED, str(error))
    except MemoryError as error:
        answer = Empty(OUT_OF_MEMORY, str(error) or "the system gave no more memory")
    except Exception as error:  # whatever a network raises costs this cell alone
        answer = Empty(FAILED, f"{type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0])
    connection.send(answer)
    connection.close()


def end_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Have the system send this process a signal when its parent ends: a killed run leaves nothing running."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, by)


def _describe(device: str) -> dict[str, Any]:
    from .host import describe_device

    return describe_device(device)


def _visit(setting: Setting, batch: int, protocol: Protocol, profile: bool) -> Visit | Empty:
    workload = _build(setting)
    # Fresh processes pay for more than a change of batch size does: the libraries' kernels, the optimizer's state.
    return visit(workload, batch, replace(protocol, discarded_steps=protocol.discarded_steps + 1), profile)


def _try(setting: Setting, batch: int) -> Visit | Empty:
    # The optimizer's state is there from the second step on.
    once = Protocol("trial", (1, 1), 1, (1, 1), 0.0, 0, None)
    return visit(_build(setting), batch, once, profile=False)


def _build(setting: Setting) -> Workload:
    from .workload import import_torch

    import_torch()
    if setting.memory_limit_bytes is not None:
        limit_memory(setting.device, setting.memory_limit_bytes)
    return Workload(setting.find_network(), setting.device, setting.kind, setting.precision, setting.compiled)
