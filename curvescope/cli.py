"""The command line: dispatches to the commands in `commands` and maps errors to exit codes."""

from __future__ import annotations

import _thread
import atexit
import errno
import gc
import os
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Sequence
from typing import NoReturn

from . import __version__
from .base.endings import end_like_ctrl_c
from .base.errors import CurvescopeError
from .base.escaping import escape_controls
from .parsers import Command, Parser

# Commands by what they are for, in the order of the help.
JOBS = {
    "measure": (
        Command("diagnose", "measure a network over batch sizes and explain its cost curve"),
        Command(
            "sweep", "measure several networks, modes and precisions, each visit in its own process"
        ),
        Command("scale", "scaling over many GPUs: efficiency, stragglers, where lost time goes"),
        Command(
            "bench",
            "benchmark single operators and the device: GEMM, convolution, memory, latency, launch",
        ),
        Command(
            "record", "run a command and record the GPU work and NVTX ranges of all its processes"
        ),
        Command("attach", "sample the functions of a Python program that runs already"),
        Command("step", "run steps of a network in NVTX ranges, for an external profiler"),
    ),
    "explain what was measured": (
        Command("explain", "explain the anomalies of a recording"),
        Command("sizes", "find the sizes to run, and those to capture or pad to, from a curve"),
        Command("breakdown", "time of a step by layer, kernel, phase or operator"),
        Command(
            "compare",
            "compare recordings by layer, kernel or step time, and check for regressions",
        ),
        Command(
            "roofline", "arithmetic intensity and achieved rates under the roofs of the device"
        ),
        Command("report", "write recordings as one HTML page that needs no network"),
        Command("runs", "list recordings"),
    ),
    "find out more about a recording": (
        Command(
            "confirm",
            "test by experiment why the anomalies of a recording are there, on the same machine",
        ),
        Command(
            "counters",
            "measure memory traffic and executed FLOPs of a recording's kernels by hardware "
            "counters",
        ),
    ),
    "work with other tools": (
        Command("import", "turn a profile of another profiler into a recording"),
        Command("export", "write a recording for Perfetto, as CSV or as Parquet"),
        Command(
            "mcp",
            "answer questions of agents about recordings (MCP server on standard input and output)",
        ),
    ),
    "see what is here": (
        Command(
            "doctor", "list what is here, what is missing and how to get it; networks and GPUs"
        ),
    ),
}
# Words that are no command, and what to type instead.
INSTEAD = {
    "apply": "explain RUN --as-env",
    "completion": "doctor --completion bash",
    "devices": "doctor --list devices",
    "energy": "diagnose NETWORK --of energy",
    "memory": "diagnose NETWORK --of memory",
    "model": "diagnose NETWORK --card GPU",
    "networks": "doctor --list networks",
    "ranks": "scale read FOLDERS",
    "recover": "explain RUN",
    "table": "compare --steps RUNS",
}
# What runs a program, e.g. as it reads /proc.
ON_LINUX = {
    command.name for job in ("measure", "find out more about a recording") for command in JOBS[job]
}
COMMANDS = {command.name: command for commands in JOBS.values() for command in commands}
_READ_RANKS = ["scale", "read"]
READING = {"import", "export", *(command.name for command in JOBS["explain what was measured"])}

EXIT_BAD_INPUT = 2
# bytes; OpenBLAS hung below 430 MB in tests, and never above 520 MB
_LEAST_ADDRESS_SPACE = 500_000_000
_NO_THREAD = "can't start new thread"  # Python's message if there is no memory for another stack
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it; after SIGTERM 143, after SIGHUP 129


class _Parser(Parser):
    """Lists every command in the help, but imports only the module of the command that
    is called.
    """

    def format_help(self) -> str:
        width = max(map(len, COMMANDS))
        room = min(shutil.get_terminal_size().columns, 100)

        def line(command: Command) -> str:
            begin = f"  {command.name:<{width}}  "
            return textwrap.fill(begin + command.help, room, subsequent_indent=" " * len(begin))

        return "\n".join(
            [
                "usage: curvescope COMMAND [options]",
                "",
                "Measures training steps over batch sizes and says why some sizes are slow.",
                "",
                *(
                    "\n".join([f"{job}:", *map(line, commands), ""])
                    for job, commands in JOBS.items()
                ),
                "options:",
                "  -h, --help  this text; `curvescope COMMAND --help` for a command's options",
                "  --version   the version",
                "",
                "exit codes:",
                "  0    done",
                "  1    a requested check failed, e.g. `compare --fail-over 5%`",
                "  2    bad input or an unusable machine; the message says what to do",
                "  130  interrupted (143 by SIGTERM, 129 by SIGHUP); recorded data is kept",
                "  `record` passes on the exit code of the command that it ran.",
                "",
                "files:",
                "  runs/                            recordings (default of -o)",
                "  ~/.local/share/curvescope        measured ceilings (or $CURVESCOPE_DATA)",
                "",
                "Start with `curvescope diagnose alexnet --quick`.",
                "",
            ]
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 done, 1 a check failed, 2 bad input, 128 + signal
    that ended it.
    """
    hook = sys.unraisablehook

    def interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
        # The interpreter's own callbacks (weak references, finalizers) swallow an interrupt that
        # arrives inside them.
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            hook(unraisable)
            return
        while True:
            try:
                _thread.start_new_thread(_interrupt_soon, ())
            except (
                KeyboardInterrupt
            ):  # on a busy machine it comes in here already, where it is swallowed too
                continue
            return

    sys.unraisablehook = interrupt_again
    try:
        with end_like_ctrl_c() as signals:
            try:
                return _main(argv)
            except (KeyboardInterrupt, Exception) as error:
                # Native code may turn an interrupt that arrives inside it into an error of its own,
                # as NumPy does.
                if not signals and not isinstance(error, KeyboardInterrupt):
                    raise
                number = signals[0] if signals else signal.SIGINT
                how = f"ended by {signal.Signals(number).name}" if signals else "interrupted"
                print(f"curvescope: {how}", file=sys.stderr)
                return 128 + number
    finally:
        sys.unraisablehook = hook


def exit_with(*arguments: str) -> NoReturn:
    """Run one command as this process's own, and end with its exit code."""
    sys.argv[1:] = arguments
    sys.exit(main())


def _interrupt_soon() -> None:
    time.sleep(0.01)
    _thread.interrupt_main()


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and (instead := INSTEAD.get(arguments[0])):
        said = f"There is no command {arguments[0]}: type `curvescope {instead}`."
        print(_wrap_message(said), file=sys.stderr)
        return EXIT_BAD_INPUT
    front = _Parser(prog="curvescope")
    front.add_argument("--version", action="version", version=f"curvescope {__version__}")
    front.add_argument("command", nargs="?", choices=sorted(COMMANDS), metavar="COMMAND")
    chosen = front.parse_args(arguments[:1])
    if chosen.command is None:
        front.print_help(sys.stderr)
        return EXIT_BAD_INPUT

    if argv is None and (chosen.command in READING or arguments[:2] == _READ_RANKS):
        _read_sooner()
    try:
        _check_address_space()
        parser, run = COMMANDS[chosen.command].build()
        options = parser.parse_args(arguments[1:])
        if arguments[:2] != _READ_RANKS and not getattr(options, "card", None):
            _refuse_elsewhere(chosen.command)
        return run(options)
    except CurvescopeError as error:
        print(_wrap_message(escape_controls(str(error))), file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        # The reader of the output has exited (`curvescope runs | head`). Silence the interpreter's
        # own flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ImportError, MemoryError, OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and str(error) != _NO_THREAD:
            raise
        print(
            _wrap_message(f"{escape_controls(_refusal(error))} Existing recordings are unchanged."),
            file=sys.stderr,
        )
        return EXIT_BAD_INPUT


def _read_sooner() -> None:
    """Spare a process that only reads what takes a quarter of the time of a command on a small
    recording.
    """
    from .profiling.hardware import heap

    # numpy's threads wait in a loop for the work of matrices
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Arrow's own keeps much of what was freed, by thread
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if sys.platform == "linux" and heap.can_change():
        # or large arrays get new pages each time, a twentieth of the time for a million kernels
        heap.keep_all_memory()
    gc.disable()
    atexit.register(gc.freeze)  # or Python looks for cycles among all objects once more as it ends


def _wrap_message(message: str) -> str:
    """A message for standard error, whose lines wrap between words where that is a terminal."""
    lines = f"curvescope: {message}".split("\n")
    if sys.stderr.isatty():
        room = min(shutil.get_terminal_size().columns, 100)
        lines = [
            textwrap.fill(line, room, break_long_words=False, break_on_hyphens=False)
            for line in lines
        ]
    return "\n".join(lines)


def _refuse_elsewhere(command: str) -> None:
    """Refuse what needs Linux on another system."""
    if command in ON_LINUX and sys.platform != "linux":
        raise CurvescopeError(
            f"`curvescope {command}` runs on Linux only. Here recordings and profiles can be read: "
            "`import`, `explain`, `breakdown`, `compare`, `roofline`, `scale read`, `report` and "
            "`export`."
        )


def _check_address_space() -> None:
    """Refuse a small address space limit: OpenBLAS (in numpy and scipy) hangs if it gets no memory
    at load.
    """
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESS_SPACE:
        raise MemoryError


def _refusal(error: ImportError | MemoryError | OSError | RuntimeError) -> str:
    """Message and remedy for OS-level failures that no command handles."""
    if isinstance(error, ImportError):
        package = (error.name or "A package").partition(".")[0]
        return (
            f"{package} cannot be imported ({error}); reinstall it in this Python: "
            f"{sys.executable}."
        )
    if isinstance(error, (MemoryError, RuntimeError)) or error.errno == errno.ENOMEM:
        return "Out of memory: end other programs, or raise the limit of this one (`ulimit -v`)."
    return f"A file operation failed ({error}): free space there, or choose another folder."


if __name__ == "__main__":
    sys.exit(main())
