"""HOP+: goals and the game itself are learned, and what is imagined with both teaches beside what is played.

Every seat reads a subgoal from what each co-player has done in the episode (`readers.py`); its policy and
critic see those beside its own row. A model of the game learns from everybody's moves (`world_stage.py`).
From every real moment each seat imagines a step or a few, and learns from them too (`imagination.py`), as far
as measured quality allows (`diagnostics/gates.py`). Some seats may follow orders in a share of the games, so
that there are strangers to learn from (`company.py`).

Learning, in order: `world`, `opponents`, `pursuit`, then `policy` (PPO on what was played and what was
imagined). With every part switched off this is PPO, to the bit.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from coplay.algorithms import actor_critic
from coplay.algorithms.company import all_free, greeted, is_free, obeying
from coplay.algorithms.hindsight import Chosen, chosen_in_hindsight, mixed
from coplay.algorithms.hop_plus_config import HOPPlusConfig
from coplay.algorithms.hop_plus_imagining import are_good, beside_play, imagination_of, is_sound
from coplay.algorithms.hop_plus_parts import HOPPlusMemory, Parts, noted, open_minded, parts_of
from coplay.algorithms.imagined_search import Planner, one_step, plan
from coplay.algorithms.ppo import Plan, ppo_stage
from coplay.algorithms.pretrained import with_pretrained
from coplay.algorithms.pursuit import pursuit_stage
from coplay.algorithms.readers import blank, foretold, likeliest, sights_of
from coplay.algorithms.rewards import learning_reward
from coplay.algorithms.search_table import CHOICES, Table
from coplay.algorithms.subgoal_stage import subgoal_stage
from coplay.algorithms.targets import Lesson, usual_lesson
from coplay.algorithms.world_stage import world_stage
from coplay.diagnostics import gates
from coplay.errors import BadInput
from coplay.opponents.goal_policy import those_after
from coplay.opponents.prior import board_parts
from coplay.training.stages import in_order, on
from coplay.types import (
    ACT,
    DECENTRALISED,
    LEARN,
    PLAY,
    SEES_ALL,
    Algorithm,
    Decision,
    Environment,
    Key,
    PyTree,
    Seated,
    Stage,
    Thoughts,
    TimeStep,
    Trajectory,
    stream,
)


def hop_plus(env: Environment, seats: tuple[int, ...], config: HOPPlusConfig, run: Plan) -> Algorithm:
    _refuse(env, seats, config, run)
    parts, init = parts_of(env, seats, config)
    return Algorithm(
        init=init,
        remember=lambda num_envs: open_minded(parts, num_envs),
        act=lambda *arguments: _act(parts, *arguments),
        watch=lambda params, memory, transition: memory,
        learn=_learn(parts, run),
        play=lambda *arguments: _play(parts, *arguments),
        begin=lambda params: with_pretrained(parts, params),
        reads_states=config.imagines or parts.world is not None,
        needs=SEES_ALL if config.subgoals != "none" or config.acts != "policy" else DECENTRALISED,
        reaches=_reaches(parts),
        still=("prior/prior",) if config.prior else (),
        judged=(
            *(("world/members",) if parts.world is not None else ()),
            *(("policy/others",) if parts.reader is not None else ()),
        ),
    )


def _reaches(parts: Parts) -> tuple[tuple[str, str], ...]:
    own = [(f"policy/{name}", where) for name, where in actor_critic.reach_of(parts.policy)]
    if parts.reader is not None:
        own += [("policy/others", PLAY), *([("policy/others", ACT)] if parts.config.policy_reads else [])]
    if parts.world is not None and parts.config.imagines:
        own += [("world/members", LEARN)]
    if parts.pursuit is not None:
        own += [("pursuit/q", ACT)]
    if parts.selector is not None:
        own += [("prior/prior", LEARN)]
    return tuple(own)


def _refuse(env: Environment, seats: tuple[int, ...], config: HOPPlusConfig, run: Plan) -> None:
    learning_reward(config.learning_reward, config.team_share)
    reads = config.subgoals == "inferred"
    if (reads or config.ordered_games > 0) and env.goals.look is None:
        raise BadInput(f"hop_plus reads how near things are; set observation='entities' for {env.name}")
    if reads and config.pay and env.reward_values is None:
        raise BadInput(f"{env.name} does not say which rewards it can pay: set pay=0")
    if reads and config.ahead >= run.sequence_length:
        raise BadInput(
            f"ahead={config.ahead} reaches over sequences of {run.sequence_length} steps: set a smaller ahead"
        )
    if config.prior and not board_parts(env, jnp.zeros(env.observation_size)):
        raise BadInput(f"{env.name} shows no board that a prior could have learned from: set prior=''")
    if config.goal_gate == "distance" and env.goals.away is None:
        raise BadInput(f"{env.name} does not tell how far its goals are: set goal_gate='none'")
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


# --- acting --------------------------------------------------------------------------------------


def _act(parts: Parts, params: PyTree, memory: HOPPlusMemory, timestep: TimeStep, state, key: Key):
    """While learning: in some games some seats follow orders."""
    if parts.company is None or parts.pursuit is None:
        return _decided(parts, params, memory, timestep, key)
    identity = params["policy"].own["seat"]["identity"]
    orders, is_new = greeted(parts.company, identity, memory.orders, timestep, stream(key, "company"))
    memory = HOPPlusMemory(_forgotten(parts, memory.read, is_new), orders)
    memory, free = _decided(parts, params, memory, timestep, stream(key, "free"))
    return memory, obeying(
        parts.company,
        parts.pursuit,
        params["pursuit"],
        identity,
        free,
        orders.order,
        timestep,
        stream(key, "told"),
    )


def _forgotten(parts: Parts, read: PyTree, is_new: Array) -> PyTree:
    """Of new company nothing has been read."""
    if parts.reader is None:
        return read
    fresh = blank(parts.reader, is_new.shape[0])
    return jax.tree.map(
        lambda new, old: jnp.where(is_new.reshape(-1, *(1,) * (new.ndim - 1)), new, old), fresh, read
    )


def _decided(parts: Parts, params: PyTree, memory: HOPPlusMemory, timestep: TimeStep, key: Key):
    memory, notes = noted(parts, params["policy"], memory, timestep)
    noticed = parts.policy._replace(notice=lambda *_: notes)
    return memory, actor_critic.act(noticed, params["policy"], (), timestep, key)[1]


def _play(parts: Parts, params: PyTree, memory: HOPPlusMemory, timestep: TimeStep, state, key: Key):
    """When it counts: nobody follows orders, moves may be planned, and it tells what it expects the others to
    do."""
    if parts.company is not None:
        memory = HOPPlusMemory(memory.read, all_free(memory.orders))
    memory, decision = _decided(parts, params, memory, timestep, key)
    if parts.config.acts != "policy":
        decision = _planned(parts, params, decision, timestep, state, stream(key, "plan"))
    if parts.reader is None:
        return memory, decision
    seen, legal = sights_of(parts.reader, timestep), timestep.legal[:, parts.reader.others]
    told = foretold(parts.reader, params["policy"], seen, legal, likeliest(decision.notes["reading"]))
    return memory, dataclasses.replace(decision, thoughts=Thoughts(prediction=jnp.exp(told)))


def _planned(parts: Parts, params: PyTree, decision: Decision, timestep: TimeStep, state, key: Key):
    """The same decision by what was found best, one step on or by search."""
    config, seats = parts.config, np.array(parts.seats)
    guesses = config.guesses if config.acts == "one_step" else config.trees
    table = Table(seats, those_after(parts.seats, parts.env.num_agents), guesses)
    imagination = imagination_of(parts, in_game=config.acts_in == "game")
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


# --- learning ------------------------------------------------------------------------------------


def _learn(parts: Parts, run: Plan) -> Stage:
    sharing, config = parts.policy.sharing, parts.config
    is_gated = config.imagines and config.gates == "auto"

    def init(params: PyTree):
        critic = sharing.map(lambda weights: gates.not_yet())(sharing.weights(params["policy"]))
        return {
            "models": _models_stage(parts, run).init(params),
            "policy": ppo_stage(parts.env, parts.policy, config, run).init(params["policy"]),
            "gate": Seated(own={}, common={"gate": gates.at(0), "rounds": jnp.int32(0)}),
            "critic": sharing.pack(critic, {}),
        }

    def update(params: PyTree, learner: PyTree, trajectory: Trajectory, key: Key):
        gate, rounds = learner["gate"].common["gate"], learner["gate"].common["rounds"]
        after = parts.policy.notice(params["policy"], trajectory.next_memory, trajectory.next)
        chosen = _chosen(parts, run, params, trajectory, rounds, stream(key, "hindsight"))
        models = _models_stage(parts, run, chosen)
        params, models_state, figures = models.update(params, learner["models"], trajectory, key)
        good = are_good(parts, figures)
        rung = gates.in_force(gate, good) if is_gated else jnp.int32(gates.SEVERAL)
        beside, more = beside_play(parts, run, params, trajectory, rung, stream(key, "imagine"))
        # Where play goes on, the critic reads what those who played noted, not who has learned since.
        player = parts.policy._replace(notice=lambda *_: after)
        policy = ppo_stage(parts.env, player, config, run, _lesson(parts, chosen))
        own, policy_state, learned = policy.update(
            params["policy"], learner["policy"], trajectory, stream(key, "policy"), beside
        )
        critic = sharing.weights(learner["critic"])
        if is_gated:
            critic = gates.judged(critic, learned)
            gate = gates.climbed(gate, jnp.concatenate([is_sound(parts, critic)[None], good]))
        learner = {
            "models": models_state,
            "policy": policy_state,
            "gate": Seated({}, {"gate": gate, "rounds": rounds + 1}),
            "critic": sharing.pack(critic, {}),
        }
        return params | {"policy": own}, learner, figures | more | learned

    return Stage(init, update)


def _chosen(
    parts: Parts, run: Plan, params: PyTree, trajectory: Trajectory, rounds: Int[Array, ""], key: Key
) -> Chosen | tuple[()]:
    """Subgoals in hindsight; the share of them that is learned with falls to 0 over the first rounds."""
    if parts.selector is None or parts.reader is None:
        return ()
    last = max(1.0, parts.config.hindsight_share * run.num_updates)
    share = jnp.maximum(0.0, 1.0 - rounds / last)
    others = jnp.asarray(parts.reader.others)
    return chosen_in_hindsight(parts.selector, parts.policy, params, trajectory, others, share, key)


def _models_stage(parts: Parts, run: Plan, chosen: Chosen | tuple[()] = ()) -> Stage:
    """What learns before the policy does."""
    stages = {}
    if parts.world is not None:
        stages["world"] = on("world", world_stage(parts.env, parts.world, parts.config, run))
    if parts.reader is not None:
        stage = subgoal_stage(parts.reader, parts.config, run.sequence_length, chosen)
        stages["opponents"] = on("policy", stage)
    if parts.pursuit is not None:
        stages["pursuit"] = on("pursuit", pursuit_stage(parts.pursuit, parts.config))
    return in_order(stages)


def _lesson(parts: Parts, chosen: Chosen | tuple[()]) -> Lesson:
    """Who follows orders learns nothing of its own; critics may learn with what was chosen in hindsight."""
    lesson = usual_lesson(parts.config)
    if parts.company is not None:
        lesson = lesson._replace(rows=is_free)
    if chosen:
        lesson = lesson._replace(critic_notes=lambda notes: mixed(notes, chosen))
    return lesson
