"""Seats that are alike, held against each other: how far apart they are, and how likely that is by chance."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coplay.audit.finding import Effect
from coplay.types import Environment

WIDTH = 3.8  # standard errors on either side: one interval in seven thousand misses
CONSTANT = 1e-4  # a deviation below this is rounding


class Effects(NamedTuple):
    """A seat less the mean of the others, in deviations of all, and its standard error."""

    seats: list[int]
    mean: Float[np.ndarray, "seat feature"]
    error: Float[np.ndarray, "seat feature"]


class Worst(NamedTuple):
    """The effect that is least likely by chance."""

    seat: int
    effect: Effect
    p: float  # for as many effects as were looked at


def groups(env: Environment) -> list[list[int]]:
    """Seats that are alike, two or more of them."""
    alike = env.alike or (0,) * env.num_agents
    found = [[seat for seat, kind in enumerate(alike) if kind == one] for one in dict.fromkeys(alike)]
    return [seats for seats in found if len(seats) > 1]


class Sums(NamedTuple):
    """All that effects need of some samples; sums of parts add up."""

    values: Float[Array, " feature"]
    squares: Float[Array, " feature"]
    apart: Float[Array, "seat feature"]
    apart_squares: Float[Array, "seat feature"]


def sums(values: Float[Array, "sample seat feature"]) -> Sums:
    seats = values.shape[1]
    apart = (values - jnp.mean(values, axis=1, keepdims=True)) * (seats / (seats - 1))
    return Sums(
        jnp.sum(values, axis=(0, 1)),
        jnp.sum(values**2, axis=(0, 1)),
        jnp.sum(apart, axis=0),
        jnp.sum(apart**2, axis=0),
    )


def effects(seats: list[int], added: Sums, count: int) -> Effects:
    """Of so many samples; what does not vary is left out."""
    values, squares, apart, apart_squares = (np.asarray(x, np.float64) for x in added)
    rows = count * len(seats)
    deviation = np.sqrt(np.maximum(squares / rows - (values / rows) ** 2, 0.0))
    varies = deviation > CONSTANT
    mean = apart[:, varies] / count / deviation[varies]
    variance = apart_squares[:, varies] / count / deviation[varies] ** 2 - mean**2
    return Effects(seats, mean, np.sqrt(np.maximum(variance, 1e-12) / count))


def effects_of(env: Environment, values: Float[np.ndarray, "sample agent"]) -> list[Effects]:
    """Of one figure per sample and player, group by group. Centred, so that sums lose nothing."""
    centred = jnp.asarray(values - values.mean(), jnp.float32)
    return [effects(seats, sums(centred[:, np.array(seats), None]), len(values)) for seats in groups(env)]


def worst(found: list[Effects]) -> Worst:
    looked_at = sum(each.mean.size for each in found)
    ratios = [np.abs(each.mean) / np.maximum(each.error, 1e-12) for each in found]
    largest = [float(ratio.max()) if ratio.size else -1.0 for ratio in ratios]
    index = int(np.argmax(largest))
    if largest[index] < 0:
        return Worst(found[index].seats[0], Effect(0.0, 0.0, 0.0), 1.0)
    seat, feature = np.unravel_index(np.argmax(ratios[index]), ratios[index].shape)
    value = float(found[index].mean[seat, feature])
    width = WIDTH * float(found[index].error[seat, feature])
    p = min(1.0, looked_at * math.erfc(largest[index] / math.sqrt(2.0)))
    return Worst(found[index].seats[int(seat)], Effect(value, value - width, value + width), p)
