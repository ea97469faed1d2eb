"""Experiments and operator arguments survive their way through a recording."""

from __future__ import annotations

import json

import pytest

from curvescope.profiling.recording.experiments import Experiment, Scope, Stage, experiments_of
from curvescope.profiling.recording.operators import (
    TensorArgument,
    TensorList,
    Value,
    decode_arguments,
    encode_arguments,
)


def test_arguments_of_every_kind_are_read_back() -> None:
    arguments = (
        TensorArgument((8, 9216), "float", (9216, 1)),
        None,
        TensorList((TensorArgument((4,), "long int"), TensorArgument((), "float", ()))),
        Value((1, 1)),
        Value(False),
        Value("none"),
    )
    assert decode_arguments(encode_arguments(arguments)) == arguments


@pytest.mark.parametrize("text", ['[{"shape": [1]}]', "[1]", "{", '[{"shape": 3, "strides": null, "dtype": "float"}]'])
def test_damaged_arguments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no operator arguments"):
        decode_arguments(text)


def test_an_experiment_is_read_back_from_json() -> None:
    experiment = Experiment(
        3, Stage.SCREEN, Scope.TERM, ((4, -2.0), (8, 1.0)), "excess", (4, 8), ("onednn",), "fc6", "forward"
    )
    entry = json.loads(json.dumps(experiment.to_entry()))
    assert experiments_of({"experiments": [{**entry, "later": 1}]}) == (experiment,)
    assert experiments_of({}) == ()
