"""Hypernetwork MAPPO: a generator reads who a player is, or what is seen, and moves the actor's weights.

MAPPO with `policy` generated (`nets/hyper.py`) and two more terms that keep it gentle (`hyper_terms.py`).
With `context = "none"` it is plain MAPPO, bit for bit.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coplay.algorithms.actor_critic import (
    CRITIC_HEADS,
    ActorCritic,
    act,
    actor_critic,
    as_algorithm,
    board_of,
)
from coplay.algorithms.hyper_config import HyperMAPPOConfig
from coplay.algorithms.hyper_pretrained import begun_with
from coplay.algorithms.hyper_terms import additions, that_plays
from coplay.algorithms.ppo import Plan, mappo, ppo_stage
from coplay.algorithms.rewards import learning_reward
from coplay.algorithms.views import joint_view, own_view
from coplay.nets.context import EACH_STEP, ContextShape, Told
from coplay.nets.hyper import GeneratorShape
from coplay.training.stages import in_order
from coplay.types import (
    COMMUNICATES,
    Algorithm,
    Environment,
    Key,
    Memory,
    PyTree,
    Seated,
    TimeStep,
    Transition,
)


def hyper_mappo(
    env: Environment, seats: tuple[int, ...], config: HyperMAPPOConfig, plan: Plan, watched: bool = True
) -> Algorithm:
    if config.context == "none":
        return mappo(env, seats, dataclasses.replace(config, align_weight=0.0), plan, watched)
    learning_reward(config.learning_reward, config.team_share)  # a bad name is refused before anything runs
    model, init = generated_actor_critic(env, seats, config)
    extra = additions(model, config, plan)
    learn = in_order({"policy": ppo_stage(env, model, config, plan, extra=extra, watched=watched)})
    algorithm = as_algorithm(model, lambda key: extra.begin(init(key)), learn)
    if config.target == "act":
        algorithm = algorithm._replace(act=_by_the_copy(model, config))
    if config.pretrain is not None:
        begin = functools.partial(begun_with, config.pretrain, config.pretrain_seed, model, extra)
        algorithm = algorithm._replace(begin=begin)
    if config.communicates:
        algorithm = algorithm._replace(needs=COMMUNICATES)
    if config.delta_scale == 0:
        algorithm = _unmoved(algorithm)
    return algorithm._replace(watch=_watch_actions(model)) if _reads_actions(config) else algorithm


def _unmoved(algorithm: Algorithm) -> Algorithm:
    """Increments that count for nothing teach nothing to what makes them; the gains beside them learn on."""
    parts = (*[f"generator/{name}" for name in ("context", "trunk", "heads")], CRITIC_HEADS)
    still = (*parts, *[f"target/{name}" for name in parts])
    reaches = tuple((name, where) for name, where in algorithm.reaches if name != CRITIC_HEADS)
    return algorithm._replace(still=still, reaches=reaches)


def _by_the_copy(model: ActorCritic, config: HyperMAPPOConfig) -> Callable:
    def play(params: Seated, memory: Memory, timestep: TimeStep, state: PyTree, key: Key):
        return act(model, that_plays(model, config, params), memory, timestep, key)

    return play


def generated_actor_critic(
    env: Environment, seats: tuple[int, ...], config: HyperMAPPOConfig
) -> tuple[ActorCritic, Callable[[Key], Seated]]:
    shape = generator_shape(env, config)
    views = {"policy": _context_view(env, config, shape.context.told), "critic": joint_view}
    notes = {"acted": jnp.zeros(len(seats), jnp.int32)} if _reads_actions(config) else ()
    model, init = actor_critic(env, seats, config, views, notes=notes, generated=shape)
    if _reads_actions(config):
        model = _with_last_actions(model)
    if config.explore:
        model = _with_exploring(model)
    if config.generated_critic != "off":
        model = _with_told_critic(model)
    return model, init


def _reads_actions(config: HyperMAPPOConfig) -> bool:
    return config.moves_in_time and "action" in config.history_reads


def generator_shape(env: Environment, config: HyperMAPPOConfig) -> GeneratorShape:
    """What the settings come to in this game."""
    in_time, is_control = config.moves_in_time, config.context_from == "another_game"
    fuses = config.history_fusion != "off"
    reads = tuple("seen" if name == "observation" and is_control else name for name in config.history_reads)
    told = Told(
        observation=env.observation_size,
        action=env.num_actions if _reads_actions(config) else 0,
        reward=1 if in_time and "reward" in config.history_reads else 0,
        active=1 if in_time else 0,
        seen=env.observation_size if in_time and "seen" in reads else 0,
        legal=env.num_actions if config.explore or fuses else 0,
        exploring=1 if config.explore else 0,
        identity=env.num_agents if config.identity != "none" else 0,
    )
    context = ContextShape(
        told=told,
        reads=reads if in_time else (),
        encoder=config.encoder_width,
        planes=board_of(env, "encoder", "conv") if in_time and config.encoder == "conv" else None,
        heads=config.attention_heads if config.context == "joint" else 0,
        history=config.history if in_time else "none",
        history_width=config.history_width,
        history_window=config.history_window,
        fusion_window=config.fusion_window if fuses else 0,
        fusion_temperature=config.fusion_temperature,
        identity=config.identity,
        embedding=config.embedding,
        every=config.regenerate_every if in_time else EACH_STEP,
        together=config.increments == "shared",
    )
    return GeneratorShape(
        context=context,
        trunk=config.trunk,
        generate=config.made,
        rank=config.rank,
        scale=config.delta_scale,
        decay=config.accumulate,
        moves_critic=config.generated_critic == "last_layer",
    )


# --- what the policy reads -----------------------------------------------------------------------


def _context_view(env: Environment, config: HyperMAPPOConfig, told: Told):
    """Rows as `Told` lays them out, identity aside: what one sees, and what the context is made from."""

    def view(
        timestep: TimeStep, notes: PyTree, seats: tuple[int, ...]
    ) -> Float[Array, "*batch seat feature"]:
        index, own = np.array(seats), own_view(timestep, notes, seats)
        made_from = []
        if told.action:
            made_from.append(_one_hot(notes["acted"], env.num_actions))
        if told.reward:
            made_from.append(timestep.reward[..., index, None])
        if told.active:
            made_from.append(timestep.active[..., index, None].astype(jnp.float32))
        if told.seen:
            made_from.append(own)
        if config.context_from == "another_game":
            made_from = [_of_another_game(x) for x in made_from]
        legal = [timestep.legal[..., index, :].astype(jnp.float32)] if told.legal else []
        return jnp.concatenate([own, *made_from, *legal], axis=-1)

    return view


def _of_another_game(x: Float[Array, "*batch seat feature"]) -> Float[Array, "*batch seat feature"]:
    """The rows of the game that is played beside; a lone game has only its own."""
    return jnp.roll(x, 1, axis=-3) if x.ndim > 2 else x


def _one_hot(action: Array, num_actions: int) -> Array:
    names = jnp.arange(num_actions).reshape((1,) * action.ndim + (-1,))
    return (action[..., None] == names).astype(jnp.float32)


NOTHING_YET = -1  # as the last action of an episode that has just begun


def _with_last_actions(model: ActorCritic) -> ActorCritic:
    """What a player did last is kept in its memory and noted with every decision."""

    def empty(num_envs: int) -> Memory:
        acted = jnp.full((num_envs, len(model.seats)), NOTHING_YET, jnp.int32)
        memory = model.empty(num_envs) or {"policy": (), "critic": ()}
        return memory | {"acted": acted}

    def notice(params, memory: Memory, timestep: TimeStep) -> PyTree:
        return {"acted": jnp.where(timestep.first[..., None], NOTHING_YET, memory["acted"])}

    return model._replace(empty=empty, notice=notice, has_memory=True)


def _with_exploring(model: ActorCritic) -> ActorCritic:
    """Rows end with the share of moves that are drawn evenly, which belongs to the player."""
    view = model.views["policy"]

    def look(timestep: TimeStep, notes: PyTree, seats: tuple[int, ...], params: Seated) -> Array:
        rows = view(timestep, notes, seats, params)
        share = params.own["seat"]["exploring"].reshape((1,) * (rows.ndim - 2) + (-1, 1))
        return jnp.concatenate([rows, jnp.broadcast_to(share, (*rows.shape[:-1], 1))], axis=-1)

    return model._replace(views=model.views | {"policy": look})


def _with_told_critic(model: ActorCritic) -> ActorCritic:
    """The critic's rows end with the policy's: its context is made from those."""
    views = model.views

    def look(timestep: TimeStep, notes: PyTree, seats: tuple[int, ...], params: Seated) -> Array:
        return jnp.concatenate(
            [views[name](timestep, notes, seats, params) for name in ("critic", "policy")], axis=-1
        )

    return model._replace(views=views | {"critic": look})


def _watch_actions(model: ActorCritic):
    def watch(params, memory: Memory, transition: Transition) -> Memory:
        return memory | {"acted": transition.decision.action[..., model.index]}

    return watch
