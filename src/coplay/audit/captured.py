"""Training at a small scale, put together by hand: collect, learn, and keep all that lies between.

The product's own loop compiles both into one program. Here they are called one after the other, so that a
check can look at either by itself, disturb what goes in, and hold the loop against it. Programs are compiled
once for a subject, with little optimisation: they run for a moment only.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from coplay.taps import heard
from coplay.training import loop
from coplay.training.job import Job
from coplay.training.rollout import Tally, collect, describe, start_playing
from coplay.types import Algorithm, Environment, Metrics, PyTree, TrainState, Trajectory, as_played

QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
ROUNDS = 4


class Round(NamedTuple):
    """One update of one seed."""

    before: TrainState
    trajectory: Trajectory
    tally: Tally
    after: TrainState
    metrics: Metrics
    taps: dict[str, PyTree]


class Parts(NamedTuple):
    """Compiled functions of one seed."""

    collect: Callable  # params, actor, key -> actor, trajectory, tally
    learn: Callable  # params, learner, trajectory, key -> (params, learner, metrics), taps
    act: Callable  # params, memory, timestep, state, key -> memory, Decision, while learning
    play: Callable  # the same when it counts
    watch: Callable  # params, memory, transition -> memory
    step: Callable  # state, action, keys -> state, TimeStep, of many games
    reset: Callable  # keys -> state, TimeStep


def parts_of(job: Job) -> Parts:
    algorithm = job.stretches[0].algorithm
    return Parts(
        collect=collector(job, job.env),
        learn=quick(heard(algorithm.learn.update)),
        act=quick(lambda *arguments: algorithm.act(*arguments)),
        play=quick(lambda *arguments: as_played(algorithm).act(*arguments)),
        watch=quick(lambda *arguments: algorithm.watch(*arguments)),
        step=quick(jax.vmap(job.env.step)),
        reset=quick(jax.vmap(job.env.reset)),
    )


def quick(function: Callable) -> Callable:
    return jax.jit(function, compiler_options=QUICK)


def collector(job: Job, env: Environment) -> Callable:
    """Rounds of the job's players in this game."""
    return quick(collecting(job._replace(env=env), job.stretches[0].algorithm))


def collecting(job: Job, algorithm: Algorithm) -> Callable:
    """A function (params, actor, key) -> actor, trajectory, tally."""

    def play(params: PyTree, actor: PyTree, key: jax.Array):
        return collect(job.env, algorithm, params, actor, key, job.num_steps, job.sequence_length)

    return play


def start(job: Job) -> TrainState:
    """Of the first seed, before anything is learned."""
    return jax.jit(lambda seeds: jax.tree.map(lambda x: x[0], seeds))(loop.start(job, job.stretches[0]))


def start_shapes(job: Job) -> TrainState:
    """Of the same state: weights are drawn, and nothing else is made."""
    key, algorithm = jax.random.key(job.seed), job.stretches[0].algorithm
    params = algorithm.init(key)  # drawn for good: layers are not drawn inside a program

    def begin(params: PyTree, key: jax.Array) -> TrainState:
        actor = start_playing(job.env, algorithm, key, job.num_envs)
        return TrainState(params, algorithm.learn.init(params), actor, key, updates=jnp.int32(0))

    return jax.eval_shape(begin, params, key)


def one_round(job: Job, parts: Parts, state: TrainState) -> Round:
    """As `training.programs.train_step` has it, by hand."""
    key, collect_key, update_key = jax.random.split(state.key, 3)
    actor, trajectory, tally = parts.collect(state.params, state.actor, own_part(collect_key))
    learned, taps = parts.learn(state.params, state.learner, trajectory, own_part(update_key))
    params, learner, metrics = learned
    after = TrainState(params=params, learner=learner, actor=actor, key=key, updates=state.updates + 1)
    return Round(state, trajectory, tally, after, metrics | describe(tally, job.env.action_names), dict(taps))


def own_part(key: jax.Array) -> jax.Array:
    """Keys are for one device's games; this is the first."""
    return jax.random.fold_in(key, 0)


def update_key(state: TrainState) -> jax.Array:
    """What the round after `state` learns with."""
    return own_part(jax.random.split(state.key, 3)[2])


def rounds_from(job: Job, parts: Parts, state: TrainState, count: int) -> list[Round]:
    rounds = []
    for _ in range(count):
        rounds.append(one_round(job, parts, state))
        state = rounds[-1].after
    return rounds
