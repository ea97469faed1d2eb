"""Faults injected into every command: kills, signals, full disks, no memory, clocks that step,
broken packages.

`python benchmarks/faults.py --minutes 30` runs trials for half an hour and keeps their table, see
`evidence`: one of each fault and command first, then another of each. `--only kill --command record`
runs a part of them, and keeps nothing without `--write`. Each outcome is a line of
build/faults.jsonl as soon as it is known: run again, it goes on with what is missing there; delete
the file after a change of the code.

A trial is bad if

- what was recorded before the fault is not there by number, or other data changed, by hashes;
- the command printed a traceback, or failed without a message;
- the exit code after a signal is another than 128 plus its number;
- the remaining data cannot be read, or half a report is left;
- a process was left, or the command did not end within 300 s.

Signals come at a random moment of the command's work: to all its processes one after the other, as
Slurm sends them, or to the command alone, as Kubernetes does. What was recorded counts after
`recover`: for `record` the ranges that the program had ended (after a kill of all processes, half a
second before or earlier), for the others the steps on the disk. Failures of libcupti's calls are
injected by tests/native/test_cupti_faults.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import evidence
from faulted_commands import CHANGES, CLI, COMMANDS, ROOT, ranges_done, template, trial_folder
from warm_commands import Started

KEPT = ROOT / "build" / "faults.jsonl"
HUNG_S = 300  # far more than any command takes on a busy machine
CANNOT_INJECT = 77


@dataclass
class Outcome:
    """What one trial came to."""

    code: int | None
    said: str
    problems: list[str] = field(default_factory=list)
    # what was recorded when the fault came, by number; None if nothing is counted
    before: int | None = None
    after: int | None = None  # how much of it is there
    killed_ns: int | None = None  # when all processes were killed


@dataclass(frozen=True)
class Fault:
    """One kind of fault: which commands it is injected into, how often, and how."""

    name: str
    what: str
    commands: tuple[str, ...]
    trials: int
    inject: Callable[[Path, str, random.Random], Outcome]


def ended(
    arguments: list[str],
    folder: Path,
    *,
    environment: dict[str, str] | None = None,
    prepare: Callable[[], None] | None = None,
    given: str = "",
    hung_s: float = HUNG_S,
) -> Outcome:
    """Run a command in a process group of its own to its end, judged; one that hangs is made to say
    where.
    """
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        # Python then says where all its threads are when it gets SIGABRT.
        env={**os.environ, "PYTHONFAULTHANDLER": "1", **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        preexec_fn=prepare,
        start_new_session=True,
    )
    try:
        _, err = process.communicate(given, timeout=hung_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        _, err = process.communicate()
        return Outcome(None, err.strip()[-8000:], ["hung"])
    return judged(process.returncode, err)


def run(
    folder: Path, command: str, *, prepare: Callable[[], None] | None = None, **environment: str
) -> Outcome:
    tried = COMMANDS[command]
    return ended(
        [*CLI, *tried.arguments],
        folder,
        environment=environment,
        prepare=prepare,
        given=tried.given,
    )


def judged(code: int, err: str) -> Outcome:
    """A command that fails has a message that is no traceback."""
    outcome = Outcome(code, err.strip()[-300:] if code == 0 else err.strip()[-3000:])
    if "Traceback (most recent call last)" in err:
        outcome.problems.append("traceback")
    if code not in (0, -signal.SIGKILL) and not err.strip():
        outcome.problems.append("failed without a message")
    return outcome


def signalled(
    number: signal.Signals, *, alone: bool = False
) -> Callable[[Path, str, random.Random], Outcome]:
    """Sends a signal at a random moment of the command's work: to all its processes, as Slurm does,
    or to it alone.
    """

    def inject(folder: Path, command: str, chance: random.Random) -> Outcome:
        tried = COMMANDS[command]
        # Uniform over somewhat more than the life of the command; one that has ended is a trial of
        # no fault.
        after_s = chance.random() * 1.1 * life_s(command)
        started = Started(tried.arguments, folder)
        time.sleep(after_s)
        before = (
            None if tried.unit is None else tried.count(folder) if tried.unit != "ranges" else 0
        )
        started.send(number, alone=alone)
        killed_ns = time.monotonic_ns()
        outcome = finished(started)
        outcome.before = before
        if number == signal.SIGKILL and not alone and outcome.code == -number:
            outcome.killed_ns = killed_ns
        wanted = {0, 128 + number, -number if number == signal.SIGKILL else 0}
        if outcome.code not in (*wanted, None):
            outcome.problems.append(f"exit code {outcome.code}, not {128 + number}")
        return outcome

    return inject


def finished(started: Started) -> Outcome:
    """Wait for the end of a command and of all that it started, judged."""
    code = started.wait(HUNG_S)
    if code is None:
        started.send(signal.SIGABRT)
        started.wait(10)
        started.send(signal.SIGKILL)
        return Outcome(None, started.said().strip()[-8000:], ["hung"])
    if not started.wait_for_all(60):
        started.send(signal.SIGKILL)
        return Outcome(code, started.said().strip()[-8000:], ["left a process"])
    return judged(code, started.said())


_LIVES: dict[str, tuple[float, int]] = {}  # seconds, and how many trials have used it
_TRIALS_OF_A_LIFE = 20


def life_s(command: str) -> float:
    """How long the command runs undisturbed; measured anew every so many trials, as the machine's
    load changes.
    """
    life, used = _LIVES.get(command, (0.0, _TRIALS_OF_A_LIFE))
    if used >= _TRIALS_OF_A_LIFE:
        with trial_folder() as folder:
            began = time.monotonic()
            outcome = finished(Started(COMMANDS[command].arguments, folder))
            assert outcome.code == 0, f"{command} fails undisturbed: {outcome.said}"
            life, used = time.monotonic() - began, 0
    _LIVES[command] = (life, used + 1)
    return life


def full_disk(folder: Path, command: str, chance: random.Random) -> Outcome:
    """No file may grow past a few kilobytes: writes fail as on a full disk, with an errno of their
    own.
    """
    limit = chance.choice((0, 100, 1000, 4000))

    def prepare() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return run(folder, command, prepare=prepare)


def on_small_disk(folder: Path, command: str, _: random.Random) -> Outcome:
    """A file system of 16 kB, mounted for this trial alone in a namespace of its own; what is on it
    is copied out.
    """
    new, seen = folder / "store" / "new", folder / "seen"
    new.mkdir()
    outcome = in_namespace(
        folder, command, "mount -t tmpfs -o size=16k none store/new", then="cp -r store/new seen"
    )
    if seen.exists():
        new.rmdir()
        seen.rename(new)
    return outcome


def read_only(folder: Path, command: str, _: random.Random) -> Outcome:
    """The store is mounted read-only, in a namespace of its own: permissions do not stop root."""
    return in_namespace(
        folder, command, "mount --bind store store && mount -o remount,ro,bind store"
    )


def in_namespace(folder: Path, command: str, mount: str, then: str = "true") -> Outcome:
    """Run a command, `then` another, where something is mounted that nobody else sees, and that
    goes with them.
    """
    script = f'{{ {mount}; }} || {{ echo "cannot mount here" >&2; exit {CANNOT_INJECT}; }}; '
    script += f'"$@"; code=$?; {then}; exit $code'
    outcome = ended(
        [
            "unshare",
            "--mount",
            "--map-root-user",
            "sh",
            "-c",
            script,
            "sh",
            *CLI,
            *COMMANDS[command].arguments,
        ],
        folder,
        given=COMMANDS[command].given,
    )
    if outcome.code == CANNOT_INJECT or outcome.said.startswith("unshare:"):
        outcome.problems.append("could not be injected on this machine")
    return outcome


def no_home(folder: Path, command: str, _: random.Random) -> Outcome:
    """HOME is a file: nothing can be read or made under it."""
    home = folder / "home"
    home.write_text("")
    return run(folder, command, HOME=str(home), XDG_DATA_HOME=str(home), XDG_CACHE_HOME=str(home))


def little_memory(folder: Path, command: str, chance: random.Random) -> Outcome:
    """An address space that is too small somewhere between start and end."""
    limit = round(chance.uniform(0.3e9, 4e9))

    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return run(folder, command, prepare=prepare, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")


def stepping_clock(folder: Path, command: str, _: random.Random) -> Outcome:
    """The wall clock jumps by up to a day at every look, forwards and back."""
    startup = folder / "startup"
    startup.mkdir()
    (startup / "sitecustomize.py").write_text(
        "import random, time\n_now, _now_ns = time.time, time.time_ns\n"
        "time.time = lambda: _now() + random.uniform(-86400, 86400)\n"
        "time.time_ns = lambda: _now_ns() + random.randrange(-86400 * 10**9, 86400 * 10**9)\n"
    )
    return run(
        folder, command, PYTHONPATH=f"{startup}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    )


def without(*packages: str, half: bool) -> Callable[[Path, str, random.Random], Outcome]:
    """A package that is not installed, or one that fails while it is imported."""

    def inject(folder: Path, command: str, chance: random.Random) -> Outcome:
        package = chance.choice(packages)
        startup = folder / "startup"
        startup.mkdir()
        if half:
            (startup / package).mkdir()
            (startup / package / "__init__.py").write_text("from ._C import gone\n")
        else:
            (startup / "sitecustomize.py").write_text(
                "import sys\n\n\nclass Missing:\n    def find_spec(self, name, path=None, "
                "target=None):\n"
                f"        if name.partition('.')[0] == {package!r}:\n"
                "            raise ModuleNotFoundError(f'No module named {name!r}', "
                "name=name)\n\n\n"
                "sys.meta_path.insert(0, Missing())\n"
            )
        return run(
            folder, command, PYTHONPATH=f"{startup}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        )

    return inject


def together(folder: Path, command: str, _: random.Random) -> Outcome:
    """Ten of the same command at once, which choose names by themselves: each has to get a
    recording of its own.
    """
    arguments = [word for word in COMMANDS[command].arguments if word not in ("-o", "store/new")]
    (folder / "runs").symlink_to(folder / "store")
    before = set((folder / "store").iterdir())

    with ThreadPoolExecutor(10) as pool:
        done = list(
            pool.map(lambda _: ended([*CLI, *arguments], folder, hung_s=2 * HUNG_S), range(10))
        )
    failed = [each for each in done if each.code != 0]
    outcome = Outcome(failed[0].code if failed else 0, failed[0].said if failed else "")
    for each in done:
        outcome.problems += each.problems
    made = [path for path in (folder / "store").iterdir() if path not in before]
    if len(made) != 10 or outcome.code != 0:
        outcome.problems.append(f"{len(made)} recordings of 10")
    for path in made:
        shutil.rmtree(path)
    return outcome


_PACKAGES = ("torch", "cupy", "pynvml")
_WRITING = ("record", "explain cut", "diagnose", "confirm", "sweep", "bench", "import", "report")
_ALL = tuple(COMMANDS)
_ASKED = (
    *("record", "diagnose", "confirm", "sweep", "scale measure", "bench", "diagnose --of memory"),
    "import",
)
FAULTS = (
    Fault("kill", "SIGKILL to all processes", (*_WRITING, "scale measure", "diagnose --of memory"),
          100, signalled(signal.SIGKILL)),
    Fault("kill-alone", "SIGKILL to the command alone", ("record", "explain cut", "diagnose", "sweep"), 50,
          signalled(signal.SIGKILL, alone=True)),
    Fault("term", "SIGTERM to all processes", _ASKED, 50, signalled(signal.SIGTERM)),
    Fault("term-alone", "SIGTERM to the command alone", ("record", "diagnose"), 50,
          signalled(signal.SIGTERM, alone=True)),
    Fault("hup", "SIGHUP to all processes", ("record", "diagnose", "sweep"), 50, signalled(signal.SIGHUP)),
    Fault("interrupt", "SIGINT to all processes", _ASKED, 50, signalled(signal.SIGINT)),
    Fault("disk", "no file grows past 0 to 4 kB", _ALL, 4, full_disk),
    Fault("small-disk", "a file system of 16 kB", ("record", "import", "sweep", "diagnose", "diagnose --card"), 2,
          on_small_disk),
    Fault("read-only", "the store is read-only", _ALL, 1, read_only),
    Fault("home", "no home folder", _ALL, 1, no_home),
    Fault("memory", "an address space of 0.3 to 4 GB", _ALL, 10, little_memory),
    Fault("clock", "the wall clock jumps by up to a day", _ALL, 1, stepping_clock),
    Fault("missing", "torch, cupy or pynvml missing", _ALL, 4, without(*_PACKAGES, half=False)),
    Fault("half", "the same, half installed", _ALL, 4, without(*_PACKAGES, half=True)),
    Fault("ten", "ten at once in one store", ("record", "import", "diagnose --card"), 2, together),
)  # fmt: skip
SIGNALS = ("kill", "kill-alone", "term", "term-alone", "hup", "interrupt")
FULL = sum(fault.trials * len(fault.commands) for fault in FAULTS)


def hashes(store: Path, command: str) -> dict[str, str]:
    """Every file of the store, but for those that the command may write."""
    written = (
        "new",
        ".new",
        *({"explain cut": ("cut",), "confirm": ("measured",)}.get(command, ())),
    )
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file() and not path.relative_to(store).parts[0].startswith(written)
    }


def left_behind(store: Path) -> Iterator[str]:
    """Problems of what a command left: a recording has to open, its tables to be read."""
    from curvescope.base.errors import CurvescopeError
    from curvescope.profiling.recording.schema import TABLES
    from curvescope.profiling.recording.store import open_recording

    for meta in store.glob("**/recording.json"):
        try:
            recording = open_recording(meta.parent)
            for table in TABLES:
                recording.arrow(table)
        except CurvescopeError as error:
            yield f"left unreadable: {error}"
    if (page := store / "new.html").exists() and not page.read_text().rstrip().endswith("</html>"):
        yield "left half a report"


def trial(fault: Fault, command: str, seed: int) -> Outcome:
    """Inject once, and look at the store before and after; what was recorded before has to be
    there, by number.
    """
    tried = COMMANDS[command]
    with trial_folder() as folder:
        before = hashes(folder / "store", command)
        there = tried.count(folder) if command in CHANGES and tried.unit != "ranges" else 0
        outcome = fault.inject(folder, command, random.Random(f"{fault.name} {command} {seed}"))
        if hashes(folder / "store", command) != before:
            outcome.problems.append("what was recorded before was changed")
        if (
            tried.unit is not None
            and "could not be injected on this machine" not in outcome.problems
        ):
            _count(outcome, command, folder, there)
        outcome.problems += left_behind(folder / "store")
    return outcome


def _count(outcome: Outcome, command: str, folder: Path, there: int) -> None:
    tried = COMMANDS[command]
    if command == "record":
        outcome.before = ranges_done(folder, outcome.killed_ns)
        if not (folder / "store" / "new").exists():
            outcome.before = None  # nothing was run
    elif command == "explain cut":
        outcome.before = cut_ranges()
    else:
        outcome.before = max(outcome.before or 0, there)
    if outcome.before is not None:
        outcome.after = tried.count(folder)
        if outcome.after < outcome.before:
            outcome.problems.append(
                f"{outcome.before - outcome.after} of {outcome.before} {tried.unit} are gone"
            )


@cache
def cut_ranges() -> int:
    """Ranges that have ended in the template's cut recording, by its files."""
    from curvescope.profiling.collect.chunks import POP, read_chunks

    chunks = [
        read_chunks(path) for path in (template() / "store" / "cut" / "chunks").glob("*.chunks")
    ]
    return sum(
        int((events["kind"] == POP).sum()) for one in chunks for events in one.threads.values()
    )


HEAD = (
    "fault",
    "command",
    "trials",
    "done",
    "refused or stopped with a message",
    "killed",
    "there",
    "bad",
)


def rows(results: dict[tuple[str, str], list[Outcome]]) -> list[list[str]]:
    """A row for each fault and command."""
    what = {fault.name: fault.what for fault in FAULTS}
    return [
        [what[fault], command, *_cells(outcomes, command)]
        for (fault, command), outcomes in results.items()
    ]


def _cells(outcomes: list[Outcome], command: str) -> list[str]:
    codes = Counter(
        "done" if o.code == 0 else "killed" if (o.code or 0) < 0 else "said" for o in outcomes
    )
    wrong = [o for o in outcomes if o.problems]
    reasons = "; ".join(
        f"{n} {problem}" for problem, n in Counter(p for o in wrong for p in o.problems).items()
    )
    bad = f"{len(wrong)}: {reasons}" if reasons else str(len(wrong))
    counted = [o for o in outcomes if o.before]
    kept = sum(min(o.before or 0, o.after or 0) for o in counted)
    before = sum(o.before or 0 for o in counted)
    there = f"{kept:,} of {before:,} {COMMANDS[command].unit}" if counted else ""
    numbers = (len(outcomes), codes["done"], codes["said"], codes["killed"])
    return [*map(str, numbers), there, bad]


def figures(table: evidence.Table) -> list[str]:
    """What the kept table says, as three sentences."""
    trials = list(map(int, table.column("trials")))
    bad = sum(int(cell.partition(":")[0]) for cell in table.column("bad"))
    signals = {fault.what for fault in FAULTS if fault.name in SIGNALS}
    sent = zip(trials, table.column("fault"), strict=True)
    part = "" if sum(trials) >= FULL else f" This run is a part: all are {FULL} trials."
    return [
        f"**{bad} of {sum(trials)}** trials were bad.{part}",
        f"**{sum(count for count, fault in sent if fault in signals)}** of them were kills and "
        "other signals at a random moment.",
        f"**{len(set(table.column('command')))}** commands were tried, with "
        f"**{len(set(table.column('fault')))}** kinds of fault.",
    ]


def planned(
    only: list[str] | None, commands: list[str] | None, trials: int | None
) -> list[tuple[Fault, str, int]]:
    """Every trial: the first of each fault and command, then the second of each, so that a part is
    a part of each.
    """
    rounds = [
        (seed, place, fault, command)
        for place, fault in enumerate(FAULTS)
        for command in fault.commands
        for seed in range(trials or fault.trials)
        if (not only or fault.name in only) and (not commands or command in commands)
    ]
    rounds.sort(key=lambda one: one[:2])
    return [(fault, command, seed) for seed, _, fault, command in rounds]


Key = tuple[str, str, int]


def read_kept() -> dict[Key, Outcome]:
    """Outcomes of trials that were run, by fault, command and seed."""
    kept: dict[Key, Outcome] = {}
    if KEPT.exists():
        for line in KEPT.read_text().splitlines():
            entry = json.loads(line)
            kept[entry["fault"], entry["command"], entry["seed"]] = Outcome(**entry["outcome"])
    return kept


def keep(fault: Fault, command: str, seed: int) -> None:
    began = time.monotonic()
    outcome = trial(fault, command, seed)
    entry = {
        "fault": fault.name,
        "command": command,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 2),
    }
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a") as file:
        file.write(json.dumps({**entry, "outcome": asdict(outcome)}) + "\n")
    if outcome.problems:
        print(
            f"{fault.name} {command} {seed}: {outcome.problems}, code "
            f"{outcome.code}\n{outcome.said}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", choices=[f.name for f in FAULTS], action="append", help="these faults"
    )
    parser.add_argument("--command", choices=COMMANDS, action="append", help="these commands")
    parser.add_argument(
        "--trials", type=int, help="of each fault and command (default: 100 kills, fewer of others)"
    )
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="begin no trial after this time (default: 60)"
    )
    parser.add_argument(
        "--write", action="store_true", help="keep the table of a part of the trials too"
    )
    args = parser.parse_args()
    plan = planned(args.only, args.command, args.trials)
    kept = read_kept()
    missing = [(f, c, s) for f, c, s in plan if (f.name, c, s) not in kept]
    print(f"{len(plan)} trials, {len(missing)} of them to be run", flush=True)
    # threads that wait for each other take most of the time on a busy machine
    os.environ["OMP_NUM_THREADS"] = "1"
    os.chdir(template())  # the checkout would be imported from, where it is the working folder
    with trial_folder() as folder:
        # the server of warm commands is no part of any life
        finished(Started(COMMANDS["runs"].arguments, folder))
    began_s = time.monotonic()
    for number, one in enumerate(missing, 1):
        if time.monotonic() - began_s > 60 * args.minutes:
            break
        keep(*one)
        if number % 25 == 0:
            print(f"{number} of {len(missing)} run", flush=True)
    kept = read_kept()
    results: dict[tuple[str, str], list[Outcome]] = {}
    for fault, command, seed in sorted(
        plan, key=lambda one: (FAULTS.index(one[0]), list(COMMANDS).index(one[1]))
    ):
        if outcome := kept.get((fault.name, command, seed)):
            results.setdefault((fault.name, command), []).append(outcome)
    print(*evidence.markdown(HEAD, rows(results)), sep="\n")
    if args.write or not (args.only or args.command or args.trials):
        evidence.keep("faults", HEAD, rows(results))
        print(*figures(evidence.read_tables()["faults"]), sep="\n")
    return int(any(o.problems for outcomes in results.values() for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
