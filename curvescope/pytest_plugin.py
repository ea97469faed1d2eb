"""A pytest fixture that asserts that a step has no new anomaly.

    def test_my_step(no_new_anomaly):
        no_new_anomaly(make_step, batches=(1, 2, 4, 8))

`make_step(batch)` prepares a step and returns a function that runs it. Accepted anomalies are
stored beside the test, in `curvescope_accepted/`; `pytest --curvescope-accept` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .base.counted import counted

if TYPE_CHECKING:
    from .analysis.decompose.findings import Finding
    from .profiling.measure.protocol import Protocol

ACCEPTED_FOLDER = "curvescope_accepted"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--curvescope-accept`."""
    parser.getgroup("curvescope").addoption(
        "--curvescope-accept",
        action="store_true",
        help="no_new_anomaly: accept the anomalies found in this run",
    )


@pytest.fixture
def no_new_anomaly(request: pytest.FixtureRequest, tmp_path: Path) -> NoNewAnomaly:
    """Measures a step over batch sizes, and fails the test if its cost curve has an anomaly that is
    not accepted.
    """
    name = re.sub(r"[^\w.-]+", "_", request.node.name)
    accepted = request.path.parent / ACCEPTED_FOLDER / f"{request.path.stem}.{name}.json"
    return NoNewAnomaly(
        name, accepted, tmp_path, bool(request.config.getoption("--curvescope-accept"))
    )


class NoNewAnomaly:
    """Value of the fixture: call it with a step, or pass it a recording."""

    def __init__(self, name: str, accepted: Path, folder: Path, accept: bool) -> None:
        self._name, self._accepted, self._folder, self._accept = name, accepted, folder, accept

    def __call__(
        self,
        make_step: Callable[[int], Callable[[], object]],
        batches: Sequence[int] = (1, 2, 4, 8, 16),
        protocol: Protocol | str = "quick",
    ) -> None:
        """Measure, and fail if an anomaly is not accepted and a second measurement finds it again.

        A measurement reports a false anomaly in at most 1 of 20 cases; two in a row report the same
        one more rarely.

        Args:
            make_step: function of a batch size that returns a function that runs one step and waits
                for the device.
            batches: batch sizes, increasing; at least three.
            protocol: name of a protocol or a `Protocol`, whose time limit it has.
        """
        from .profiling.measure.protocol import get_protocol
        from .profiling.measure.sweep import sweep_callable

        how = get_protocol(protocol) if isinstance(protocol, str) else protocol
        findings: dict[str, Finding] = {}
        for attempt in (1, 2):
            path = self._folder / f"curvescope-{attempt}"
            sweep_callable(self._name, make_step, batches, how, path)
            again = self._new(path)
            findings = (
                again
                if attempt == 1
                else {label: again[label] for label in findings if label in again}
            )
            if not findings:
                break
        self._judge(path, findings)

    def recording(self, path: Path) -> None:
        """Check an existing recording, e.g. of `curvescope diagnose`."""
        self._judge(path, self._new(path))

    def _new(self, path: Path) -> dict[str, Finding]:
        """Anomalies of a recording that are not accepted, by label."""
        from . import explain, open_recording

        reasons = (
            json.loads(self._accepted.read_text())
            if self._accepted.exists() and not self._accept
            else {}
        )
        anomalies = explain(open_recording(path)).anomalies
        return {
            label: a for a in anomalies if (label := f"{a.tested.label}, {a.shape}") not in reasons
        }

    def _judge(self, path: Path, new: dict[str, Finding]) -> None:
        if self._accept:
            self._accepted.parent.mkdir(exist_ok=True)
            sizes = {label: {"ms": finding.tested_value.value} for label, finding in new.items()}
            self._accepted.write_text(json.dumps(sizes, indent=1) + "\n")
        elif new:
            lines = [f"{label}: {_size(finding)}" for label, finding in new.items()]
            pytest.fail(
                "\n".join(
                    [
                        f"{counted(len(new), 'new anomaly', 'new anomalies')} in {self._name}:",
                        *(f"  {line}" for line in lines),
                        f"See the diagnosis:     curvescope explain {path}",
                        "Accept the anomalies:  pytest --curvescope-accept",
                    ]
                ),
                pytrace=False,
            )


def _size(finding: Finding) -> str:
    value = finding.tested_value
    return (
        f"{value.value:+.3g} ms ({value.low:.3g} to {value.high:.3g}), adjusted p "
        f"{finding.p_adjusted:.2g}"
    )
