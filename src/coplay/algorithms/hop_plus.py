"""HOP+: goals and the game itself are learned, and what is imagined with both teaches beside what is played.

Every seat reads a subgoal from what each co-player has done in the episode (`subgoal_stage.py`); its policy
and critic see those beside its own row. A model of the game learns from everybody's moves
(`world_stage.py`). From every real moment each seat imagines a step or a few, and learns from them too
(`imagination.py`), as far as measured quality allows (`diagnostics/gates.py`).

Learning, in order: `world`, `opponents`, then `policy` (PPO on what was played and what was imagined). With
subgoals and imagination switched off this is PPO, to the bit.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms import actor_critic
from coplay.algorithms.actor_critic import ActorCritic
from coplay.algorithms.hop_plus_config import HOPPlusConfig
from coplay.algorithms.imagination import Imagination, Use, imagine, imagined_rows
from coplay.algorithms.imagined_search import Planner, one_step, plan
from coplay.algorithms.ppo import Beside, Plan, ppo_stage
from coplay.algorithms.rewards import learning_reward
from coplay.algorithms.search_table import CHOICES, Table
from coplay.algorithms.subgoal_stage import (
    OTHERS,
    Readers,
    blank,
    foretold,
    read_others,
    read_rounds,
    readers,
    sights_of,
    subgoal_stage,
)
from coplay.algorithms.targets import standardiser
from coplay.algorithms.views import own_view
from coplay.algorithms.world_stage import world_stage
from coplay.diagnostics import gates
from coplay.errors import BadInput
from coplay.nets import world as worlds
from coplay.nets.world import World
from coplay.opponents.goal_policy import those_after
from coplay.opponents.subgoals import Subgoal, drawn
from coplay.training.devices import masked_mean
from coplay.training.stages import in_order, on
from coplay.types import (
    Algorithm,
    Decision,
    Environment,
    Key,
    Metrics,
    PyTree,
    Seated,
    Stage,
    Thoughts,
    TimeStep,
    Trajectory,
    stream,
)

ENOUGH = 20  # remembered moves that paid a reward, before anything is asked or believed about it


class Parts(NamedTuple):
    """What acting and learning share; a part that is switched off is None."""

    env: Environment
    seats: tuple[int, ...]
    config: HOPPlusConfig
    policy: ActorCritic
    reader: Readers | None
    world: World | None


def hop_plus(env: Environment, seats: tuple[int, ...], config: HOPPlusConfig, run: Plan) -> Algorithm:
    _refuse(env, seats, config, run)
    parts, init = _parts(env, seats, config)
    return Algorithm(
        init=init,
        remember=lambda num_envs: blank(parts.reader, num_envs) if parts.reader else (),
        act=lambda *arguments: _act(parts, *arguments),
        watch=lambda params, memory, transition: memory,
        learn=_learn(parts, run),
        play=lambda *arguments: _play(parts, *arguments),
        reads_states=config.imagines or parts.world is not None,
    )


def _refuse(env: Environment, seats: tuple[int, ...], config: HOPPlusConfig, run: Plan) -> None:
    learning_reward(config.learning_reward, config.team_share)
    if config.subgoals == "inferred" and env.goals.look is None:
        raise BadInput(f"hop_plus reads how near things are; set observation='entities' for {env.name}")
    if config.world == "learned" and (env.entities is None or env.reward_values is None):
        raise BadInput(f"{env.name} is no board of things with known rewards: set world='game' or 'none'")
    if config.world == "learned" and run.num_envs < 10:
        raise BadInput(f"a learned world is judged by every fifth game: num_envs={run.num_envs} is too few")
    plans = config.acts != "policy"
    if (config.imagines or plans) and config.learning_reward != "own":
        raise BadInput(
            "one imagines one's own reward: set learning_reward='own', or real_share=1, acts='policy'"
        )
    if (config.imagines or plans) and config.others == "policies" and len(seats) < env.num_agents:
        raise BadInput(
            "others='policies' is for tables where every seat is hop_plus: set others='models', or "
            "real_share=1, acts='policy'"
        )


def _parts(env: Environment, seats: tuple[int, ...], config: HOPPlusConfig):
    """The parts, and a function that initialises the weights of all of them."""
    reads = config.subgoals == "inferred" and config.policy_reads
    view = _subgoal_view(env, seats) if reads else own_view
    shape = (len(seats), env.num_agents - 1, config.subgoal_size)
    notes = jax.eval_shape(lambda: Subgoal(jnp.zeros(shape), jnp.zeros(shape)))
    policy, init_policy = actor_critic.actor_critic(
        env, seats, config, {"policy": view, "critic": view}, notes=notes
    )
    reader, init_reader = None, None
    if config.subgoals == "inferred":
        reader, init_reader = readers(env, seats, config, policy.sharing)
        policy = policy._replace(notice=lambda params, memory, t: read_others(reader, params, memory, t)[1])
    world, init_world = None, None
    if config.world == "learned":
        assert env.entities is not None, "the game has been refused otherwise"
        assert env.reward_values is not None, "the game has been refused otherwise"
        world, init_world = worlds.world_model(
            env.entities, env.num_agents, env.num_actions, env.reward_values, config.world_hidden
        )

    def init(key: Key) -> dict[str, Seated]:
        params = {"policy": init_policy(key)}
        if init_reader:
            weights = policy.sharing.init(init_reader, stream(key, "opponents"), len(seats))
            merged = policy.sharing.weights(params["policy"]) | {OTHERS: weights}
            params["policy"] = policy.sharing.pack(merged, params["policy"].own["seat"])
        if init_world:
            keys = jax.random.split(stream(key, "world"), config.world_members)
            members = [init_world(k) for k in keys]
            weights = jax.tree.map(lambda *x: jnp.stack(x), *members)
            params["world"] = Seated(own={}, common={"members": weights})
        return params

    return Parts(env, seats, config, policy, reader, world), init


def _subgoal_view(env: Environment, seats: tuple[int, ...]):
    """What one sees oneself, and what the others seem to be up to; nothing of those who have left."""
    others = those_after(seats, env.num_agents)

    def view(timestep: TimeStep, notes: Subgoal, seats: tuple[int, ...]) -> Float[Array, "*batch seat row"]:
        is_here = timestep.active[..., others]
        read = jnp.where(is_here[..., None], notes.mean, 0.0)
        flat = read.reshape(*read.shape[:-2], -1)
        return jnp.concatenate([own_view(timestep, (), seats), flat], axis=-1)

    return view


# --- acting --------------------------------------------------------------------------------------


def _act(parts: Parts, params: PyTree, memory: PyTree, timestep: TimeStep, state, key: Key):
    policy = parts.policy
    if parts.reader is None:
        return actor_critic.act(policy, params["policy"], memory, timestep, key)
    memory, notes = read_others(parts.reader, params["policy"], memory, timestep)
    noticed = policy._replace(notice=lambda *_: notes)
    return memory, actor_critic.act(noticed, params["policy"], (), timestep, key)[1]


def _play(parts: Parts, params: PyTree, memory: PyTree, timestep: TimeStep, state, key: Key):
    """When it counts: moves may be planned, and it tells what it expects the others to do."""
    memory, decision = _act(parts, params, memory, timestep, state, key)
    if parts.config.acts != "policy":
        decision = _planned(parts, params, decision, timestep, state, stream(key, "plan"))
    if parts.reader is None:
        return memory, decision
    seen, legal = sights_of(parts.reader, timestep), timestep.legal[:, parts.reader.others]
    told = foretold(parts.reader, params["policy"], seen, legal, decision.notes.mean)
    return memory, dataclasses.replace(decision, thoughts=Thoughts(prediction=jnp.exp(told)))


def _planned(parts: Parts, params: PyTree, decision: Decision, timestep: TimeStep, state, key: Key):
    """The same decision by what was found best, one step on or by search."""
    config, seats = parts.config, np.array(parts.seats)
    guesses = config.guesses if config.acts == "one_step" else config.trees
    table = Table(seats, those_after(parts.seats, parts.env.num_agents), guesses)
    imagination = _imagination(parts, in_game=config.acts_in == "game")
    planner = Planner(imagination, params, table, config.open_prior)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, params["policy"].own["seat"]["identity"])
    now = decision.notes, timestep, state, keys
    if config.acts == "one_step":
        plans = one_step(planner, config.discount, *now)
    else:
        plans = plan(planner, config.search_with(config.discount), *now)
    action = CHOICES[config.choose](plans, guesses)
    policy = jax.nn.one_hot(action, plans.q.shape[-1])
    return dataclasses.replace(decision, action=action, log_prob=jnp.zeros(action.shape), policy=policy)


# --- imagining -----------------------------------------------------------------------------------


def _imagination(parts: Parts, in_game: bool = False) -> Imagination:
    config, env, reader, world = parts.config, parts.env, parts.reader, parts.world

    def learned(params: PyTree, state, action, key: Key, first: Int[Array, ""]):
        assert world is not None, "only then is this asked"
        return worlds.imagined_by_some(
            env, world, params["world"].common["members"], state, action, key, first
        )

    def true(params: PyTree, state, action, key: Key, first: Int[Array, ""]):
        return *env.step(state, action, key), jnp.float32(0.0)

    def guess(notes: PyTree, own, keys: Key):
        return jax.vmap(drawn)(jax.tree.map(own, notes), keys) if reader is not None else ()

    def as_modelled(params: PyTree, goal: Float[Array, "seat moment other number"], timestep: TimeStep, own):
        """What everyone else does in the games of every seat, as that seat thinks."""
        assert reader is not None, "the settings have been refused otherwise"
        rows = own(sights_of(reader, timestep)), own(timestep.legal[:, reader.others]), goal
        rows = [jnp.swapaxes(x, 0, 1) for x in rows]  # [moment, seat, ...]
        return jnp.swapaxes(foretold(reader, params["policy"], *rows), 0, 1)

    def noticed(params: PyTree, memory, notes, after: TimeStep):
        if reader is None or config.imagined_steps == 1:
            return memory, notes  # not looked at
        return read_others(reader, params["policy"], memory, after)

    return Imagination(
        model=parts.policy,
        steps=config.imagined_steps,
        branches=config.imagined_branches,
        discount=config.discount,
        trace=config.trace,
        guess=guess,
        others=as_modelled if config.others == "models" else None,
        move=learned if world is not None and not in_game else true,
        notice=noticed,
    )


# --- learning ------------------------------------------------------------------------------------


def _learn(parts: Parts, run: Plan) -> Stage:
    models, sharing, config = _models_stage(parts, run), parts.policy.sharing, parts.config
    is_gated = config.imagines and config.gates == "auto"

    def init(params: PyTree):
        critic = sharing.map(lambda weights: gates.not_yet())(sharing.weights(params["policy"]))
        return {
            "models": models.init(params),
            "policy": ppo_stage(parts.env, parts.policy, config, run).init(params["policy"]),
            "gate": Seated(own={}, common={"gate": gates.at(0)}),
            "critic": sharing.pack(critic, {}),
        }

    def update(params: PyTree, learner: PyTree, trajectory: Trajectory, key: Key):
        noted = parts.policy.notice(params["policy"], trajectory.next_memory, trajectory.next)
        params, models_state, figures = models.update(params, learner["models"], trajectory, key)
        gate, are_good = learner["gate"].common["gate"], _tests(parts, figures)
        rung = gates.in_force(gate, are_good) if is_gated else jnp.int32(gates.SEVERAL)
        beside, more = _beside(parts, run, params, trajectory, rung, stream(key, "imagine"))
        # Where play goes on, the critic reads what those who played noted, not who has learned since.
        policy = ppo_stage(parts.env, parts.policy._replace(notice=lambda *_: noted), config, run)
        own, policy_state, learned = policy.update(
            params["policy"], learner["policy"], trajectory, stream(key, "policy"), beside
        )
        critic = sharing.weights(learner["critic"])
        if is_gated:
            critic = gates.judged(critic, learned)
            gate = gates.climbed(gate, jnp.concatenate([_is_sound(parts, critic)[None], are_good]))
        learner = {
            "models": models_state,
            "policy": policy_state,
            "gate": Seated({}, {"gate": gate}),
            "critic": sharing.pack(critic, {}),
        }
        return params | {"policy": own}, learner, figures | more | learned

    return Stage(init, update)


def _models_stage(parts: Parts, run: Plan) -> Stage:
    """What learns before the policy does."""
    stages = {}
    if parts.world is not None:
        stages["world"] = on("world", world_stage(parts.env, parts.world, parts.config, run))
    if parts.reader is not None:
        stage = subgoal_stage(parts.reader, parts.config, run.sequence_length)
        stages["opponents"] = on("policy", stage)
    return in_order(stages)


def _beside(
    parts: Parts, run: Plan, params: PyTree, trajectory: Trajectory, rung: Int[Array, ""], key: Key
) -> tuple[Beside | None, Metrics]:
    """What is imagined from this round, as rows to learn from, with figures; nothing where that is off."""
    config = parts.config
    if not config.imagines:
        return None, {}
    memory = _memories(parts, params, trajectory, run.sequence_length)
    most = jnp.where(rung >= gates.SEVERAL, config.imagined_steps, 1)
    imagined = imagine(_imagination(parts), params, trajectory, memory, most, key)
    share = jnp.where(rung >= gates.ONE, 1.0 - config.real_share, 0.0)
    use = Use(share, config.doubt, config.critic_data == "both", standardiser(config))
    length = trajectory.steps.before.first.shape[0]
    rows = imagined_rows(parts.policy, params["policy"], imagined, use, length)
    return Beside(rows, share), _imagined_figures(imagined) | {
        "imagination/rung": rung.astype(jnp.float32),
        "imagination/share": share,
        "imagination/steps": most.astype(jnp.float32),
    }


def _memories(parts: Parts, params: PyTree, trajectory: Trajectory, length: int) -> PyTree:
    """What had been read of everyone at every real moment; nobody asks where one step is imagined."""
    if parts.reader is None or parts.config.imagined_steps == 1:
        return ()
    return read_rounds(parts.reader, params["policy"], trajectory, length)


def _imagined_figures(imagined) -> Metrics:
    """Of every seat, over the rows that it imagined."""

    def mean(x: Array) -> Float[Array, " seat"]:
        return masked_mean(x, imagined.counts, (0, 1, 3))

    return {
        "imagined/reward": mean(imagined.reward),
        "imagined/doubt": mean(imagined.doubt),
        "imagined/return": mean(imagined.value + imagined.advantage),
        "imagined/bias": mean(-imagined.advantage),
    }


def _is_sound(parts: Parts, critic: gates.Judged) -> Bool[Array, ""]:
    """Whether every seat's critic is."""
    most = max(map(abs, parts.env.reward_values)) if parts.env.reward_values else 1.0
    return gates.is_sound(critic, barely=0.05 * most)


def _tests(parts: Parts, figures: Metrics) -> Bool[Array, " rung"]:
    """Whether the models are good enough for one imagined step, and for several, by this round's figures."""
    good, better = jnp.asarray(True), jnp.asarray(True)
    if parts.world is not None:
        values = [f"{value:.3g}" for value in parts.world.reward_values]
        for value in values:
            is_known = figures[f"world/seen/{value}"] >= ENOUGH
            good &= ~is_known | (figures[f"world/recall/{value}"] >= 0.9)
        largest = f"{max(parts.world.reward_values):.3g}"
        good &= figures[f"world/seen/{largest}"] >= ENOUGH
        good &= figures["world/possible"] > 0.99
        better &= figures["world/possible"] > 0.999
    if parts.reader is not None and parts.config.others == "models":
        model, true, even = (figures[f"opponents/{n}surprise"] for n in ("", "true_", "even_"))
        gap, share = model - true, (even - model) / jnp.maximum(even - true, 1e-6)
        good &= jnp.all((gap <= 0.1) & ((share >= 0.8) | (gap <= 0.02)))  # hardly anything to foresee, too
    return jnp.stack([good, better])
