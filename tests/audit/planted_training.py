"""Defects of the loop: how rounds are collected, cut up, learned from and written down (14 to 29, 74, 78)."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from coplay.training import rollout
from coplay.training.devices import own_part
from coplay.types import Seated, TrainState
from tests.audit.planted import Planted, both, keeping, map_seated, replacing

ROLLOUT, PROGRAMS, LOOP = "coplay.training.rollout", "coplay.training.programs", "coplay.training.loop"


def stored(change):
    """`change(transition, actor after) -> transition`, of what is stored of every step."""

    def spoil(play_step):
        def spoiled(env, algorithm, params, actor, key):
            actor, transition, ended = play_step(env, algorithm, params, actor, key)
            return actor, change(transition, actor), ended

        return spoiled

    return replacing(ROLLOUT, "play_step", spoil)


def with_after(transition, **changes):
    return dataclasses.replace(transition, after=dataclasses.replace(transition.after, **changes))


def with_before(transition, **changes):
    return dataclasses.replace(transition, before=dataclasses.replace(transition.before, **changes))


def every_second_game_dropped(transition, actor):
    active = transition.before.active
    return with_before(transition, active=active.at[1::2, 1].set(False))


def rows_of_seat_0(transition, actor):
    def first(x):
        return jnp.broadcast_to(x[:, :1], x.shape)

    transition = with_after(transition, reward=first(transition.after.reward))
    return with_before(transition, observation=first(transition.before.observation))


def axes_swapped(transition, actor):
    seen = transition.before.observation
    return with_before(transition, observation=jnp.swapaxes(seen, 0, 1).reshape(seen.shape))


def after_the_reset(transition, actor):
    return with_after(transition, observation=actor.timestep.observation)


def late_rewards(collect):
    @functools.wraps(collect)
    def spoiled(*arguments):
        actor, trajectory, tally = collect(*arguments)
        after = trajectory.steps.after
        late = dataclasses.replace(after, reward=jnp.roll(after.reward, 1, axis=0))
        steps = dataclasses.replace(trajectory.steps, after=late)
        return actor, dataclasses.replace(trajectory, steps=steps), tally

    return spoiled


def returns_of_the_neighbour(describe):
    def spoiled(tally, action_names):
        metrics = describe(tally, action_names)
        return metrics | {"return": metrics["return"].at[0].set(metrics["return"][1])}

    return spoiled


def updates(change):
    """`change(state before, state after) -> state after`, of every update that the loop makes."""

    def spoil(train_step):
        def spoiled(env, algorithm, num_steps, sequence_length, state):
            after, metrics = train_step(env, algorithm, num_steps, sequence_length, state)
            return change(state, after), metrics

        return spoiled

    return replacing(PROGRAMS, "train_step", spoil)


def half_rate(before: TrainState, after: TrainState) -> TrainState:
    return dataclasses.replace(after, params=keeping(1, before.params, after.params, 0.5))


def skipped_on_odd_updates(before: TrainState, after: TrainState) -> TrainState:
    skipped = keeping(3, before.params, after.params), keeping(3, before.learner, after.learner)
    is_odd = before.updates % 2 == 1
    params, learner = jax.tree.map(
        lambda a, b: jnp.where(is_odd, a, b), skipped, (after.params, after.learner)
    )
    return dataclasses.replace(after, params=params, learner=learner)


def one_after_the_other(train_step):
    """Later seats meet what earlier ones have just learned."""

    def spoiled(env, algorithm, num_steps, sequence_length, state):
        params = state.params
        for seat in range(env.num_agents):
            now = dataclasses.replace(state, params=params)
            after, metrics = train_step(env, algorithm, num_steps, sequence_length, now)
            for other in range(env.num_agents):
                if other != seat:
                    after = dataclasses.replace(after, params=keeping(other, params, after.params))
            params = after.params
        return after, metrics

    return spoiled


def starting(change):
    def spoil(start_seed):
        def spoiled(*arguments):
            state = start_seed(*arguments)
            return dataclasses.replace(state, params=map_seated(change, state.params))

        return spoiled

    return replacing(LOOP, "_start_seed", spoil)


def one_identity(part: Seated) -> Seated:
    own = dict(part.own)
    if "seat" in own:
        own["seat"] = {name: jnp.zeros_like(x) for name, x in own["seat"].items()}
    return Seated(own, part.common)


def one_start(part: Seated) -> Seated:
    group = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), part.own["group"])
    return Seated(part.own | {"group": group}, part.common)


def always_the_first_seed(start_seed):
    return lambda job, stretch, seed, begins=True: start_seed(job, stretch, 0, begins)


def never_first(reset_finished):
    def spoiled(*arguments):
        state, timestep = reset_finished(*arguments)
        return state, dataclasses.replace(timestep, first=jnp.zeros_like(timestep.first))

    return spoiled


def without_the_scale(load):
    def spoiled(folder, like, *rest, **options):
        tree, meta = load(folder, like, *rest, **options)
        forgotten = jax.tree_util.tree_map_with_path(
            lambda path, x: jnp.zeros_like(x) if "'scale'" in jax.tree_util.keystr(path) else x, tree
        )
        return forgotten, meta

    return spoiled


def apart(cut):
    """One leaf of a batch is shuffled by itself."""

    def spoiled(batch, plan, key):
        chunks, minibatches, per_minibatch = cut(batch, plan, key)
        leaves, structure = jax.tree.flatten(chunks)
        leaves[0] = jax.tree.leaves(cut(batch, plan, jax.random.fold_in(key, 1))[0])[0]
        return jax.tree.unflatten(structure, leaves), minibatches, per_minibatch

    return spoiled


def some_left_out(cut):
    def spoiled(batch, plan, key):
        chunks, minibatches, per_minibatch = cut(batch, plan, key)
        return chunks, max(1, minibatches * 3 // 4), per_minibatch

    return spoiled


STARTED: dict = {}


def acting_by_old_weights(train_step):
    """What plays never learns: it acts by the weights of the start."""

    def spoiled(env, algorithm, num_steps, sequence_length, state):
        key, collect_key, update_key = jax.random.split(state.key, 3)
        old = jax.tree.map(jnp.asarray, STARTED["params"])
        actor, trajectory, tally = rollout.collect(
            env, algorithm, old, state.actor, own_part(collect_key), num_steps, sequence_length
        )
        params, learner, metrics = algorithm.learn.update(
            state.params, state.learner, trajectory, own_part(update_key)
        )
        after = TrainState(params, learner, actor, key, state.updates + 1)
        return after, metrics | rollout.describe(tally, env.action_names)

    return spoiled


def remembering_the_start(start_seed):
    def spoiled(*arguments):
        state = start_seed(*arguments)
        STARTED["params"] = jax.tree.map(np.asarray, state.params)
        return state

    return spoiled


def scores_of_the_last_look(evaluation_program):
    def spoil(job, stretch):
        evaluate, kept = evaluation_program(job, stretch), {}

        def late(params, keys):
            before = kept.get("params", params)
            kept["params"] = jax.tree.map(jnp.array, params)
            stale = (
                before
                if "seen" in kept
                else jax.tree.map(lambda x: x * 0 if x.dtype.kind == "f" else x, params)
            )
            kept["seen"] = True
            return evaluate(stale, keys)

        return late if evaluate else None

    return spoil


COLLECT = [(PROGRAMS, "collect"), ("coplay.audit.captured", "collect")]
DESCRIBE = [(PROGRAMS, "describe"), ("coplay.audit.captured", "describe")]
STAGES = "coplay.training.stages"

TRAINING = (
    Planted(14, "one seat's learning rate halved", "training", "loop", updates(half_rate)),
    Planted(
        15,
        "one seat's rows of every second game dropped",
        "training",
        "rows",
        stored(every_second_game_dropped),
    ),
    Planted(16, "all seats share one random key", "training", "draws", starting(one_identity)),
    Planted(17, "all seats start from the same weights", "training", "starts_apart", starting(one_start)),
    Planted(18, "every seat trains on seat 0's rows", "training", "rows", stored(rows_of_seat_0)),
    Planted(
        19,
        "memory not cleared: no row says that it is the first",
        "training",
        "rows",
        replacing(ROLLOUT, "reset_finished", never_first),
        "ppo_gru_4h1s_4x4",
    ),
    Planted(20, "next view stored after the reset", "training", "rows", stored(after_the_reset)),
    Planted(
        21,
        "rewards stored one step late",
        "training",
        "rows",
        both(*[replacing(module, name, late_rewards) for module, name in COLLECT]),
    ),
    Planted(22, "last seat skipped on odd updates", "training", "loop", updates(skipped_on_odd_updates)),
    Planted(
        23,
        "seat 1's return logged under seat 0",
        "training",
        "ledger",
        both(*[replacing(module, name, returns_of_the_neighbour) for module, name in DESCRIBE]),
    ),
    Planted(
        24,
        "checkpoint omits the value normaliser",
        "training",
        "resumes",
        replacing("coplay.training.checkpoint", "load", without_the_scale),
    ),
    Planted(25, "env and agent axes swapped when merged", "training", "rows", stored(axes_swapped)),
    Planted(26, "shuffle moves some leaves apart", "training", "samples", replacing(STAGES, "_cut", apart)),
    Planted(
        27,
        "the rollout acts with old weights",
        "training",
        "loop",
        both(
            replacing(LOOP, "_start_seed", remembering_the_start),
            replacing(PROGRAMS, "train_step", acting_by_old_weights),
        ),
    ),
    Planted(28, "samples never used", "training", "samples", replacing(STAGES, "_cut", some_left_out)),
    Planted(
        29,
        "later seats see earlier seats' new weights",
        "training",
        "loop",
        replacing(PROGRAMS, "train_step", one_after_the_other),
    ),
    Planted(
        74,
        "scores belong to earlier weights",
        "training",
        "scores",
        replacing(LOOP, "evaluation_program", scores_of_the_last_look),
    ),
    Planted(
        78,
        "every seed falls back to the default",
        "training",
        "seeds_apart",
        replacing(LOOP, "_start_seed", always_the_first_seed),
    ),
)
