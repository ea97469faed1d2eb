"""Experiments and operator arguments survive their way through a recording."""

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

from ...tables import ask_each


def test_arguments_of_every_kind_are_read_back():
    arguments = (
        TensorArgument((8, 9216), "float", (9216, 1)),
        None,
        TensorList((TensorArgument((4,), "long int"), TensorArgument((), "float", ()))),
        Value((1, 1)),
        Value(False),
        Value("none"),
    )
    assert decode_arguments(encode_arguments(arguments)) == arguments


@ask_each(
    "text", ['[{"shape": [1]}]', "[1]", "{", '[{"shape": 3, "strides": null, "dtype": "float"}]']
)
def test_damaged_arguments_are_refused(text):
    with pytest.raises(ValueError, match="no operator arguments"):
        decode_arguments(text)


def experiment(**about):
    return Experiment(**{"number": 3, "stage": Stage.SCREEN, "scope": Scope.TERM, **about})


def test_an_experiment_is_read_back_from_json():
    functional = {
        "functional": ((4, -2.0), (8, 1.0)),
        "functional_kind": "excess",
        "batches": (4, 8),
    }
    one = experiment(**functional, factors=("onednn",), layer="fc6", phase="forward")
    entry = json.loads(json.dumps(one.to_entry()))
    assert experiments_of({"experiments": [{**entry, "later": 1}]}) == (one,)
    assert experiments_of({}) == ()


def test_an_experiment_is_a_test_of_each_functional_with_the_batch_sizes_that_it_needs():
    bend, excess = ((1, 2.0), (2, -3.0), (4, 1.0)), ((2, -2.0), (4, 1.0))
    about = {"functional": bend, "functional_kind": "bend"}
    one = experiment(**about, batches=(1, 2, 4), also=(("excess", excess),))
    assert experiments_of({"experiments": [json.loads(json.dumps(one.to_entry()))]}) == (one,)
    found = [
        (each.functional_kind, each.functional, each.batches, each.also)
        for each in one.by_functional()
    ]
    assert found == [("bend", bend, (1, 2, 4), ()), ("excess", excess, (2, 4), ())]
    (alone,) = experiment(**about, batches=(1, 2, 3, 4)).by_functional()
    assert alone.batches == (1, 2, 3, 4)
