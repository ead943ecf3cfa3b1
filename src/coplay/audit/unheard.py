"""What may not be heard: a move that is never legal, games that are held out, how loud a critic is."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from coplay import experiment as experiments
from coplay.algorithms.own import is_own
from coplay.algorithms.ppo_config import PPOConfig
from coplay.audit import captured
from coplay.audit.captured import Round, update_key
from coplay.audit.compare import (
    Module,
    changed_modules,
    differences,
    module_at,
    modules,
    noise_like,
    plain,
    told,
)
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.flags import plain_of
from coplay.audit.small_scale import at_small_scale, loads_parts
from coplay.audit.subject import Budget, Subject
from coplay.diagnostics import gates
from coplay.experiment import Experiment
from coplay.training.job import Job
from coplay.types import Entities, Environment, Key, PyTree, TimeStep, TrainState, Trajectory

LOUD = 3.0  # noise, so that whoever listens hopes for the move about as often as not
CLOSE = 1e-6  # a row of another width may be added up in another order


# --- a move that is never legal -------------------------------------------------------------------


def forbidden(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does what networks say of a move that nobody may ever make change what is done or learned?"""
    statistic = "what is done or learned otherwise once networks are loud about a move that is never legal"
    work = _with_one_move_more(subject)
    if isinstance(work, str):
        return not_run(statistic, work)
    grown = _grown(subject.begun().params, captured.start_shapes(work).params)
    if not grown:
        return not_run(statistic, "no network of this learner says anything of every move")
    parts = captured.parts_of(work)
    now = captured.one_round(work, parts, captured.start(work)).after
    quiet = captured.one_round(work, parts, now)
    loud = captured.one_round(work, parts, dataclasses.replace(now, params=_loud(now.params, grown, key)))
    done = differences(_done(quiet), _done(loud), CLOSE)
    learned = [
        found
        for found in differences(quiet.after.params, loud.after.params, CLOSE)
        if found.name not in grown
    ]
    what = f"{told(done or learned)} goes by a move that is not allowed" if done or learned else ""
    return exact(statistic, len(done) + len(learned), len(jax.tree.leaves(now.params)) - len(grown), what)


def _with_one_move_more(subject: Subject) -> Job | str:
    """The experiment at a small scale in such a game, or why there is none."""
    subject.learning_job()
    assert subject.experiment is not None
    small = at_small_scale(subject.experiment)
    if set(subject.lineup) - set(subject.learners):
        return "somebody plays here who was made for the game's own moves"
    if any(loads_parts(experiments.settings_of(small, name)) for name in subject.learners):
        return "parts of the learner were trained on the game's own moves"
    seen = subject.rounds()[0].trajectory.steps.before
    if any(map(is_own, subject.learners)) and bool(jnp.all(seen.legal | ~seen.active[..., None])):
        return "every move is legal in this game: an algorithm of your own need not know of others"
    return experiments.job(experiments.build(small, one_move_more))


def one_move_more(env: Environment) -> Environment:
    """The game with a last move that is never legal, and is carried out as any that is not."""

    def reset(key: Key):
        state, timestep = env.reset(key)
        return state, _with_it(timestep)

    def step(state, action: jax.Array, key: Key):
        state, timestep = env.step(state, _known(env, action), key)
        return state, _with_it(timestep)

    def view(state):
        observation, legal = env.view(state)
        return observation, _never(legal)

    return dataclasses.replace(
        env,
        num_actions=env.num_actions + 1,
        action_names=(*env.action_names, "forbidden"),
        reset=reset,
        step=step,
        view=view,
        entities=env.entities and _entities(env, env.entities),
    )


def _entities(env: Environment, entities: Entities) -> Entities:
    def write(state, action: jax.Array, board, reward):
        state, timestep = entities.write(state, _known(env, action), board, reward)
        return state, _with_it(timestep)

    return dataclasses.replace(entities, write=write)


def _known(env: Environment, action: jax.Array) -> jax.Array:
    return jnp.where(action < env.num_actions, action, env.neutral_action)


def _with_it(timestep: TimeStep) -> TimeStep:
    return dataclasses.replace(timestep, legal=_never(timestep.legal))


def _never(legal: jax.Array) -> jax.Array:
    return jnp.pad(legal, ((0, 0), (0, 1)))


def _grown(params: PyTree, wider: PyTree) -> set[str]:
    """Tensors with one more output, which is the last: it speaks of the new move."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(wider), strict=True)
    return {jax.tree_util.keystr(path) for (path, a), b in pairs if _is_wider(a.shape, b.shape)}


def _is_wider(shape: tuple[int, ...], wider: tuple[int, ...]) -> bool:
    return bool(shape) and wider == (*shape[:-1], shape[-1] + 1)


def _loud(params: PyTree, grown: set[str], key: Key) -> PyTree:
    """With noise on what they say of the last move."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    new = []
    for number, (path, leaf) in enumerate(leaves):
        if jax.tree_util.keystr(path) in grown:
            noise = noise_like(leaf, number, key, LOUD, None)
            leaf = np.concatenate([np.asarray(leaf)[..., :-1], noise[..., -1:]], axis=-1)
        new.append(leaf)
    return jax.tree.unflatten(structure, new)


def _done(one: Round) -> PyTree:
    decision = one.trajectory.steps.decision
    return {"what is done": decision.action, "how likely moves are": decision.policy}


# --- games that are held out ----------------------------------------------------------------------


def held_out(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do models learn nothing from the games that they are judged on?"""
    statistic = "models that learn otherwise once the games that they are judged on have changed places"
    algorithm, one = subject.learning_job().stretches[0].algorithm, subject.rounds()[0]
    games = one.trajectory.next.first.shape[0]
    held = gates.held_out(games)
    if not algorithm.judged:
        return not_run(statistic, "nothing here is judged on games that it does not learn from")
    if held < 2:
        return not_run(
            statistic, f"of {games} games only one is held out: it has nobody to change places with"
        )
    turned = _turned(one.trajectory, np.r_[np.roll(np.arange(held), 1), held:games])
    (after, _, _), _ = subject.parts().learn(
        one.before.params, one.before.learner, turned, update_key(one.before)
    )
    changed = {module.name for module, rows in changed_modules(one.after.params, after).items() if rows.any()}
    wrong = [name for name in algorithm.judged if name in changed]
    what = f"{wrong[0]} learns from the games that it is judged on" if wrong else ""
    return exact(statistic, len(wrong), len(algorithm.judged), what)


def _turned(played: Trajectory, order: np.ndarray) -> Trajectory:
    """The same round with its games in another order."""
    later = {name: jax.tree.map(lambda x: x[:, order], getattr(played, name)) for name in ("steps", "memory")}
    now = {name: jax.tree.map(lambda x: x[order], getattr(played, name)) for name in ("next", "next_memory")}
    return Trajectory(**later, **now)


# --- how loud the critic is -----------------------------------------------------------------------

LOUDER, LEAST_FELT = 100.0, 0.01  # times the weight of the critic's errors; share of the policy's way


def loud_critic(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does the policy learn the same, whatever the critic's errors weigh?"""
    statistic = "policies that go another way once their critics' errors weigh a hundred times as much"
    name = subject.learner
    if not isinstance(subject.config(name), PPOConfig) or not subject.config(name).value_weight:
        return not_run(statistic, "this learner has no such weight")
    assert subject.experiment is not None
    bare = plain_of(subject.experiment, name) or at_small_scale(subject.experiment)
    work = experiments.job(experiments.build(bare))
    start = captured.start(work)
    trajectory = captured.collector(work, work.env)(start.params, start.actor, start.key)[1]
    usual, loud = (_learned(bare, name, times, start, trajectory) for times in (1.0, LOUDER))
    asked = [module for module in modules(start.params) if module.short == "policy"]
    ways = [_way(module, start.params, usual) for module in asked]
    felt = [_way(module, usual, loud) / max(way, 1e-12) for module, way in zip(asked, ways, strict=True)]
    wrong = [share for share in felt if share > LEAST_FELT]
    share = f"{100 * max(felt, default=0.0):.3g}% of how far it goes"
    what = f"the policy goes another way, by {share}: are gradients of both cut together?"
    return exact(statistic, len(wrong), len(asked), what if wrong else "")


def _learned(bare: Experiment, name: str, times: float, start: TrainState, trajectory: Trajectory) -> PyTree:
    """Weights after a round's update, with the critic's errors so many times as heavy."""
    weight = times * experiments.settings_of(bare, name).value_weight
    changed = experiments.job(
        experiments.build(experiments.with_overrides(bare, {f"{name}.value_weight": weight}))
    )
    learn = captured.quick(changed.stretches[0].algorithm.learn.update)
    return learn(start.params, start.learner, trajectory, update_key(start))[0]


def _way(module: Module, before: PyTree, after: PyTree) -> float:
    """How far a network's weights are apart."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    squares = [np.sum((plain(b) - plain(a)) ** 2) for (path, a), b in pairs if module_at(path) == module]
    return float(np.sqrt(sum(squares)))


UNHEARD = (
    Check(
        "held_out",
        "models",
        "Do models learn nothing from what they are judged on?",
        "exact",
        "algorithms",
        held_out,
        ("world_rows", "opponent_rows"),
    ),
    Check(
        "forbidden",
        "value",
        "Does a move that is never legal teach nobody?",
        "exact",
        "algorithms",
        forbidden,
        ("search", "stillness"),
    ),
    Check(
        "loud_critic",
        "value",
        "Does a loud critic leave the policy alone?",
        "exact",
        "algorithms",
        loud_critic,
        ("term_weights",),
    ),
)
