"""Defects that checks were not written for (201 to 214), thought up from the product's code alone.

Nobody who writes a check is to look here first: what an audit finds of these says what it finds of others.
Those with the name of a check were missed at first and are found by it since.
"""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp

from coplay.types import Environment
from tests.audit.planted import Planted, both, replacing

PROGRAMS, PPO, HOP = "coplay.training.programs", "coplay.algorithms.ppo", "coplay.algorithms.hop"
ACTOR_CRITIC, RECURRENT = "coplay.algorithms.actor_critic", "coplay.nets.recurrent"
SEARCHES = ("coplay.planning.search", "coplay.algorithms.hop_search", "coplay.algorithms.imagined_search")


# --- envs ----------------------------------------------------------------------------------------


def in_game(spoil: Callable[[Environment], Environment]) -> Callable[[], AbstractContextManager]:
    """A game's defect, planted where experiments get theirs."""

    def spoiled(make):
        return lambda *names, **options: spoil(make(*names, **options))

    return replacing("coplay.experiment.building", "make_game", spoiled)


def looked_at(timestep, view, state):
    observation, legal = view(state)
    return dataclasses.replace(timestep, observation=observation, legal=legal)


def eaten_hares_seen(env: Environment) -> Environment:
    """Players see hares that are long gone; what they may do is right."""

    def view(state):
        everything = dataclasses.replace(state, hare_alive=jnp.ones_like(state.hare_alive))
        return env.view(everything)[0], env.view(state)[1]

    def step(state, action, key):
        state, after = env.step(state, action, key)
        return state, looked_at(after, view, state)

    return dataclasses.replace(env, step=step, view=view)  # at a reset all hares are there


def two_from_one_draw(env: Environment) -> Environment:
    """Seat 2 starts wherever seat 1 does: one random word for both."""

    def reset(key):
        state, timestep = env.reset(key)
        state = dataclasses.replace(state, players=state.players.at[2].set(state.players[1]))
        return state, looked_at(timestep, env.view, state)

    return dataclasses.replace(env, reset=reset)


def first_drift_goes(env: Environment) -> Environment:
    """Who removes a drift removes the first that is left, wherever it lies."""

    def step(state, action, key):
        after, timestep = env.step(state, action, key)
        removed = jnp.sum(state.is_there & ~after.is_there)
        left = state.is_there & (jnp.cumsum(state.is_there) > removed)
        after = dataclasses.replace(after, is_there=left)
        return after, looked_at(timestep, env.view, after)

    return dataclasses.replace(env, step=step)


# --- training ------------------------------------------------------------------------------------


def memory_at_the_end(collect):
    """Sequences are learned from with the memory that they ended with."""

    def spoiled(*arguments):
        actor, trajectory, tally = collect(*arguments)
        ended = jax.tree.map(
            lambda kept, last: jnp.concatenate([kept[1:], last[None]]),
            trajectory.memory,
            trajectory.next_memory,
        )
        return actor, dataclasses.replace(trajectory, memory=ended), tally

    return spoiled


def same_key_again(train_step):
    """The key that was split is kept in place of the one that came of it."""

    def spoiled(env, algorithm, num_steps, sequence_length, state):
        after, metrics = train_step(env, algorithm, num_steps, sequence_length, state)
        return dataclasses.replace(after, key=state.key), metrics

    return spoiled


def new_optimisers(train_step):
    """Moments and the falling rate begin anew with every update."""

    def spoiled(env, algorithm, num_steps, sequence_length, state):
        after, metrics = train_step(env, algorithm, num_steps, sequence_length, state)
        return dataclasses.replace(after, learner=algorithm.learn.init(after.params)), metrics

    return spoiled


# --- algorithms ----------------------------------------------------------------------------------


def one_draw_for_all_games(draw_actions):
    def spoiled(key, identity, policy):
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, identity)
        unit = jax.vmap(jax.random.uniform)(keys)[None]
        cumulative = jnp.cumsum(policy, axis=-1)
        reached = cumulative > (unit * cumulative[..., -1])[..., None]
        return jnp.argmax(reached, axis=-1).astype(jnp.int32)

    return spoiled


def the_greater_of_two(clipped_policy_loss):
    """-max(ratio * A, clip(ratio) * A): by the sign of A, as min(-x, -y) = -max(x, y)."""

    def spoiled(logits, rows, clip, floor=None):
        turned = dataclasses.replace(rows, advantage=-rows.advantage)
        loss, entropy, figures = clipped_policy_loss(logits, turned, clip, floor)
        return -loss, entropy, figures | {"policy/loss": -loss}

    return spoiled


def one_name_too_few(with_identity):
    """Names end one early, so that the last two seats are told the same."""

    def spoiled(seen, identity, num_agents):
        return with_identity(seen, jnp.minimum(identity, num_agents - 2), num_agents)

    return spoiled


def old_over_new(weighted):
    """Ratios of those who came before the wrong way up."""
    return lambda batch, others: weighted(batch, 1.0 / others)


# --- nets ----------------------------------------------------------------------------------------


def one_step_back(remember):
    """The same memory, but nothing is learned through it further back than one step."""

    def spoiled(from_memory, memory, drive, first):
        remembered = remember(from_memory, memory, drive, first)
        before = jax.lax.stop_gradient(jnp.concatenate([memory[None], remembered[:-1]]))
        time, rows, width = before.shape
        after = remember(
            from_memory,
            before.reshape(time * rows, width),
            drive.reshape(1, time * rows, -1),
            first.reshape(1, time * rows),
        )
        return after.reshape(time, rows, width)

    return spoiled


def seats_as_they_lie(moved):
    """Rows are cut into as many parts as there are seats without putting seats first."""

    def spoiled(network, own, numbers, delta, gains):
        if numbers.ndim > 2:
            return moved(network, own, numbers, delta, gains)
        columns, time, seats, features = own.shape
        cut = jnp.moveaxis(own.reshape(seats, columns, time, features), 0, 2)
        said = moved(network, cut, numbers, delta, gains)
        return jnp.moveaxis(said, 2, 0).reshape(columns, time, seats, -1)

    return spoiled


# --- opponents and planning ----------------------------------------------------------------------


def judged_afterwards(watched):
    """A move is read by what its player saw after it, not before."""

    def spoiled(models, weights, habits, mind, transition, shown):
        before = dataclasses.replace(transition.before, observation=transition.after.observation)
        late = dataclasses.replace(transition, before=before)
        return watched(models, weights, habits, mind, late, shown)

    return spoiled


def worth_beyond_the_end(search):
    """Where a game ends in a tree, what the critic says of that moment is still added."""

    def spoiled(model, config, state, keys):
        def step(node, action, keys):
            state, reward, is_over = model.step(node, action, keys)
            value = model.look(state, keys)[1].value
            return state, reward + jnp.where(is_over, config.discount * value, 0.0), is_over

        return search(model._replace(step=step), config, state, keys)

    return spoiled


HELD_OUT: tuple[Planted, ...] = (
    Planted(201, "eaten hares stay in view", "envs", "rules", in_game(eaten_hares_seen)),
    Planted(202, "seats 1 and 2 start from one draw", "envs", "", in_game(two_from_one_draw)),
    Planted(
        203,
        "the first drift goes, not the one stood on",
        "envs",
        "rules",
        in_game(first_drift_goes),
        "ppo_snowdrift",
    ),
    Planted(
        204,
        "sequences start from the memory they ended with",
        "training",
        "",
        both(
            replacing(PROGRAMS, "collect", memory_at_the_end),
            replacing("coplay.audit.captured", "collect", memory_at_the_end),
        ),
        "ppo_gru_4h1s_4x4",
    ),
    Planted(
        205,
        "every round is drawn from the same key",
        "training",
        "",
        replacing(PROGRAMS, "train_step", same_key_again),
    ),
    Planted(
        206,
        "optimisers begin anew every update",
        "training",
        "",
        replacing(PROGRAMS, "train_step", new_optimisers),
    ),
    Planted(
        207,
        "one draw of a seat decides in all games",
        "algorithms",
        "",
        both(
            replacing(ACTOR_CRITIC, "draw_actions", one_draw_for_all_games),
            replacing("coplay.algorithms.company", "draw_actions", one_draw_for_all_games),
        ),
    ),
    Planted(
        208,
        "the surrogate takes the greater of plain and clipped",
        "algorithms",
        "term_weights",
        both(
            replacing(PPO, "clipped_policy_loss", the_greater_of_two),
            replacing("coplay.algorithms.losses", "clipped_policy_loss", the_greater_of_two),
        ),
    ),
    Planted(
        209,
        "the last two seats are told the same name",
        "algorithms",
        "own_rows",
        replacing(ACTOR_CRITIC, "with_identity", one_name_too_few),
        "mappo_4h1s_4x4",
    ),
    Planted(
        210,
        "ratios of earlier seats upside down",
        "algorithms",
        "turns",
        replacing("coplay.algorithms.happo", "_weighted", old_over_new),
        "happo_4h1s_4x4",
    ),
    Planted(
        211,
        "no gradient through more than one step of memory",
        "nets",
        "term_weights",
        replacing(RECURRENT, "remember", one_step_back),
        "ppo_gru_4h1s_4x4",
    ),
    Planted(
        212,
        "increments go to rows as they lie, not by seat",
        "nets",
        "",
        replacing("coplay.nets.hyper", "_moved", seats_as_they_lie),
        "hyper_mappo_4h1s_4x4",
    ),
    Planted(
        213,
        "co-players' moves judged by what they saw afterwards",
        "opponents",
        "",
        both(
            *[replacing(module, "watched", judged_afterwards) for module in ("coplay.opponents.minds", HOP)]
        ),
        "hop_4h1s_4x4",
    ),
    Planted(
        214,
        "searches count a value beyond the end of a game",
        "planning",
        "",
        both(*[replacing(module, "search", worth_beyond_the_end) for module in SEARCHES]),
        "hop_4h1s_4x4",
    ),
)
