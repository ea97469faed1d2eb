"""Compares described networks in Keras with torch's, in a process of its own: Keras has one backend
in each.

`python -m tests.profiling.frameworks.keras_checks BACKEND NETWORK` prints, as JSON, the largest
differences as shares of the largest number: of the logits in fp32, and of the gradients of one
step in float64. The networks `small` and `small-encoder` are a small BERT with heads or without.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from benchmarks import network_descriptions
from curvescope.profiling.workload.networks import description, keras_build

from .torch_networks import (
    difference,
    largest_difference,
    of_small_bert,
    of_torch,
    small_bert,
    weights_of,
    without_dropout,
)


def main(backend: str, name: str) -> None:
    """Print the differences."""
    keras = keras_build.load_keras(backend)
    found = {"logits": logits(keras, name), "gradients": gradients(keras, backend, name)}
    print(json.dumps(found))


def _with_torch(name, *, doubles=False):
    """The description; of torch the network, its module, samples and targets, each as a list."""
    if name.startswith("small"):
        heads = name == "small"
        made = network_descriptions.describe(small_bert(heads=heads))
        network, model, tokens, targets = of_small_bert(heads=heads, doubles=doubles)
        return without_dropout(made), network, model, tokens, targets
    network, model, images, targets = of_torch(name, doubles=doubles)
    return without_dropout(description.read_description(name)), network, model, images, [targets]


def logits(keras, name):
    """Difference of the logits in evaluation; the model has as many parameters."""
    import torch

    made, _, model, samples, _ = _with_torch(name)
    with torch.no_grad():
        expected = model.eval()(samples)
    built = keras_build.build_model(keras, made)
    weights = weights_of(made, {n: p.detach() for n, p in model.named_parameters()})
    set_weights(built, made, weights)
    shapes = [tuple(one.shape) for one in built.trainable_variables]
    assert sorted(shapes) == sorted(array.shape for array in weights.values())
    found = built.predict_on_batch(_stored(samples))
    return max(map(difference, _listed(found), _listed(expected)))


def gradients(keras, backend, name):
    """Largest difference of the gradient of any parameter."""
    if backend == "jax":
        import jax
        from keras.src import backend as chosen

        jax.config.update("jax_enable_x64", True)
        # On JAX Keras normalises batches in fp32 in float64 models too.
        chosen.result_type = lambda *_: "float64"
    keras.config.set_floatx("float64")
    keras.mixed_precision.set_global_policy("float64")
    made, network, model, samples, targets = _with_torch(name, doubles=True)
    of_text = made.vocabulary is not None
    outputs = (model if of_text else model.train())(samples)
    aims = (tuple(targets) or None) if of_text else targets[0]
    network.loss(outputs, aims).backward()
    built = keras_build.build_model(keras, made)
    parameters = dict(model.named_parameters())
    weights = weights_of(made, {n: p.detach() for n, p in parameters.items()})
    set_weights(built, made, weights)
    losses = keras_build.losses_of(keras, made, "float64")
    slopes_of = keras_build._gradients_of(backend, built, losses)
    convert = keras.ops.convert_to_tensor
    aims = [convert(target.numpy()) for target in targets]
    aims = aims or [keras.ops.zeros(output.shape) for output in outputs]
    _, slopes = slopes_of(convert(_stored(samples)), aims)
    expected = weights_of(made, {n: p.grad for n, p in parameters.items()})
    by_layer = {path: index for index, path in enumerate(_paths(built, made))}
    assert len(slopes) == len(expected) == len(by_layer)
    found = {path: _dense(slopes[at]) for path, at in by_layer.items()}
    return largest_difference(found, expected)


def set_weights(model, description, weights):
    """Give a model the parameters that `weights_of` made."""
    for row in description.rows:
        if row.parameters:
            variables = model.get_layer(row.layer).trainable_variables
            for name, variable in zip(row.parameters, variables, strict=True):
                variable.assign(weights[f"{row.layer}.{name}"])


def _paths(built, made):
    """The parameter of each trainable variable, as `weights_of` names it."""
    of_variable = {}
    for row in made.rows:
        if row.parameters:
            variables = built.get_layer(row.layer).trainable_variables
            for name, variable in zip(row.parameters, variables, strict=True):
                of_variable[id(variable)] = f"{row.layer}.{name}"
    return [of_variable[id(variable)] for variable in built.trainable_variables]


def _stored(samples):
    """Samples as Keras takes them: images channels last."""
    array = samples.numpy()
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def _dense(slope):
    """A gradient as an array; TensorFlow has those of an embedding as its rows that were read."""
    if not hasattr(slope, "indices"):
        return np.asarray(slope)
    import tensorflow as tf

    return tf.convert_to_tensor(slope).numpy()


def _listed(outputs):
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


if __name__ == "__main__":
    main(*sys.argv[1:])
