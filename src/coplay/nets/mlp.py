"""Feed-forward networks whose arrays are plain pytrees: a multilayer perceptron, and a small CNN before one.

Networks with and without memory differ in one way only:
a plain call reads rows of any shape, and a network with memory has `run(memory, inputs, first)`, which
reads inputs [time, row, feature] and gives its memory after each step and its outputs.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coplay.types import Key

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu, "elu": jax.nn.elu}


def orthogonal(key: Key, rows: int, columns: int, gain: float) -> Float[Array, "rows columns"]:
    """A random matrix with orthogonal rows or columns.

    NumPy's QR and not JAX's: batched QR inside a compiled program waits for ever on small machines.
    """
    seed = np.asarray(jax.random.key_data(key)).ravel()
    normal = np.random.default_rng(seed).standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(normal)
    q = q * np.sign(np.diag(r))
    return jnp.asarray(gain * (q if rows >= columns else q.T), jnp.float32)


class Linear(eqx.Module):
    weight: Float[Array, "input output"]
    bias: Float[Array, " output"]
    gain: float = eqx.field(static=True)  # that the weights were drawn with: the rule an audit holds them to

    def __init__(self, key: Key, inputs: int, outputs: int, gain: float):
        self.weight = orthogonal(key, inputs, outputs, gain)
        self.bias = jnp.zeros(outputs)
        self.gain = gain

    def __call__(self, x: Float[Array, "*batch input"]) -> Float[Array, "*batch output"]:
        # Flat rows: with more axes the same gradient takes a quarter longer (docs/decisions/0006).
        rows = product(x.reshape(-1, x.shape[-1]), self.weight) + self.bias[None, :]
        return rows.reshape(*x.shape[:-1], -1)


@jax.custom_vjp
def product(
    rows: Float[Array, "row input"], weight: Float[Array, "input output"]
) -> Float[Array, "row output"]:
    """rows @ weight. The weights' gradient is written out, because the compiler is slow at the one that is
    derived: for few outputs it takes up to ten times as long (docs/decisions/0006)."""
    return rows @ weight


def _product_forward(rows: Array, weight: Array):
    return rows @ weight, (rows, weight)


def _product_backward(kept: tuple[Array, Array], gradient: Float[Array, "row output"]):
    rows, weight = kept
    inputs, outputs = weight.shape
    if outputs > inputs:
        return gradient @ weight.T, rows.T @ gradient
    # Turned in memory first, and not within the product, as the compiler would have it.
    turned = jax.lax.optimization_barrier(gradient.T)
    return gradient @ weight.T, jax.lax.optimization_barrier(turned @ rows).T


product.defvjp(_product_forward, _product_backward)


class MLP(eqx.Module):
    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)

    def __init__(self, key: Key, inputs: int, hidden: tuple[int, ...], outputs: int, output_gain: float,
                 activation: str = "tanh"):  # fmt: skip
        sizes = [inputs, *hidden, outputs]
        gains = [math.sqrt(2.0)] * len(hidden) + [output_gain]
        keys = jax.random.split(key, len(gains))
        self.layers = tuple(Linear(keys[i], sizes[i], sizes[i + 1], gains[i]) for i in range(len(gains)))
        self.activation = activation

    def __call__(self, x: Float[Array, "*batch input"]) -> Float[Array, "*batch output"]:
        rows = x.reshape(-1, x.shape[-1])
        for layer in self.layers[:-1]:
            rows = ACTIVATIONS[self.activation](layer(rows))
        return self.layers[-1](rows).reshape(*x.shape[:-1], -1)


class CNN(eqx.Module):
    """Two 3x3 convolutions over the board that a row begins with, then an MLP over that and the rest."""

    kernels: tuple[Float[Array, "3 3 input output"], ...]
    biases: tuple[Float[Array, " output"], ...]
    head: MLP
    planes: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, key: Key, inputs: int, hidden: tuple[int, ...], outputs: int, output_gain: float,
                 planes: tuple[int, int, int], activation: str = "relu", channels: int = 16):  # fmt: skip
        height, width, depth = planes
        conv_key, head_key = jax.random.split(key)
        depths = [depth, channels, channels]
        keys = jax.random.split(conv_key, 2)
        self.kernels = tuple(
            orthogonal(keys[i], 9 * depths[i], depths[i + 1], math.sqrt(2.0)).reshape(3, 3, depths[i], -1)
            for i in range(2)
        )
        self.biases = (jnp.zeros(channels), jnp.zeros(channels))
        flat = height * width * channels + inputs - height * width * depth
        self.head = MLP(head_key, flat, hidden, outputs, output_gain, activation)
        self.planes = planes

    def __call__(self, x: Float[Array, "*batch input"]) -> Float[Array, "*batch output"]:
        size = math.prod(self.planes)
        board = x[..., :size].reshape(-1, *self.planes)
        for kernel, bias in zip(self.kernels, self.biases, strict=True):
            board = jax.nn.relu(convolved(board, kernel) + bias[None, None, None, :])
        seen = board.reshape(*x.shape[:-1], -1)
        return self.head(jnp.concatenate([seen, x[..., size:]], axis=-1))


def convolved(
    board: Float[Array, "row height width input"], kernel: Float[Array, "3 3 input output"]
) -> Float[Array, "row height width output"]:
    """A 3x3 convolution, zeros around the board, as one product with every cell's surroundings: within a loop
    on a CPU, the compiler's own convolution takes ten to forty times as long."""
    height, width = board.shape[1:3]
    around = jnp.pad(board, ((0, 0), (1, 1), (1, 1), (0, 0)))
    cells = [
        around[:, down : down + height, right : right + width] for down in range(3) for right in range(3)
    ]
    rows = jnp.concatenate(cells, axis=-1).reshape(-1, 9 * board.shape[-1])
    return product(rows, kernel.reshape(-1, kernel.shape[-1])).reshape(*board.shape[:3], -1)
