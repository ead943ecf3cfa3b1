"""The compiled programs of a run: a chunk of updates for all seeds, and evaluation; and what each needs.

A chunk is one program; how many updates it makes is an argument, so that a last, shorter chunk or a stop in
between is the same program and the same bits. Environments are split over devices.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from coplay.training.devices import AXIS, own_part
from coplay.training.job import Job, Stretch
from coplay.training.rollout import collect, describe
from coplay.types import Algorithm, Environment, Metrics, PyTree, TrainState


def train_step(
    env: Environment, algorithm: Algorithm, num_steps: int, sequence_length: int, state: TrainState
) -> tuple[TrainState, Metrics]:
    """Collect with the current policy, then learn from what was collected."""
    key, collect_key, update_key = jax.random.split(state.key, 3)
    actor, trajectory, tally = collect(
        env, algorithm, state.params, state.actor, own_part(collect_key), num_steps, sequence_length
    )
    params, learner, metrics = algorithm.learn.update(
        state.params, state.learner, trajectory, own_part(update_key)
    )
    state = TrainState(params=params, learner=learner, actor=actor, key=key, updates=state.updates + 1)
    return state, metrics | describe(tally, env.action_names)


class Compiled(NamedTuple):
    """What a watcher is told of a line-up's program before it runs."""

    seconds: float  # that compiling took
    need: int | None  # bytes it takes while it runs; None where the compiler does not say
    held: int  # of these, what its arguments hold already


@final
class Program:
    """A function, compiled ahead for what it is called with; other shapes or types compile it again, and that
    is counted."""

    def __init__(self, function: Any):
        self.function = function
        self.programs: dict[Any, Callable] = {}

    def run(self, *arguments: PyTree) -> Any:
        return self.compiled_for(*arguments)(*arguments)

    def compiled_for(self, *arguments: PyTree) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        kind = structure, tuple((x.shape, x.dtype, getattr(x, "weak_type", False)) for x in leaves)
        if kind not in self.programs:
            self.programs[kind] = self.function.lower(*arguments).compile()
        return self.programs[kind]

    @property
    def recompiles(self) -> int:
        return max(0, len(self.programs) - 1)


def account_of(program: Any, seconds: float, devices: int) -> Compiled:
    """What a compiled program says of itself: it needs its arguments, its results and what lies between, on
    all devices. A result that takes an argument's place counts once."""
    told = program.memory_analysis()
    if told is None:
        return Compiled(seconds, need=None, held=0)
    both_ends = told.argument_size_in_bytes + told.output_size_in_bytes - told.alias_size_in_bytes
    need = devices * (both_ends + told.temp_size_in_bytes)
    return Compiled(seconds, need, held=devices * told.argument_size_in_bytes)


def chunk_program(job: Job, stretch: Stretch, state: TrainState) -> Program:
    """A program (state, number of updates) -> state, metrics [seed, update, ...]."""
    # As a function of its own, so that asking for its shapes and running it trace it once.
    step = jax.jit(
        functools.partial(train_step, job.env, stretch.algorithm, job.num_steps, job.sequence_length),
        inline=True,
    )

    def one_seed(state: TrainState, count: jax.Array):
        shapes = jax.eval_shape(step, state)[1]
        empty = jax.tree.map(lambda s: jnp.zeros((job.chunk_updates, *s.shape), s.dtype), shapes)

        def one_update(index, carry):
            state, metrics = carry
            state, new = step(state)
            return state, jax.tree.map(lambda all_, one: all_.at[index].set(one), metrics, new)

        return jax.lax.fori_loop(0, count, one_update, (state, empty))

    def all_seeds(state: TrainState, count: jax.Array):
        # One seed after the other inside the program: as fast as side by side on a CPU, and only one
        # seed's round of play is in memory at a time (docs/decisions/0002).
        return jax.lax.map(lambda one: one_seed(one, count), state)

    layout = layout_of(state)
    sharded = jax.shard_map(
        all_seeds,
        mesh=mesh_of(job),
        in_specs=(layout, PartitionSpec()),
        out_specs=(layout, PartitionSpec()),
        check_vma=False,
    )
    # Placements are said on both sides: what comes out must go back in without compiling again.
    places = jax.tree.map(lambda spec: NamedSharding(mesh_of(job), spec), layout)
    return Program(
        jax.jit(sharded, donate_argnums=0, in_shardings=(places, None), out_shardings=(places, None))
    )


def evaluation_program(job: Job, stretch: Stretch):
    """A compiled function (params, keys) -> scores [seed, ...], or None where evaluation is off."""
    if job.evaluate is None:
        return None
    return jax.jit(jax.vmap(job.evaluate(stretch.algorithm)))


def mesh_of(job: Job) -> Mesh:
    devices = jax.devices()[: job.devices]
    return Mesh(np.array(devices), (AXIS,), axis_types=(AxisType.Auto,))


def layout_of(state: TrainState) -> TrainState:
    """Environments are split over devices, behind the seed axis; all else is the same everywhere."""

    def place(path, leaf) -> PartitionSpec:
        names = {getattr(key, "name", None) for key in path}
        return PartitionSpec(None, AXIS) if names & {"actor", "per_env"} else PartitionSpec()

    return jax.tree_util.tree_map_with_path(place, state)


def placed(job: Job, state: TrainState) -> TrainState:
    """The state on the run's devices, as its programs want it."""
    mesh = mesh_of(job)
    return jax.tree.map(lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)), state, layout_of(state))
