"""Builds described networks in Keras 3, on TensorFlow or JAX: a functional model with a layer for
each row.

Images are channels last, as TensorFlow needs them on a CPU. A training step is `train_on_batch` of
a compiled model.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ....base.errors import CurvescopeError
from .channels_last import LEARNING_RATE, MOMENTUM, SEED, padding_around
from .description import Description, Row


def load_keras(backend: str) -> Any:
    """Keras on a backend; refused if this process has it on another."""
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = backend
    import keras

    if keras.backend.backend() != backend:
        raise CurvescopeError(
            f"Keras runs on {keras.backend.backend()} in this process, and a process has one "
            "backend."
        )
    return keras


def build_model(keras: Any, description: Description) -> Any:
    """The model, with layers of the description's names; it returns logits."""
    channels, *pixels = description.input_shape
    values = {-1: keras.Input((*pixels, channels))}
    for number, row in enumerate(description.rows):
        inputs = [values[at] for at in row.inputs]
        values[number] = _OPERATORS[row.op](keras, row, *inputs)
    return keras.Model(values[-1], values[len(description.rows) - 1], name="network")


def set_weights(model: Any, description: Description, weights: Mapping[str, Any]) -> None:
    """Give a model the parameters that `channels_last.weights_of` made."""
    for row in description.rows:
        for name, variable in zip(
            row.parameters, model.get_layer(row.layer).trainable_variables, strict=False
        ):
            variable.assign(weights[f"{row.layer}.{name}"])


def make_step(
    description: Description, batch: int, mode: str, precision: str = "fp32", *, backend: str
) -> Callable[[], object]:
    """A function that runs one step.

    Raises:
        CurvescopeError: the precision is another than fp32 and bf16, or the process has another
            backend.
    """
    if precision not in ("fp32", "bf16"):
        raise CurvescopeError(f"--precision {precision}: networks in Keras run in fp32 and bf16.")
    keras = load_keras(backend)
    keras.utils.set_random_seed(SEED + batch)
    keras.mixed_precision.set_global_policy("float32" if precision == "fp32" else "mixed_bfloat16")
    model = build_model(keras, description)
    channels, *pixels = description.input_shape
    images = keras.random.normal((batch, *pixels, channels))
    targets = keras.random.randint((batch,), 0, description.classes)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if mode == "forward+backward":
        gradients = _gradients_of(backend, model, loss)
        return lambda: gradients(images, targets)
    optimizer = keras.optimizers.SGD(LEARNING_RATE, MOMENTUM)
    model.compile(optimizer=optimizer, loss=loss)
    if mode == "forward":
        return lambda: model.predict_on_batch(images)
    return lambda: model.train_on_batch(images, targets)


def _gradients_of(backend: str, model: Any, loss: Any) -> Callable[..., Any]:
    """A compiled function of images and targets that gives the loss and the gradients of the
    variables.
    """
    if backend == "tensorflow":
        import tensorflow as tf

        def both(images: Any, targets: Any) -> Any:
            with tf.GradientTape() as tape:
                value = loss(targets, model(images, training=True))
            return value, tape.gradient(value, model.trainable_variables)

        return tf.function(both)  # type: ignore[no-any-return]
    import jax

    def value_of(trained: Any, others: Any, images: Any, targets: Any) -> Any:
        logits, others = model.stateless_call(trained, others, images, training=True)
        return loss(targets, logits), others

    compiled = jax.jit(jax.value_and_grad(value_of, has_aux=True))

    def run(images: Any, targets: Any) -> Any:
        trained = [variable.value for variable in model.trainable_variables]
        others = [variable.value for variable in model.non_trainable_variables]
        (value, _), slopes = compiled(trained, others, images, targets)
        return value, slopes

    return run


def _convolution(keras: Any, row: Row, x: Any) -> Any:
    of, layers = row.settings, keras.layers
    halves = [size // 2 for size in of["size"]]
    same = of["padding"] == halves and of["stride"] == [1, 1] and all(s % 2 for s in of["size"])
    if not same and any(of["padding"]):
        x = layers.ZeroPadding2D(tuple(of["padding"]), name=f"{row.layer}.padding")(x)
    made = layers.Conv2D(
        of["width"],
        tuple(of["size"]),
        tuple(of["stride"]),
        padding="same" if same else "valid",
        use_bias=of["bias"],
        name=row.layer,
    )
    return made(x)


def _linear(keras: Any, row: Row, x: Any) -> Any:
    return keras.layers.Dense(row.settings["width"], use_bias=row.settings["bias"], name=row.layer)(
        x
    )


def _batch_norm(keras: Any, row: Row, x: Any) -> Any:
    of = row.settings
    made = keras.layers.BatchNormalization(
        momentum=1 - of["momentum"], epsilon=of["epsilon"], name=row.layer
    )
    return made(x)


def _relu(keras: Any, row: Row, x: Any) -> Any:
    return keras.layers.ReLU(name=row.layer)(x)


def _pool(keras: Any, row: Row, kind: Any, x: Any) -> Any:
    """A pool over padding with zeros: the largest of a window of outputs of ReLU is the same with
    -inf.
    """
    around = padding_around(row, tuple(x.shape[1:3]))
    if any(map(any, around)):
        x = keras.layers.ZeroPadding2D(tuple(around), name=f"{row.layer}.padding")(x)
    of = row.settings
    return kind(tuple(of["size"]), tuple(of["stride"]), name=row.layer)(x)


def _max_pool(keras: Any, row: Row, x: Any) -> Any:
    return _pool(keras, row, keras.layers.MaxPooling2D, x)


def _average_pool(keras: Any, row: Row, x: Any) -> Any:
    return _pool(keras, row, keras.layers.AveragePooling2D, x)


def _local_norm(keras: Any, row: Row, x: Any) -> Any:
    of, ops = row.settings, keras.ops
    size, before = of["size"], of["size"] // 2

    class LocalNorm(keras.layers.Layer):  # type: ignore[misc, name-defined, unused-ignore]
        def call(self, x: Any) -> Any:
            width = x.shape[-1]
            around = [[0, 0]] * 3 + [[before, size - 1 - before]]
            squares = ops.pad(ops.square(x), around)
            together = sum(squares[..., at : at + width] for at in range(size))
            return x * ops.power(of["k"] + of["alpha"] / size * together, -of["beta"])

    return LocalNorm(name=row.layer)(x)


def _dropout(keras: Any, row: Row, x: Any) -> Any:
    return keras.layers.Dropout(row.settings["rate"], name=row.layer)(x)


def _mean(keras: Any, row: Row, x: Any) -> Any:
    return keras.layers.GlobalAveragePooling2D(keepdims=True, name=row.layer)(x)


def _flatten(keras: Any, row: Row, x: Any) -> Any:
    return keras.layers.Flatten(name=row.layer)(x)


def _joined(keras: Any, row: Row, *parts: Any) -> Any:
    return keras.layers.Concatenate(name=row.layer)(list(parts))


def _added(keras: Any, row: Row, *parts: Any) -> Any:
    return keras.layers.Add(name=row.layer)(list(parts))


_OPERATORS: dict[str, Callable[..., Any]] = {
    "convolution": _convolution,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "relu": _relu,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "mean": _mean,
    "local_norm": _local_norm,
    "dropout": _dropout,
    "flatten": _flatten,
    "concatenate": _joined,
    "add": _added,
}
