"""Builds described networks in JAX: steps that are compiled by `jax.jit`, with scopes that name the
layers.

Images are stored as JAX prefers them, channels last, and so are weights. A step does as in
`network_step`: the loss of random images or text, and SGD with momentum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ....base.errors import CurvescopeError
from .bert import IGNORED
from .channels_last import LEARNING_RATE, MOMENTUM, SEED, convert_shape, padding_around
from .description import NORMALISATIONS, Description, Row
from .text_sample import text_of

Arrays = dict[str, Any]  # by layer and name, as `Description.parameters`
PRECISIONS = ("fp32", "bf16", "tf32")
_IMAGES = ("NHWC", "HWIO", "NHWC")  # layouts of inputs, weights and outputs of convolutions


def initial_parameters(description: Description, seed: int = SEED) -> Arrays:
    """Random parameters, as torch begins with: uniform within the inverse root of the inputs of an
    output, normal for embeddings.
    """
    import jax

    keys = iter(jax.random.split(jax.random.key(seed), len(description.parameters)))
    made: Arrays = {}
    for row in description.rows:
        for name, shape in row.parameters.items():
            path = f"{row.layer}.{name}"
            key = next(keys)
            if row.op in NORMALISATIONS:
                made[path] = jax.numpy.full(shape, 1.0 if name == "weight" else 0.0)
            elif row.op == "embedding":
                made[path] = jax.random.normal(key, shape)
            else:
                window = math.prod(row.settings.get("size", ()))
                bound = 1 / math.sqrt(row.settings["channels"] * window)
                shape = convert_shape(row, shape)
                made[path] = jax.random.uniform(key, shape, minval=-bound, maxval=bound)
    return made


def initial_state(description: Description) -> Arrays:
    """What training steps carry beside parameters: running means and variances, and the key of the
    dropouts.
    """
    import jax

    state: Arrays = {"key": jax.random.key(SEED)}
    for row in description.rows:
        if row.op == "batch_norm":
            state[f"{row.layer}.running_mean"] = jax.numpy.zeros(row.settings["width"])
            state[f"{row.layer}.running_var"] = jax.numpy.ones(row.settings["width"])
    return state


def forward(
    description: Description, parameters: Arrays, state: Arrays, samples: Any, *, trains: bool
) -> tuple[Any, Arrays]:
    """Outputs, and the state after it: of images, shape (batch, height, width, channels), the
    logits, shape (batch, classes); of tokens, shape (batch, tokens), a tuple.
    """
    import jax

    state = dict(state)
    values = {-1: samples}
    for number, row in enumerate(description.rows):
        inputs = [values[at] for at in row.inputs]
        scope = jax.named_scope(row.layer.replace("/", ".")) if row.layer else nullcontext()
        with scope:
            values[number] = _OPERATORS[row.op](row, parameters, state, trains, *inputs)
    outputs = tuple(values[at] for at in description.outputs)
    return (outputs[0] if description.vocabulary is None else outputs), state


def loss_of(outputs: Any, *targets: Any) -> Any:
    """Mean cross-entropy, of several outputs their sum; without targets the sum of their mean
    squares.
    """
    import jax

    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    with jax.named_scope("loss"):
        wide = [_widen(output) for output in outputs]
        if not targets:
            return sum(jax.numpy.square(output).mean() for output in wide)
        return sum(map(_cross_entropy, wide, targets))


def _cross_entropy(logits: Any, targets: Any) -> Any:
    """Mean over the targets that are not ignored."""
    import jax

    counted = targets != IGNORED
    at = jax.numpy.where(counted, targets, 0)[..., None]
    logarithms = jax.nn.log_softmax(logits)
    chances = jax.numpy.take_along_axis(logarithms, at, -1)[..., 0]
    total = jax.numpy.where(counted, chances, 0).sum()
    return -total / counted.sum()


def _widen(x: Any) -> Any:
    """In fp32, or more precise."""
    import jax

    return x.astype(jax.numpy.promote_types(x.dtype, "float32"))


def make_step(
    description: Description, batch: int, mode: str, precision: str = "fp32"
) -> Callable[[], object]:
    """A function that runs one step and waits for nothing: parameters and state are donated, so
    they are written over.

    Raises:
        CurvescopeError: JAX does not run this precision here.
    """
    import jax

    if precision not in PRECISIONS:
        raise CurvescopeError(
            f"--precision {precision}: networks in JAX run in {', '.join(PRECISIONS)}."
        )
    samples, *targets = _data(description, batch)
    parameters = initial_parameters(description)
    state = initial_state(description)
    if precision == "bf16":
        samples = samples if description.vocabulary else samples.astype("bfloat16")
    data = samples, *targets

    def loss(parameters: Arrays, state: Arrays, samples: Any, *targets: Any) -> Any:
        if precision == "bf16":
            parameters = {name: array.astype("bfloat16") for name, array in parameters.items()}
        outputs, state = forward(description, parameters, state, samples, trains=True)
        return loss_of(outputs, *targets), state

    def infer(parameters: Arrays, state: Arrays, samples: Any) -> Any:
        return forward(description, parameters, state, samples, trains=False)[0]

    gradients = jax.value_and_grad(loss, has_aux=True)

    def train(parameters: Arrays, momenta: Arrays, state: Arrays, *data: Any) -> Any:
        (value, state), slopes = gradients(parameters, state, *data)
        with jax.named_scope("optimizer"):
            momenta = {name: MOMENTUM * momenta[name] + slopes[name] for name in momenta}
            parameters = {
                name: parameters[name] - LEARNING_RATE * momenta[name] for name in momenta
            }
        return value, parameters, momenta, state

    if mode == "forward":
        run = _compile_step(infer, precision, parameters, state, samples)
        return lambda: run(parameters, state, samples)
    if mode == "forward+backward":
        run = _compile_step(gradients, precision, parameters, state, *data)
        return lambda: run(parameters, state, *data)
    kept = [parameters, jax.tree.map(jax.numpy.zeros_like, parameters), state]
    update = _compile_step(train, precision, *kept, *data, donated=(0, 1, 2))

    def step() -> object:
        value, *kept[:] = update(*kept, *data)
        return value

    return step


def _data(description: Description, batch: int) -> tuple[Any, ...]:
    """Random samples and their targets, where there are any."""
    import jax

    if description.vocabulary is not None:
        tokens, *targets = map(jax.numpy.asarray, text_of(description, batch))
        return (tokens, *targets) if description.predicts_words else (tokens,)
    assert description.classes is not None
    key = jax.random.key(SEED + batch)
    channels, *pixels = description.input_shape
    images = jax.random.normal(key, (batch, *pixels, channels))
    return images, jax.random.randint(key, (batch,), 0, description.classes)


def _compile_step(
    function: Any, precision: str, *arguments: Any, donated: tuple[int, ...] = ()
) -> Any:
    """A function compiled for arguments, so that no step compiles; `donated` ones are written over.

    A precision of products that the process sets, e.g. by JAX_DEFAULT_MATMUL_PRECISION, goes
    before.
    """
    import jax

    exact = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": "default"}[precision]
    config: Any = jax.config
    with jax.default_matmul_precision(config.jax_default_matmul_precision or exact):
        return jax.jit(function, donate_argnums=donated).lower(*arguments).compile()


def _convolution(row: Row, parameters: Arrays, _: Arrays, __: bool, x: Any) -> Any:
    import jax

    settings = row.settings
    weight = parameters[f"{row.layer}.weight"]
    padding = [(extent, extent) for extent in settings["padding"]]
    made = jax.lax.conv_general_dilated(
        x, weight, settings["stride"], padding, dimension_numbers=_IMAGES
    )
    if settings["bias"]:
        return made + parameters[f"{row.layer}.bias"]
    return made


def _linear(row: Row, parameters: Arrays, _: Arrays, __: bool, x: Any) -> Any:
    shared = row.settings.get("weight_of")
    weight = parameters[shared].T if shared else parameters[f"{row.layer}.weight"]
    made = x @ weight
    if row.settings["bias"]:
        return made + parameters[f"{row.layer}.bias"]
    return made


def _batch_norm(row: Row, parameters: Arrays, state: Arrays, trains: bool, x: Any) -> Any:
    import jax

    numpy = jax.numpy
    mean_at = f"{row.layer}.running_mean"
    variance_at = f"{row.layer}.running_var"
    mean = state[mean_at]
    variance = state[variance_at]
    if trains:
        wide = _widen(x)
        axes = (0, 1, 2)
        count = x.size // x.shape[-1]
        mean = wide.mean(axes)
        variance = numpy.square(wide - mean).mean(axes)
        unbiased = jax.lax.stop_gradient(variance) * (count / max(count - 1, 1))
        centre = jax.lax.stop_gradient(mean)
        taken = row.settings["momentum"]
        kept = 1 - taken
        state[mean_at] = kept * state[mean_at] + taken * centre
        state[variance_at] = kept * state[variance_at] + taken * unbiased
    inverse = jax.lax.rsqrt(variance + row.settings["epsilon"])
    scale = parameters[f"{row.layer}.weight"] * inverse
    shift = parameters[f"{row.layer}.bias"] - mean * scale
    return x * scale.astype(x.dtype) + shift.astype(x.dtype)


def _relu(_: Row, __: Arrays, ___: Arrays, ____: bool, x: Any) -> Any:
    import jax

    return jax.nn.relu(x)


def _pool(row: Row, x: Any, initial: float, combine: Any) -> Any:
    import jax

    of = row.settings
    size = (1, *of["size"], 1)
    stride = (1, *of["stride"], 1)
    spread = [(0, 0), *padding_around(row, x.shape[1:3]), (0, 0)]
    return jax.lax.reduce_window(x, x.dtype.type(initial), combine, size, stride, spread)


def _max_pool(row: Row, _: Arrays, __: Arrays, ___: bool, x: Any) -> Any:
    import jax

    return _pool(row, x, -math.inf, jax.lax.max)


def _average_pool(row: Row, _: Arrays, __: Arrays, ___: bool, x: Any) -> Any:
    import jax

    return _pool(row, x, 0.0, jax.lax.add) / math.prod(row.settings["size"])


def _local_norm(row: Row, _: Arrays, __: Arrays, ___: bool, x: Any) -> Any:
    import jax

    settings = row.settings
    size = settings["size"]
    before = size // 2
    around = [(0, 0)] * 3 + [(before, size - 1 - before)]
    zero = x.dtype.type(0)
    window = (1, 1, 1, size)
    squares = jax.lax.reduce_window(x * x, zero, jax.lax.add, window, (1, 1, 1, 1), around)
    level = settings["k"] + settings["alpha"] / size * squares
    return x * level ** -settings["beta"]


def _dropout(row: Row, _: Arrays, state: Arrays, trains: bool, x: Any) -> Any:
    import jax

    if not trains:
        return x
    state["key"], key = jax.random.split(state["key"])
    kept = 1 - row.settings["rate"]
    return jax.numpy.where(jax.random.bernoulli(key, kept, x.shape), x / kept, 0)


def _mean(_: Row, __: Arrays, ___: Arrays, ____: bool, x: Any) -> Any:
    return x.mean((1, 2), keepdims=True)


def _flatten(_: Row, __: Arrays, ___: Arrays, ____: bool, x: Any) -> Any:
    return x.reshape(len(x), -1)


def _concatenate(_: Row, __: Arrays, ___: Arrays, ____: bool, *parts: Any) -> Any:
    import jax

    return jax.numpy.concatenate(parts, -1)


def _add(_: Row, __: Arrays, ___: Arrays, ____: bool, first: Any, second: Any) -> Any:
    return first + second


def _positions(_: Row, __: Arrays, ___: Arrays, ____: bool, tokens: Any) -> Any:
    import jax

    return jax.numpy.arange(tokens.shape[1])


def _zeros(_: Row, __: Arrays, ___: Arrays, ____: bool, tokens: Any) -> Any:
    import jax

    return jax.numpy.zeros_like(tokens)


def _embedding(row: Row, parameters: Arrays, _: Arrays, __: bool, at: Any) -> Any:
    return parameters[f"{row.layer}.weight"][at]


def _layer_norm(row: Row, parameters: Arrays, _: Arrays, __: bool, x: Any) -> Any:
    import jax

    wide = _widen(x)
    centred = wide - wide.mean(-1, keepdims=True)
    variance = jax.numpy.square(centred).mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt(variance + row.settings["epsilon"])
    weight = parameters[f"{row.layer}.weight"]
    bias = parameters[f"{row.layer}.bias"]
    scaled = normal * weight + bias
    return scaled.astype(x.dtype)


def _gelu(_: Row, __: Arrays, ___: Arrays, ____: bool, x: Any) -> Any:
    import jax

    return jax.nn.gelu(x, approximate=False)


def _tanh(_: Row, __: Arrays, ___: Arrays, ____: bool, x: Any) -> Any:
    import jax

    return jax.numpy.tanh(x)


def _split_last(row: Row, _: Arrays, __: Arrays, ___: bool, x: Any) -> Any:
    return x.reshape(*x.shape[:-1], row.settings["parts"], -1)


def _swap(row: Row, _: Arrays, __: Arrays, ___: bool, x: Any) -> Any:
    return x.swapaxes(*row.settings["axes"])


def _join_last(_: Row, __: Arrays, ___: Arrays, ____: bool, x: Any) -> Any:
    return x.reshape(*x.shape[:-2], -1)


def _attention(
    row: Row, parameters: Arrays, state: Arrays, trains: bool, query: Any, key: Any, value: Any
) -> Any:
    """By its parts: `jax.nn.dot_product_attention` has no dropout."""
    import jax

    kind = jax.numpy.promote_types(query.dtype, "float32")
    turned = key.swapaxes(-1, -2)
    scores = jax.numpy.matmul(query, turned, preferred_element_type=kind)
    scaled = scores / math.sqrt(query.shape[-1])
    shares = jax.nn.softmax(scaled).astype(value.dtype)
    if row.settings["rate"]:
        shares = _dropout(row, parameters, state, trains, shares)
    return shares @ value


def _take_first(_: Row, __: Arrays, ___: Arrays, ____: bool, x: Any) -> Any:
    return x[:, 0]


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
    "concatenate": _concatenate,
    "add": _add,
    "positions": _positions,
    "zeros": _zeros,
    "embedding": _embedding,
    "layer_norm": _layer_norm,
    "gelu": _gelu,
    "tanh": _tanh,
    "split_last": _split_last,
    "swap": _swap,
    "join_last": _join_last,
    "attention": _attention,
    "take_first": _take_first,
}
