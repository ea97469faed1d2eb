"""Faults injected into every command: kills, interrupts, full disks, no memory, clocks that step, broken packages.

`python benchmarks/faults.py` runs all trials and writes docs/faults.md; `--trials 5 --only kill` a part of them, and
writes nothing without `--write`. In every trial a store with recordings stands beside what the command writes, and is
hashed before and after.

A trial is bad where something recorded before was changed or lost; where a traceback was printed; where the command
failed without a message; or where what it left cannot be read.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
PROFILE = ROOT / "tests" / "data" / "profiles" / "kineto_resnet50_w0_a.pt.trace.json.gz"
CLI = [sys.executable, "-m", "curvescope.cli"]
NET = "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(48, 4))\n"
RANGES = "import nvtx, time\nfor n in range(40):\n    with nvtx.annotate(f'step {n}'):\n        time.sleep(0.005)\n"

# What is run in a trial: `store/` holds recordings, what is written goes to `store/new`.
COMMANDS = {
    "record": ["record", "-o", "store/new", "--", sys.executable, "ranges.py"],
    "sweep": ["sweep", "net:build", "--input-shape", "3,4,4", "--batch", "1..4", "--quick", "-o", "store/new"],
    "import": ["import", str(PROFILE), "-o", "store/new"],
    "report": ["report", "store/model", "-o", "store/new.html"],
    "diagnose": ["diagnose", "vgg_a", "--device", "model:gtx1080", "--batch", "1..8", "-o", "store/new"],
    "export": ["export", "store/model", "--parquet", "-o", "store/new"],
    "explain": ["explain", "store/model"],
    "breakdown": ["breakdown", "store/model"],
    "compare": ["compare", "store/model", "store/model"],
    "roofline": ["roofline", "store/model"],
    "runs": ["runs", "store"],
    "table": ["table", "store/model"],
}
CANNOT_INJECT = 77
KILLED = ("record", "sweep", "import", "report")


@dataclass
class Outcome:
    """What one trial came to."""

    code: int | None
    said: str
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Fault:
    """One kind of fault: which commands it is injected into, how often, and how."""

    name: str
    what: str
    commands: tuple[str, ...]
    trials: int
    inject: Callable[[Path, str, random.Random], Outcome]


def run(folder: Path, command: str, *, prepare: Callable[[], None] | None = None, **environment: str) -> Outcome:
    """Run one command to its end and judge it."""
    done = subprocess.run(
        [*CLI, *COMMANDS[command]],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        errors="replace",
        preexec_fn=prepare,
        timeout=120,
    )
    return judged(done.returncode, done.stderr)


def judged(code: int, err: str) -> Outcome:
    """A command that fails has a message that is no traceback."""
    outcome = Outcome(code, err.strip()[-300:])
    if "Traceback (most recent call last)" in err:
        outcome.problems.append("traceback")
    if code not in (0, -signal.SIGKILL) and not err.strip():
        outcome.problems.append("failed without a message")
    return outcome


def signalled(number: signal.Signals) -> Callable[[Path, str, random.Random], Outcome]:
    """Sends a signal at a random moment of the command's life, to its whole group as a terminal does."""

    def inject(folder: Path, command: str, chance: random.Random) -> Outcome:
        process = subprocess.Popen(
            [*CLI, *COMMANDS[command]],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        # Uniform over somewhat more than the life of the command; one that has ended is a trial of no fault.
        time.sleep(chance.random() * 1.1 * life_s(command))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        _, err = process.communicate(timeout=120)
        outcome = judged(process.returncode, err)
        # A Python that is interrupted before it has come to our `main` ends as it always does.
        if process.returncode == -number and number == signal.SIGINT and ", in main" not in err:
            outcome.problems = []
        return outcome

    return inject


_LIFE_S: dict[str, float] = {}


def life_s(command: str) -> float:
    """How long the command runs undisturbed, measured once."""
    if command not in _LIFE_S:
        with trial_folder() as folder:
            began = time.monotonic()
            outcome = run(folder, command)
            assert outcome.code == 0, f"{command} fails undisturbed: {outcome.said}"
            _LIFE_S[command] = time.monotonic() - began
    return _LIFE_S[command]


def full_disk(folder: Path, command: str, chance: random.Random) -> Outcome:
    """No file may grow past a few kilobytes: writes fail as on a full disk, with an errno of their own."""
    limit = chance.choice((0, 100, 1000, 4000))

    def prepare() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return run(folder, command, prepare=prepare)


def on_small_disk(folder: Path, command: str, _: random.Random) -> Outcome:
    """A file system of 16 kB, mounted for this trial alone in a namespace of its own."""
    (folder / "store" / "new").mkdir()
    return in_namespace(folder, command, "mount -t tmpfs -o size=16k none store/new")


def read_only(folder: Path, command: str, _: random.Random) -> Outcome:
    """The store is mounted read-only, in a namespace of its own: permissions do not stop root."""
    return in_namespace(folder, command, "mount --bind store store && mount -o remount,ro,bind store")


def in_namespace(folder: Path, command: str, mount: str) -> Outcome:
    """Run a command where something is mounted that nobody else sees, and that goes with it."""
    script = f'{{ {mount}; }} || {{ echo "cannot mount here" >&2; exit {CANNOT_INJECT}; }}; exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", *CLI, *COMMANDS[command]],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
    )
    outcome = judged(done.returncode, done.stderr)
    if done.returncode == CANNOT_INJECT or done.stderr.startswith("unshare:"):
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
    return run(folder, command, PYTHONPATH=f"{startup}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


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
                "import sys\n\n\nclass Missing:\n    def find_spec(self, name, path=None, target=None):\n"
                f"        if name.partition('.')[0] == {package!r}:\n"
                f"            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)\n\n\n"
                "sys.meta_path.insert(0, Missing())\n"
            )
        return run(folder, command, PYTHONPATH=f"{startup}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    return inject


def together(folder: Path, command: str, _: random.Random) -> Outcome:
    """Ten of the same command at once, which choose names by themselves: each has to get a recording of its own."""
    arguments = [a for a in COMMANDS[command] if a not in ("-o", "store/new")]
    (folder / "runs").symlink_to(folder / "store")
    before = set((folder / "store").iterdir())

    def one(_number: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CLI, *arguments], cwd=folder, capture_output=True, text=True, errors="replace", timeout=400
        )

    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(one, range(10)))
    outcome = Outcome(max(d.returncode for d in done), "")
    for each in done:
        outcome.problems += judged(each.returncode, each.stderr).problems
    made = [path for path in (folder / "store").iterdir() if path not in before]
    if len(made) != 10 or outcome.code != 0:
        outcome.problems.append(f"{len(made)} recordings of 10")
    for path in made:
        shutil.rmtree(path)
    return outcome


_PACKAGES = ("torch", "cupy", "pynvml")
FAULTS = (
    Fault("kill", "SIGKILL at a random moment", KILLED, 200, signalled(signal.SIGKILL)),
    Fault("interrupt", "SIGINT at a random moment", KILLED, 200, signalled(signal.SIGINT)),
    Fault("disk", "no file grows past 0 to 4 kB", tuple(COMMANDS), 4, full_disk),
    Fault("small-disk", "a file system of 16 kB", ("record", "import", "sweep", "diagnose"), 2, on_small_disk),
    Fault("read-only", "the store is read-only", tuple(COMMANDS), 1, read_only),
    Fault("home", "no home folder", tuple(COMMANDS), 1, no_home),
    Fault("memory", "an address space of 0.3 to 4 GB", tuple(COMMANDS), 10, little_memory),
    Fault("clock", "the wall clock jumps by up to a day", tuple(COMMANDS), 1, stepping_clock),
    Fault("missing", "torch, cupy or pynvml missing", tuple(COMMANDS), 4, without(*_PACKAGES, half=False)),
    Fault("half", "the same, half installed", tuple(COMMANDS), 4, without(*_PACKAGES, half=True)),
    Fault("ten", "ten at once in one store", ("record", "import", "diagnose"), 2, together),
)  # fmt: skip
FULL = sum(fault.trials * len(fault.commands) for fault in FAULTS)


@cache
def template() -> Path:
    """A folder with a store of recordings; made once, gone at exit."""
    made = Path(tempfile.mkdtemp(prefix="curvescope-faults-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    (made / "net.py").write_text(NET)
    (made / "ranges.py").write_text(RANGES)
    model = ["diagnose", "vgg_a", "--device", "model:gtx1080", "--batch", "1..4", "-o", "store/model"]
    subprocess.run([*CLI, *model], cwd=made, check=True, capture_output=True)
    return made


@contextmanager
def trial_folder() -> Iterator[Path]:
    """A copy of the template for one trial."""
    with tempfile.TemporaryDirectory(prefix="curvescope-trial-", ignore_cleanup_errors=True) as folder:
        shutil.copytree(template(), folder, dirs_exist_ok=True)
        yield Path(folder)


def hashes(store: Path) -> dict[str, str]:
    """Every file of the store, what the trial writes left out."""
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file() and not path.relative_to(store).parts[0].startswith(("new", ".new"))
    }


def left_behind(store: Path) -> Iterator[str]:
    """Problems of what a command left: a recording has to open, its tables to be read."""
    from curvescope.profiling.errors import CurvescopeError
    from curvescope.profiling.schema import TABLES
    from curvescope.profiling.store import open_recording

    for meta in store.glob("new/**/recording.json"):
        try:
            recording = open_recording(meta.parent)
            for table in TABLES:
                recording.arrow(table)
        except CurvescopeError as error:
            yield f"left unreadable: {error}"
    if (page := store / "new.html").exists() and not page.read_text().rstrip().endswith("</html>"):
        yield "left half a report"


def trial(fault: Fault, command: str, seed: int) -> Outcome:
    """Inject once, and look at the store before and after."""
    with trial_folder() as folder:
        before = hashes(folder / "store")
        try:
            outcome = fault.inject(folder, command, random.Random(f"{fault.name} {command} {seed}"))
        except subprocess.TimeoutExpired:
            outcome = Outcome(None, "", ["did not end"])
        if hashes(folder / "store") != before:
            outcome.problems.append("what was recorded before was changed")
        outcome.problems += left_behind(folder / "store")
    return outcome


def page(results: dict[tuple[str, str], list[Outcome]], what: dict[str, str], minutes: float) -> str:
    """The table of the outcomes."""
    from curvescope.profiling.host import cpu_name

    trials = sum(map(len, results.values()))
    bad = sum(bool(o.problems) for outcomes in results.values() for o in outcomes)
    lines = [
        "# Faults",
        "",
        f"Written by `python benchmarks/faults.py`: {trials} trials in {minutes:.0f} minutes on {os.cpu_count()} cores "
        f"of {cpu_name()}. In each a command runs beside a store of recordings while something fails. The store is "
        "hashed before and after. A trial is *bad* where anything recorded before was changed or lost, a traceback was "
        "printed, a failure had no message, or what was left cannot be read.",
        "",
        f"**{bad} of {trials} trials were bad.**"
        + ("" if trials >= FULL else f" This is a part: all are {FULL} trials."),
        "",
        "| fault | command | trials | done | refused or stopped with a message | killed | bad |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for (fault, command), outcomes in results.items():
        codes = Counter("done" if o.code == 0 else "killed" if (o.code or 0) < 0 else "said" for o in outcomes)
        wrong = [o for o in outcomes if o.problems]
        reasons = "; ".join(f"{n} {problem}" for problem, n in Counter(p for o in wrong for p in o.problems).items())
        lines.append(
            f"| {what[fault]} | {command} | {len(outcomes)} | {codes['done']} | {codes['said']} | {codes['killed']} "
            f"| {len(wrong)}{f': {reasons}' if reasons else ''} |"
        )
    lines += [
        "",
        "*Killed* is also what the kernel or a C++ library does to a process that gets no memory. Not injected here: "
        "a libcupti that fails at each of its calls, which `tests/native/test_cupti_faults.py` does with a test "
        "double.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the trials; exit code 1 where one was bad."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[f.name for f in FAULTS], action="append", help="these faults")
    parser.add_argument("--command", choices=COMMANDS, action="append", help="these commands")
    parser.add_argument("--trials", type=int, help="of each fault and command (default: 200 kills, fewer of others)")
    parser.add_argument("--write", action="store_true", help="write the page from a part of the trials too")
    parser.add_argument("--jobs", type=int, default=2, help="trials at once (default: 2)")
    args = parser.parse_args()
    began = time.monotonic()
    results: dict[tuple[str, str], list[Outcome]] = {}
    for fault in FAULTS:
        for command in fault.commands:
            if (args.only and fault.name not in args.only) or (args.command and command not in args.command):
                continue
            template()  # before several ask for it
            if fault.name in ("kill", "interrupt"):
                life_s(command)
            with ThreadPoolExecutor(args.jobs) as pool:
                seeds = range(args.trials or fault.trials)
                outcomes = list(pool.map(lambda seed, f=fault, c=command: trial(f, c, seed), seeds))
            results[fault.name, command] = outcomes
            bad = [o for o in outcomes if o.problems]
            codes = ", ".join(f"{n} times {code}" for code, n in Counter(o.code for o in outcomes).items())
            print(f"{fault.name:<10} {command:<10} {len(bad)} of {len(outcomes)} bad; exit codes: {codes}", flush=True)
            for outcome in bad[:3]:
                print(f"    {outcome.problems} code {outcome.code}: {outcome.said}", flush=True)
    if args.write or not (args.only or args.command or args.trials):
        PAGE.write_text(page(results, {f.name: f.what for f in FAULTS}, (time.monotonic() - began) / 60))
    return int(any(o.problems for outcomes in results.values() for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
