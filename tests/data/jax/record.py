"""Records five steps of a jitted training step with JAX's profiler: `python record.py FOLDER`."""

import sys

import jax
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]


def loss(weights, x, y):
    with jax.named_scope("hidden"):
        hidden = jax.nn.relu(x @ weights["hidden"])
    with jax.named_scope("out"):
        return ((hidden @ weights["out"] - y) ** 2).mean()


@jax.jit
def train_step(weights, x, y):
    gradient = jax.grad(loss)(weights, x, y)
    with jax.named_scope("sgd"):
        return jax.tree.map(lambda weight, slope: weight - 1e-3 * slope, weights, gradient)


def main():
    key = jax.random.key(0)
    weights = {"hidden": jax.random.normal(key, (64, 256)), "out": jax.random.normal(key, (256, 8))}
    x, y = jnp.ones((32, 64)), jnp.ones((32, 8))
    weights = jax.block_until_ready(train_step(weights, x, y))
    with jax.profiler.trace(sys.argv[1]):
        for step in range(5):
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                weights = jax.block_until_ready(train_step(weights, x, y))


if __name__ == "__main__":
    main()
