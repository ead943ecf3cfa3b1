"""Defects of networks (51 to 58), of scores (75) and of what is read from a command line (77)."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from coplay.types import Seated
from tests.audit.planted import Planted, replacing

HYPER, WORLD = "coplay.nets.hyper", "coplay.nets.world"
HYPER_RUN, HOP_PLUS_RUN = "hyper_mappo_4h1s_4x4", "hop_plus_4h1s_4x4"
IN_TIME = {"hyper_mappo.context": "local_history", "rollout.num_steps": 80}


def detached(said):
    return lambda *arguments: jax.lax.stop_gradient(said(*arguments))


def of_the_next_seat(of_seats):
    return lambda self, identity: jnp.roll(of_seats(self, identity), 1, axis=0)


def one_for_all_rows(moved):
    def spoiled(network, own, numbers, delta, gains):
        if numbers.ndim > 2:
            numbers = jnp.broadcast_to(numbers[:1], numbers.shape)
        return moved(network, own, numbers, delta, gains)

    return spoiled


def library_heads(silent):
    """Heads as a library would draw them, evenly within one over the root of their width."""

    def spoiled(key, width, pieces):
        heads = silent(key, width, pieces)
        most = width**-0.5
        drawn = [
            jax.random.uniform(jax.random.fold_in(key, number), x.shape, minval=-most, maxval=most)
            for number, x in enumerate((heads.weight, heads.bias))
        ]
        return eqx.tree_at(lambda x: (x.weight, x.bias), heads, tuple(drawn))

    return spoiled


def bias_stays(delta):
    """What heads say by their bias is not scaled."""

    def spoiled(pieces, scale, numbers):
        return delta(pieces, 1.0 if scale == 0 else scale, numbers)

    return spoiled


def three_times(moved):
    def spoiled(*arguments):
        state, timestep = moved(*arguments)
        return state, dataclasses.replace(timestep, reward=3.0 * timestep.reward)

    return spoiled


def reward_of_seat_0(foreseen):
    def spoiled(world, weights, rows):
        said = foreseen(world, weights, rows)
        return dataclasses.replace(said, reward=jnp.broadcast_to(said.reward[..., :1, :], said.reward.shape))

    return spoiled


def one_member(world_of):
    def spoiled(env, config):
        world, init = world_of(env, config)

        def alike(key):
            members = init(key).common["members"]
            return Seated({}, {"members": jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), members)})

        return world, alike

    return spoiled


def mean_for_everyone(play_episodes):
    def spoiled(*arguments):
        scores = play_episodes(*arguments)
        mean = jnp.mean(scores.episode_return, axis=-1, keepdims=True)
        return dataclasses.replace(scores, episode_return=jnp.broadcast_to(mean, scores.episode_return.shape))

    return spoiled


def false_is_true(parse_text):
    return lambda text: True if text in ("False", "false") else parse_text(text)


NETS = (
    Planted(
        51, "hypernetwork output detached", "nets", "moves", replacing(HYPER, "_said", detached), HYPER_RUN
    ),
    Planted(
        52,
        "agent i gets agent i+1's increments",
        "nets",
        "own_rows",
        replacing("coplay.nets.context", "Context.of_seats", of_the_next_seat),
        HYPER_RUN,
    ),
    Planted(
        53,
        "per-sample weights broadcast over the batch",
        "nets",
        "one_row",
        replacing(HYPER, "_moved", one_for_all_rows),
        HYPER_RUN,
        IN_TIME,
    ),
    Planted(
        54,
        "library-default heads on zero base weights",
        "nets",
        "starts_even",
        replacing(HYPER, "_silent", library_heads),
        HYPER_RUN,
    ),
    Planted(
        55,
        "increments weighed by 0 stay",
        "nets",
        "off_is_off",
        replacing(HYPER, "_delta", bias_stays),
        HYPER_RUN,
    ),
    Planted(
        56,
        "imagined reward scaled by 3",
        "nets",
        "imagined_range",
        replacing(WORLD, "moved", three_times),
        HOP_PLUS_RUN,
    ),
    Planted(
        57,
        "reward head reads seat 0 for all",
        "nets",
        "world_names",
        replacing(WORLD, "foreseen", reward_of_seat_0),
        HOP_PLUS_RUN,
    ),
    Planted(
        58,
        "ensemble members share a key",
        "nets",
        "ensemble",
        replacing("coplay.algorithms.hop_plus_parts", "_world_of", one_member),
        HOP_PLUS_RUN,
    ),
    Planted(
        75,
        "every seat gets the mean return",
        "evaluation",
        "scores",
        replacing("coplay.experiment.building", "play_episodes", mean_for_everyone),
    ),
    Planted(
        77, '"False" read as true', "cli", "flags", replacing("coplay.settings", "parse_text", false_is_true)
    ),
)
