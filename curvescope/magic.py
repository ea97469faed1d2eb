"""The cell magic of notebooks: `%load_ext curvescope`, then `%%curvescope --batch 1..64` above a
cell that defines `make_step`.

The cell's value is the diagnosis that `curvescope.diagnose` returns, with the picture of its curve.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from . import options
from .base.arguments import QUICK_EXPERIMENTS_S, parse_duration
from .base.errors import CurvescopeError
from .parsers import CommandParser, group

if TYPE_CHECKING:
    from .analysis.diagnosis.result import Diagnosis

NAME = "curvescope"
_STEP = "make_step"


class Shell(Protocol):
    """The parts of IPython's shell that the magic uses."""

    user_ns: dict[str, Any]

    def run_cell(self, raw_cell: str) -> Any:
        """Run a cell in the names of the notebook."""

    def register_magic_function(self, func: Any, magic_kind: str, magic_name: str) -> None:
        """Add a magic."""


def register(shell: Shell) -> None:
    """Add the magic to a shell."""

    def measure(line: str, cell: str) -> Diagnosis | None:
        return measure_cell(shell, line, cell)

    measure.__doc__ = _parser().format_help()  # shown by `%%curvescope?`
    shell.register_magic_function(measure, "cell", NAME)


def measure_cell(shell: Shell, line: str, cell: str) -> Diagnosis | None:
    """Run a cell, and diagnose the `make_step` that it defines.

    Returns None where the cell failed, or where the line asks for help; IPython has shown either.

    Raises:
        CurvescopeError: the line has an unknown option, or the cell defines no step; or see
            `curvescope.diagnose`.
    """
    from . import diagnose

    try:
        args = _parser().parse_args(shlex.split(line))
    except SystemExit:
        return None
    axes = options.axes_of(args)
    shell.user_ns.pop(_STEP, None)  # an earlier cell's
    if not shell.run_cell(cell).success:
        return None
    if _STEP not in shell.user_ns:
        raise CurvescopeError(f"The cell defines no {_STEP}(batch), which returns a step.")
    experiments_s = QUICK_EXPERIMENTS_S if args.quick else None
    if args.experiments is not None:
        experiments_s = parse_duration("--experiments", args.experiments)
    diagnosis: Diagnosis = diagnose(
        shell.user_ns[_STEP],
        axes.values,
        device=args.device,
        axis=axes.curve,
        fixed=dict(axes.fixed),
        cuda_graph=args.cuda_graph,
        protocol="quick" if args.quick else "default",
        time_limit_s=args.time_limit,
        experiments_s=experiments_s,
        output=args.output,
        probe=options.probe_share_of(args),
    )
    return diagnosis


def _parser() -> CommandParser:
    parser = _LineParser(f"%%{NAME}", f"Diagnose the {_STEP}(batch) that this cell defines.")
    options.add(parser, "--batch", "--axis", "--cuda-graph", "--device", "--probe")
    options.add(parser, "--experiments", "--output")
    how = group(parser, options.HOW)
    how.add_argument("--quick", action="store_true", help="measure for less time")
    how.add_argument("--time-limit", type=float, metavar="S", help="seconds to measure")
    return parser


class _LineParser(CommandParser):
    """Raises where a command would exit."""

    def error(self, message: str) -> NoReturn:
        raise CurvescopeError(f"{self.prog}: {message}.")
