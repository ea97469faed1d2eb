"""Compares described networks in Keras with torch's, in a process of its own: Keras has one backend
in each.

`python -m tests.profiling.frameworks.keras_checks BACKEND NETWORK` prints, as JSON, the largest
differences as shares of the largest number: of the logits in fp32, and of the gradients of one
step in float64.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from curvescope.profiling.workload.networks import keras_build
from curvescope.profiling.workload.networks.channels_last import weights_of
from curvescope.profiling.workload.networks.description import described

from .torch_networks import of_torch, without_dropout


def main(backend: str, name: str) -> None:
    """Print the differences."""
    keras = keras_build.load_keras(backend)
    found = {"logits": logits(keras, name), "gradients": gradients(keras, backend, name)}
    print(json.dumps(found))


def logits(keras, name):
    """Difference of the logits in evaluation; the model has as many parameters."""
    import torch

    made = without_dropout(described(name))
    _, model, images, _ = of_torch(name)
    with torch.no_grad():
        expected = model.eval()(images).numpy()
    built = keras_build.build_model(keras, made)
    weights = weights_of(made, {n: p.detach() for n, p in model.named_parameters()})
    keras_build.set_weights(built, made, weights)
    shapes = [tuple(one.shape) for one in built.trainable_variables]
    assert sorted(shapes) == sorted(array.shape for array in weights.values())
    return difference(built.predict_on_batch(last_channels(images)), expected)


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
    made = without_dropout(described(name))
    network, model, images, targets = of_torch(name, doubles=True)
    network.loss(model.train()(images), targets).backward()
    built = keras_build.build_model(keras, made)
    parameters = dict(model.named_parameters())
    weights = weights_of(made, {n: p.detach() for n, p in parameters.items()})
    keras_build.set_weights(built, made, weights)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
    slopes_of = keras_build._gradients_of(backend, built, loss)
    convert = keras.ops.convert_to_tensor
    _, slopes = slopes_of(convert(last_channels(images)), convert(targets.numpy()))
    expected = weights_of(made, {n: p.grad for n, p in parameters.items()})
    by_layer = {path: index for index, path in enumerate(_paths(built, made))}
    assert len(slopes) == len(expected) == len(by_layer)
    return max(
        difference(np.asarray(slopes[by_layer[path]]), wanted) for path, wanted in expected.items()
    )


def _paths(built, made):
    """The parameter of each trainable variable, as `weights_of` names it."""
    of_variable = {}
    for row in made.rows:
        if row.parameters:
            variables = built.get_layer(row.layer).trainable_variables
            for name, variable in zip(row.parameters, variables, strict=True):
                of_variable[id(variable)] = f"{row.layer}.{name}"
    return [of_variable[id(variable)] for variable in built.trainable_variables]


def last_channels(images):
    return images.numpy().transpose(0, 2, 3, 1)


def difference(found, expected):
    return float(np.abs(found - expected).max() / np.abs(expected).max())


if __name__ == "__main__":
    main(*sys.argv[1:])
