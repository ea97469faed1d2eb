"""Roof change in the precision that was computed in: the same work lies on different sides of two ridges."""

from __future__ import annotations

import dataclasses

import pytest

from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.diagnosis.split import diagnose, explain
from curvescope.profiling.hardware.limits import hardware_of

from ..synthetic import times_of
from .planted_causes import planted


@pytest.mark.parametrize(("precision", "ridge"), [("fp32", 15.7e12 / 900e9), ("fp16", 125.3e12 / 900e9)])
def test_the_ridge_is_that_of_the_recordings_precision(precision, ridge):
    """55 FLOP/B fall to 6.9: past a V100's ridge of 17 in fp32, below its 139 in fp16 at both sizes."""
    steps, kernels, recorded = planted("roof change", 1)
    v100 = hardware_of({"device": {"name": "Tesla V100-SXM2-16GB", "kind": "cuda"}, "precision": precision})
    assert v100.roof("compute").per_s / v100.roof("DRAM").per_s == pytest.approx(ridge, rel=0.01)
    recorded = dataclasses.replace(recorded, hardware=v100)
    found = diagnose(steps, times_of(steps, kernels), recorded=recorded)
    split = explain(excess(8, 16), found.curve, found.terms, found.kernel_times, recorded)
    named = {claim.cause for cause in split.attribution.causes for term in cause.terms for claim in term.rivals}
    named |= {cause.cause for cause in split.attribution.causes}
    assert ("roof change" in named) == (precision == "fp32")
