"""Changes of one line in the user's file, as a patch for `explain --diff FILE`; no file is written.

A change has a place where the file leaves no choice: its only optimizer, its only loader, the
module that its optimizer updates. Without such a place it is named with the reason.
"""

from __future__ import annotations

import ast
import difflib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .analysis.render.terminal import print_prose
from .base.errors import CurvescopeError
from .base.numbers import percent

if TYPE_CHECKING:
    from .profiling.recording.experiments import FactorFacts
    from .profiling.recording.store import Recording

_OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adagrad")  # of torch, that have a fused form
_LOADER_WORKERS = 4
_MOST_BYTES = 1 << 22


class NoPlaceError(Exception):
    """A file has no line, or several, for a change; the message is the reason, as a clause."""


@dataclass(frozen=True)
class Proposal:
    """A change that a recording speaks for."""

    factors: Sequence[str]  # names of the factors that make it, the most telling first
    do: str  # an instruction
    why: str  # what it saved, or may save


def print_patch(recording: Recording, file: Path, facts: Mapping[str, FactorFacts]) -> None:
    """Print a patch of a file; on standard error say what each of its changes saves, and which
    changes have no place in it.

    Raises:
        CurvescopeError: the file cannot be read, or no change has a place in it.
    """
    before = _read(file)
    after, reasons = before, []
    for proposal in _list_proposals(recording, facts):
        try:
            after = apply_change(after, _choose_factor(proposal))
            reasons.append(f"{proposal.do}: {proposal.why}.")
        except NoPlaceError as error:
            reasons.append(f"Not in the patch: {proposal.do} ({error}); {proposal.why}.")
    if after == before:
        what = " ".join(reasons) or "The recording speaks for no change."
        raise CurvescopeError(f"No patch of {file}: {what}")
    for reason in reasons:
        print_prose(f"curvescope: {reason}", stderr=True)
    sys.stdout.writelines(_compare(before, after, file))


def _choose_factor(proposal: Proposal) -> str:
    """The first factor that is a change of one line."""
    for name in proposal.factors:
        if name in EDITS:
            return name
    raise NoPlaceError("it is no change of one line")


def _read(file: Path) -> str:
    try:
        is_large = file.stat().st_size > _MOST_BYTES
        source = "" if is_large else file.read_bytes().decode("utf-8")
        ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        raise CurvescopeError(f"--diff {file}: it is no Python file ({error}).") from None
    if is_large or "\r" in source.replace("\r\n", ""):
        raise CurvescopeError(f"--diff {file}: name a Python file of your program.")
    return source


def _compare(before: str, after: str, file: Path) -> Iterator[str]:
    """The lines of a patch as `git apply` and `patch -p1` read it."""
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
    name = file.as_posix().lstrip("/")
    for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _list_proposals(recording: Recording, facts: Mapping[str, FactorFacts]) -> list[Proposal]:
    """The changes that were measured to help, then those that the profiled steps suggest."""
    from .analysis.diagnosis.explain import explain
    from .analysis.diagnosis.suggested import advise, has_no_curve, suggest_beside
    from .analysis.render.remedies import remedy_table
    from .as_environment import saving_of

    proposals: list[Proposal] = []
    if has_no_curve(recording):
        advice = advise(recording, facts)
    else:
        diagnosis = explain(recording)
        for row in remedy_table(diagnosis.remedies, diagnosis.axis).rows:
            if len(row.factors) == 1:
                proposals.append(Proposal(row.factors, row.do, saving_of(row, diagnosis)))
        beside = suggest_beside(recording, diagnosis, facts)
        if beside is None:
            return proposals
        advice = beside
    measured = {name for proposal in proposals for name in proposal.factors}
    for advised in advice.advised:
        suggestion = advised.suggestion
        if not measured & {*suggestion.factors}:
            most = percent(suggestion.at_most_ms / advice.step.time_ms)
            why = f"suggested, at most {most} of a step"
            proposals.append(Proposal(suggestion.factors, advised.do, why))
    return proposals


def apply_change(source: str, name: str) -> str:
    """A source with one change.

    Raises:
        NoPlaceError: it has no place for the change.
    """
    changed = EDITS[name](source)
    try:
        ast.parse(changed)
    except SyntaxError:
        raise NoPlaceError("the line has a form that is not changed by itself") from None
    return changed


def _fuse_optimizer(source: str) -> str:
    call = _find_call(source, _OPTIMIZERS, "optimizer")
    return _add_argument(source, call, "fused", "True")


def _add_workers(source: str) -> str:
    call = _find_call(source, ("DataLoader",), "DataLoader")
    changed = _add_argument(source, call, "num_workers", str(_LOADER_WORKERS))
    return _add_argument(
        changed, _find_call(changed, ("DataLoader",), "DataLoader"), "persistent_workers", "True"
    )


def _store_channels_last(source: str) -> str:
    return _rebind_module(source, "{name} = {name}.to(memory_format=torch.channels_last)")


def _compile_module(source: str) -> str:
    return _rebind_module(source, "{name} = torch.compile({name})")


def _allow_tf32(source: str) -> str:
    return _add_below_imports(
        source, "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True"
    )


def _search_algorithms(source: str) -> str:
    return _add_below_imports(source, "torch.backends.cudnn.benchmark = True")


# By the name of the factor.
EDITS: Mapping[str, Callable[[str], str]] = {
    "fused_optimizer": _fuse_optimizer,
    "loader_workers": _add_workers,
    "channels_last": _store_channels_last,
    "compiled": _compile_module,
    "tf32": _allow_tf32,
    "cudnn_benchmark": _search_algorithms,
}


def _last_name(node: ast.expr) -> str | None:
    """The last word of a name, e.g. AdamW of torch.optim.AdamW."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _find_call(source: str, names: Sequence[str], what: str) -> ast.Call:
    """The only call of one of these names."""
    calls = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and _last_name(node.func) in names
    ]
    if len(calls) != 1:
        raise NoPlaceError(f"the file makes {len(calls) or 'no'} {what}{'s' * (len(calls) > 1)}")
    return calls[0]


def _add_argument(source: str, call: ast.Call, name: str, value: str) -> str:
    """The source with an argument behind the last one of a call."""
    if any(keyword.arg == name for keyword in call.keywords):
        raise NoPlaceError(f"its line has {name} already")
    last = max(
        [*call.args, *(keyword.value for keyword in call.keywords)],
        key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0),
        default=None,
    )
    if last is None or last.end_lineno is None or last.end_col_offset is None:
        raise NoPlaceError("its call has no argument")
    lines = source.split("\n")
    line = lines[last.end_lineno - 1].encode()
    at = last.end_col_offset  # in bytes
    lines[last.end_lineno - 1] = (line[:at] + f", {name}={value}".encode() + line[at:]).decode()
    return "\n".join(lines)


def _rebind_module(source: str, line: str) -> str:
    """The source with a line behind the one that makes the module that the optimizer updates."""
    tree = ast.parse(source)
    updated = {name for node in ast.walk(tree) if (name := _name_of_parameters(node))}
    if len(updated) != 1:
        raise NoPlaceError("the file has no single module whose parameters are trained")
    (name,) = updated
    made = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and [_plain(target) for target in node.targets] == [name]
    ]
    if len(made) != 1:
        raise NoPlaceError(f"{name} is assigned {len(made)} times")
    _require_torch(tree)
    return _insert(source, made[0], line.format(name=name))


def _name_of_parameters(node: ast.AST) -> str | None:
    """The name in NAME.parameters()."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _plain(node.func.value) if node.func.attr == "parameters" else None
    return None


def _plain(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _add_below_imports(source: str, line: str) -> str:
    tree = ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    _require_torch(tree)
    return _insert(source, imports[-1], line)


def _require_torch(tree: ast.Module) -> None:
    imports = [node for node in tree.body if isinstance(node, ast.Import)]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    if "torch" not in {name.partition(".")[0] for name in names}:
        raise NoPlaceError("the file has no line `import torch`")


def _insert(source: str, behind: ast.stmt, line: str) -> str:
    """The source with a line of its own behind a statement, as far to the right."""
    lines = source.split("\n")
    at = behind.end_lineno or behind.lineno
    indent = lines[behind.lineno - 1][: behind.col_offset]
    rest = lines[at - 1].encode()[behind.end_col_offset or 0 :].decode().strip()
    if indent.strip() or rest[:1] not in ("", "#"):
        raise NoPlaceError("its line holds more than one statement")
    lines.insert(at, f"{indent}{line}" + "\r" * lines[at - 1].endswith("\r"))
    return "\n".join(lines)
