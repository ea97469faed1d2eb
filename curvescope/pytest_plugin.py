"""A pytest fixture that asserts that a step has no new anomaly.

    def test_my_step(no_new_anomaly):
        no_new_anomaly(make_step, batches=(1, 2, 4, 8))

`make_step(batch)` prepares a step and returns a function that runs it. The sizes may also stand in
a mark of a test, a class or a module: `@pytest.mark.curvescope(batches=(1, 2, 4, 8))`. Defaults for
a project are `batch`, `protocol` and `time-limit` in `[tool.curvescope]` of its pyproject.toml.

A new anomaly fails the test. Where the measurement could not tell, the test is skipped by that
word; else it passes. Accepted anomalies are stored beside the test, in `curvescope_accepted/`;
`pytest --curvescope-accept` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from .base.counted import counted
from .base.torch_runtime import prepare_libraries

if TYPE_CHECKING:
    from .analysis.decompose.statistics import Estimate
    from .analysis.diagnosis.certain import CertainPart
    from .analysis.diagnosis.result import Diagnosis
    from .profiling.measure.protocol import Protocol

ACCEPTED_FOLDER = "curvescope_accepted"
MARK = "curvescope"
BATCHES, PROTOCOL = (1, 2, 4, 8, 16), "quick"
_DEFAULTS = {"batches": BATCHES, "protocol": PROTOCOL}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--curvescope-accept`."""
    parser.getgroup("curvescope").addoption(
        "--curvescope-accept",
        action="store_true",
        help="no_new_anomaly: accept the anomalies found in this run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark, and prepare the libraries before a test imports torch."""
    prepare_libraries()
    config.addinivalue_line(
        "markers", f"{MARK}(batches, protocol): what no_new_anomaly measures, see its call"
    )


@pytest.fixture
def no_new_anomaly(request: pytest.FixtureRequest, tmp_path: Path) -> NoNewAnomaly:
    """Measures a step over batch sizes, and fails the test if its cost curve has a new anomaly.

    It skips the test if the times do not tell.
    """
    name = re.sub(r"[^\w.-]+", "_", request.node.name)
    accepted = request.path.parent / ACCEPTED_FOLDER / f"{request.path.stem}.{name}.json"
    accept = bool(request.config.getoption("--curvescope-accept"))
    project = _read_project(request.config.rootpath)
    return NoNewAnomaly(name, accepted, tmp_path, accept, _read_marks(request.node), project)


def _read_project(root: Path) -> dict[str, Any]:
    """The settings that the project in a folder has in its pyproject.toml."""
    from .base.errors import CurvescopeError
    from .options import check_time_limit
    from .profiling.measure.protocol import get_protocol, parse_batches
    from .project import read_project

    settings: dict[str, Any] = {}
    try:
        project = read_project(root)
        if "batch" in project:
            settings["batches"] = parse_batches(project["batch"])
        if project.keys() & {"protocol", "time-limit"}:
            settings["protocol"] = get_protocol(project.get("protocol", PROTOCOL))
        if "time-limit" in project:
            limit_s = check_time_limit(float(project["time-limit"]))
            settings["protocol"] = replace(settings["protocol"], time_limit_s=limit_s)
    except CurvescopeError as error:
        raise pytest.UsageError(str(error)) from None
    return settings


def _read_marks(node: pytest.Item) -> dict[str, Any]:
    """The settings of the marks of a test; the nearest one counts."""
    settings: dict[str, Any] = {}
    for mark in node.iter_markers(MARK):
        if mark.args or not mark.kwargs.keys() <= {"batches", "protocol"}:
            raise pytest.UsageError(
                f"The mark {MARK} takes batches= and protocol=, e.g. "
                f"@pytest.mark.{MARK}(batches=(1, 2, 4))."
            )
        settings = {**mark.kwargs, **settings}
    return settings


class _New(NamedTuple):
    """An anomaly that is not accepted."""

    size: Estimate  # ms
    line: str | None = None  # of the program, e.g. `model.py:41`; None if unknown

    @property
    def place(self) -> str:
        return f", {self.line}" if self.line else ""


class NoNewAnomaly:
    """Value of the fixture: call it with a step, or pass it a recording."""

    def __init__(
        self,
        name: str,
        accepted: Path,
        folder: Path,
        accept: bool,
        marks: Mapping[str, Any],
        project: Mapping[str, Any],
    ) -> None:
        self._name, self._accepted, self._folder, self._accept = name, accepted, folder, accept
        self._marks, self._project = marks, project
        self._source = ""  # of the settings, in words

    def __call__(
        self,
        make_step: Callable[[int], Callable[[], object]],
        batches: Sequence[int] | None = None,
        protocol: Protocol | str | None = None,
    ) -> None:
        """Measure, and fail if an anomaly is not accepted and a second measurement finds it again.

        A measurement reports a false anomaly in at most 1 of 20 cases. Two in a row report the same
        one more rarely. Work that the shapes of operators count needs no second measurement. The
        test is skipped where the last measurement may hide an anomaly of 10 % of the step or more.

        Args:
            make_step: function of a batch size that returns a function that runs one step and waits
                for the device.
            batches: batch sizes, increasing; at least three. Default: of the test's mark, else of
                pyproject.toml, else 1, 2, 4, 8, 16.
            protocol: name of a protocol or a `Protocol`, whose time limit it has. Default: of the
                mark, else of pyproject.toml, else `quick`.
        """
        from .profiling.measure.protocol import get_protocol
        from .profiling.measure.sweep import sweep_callable

        call: dict[str, Any] = {"batches": batches, "protocol": protocol}
        settings: dict[str, Any] = {
            **self._marks,
            **{name: value for name, value in call.items() if value},
        }
        if defaults := sorted(self._project.keys() - settings.keys()):
            self._source = f" (with the {' and '.join(defaults)} of pyproject.toml)"
        settings = {**_DEFAULTS, **self._project, **settings}
        how = settings["protocol"]
        how = get_protocol(how) if isinstance(how, str) else how
        before: dict[str, _New] | None = None
        for attempt in (1, 2):
            path = self._folder / f"curvescope-{attempt}"
            sweep_callable(self._name, make_step, settings["batches"], how, path)
            diagnosis = _explain(path)
            new = self._new(diagnosis)
            if before is not None:
                new = {label: found for label, found in new.items() if label in before}
            if not new or _list_counted(diagnosis) & new.keys():
                break
            before = new
        self._judge(path, diagnosis, new)

    def recording(self, path: Path) -> None:
        """Check an existing recording, e.g. of `curvescope diagnose`."""
        diagnosis = _explain(path)
        self._judge(path, diagnosis, self._new(diagnosis))

    def _new(self, diagnosis: Diagnosis) -> dict[str, _New]:
        """Anomalies, and layers that are certain, that are not accepted, by label."""
        found = {f"{a.tested.label}, {a.shape}": _New(a.tested_value) for a in diagnosis.anomalies}
        found |= {_label(part): _New(part.value, part.line) for part in diagnosis.certain}
        accepted = self._read_accepted_labels()
        return {label: new for label, new in found.items() if label not in accepted}

    def _read_accepted_labels(self) -> set[str]:
        if self._accept or not self._accepted.exists():
            return set()
        return set(json.loads(self._accepted.read_text()))

    def _judge(self, path: Path, diagnosis: Diagnosis, new: dict[str, _New]) -> None:
        if self._accept:
            self._accepted.parent.mkdir(exist_ok=True)
            sizes = {label: {"ms": found.size.value} for label, found in new.items()}
            self._accepted.write_text(json.dumps(sizes, indent=1) + "\n")
        elif new:
            pytest.fail(self._message(path, new), pytrace=False)
        elif left := self._hidden(diagnosis):
            pytest.skip(
                f"{self._name}{self._source}: could not tell. The noise of the times may hide "
                f'{left}. Measure longer, e.g. protocol="default", or on a quiet machine.'
            )

    def _message(self, path: Path, new: dict[str, _New]) -> str:
        head = f"{counted(len(new), 'new anomaly', 'new anomalies')} in {self._name}"
        lines = [f"{head}{self._source}:"]
        lines += [f"  {label}{found.place}: {_words(found.size)}" for label, found in new.items()]
        lines.append(f"See the diagnosis:     curvescope explain {path}")
        lines.append("Accept the anomalies:  pytest --curvescope-accept")
        return "\n".join(lines)

    def _hidden(self, diagnosis: Diagnosis) -> str:
        """The largest anomaly that the noise may hide, in words; empty if all are ruled out."""
        from .analysis.decompose.findings import hidden

        accepted = {label.split(",")[0] for label in self._read_accepted_labels()}
        left = []
        for most, finding in hidden(diagnosis.curve, diagnosis.findings):
            label = finding.tested.label
            if label not in accepted:
                left.append((most, label))
        if not left:
            return ""
        most, label = max(left)
        return f"{label} of {most:.0%} of the step"


def _explain(path: Path) -> Diagnosis:
    from .analysis.diagnosis.explain import explain
    from .profiling.recording.store import open_recording

    return explain(open_recording(path))


def _list_counted(diagnosis: Diagnosis) -> set[str]:
    """Labels of the layers whose work is counted."""
    return {_label(part) for part in diagnosis.certain if part.from_shapes is not None}


def _label(part: CertainPart) -> str:
    return f"{part.layer} at {part.batch}"


def _words(size: Estimate) -> str:
    return f"{size.value:+.3g} ms ({size.low:.3g} to {size.high:.3g})"
