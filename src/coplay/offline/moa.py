"""The model of other players from recorded play: their subgoals from what they have done, then what they do.

A row is one whole episode. Every seat is learned from alike, while it is in the game. Beside the model stands
the best that can be done by somebody who knows the scripts and must find out which one it faces.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.errors import BadInput, require
from coplay.experiment import is_run
from coplay.offline.dataset import About, Episodes
from coplay.offline.figures import confusion_table, linear_beliefs, mean_over, steps_to_sure
from coplay.offline.part import Part
from coplay.offline.pictures import by_class, confusion, shares
from coplay.opponents import subgoals
from coplay.opponents.balance import MOST, balanced_surprise, rarity_weights
from coplay.opponents.prospects import Prospect, prospects
from coplay.opponents.subgoals import SubgoalModel
from coplay.players.catalogue import make_player
from coplay.players.scripted import PlayerRows, ScriptedPlayer, bayes_filter
from coplay.types import Environment, EnvState, Key, PyTree, pytree, stream

LEAST = 1e-9  # chance that a surprise is counted with
MEDIANS = ("steps to sure/subgoal", "steps to sure/filter")  # figures that are medians


@dataclasses.dataclass(frozen=True)
class MoaConfig:
    hidden: tuple[int, ...] = (64, 64)  # widths of both networks
    subgoal: int = 16  # numbers in a subgoal
    divergence: float = 0.001  # weight of saying something about the subgoal, per move
    ahead: int = 10  # steps, up to which a subgoal is also to foretell a later move; 0: only the next
    pay: float = 1.0  # weight of foretelling what its player is paid next, by a linear reading; 0: not asked
    balanced: bool = False  # rare actions count more

    def __post_init__(self):
        require(self.subgoal >= 1, f"subgoal={self.subgoal} must be at least 1")
        require(self.divergence >= 0, f"divergence={self.divergence} must not be negative")
        require(self.ahead >= 0, f"ahead={self.ahead} must not be negative")
        require(self.pay >= 0, f"pay={self.pay} must not be negative")
        require(min(self.hidden, default=0) >= 1, f"hidden={self.hidden} must name widths of at least 1")


@pytree
class Lives:
    """Whole episodes, [row, time, ...]."""

    state: EnvState
    action: Int[Array, "*row time agent"]
    counts: Bool[Array, "*row time agent"]  # in the game and about to move
    goal: Int[Array, "*row time agent"]
    prospect: Prospect | tuple[()]  # () where it is not asked for
    weight: Float[Array, "*row action"] | tuple[()]  # of every action, the same in all rows; () for alike


def part_of(about: About, config: MoaConfig) -> Part:
    env = about.env()
    if env.goals.look is None:
        raise BadInput(f"{env.name} as set up does not show how near things are; set observation='entities'")
    if config.pay and env.reward_values is None:
        raise BadInput(f"{env.name} does not say which rewards it can pay: set pay=0")
    by_seat = possible_players(about, env)
    model, init = subgoals.subgoal_model(env, config.subgoal, config.hidden, foretells_pay=config.pay > 0)
    return Part(
        members=1,
        batch=32,
        most=1000,
        init=init,
        rows=lambda play, episodes: lives_of(env, play, episodes, config),
        loss=lambda weights, rows, key: loss(model, weights, rows, key, config),
        judge=lambda weights, rows, key: judged(by_seat, model, weights, rows),
        pictures=lambda weights, rows: drawn_pictures(model, weights, rows),
        headlines=("top1", "top1/best", "skill", "macro_f1", "probe/subgoal", "probe/filter"),
    )


def lives_of(env: Environment, play: Episodes, episodes: Int[np.ndarray, " one"], config: MoaConfig):
    """Some episodes as rows, and which episode each is."""
    moves = slice(0, play.action.shape[1] - 1)  # nobody moves on the last board
    action = np.maximum(play.action[episodes, moves], 0)
    counts = play.active[episodes, moves] & play.is_move[episodes, moves][..., None]
    rows = Lives(
        state=jax.tree.map(lambda x: jnp.asarray(x[episodes, moves]), play.state),
        action=jnp.asarray(action),
        counts=jnp.asarray(counts),
        goal=jnp.asarray(play.goal[episodes, moves]),
        prospect=_prospects(env, play, episodes, moves) if config.pay else (),
        weight=_weights(env, play, len(episodes)) if config.balanced else (),
    )
    return rows, np.arange(len(episodes))


def _weights(env: Environment, play: Episodes, rows: int) -> Float[Array, "row action"]:
    """By how often each action is taken in the whole file."""
    taken = np.bincount(play.action[play.active & play.is_move[..., None]], minlength=env.num_actions)
    return jnp.broadcast_to(
        rarity_weights(jnp.asarray(taken / taken.sum()), MOST)[None], (rows, env.num_actions)
    )


def _prospects(env: Environment, play: Episodes, episodes: Int[np.ndarray, " one"], moves: slice) -> Prospect:
    """[row, time, agent]."""
    assert env.reward_values is not None, "the game has been refused otherwise"
    reward, left = (jnp.moveaxis(jnp.asarray(x[episodes, moves]), 1, 0) for x in (play.reward, play.left))
    told = prospects(reward, left, jnp.zeros_like(left), env.reward_values)
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), told)


# --- loss ----------------------------------------------------------------------------------------


def loss(model: SubgoalModel, weights: PyTree, rows: Lives, key: Key, config: MoaConfig):
    """What each episode costs: surprise at every move, by its own subgoal and by that of a few steps before,
    and at what was paid; and what was said about subgoals."""
    seen, legal, subgoal = _read(model, weights, rows)
    supposed = subgoals.drawn(subgoal, stream(key, "subgoal"))
    told = subgoals.log_chances(model, weights, seen, legal, supposed)
    surprise = jnp.where(rows.counts, _surprise(told, rows), 0.0)
    if config.ahead:
        steps = jax.random.randint(stream(key, "ahead"), rows.counts.shape[:1], 1, config.ahead + 1)
        earlier, follows = subgoals.some_steps_before(supposed, rows.counts, _is_first(rows), steps)
        told = subgoals.log_chances(model, weights, seen, legal, earlier)
        surprise += jnp.where(follows & rows.counts, _surprise(told, rows), 0.0)
    if rows.prospect:
        at_pay = -_of_action(subgoals.pay_chances(model, weights, supposed), rows.prospect.paid)
        surprise += config.pay * jnp.where(rows.counts & rows.prospect.is_known, at_pay, 0.0)
    said = jnp.where(rows.counts, subgoals.spread(subgoal), 0.0)
    return jnp.sum(surprise + config.divergence * said, axis=(1, 2))


def _surprise(told: Float[Array, "row time agent action"], rows: Lives) -> Float[Array, "row time agent"]:
    if isinstance(rows.weight, tuple):
        return -_of_action(told, rows.action)
    return balanced_surprise(told, rows.action, rows.weight[0])


def _is_first(rows: Lives) -> Bool[Array, "row time"]:
    return jnp.broadcast_to(jnp.arange(rows.counts.shape[1])[None] == 0, rows.counts.shape[:2])


def _read(model: SubgoalModel, weights: PyTree, rows: Lives):
    """What is seen of everyone, what they may do, where subgoals may be, [row, time, agent, ...]."""
    seen, legal = jax.vmap(jax.vmap(lambda state: subgoals.sight(model.env, state)))(rows.state)
    by_time = jnp.moveaxis(seen, 1, 0)  # [time, row, agent, feature]
    flat = by_time.reshape(by_time.shape[0], -1, by_time.shape[-1])
    first = jnp.repeat(_is_first(rows).T, by_time.shape[2], axis=1)
    _, subgoal = subgoals.infer(model, weights, jnp.zeros((flat.shape[1], model.width)), flat, first)
    shape = (*by_time.shape[:3], model.size)
    return seen, legal, jax.tree.map(lambda x: jnp.moveaxis(x.reshape(shape), 0, 1), subgoal)


def _likeliest(model: SubgoalModel, weights: PyTree, rows: Lives):
    """Log chances of actions by subgoals where they most likely are; the subgoals, and what may be done."""
    seen, legal, subgoal = _read(model, weights, rows)
    return subgoals.log_chances(model, weights, seen, legal, subgoal.mean), subgoal, legal


def _of_action(x: Float[Array, "*row action"], action: Int[Array, "*row"]) -> Float[Array, "*row"]:
    return jnp.take_along_axis(x, action[..., None], axis=-1)[..., 0]


# --- figures -------------------------------------------------------------------------------------


def judged(
    by_seat: list[list[ScriptedPlayer]], model: SubgoalModel, weights: PyTree, rows: Lives
) -> dict[str, Any]:
    """How well players in the game were foreseen, beside the best there is, and what subgoals know."""
    first = jax.tree.map(lambda x: x[0], weights)
    told, subgoal, legal = _likeliest(model, first, rows)
    counts, action = rows.counts, rows.action
    expected = best_guess(by_seat, model.env, rows)
    best = jnp.log(jnp.maximum(expected.action, LEAST))
    usual = _by_frequency(action, legal, counts)
    surprise = {
        name: mean_over(counts, -_of_action(guess, action))
        for name, guess in (("", told), ("/best", best), ("/frequency", usual))
    }
    order = jnp.argsort(-told, axis=-1)
    table = confusion_table(model.env.num_actions, order[..., 0], action, counts)
    span = surprise["/frequency"] - surprise["/best"]
    return {
        **{f"surprise{name}": value for name, value in surprise.items()},
        "skill": (surprise["/frequency"] - surprise[""]) / span,
        "top1": mean_over(counts, order[..., 0] == action),
        "top3": mean_over(counts, jnp.any(order[..., :3] == action[..., None], axis=-1)),
        "top1/best": mean_over(counts, jnp.argmax(best, axis=-1) == action),
        "divergence": mean_over(counts, subgoals.spread(subgoal)),
        **_by_class(model.env.action_names, table),
        **_pay_figures(model, first, subgoal.mean, rows),
        **_probes(model, subgoal.mean, expected.goal, rows),
        "confusion": table,
    }


def possible_players(about: About, env: Environment) -> list[list[ScriptedPlayer]]:
    """Who may sit in each seat."""
    if any(map(is_run, about.players)):
        raise BadInput("a model of others is judged beside an exact filter, and runs in the play have none")
    players = [make_player(name, env) for name in about.players]
    return [players] * env.num_agents if about.is_drawn else [[player] for player in players]


@pytree
class Best:
    """Chances of what everyone does and wants, before each move, [row, time, agent, ...]."""

    action: Float[Array, "*row action"]
    goal: Float[Array, "*row goal"]


def best_guess(by_seat: list[list[ScriptedPlayer]], env: Environment, rows: Lives) -> Best:
    """What an exact filter expects that knows who may sit in each seat."""
    observation, legal = jax.vmap(jax.vmap(env.view))(rows.state)
    after = jnp.concatenate([observation[:, 1:], observation[:, -1:]], axis=1)
    first = jnp.arange(observation.shape[1]) == 0

    def one_life(players, observation, legal, action, after, counts):
        seen = PlayerRows(observation, legal, action, after, counts, first)
        found = bayes_filter(players, jnp.ones(len(players)), seen)
        wants = jax.vmap(lambda row: _goals_of(players, env, row))(observation)
        return Best(found.prediction, jnp.sum(found.belief[..., None] * wants, axis=1))

    def some_seats(players: list[ScriptedPlayer], seats: np.ndarray):
        of_each = (observation, legal, rows.action, after, rows.counts)
        filtered = jax.vmap(lambda *seen: one_life(players, *seen), in_axes=1, out_axes=1)
        return jax.vmap(filtered)(*[x[:, :, seats] for x in of_each])

    if all(players is by_seat[0] for players in by_seat):
        return some_seats(by_seat[0], np.arange(len(by_seat)))
    each = [some_seats(players, np.array([seat])) for seat, players in enumerate(by_seat)]
    return jax.tree.map(lambda *x: jnp.concatenate(x, axis=2), *each)


def _goals_of(players: list[ScriptedPlayer], env: Environment, row: Float[Array, " feature"]):
    """What every player in every latent state is after there, [hypothesis, goal]; nothing where that is
    nothing."""
    each = [jax.vmap(lambda z, p=p: p.goal(z, row))(jnp.arange(p.num_latents)) for p in players]
    return jax.nn.one_hot(jnp.concatenate(each), len(env.goals.names))


def _by_frequency(action, legal: Bool[Array, "row time agent action"], counts) -> Array:
    """Log chances by how often each action is taken, among those that are legal."""
    taken = jax.nn.one_hot(action, legal.shape[-1]) * counts[..., None]
    share = jnp.where(legal, jnp.sum(taken, axis=(0, 1, 2))[None, None, None], 0.0)
    return jnp.log(jnp.maximum(share / jnp.maximum(jnp.sum(share, axis=-1, keepdims=True), LEAST), LEAST))


def _by_class(names: tuple[str, ...], table: Int[Array, "action action"]) -> dict[str, Array]:
    """Of every action: how often it is taken and foretold, precision, recall and F1; and the mean F1."""
    right, taken, told = jnp.diag(table), jnp.sum(table, axis=1), jnp.sum(table, axis=0)
    precision, recall = right / jnp.maximum(told, 1), right / jnp.maximum(taken, 1)
    f1 = 2 * right / jnp.maximum(taken + told, 1)
    each = {"count": taken, "ratio": told / jnp.maximum(taken, 1), "precision": precision,
            "recall": recall, "f1": f1}  # fmt: skip
    figures = {f"{what}/{name}": x[place] for what, x in each.items() for place, name in enumerate(names)}
    return {"macro_f1": mean_over(taken > 0, f1), **figures}


def _pay_figures(model: SubgoalModel, weights: PyTree, subgoal, rows: Lives) -> dict[str, Array]:
    """How often what a player is paid next is foretold, beside always saying the commonest."""
    if not rows.prospect:
        return {}
    counts, paid = rows.counts & rows.prospect.is_known, rows.prospect.paid
    told = subgoals.pay_chances(model, weights, subgoal)
    often = jnp.sum(jnp.where(counts[..., None], jax.nn.one_hot(paid, told.shape[-1]), 0.0), axis=(0, 1, 2))
    return {
        "pay": mean_over(counts, jnp.argmax(told, axis=-1) == paid),
        "pay/commonest": jnp.max(often) / jnp.maximum(jnp.sum(often), 1.0),
    }


def _probes(
    model: SubgoalModel,
    subgoal: Float[Array, "row time agent number"],
    filtered: Float[Array, "row time agent goal"],
    rows: Lives,
) -> dict[str, Array]:
    """What a linear reading of the subgoal, fitted on half of the episodes, knows of true goals in the other
    half: how often its likeliest is right, and after how many moves it is sure; beside what the exact filter
    knows, and how often the commonest goal is right."""
    goals, is_learned = len(model.env.goals.names), _is_learned(rows.goal)
    learned = jnp.broadcast_to(is_learned, rows.goal.shape) & rows.counts
    beliefs = {
        "subgoal": linear_beliefs(subgoal, rows.goal, learned, goals),
        "filter": filtered,
        "commonest": linear_beliefs(subgoal[..., :0], rows.goal, learned, goals),
    }
    counts = rows.counts & (rows.goal >= 0)
    figures = {
        f"probe/{name}": mean_over(counts & ~is_learned, jnp.argmax(belief, axis=-1) == rows.goal)
        for name, belief in beliefs.items()
    }
    for name in ("subgoal", "filter"):
        true = _of_action(beliefs[name], jnp.maximum(rows.goal, 0))
        median, never = steps_to_sure(true, counts, ~is_learned[:, 0, 0])
        figures |= {f"steps to sure/{name}": median, f"never sure/{name}": never}
    return figures


def _is_learned(rows: Int[Array, "row time agent"]) -> Bool[Array, "row 1 1"]:
    """Whether a probe is fitted on an episode, or judged."""
    return (jnp.arange(rows.shape[0]) % 2 == 0)[:, None, None]


# --- pictures ------------------------------------------------------------------------------------


def drawn_pictures(model: SubgoalModel, weights: PyTree, rows: Lives) -> dict[str, Any]:
    told, _, _ = _likeliest(model, jax.tree.map(lambda x: x[0], weights), rows)
    names = model.env.action_names
    table = np.asarray(confusion_table(len(names), jnp.argmax(told, axis=-1), rows.action, rows.counts))
    recall = np.diag(table) / np.maximum(table.sum(axis=1), 1)
    return {
        "actions": shares(table.sum(axis=1), names, "actions, held-out moves"),
        "confusion": confusion(table, names, "actions, held-out moves"),
        "recall": by_class(recall, names, "recall by action, held-out moves"),
    }
