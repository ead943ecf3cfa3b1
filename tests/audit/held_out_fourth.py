"""Still more defects that checks were not written for (501 to 516), thought up from the product's code alone.

Nobody who writes a check is to look here first, as with those of `held_out.py` and the two after it.
"""

import dataclasses

import jax
import jax.numpy as jnp

from coplay.algorithms import value_scale
from coplay.envs.coin_game import GAIN, LOSS
from tests.audit.planted import Planted, both, replacing

STAGES, CHECKPOINT = "coplay.training.stages", "coplay.training.checkpoint"
COLLECTS = ("coplay.training.programs", "coplay.audit.captured")
STAG_HUNTS = ("coplay.envs.stag_hunt", "coplay.envs.stag_hunt.rules")
SELECTION = "coplay.planning.selection"


# --- envs ----------------------------------------------------------------------------------------


def whole_cost_each(reward):
    """A drift's cost is not shared: whoever helps to remove it pays all of it."""

    def spoiled(config, removes):
        gain = config.removal_reward * jnp.sum(jnp.any(removes, axis=0))
        return gain - config.removal_cost * jnp.sum(removes, axis=1)

    return spoiled


def told_the_horizon(observe):
    """The clock counts down to the horizon, also where a first catch has brought the end nearer."""

    def spoiled(config, maps, state):
        return observe(config, maps, dataclasses.replace(state, end=jnp.full_like(state.end, config.horizon)))

    return spoiled


def owner_spared(reward):
    """An owner that enters together with the other loses nothing, though the other takes its coin."""

    def spoiled(config, takes, owner):
        is_robbed = owner & takes[::-1] & ~takes
        return jnp.where(takes, GAIN, 0.0) - jnp.where(is_robbed, LOSS, 0.0)

    return spoiled


# --- training ------------------------------------------------------------------------------------


def drawn_and_put_back(cut):
    """Columns are drawn, not shuffled: of a round some are learned from twice, and a third never."""

    def spoiled(batch, plan, key):
        columns = jax.tree.leaves(batch)[0].shape[0]
        drawn = jax.random.randint(jax.random.fold_in(key, 1), (columns,), 0, columns)
        return cut(jax.tree.map(lambda x: jnp.take(x, drawn, axis=0), batch), plan, key)

    return spoiled


def counted_from_the_rounds_start(collect):
    """What a game has brought before the round is forgotten: its return is told without that."""

    def spoiled(env, algorithm, params, actor, *rest):
        earned, length = jnp.zeros_like(actor.episode_return), jnp.zeros_like(actor.episode_length)
        actor = dataclasses.replace(actor, episode_return=earned, episode_length=length)
        return collect(env, algorithm, params, actor, *rest)

    return spoiled


def keys_as_at_the_start(from_bytes):
    """Random keys are not read back: a run that goes on draws once more what it drew at its start."""

    def spoiled(data, described, like):
        return like if described["kind"] == "key" else from_bytes(data, described, like)

    return spoiled


# --- algorithms ----------------------------------------------------------------------------------


def nothing_remembered_at_the_end(last_values):
    """What is worth where play goes on, a recurrent critic says with an empty memory."""

    def spoiled(model, params, trajectory):
        empty = jax.tree.map(jnp.zeros_like, trajectory.next_memory)
        return last_values(model, params, dataclasses.replace(trajectory, next_memory=empty))

    return spoiled


def start_at_zero_counts(mean_and_deviation):
    """Running averages begin at zero and are taken as they are: far too small for long."""

    def spoiled(scale):
        variance = jnp.maximum(scale.mean_square - scale.mean**2, value_scale.SMALLEST**2)
        return scale.mean, jnp.where(scale.weight > 0, jnp.sqrt(variance), 1.0)

    return spoiled


def one_rate_for_all(step_by):
    """The generator learns at the policy's rate, whatever `generator_rate` says."""
    return lambda rate, others: step_by(rate, {})


def turned_the_same_way(by_agent):
    """Imagined moves are put back by place + seat in place of place - seat: wrong for every second seat."""

    def spoiled(model, rows):
        agents = rows.shape[2]
        place = (jnp.arange(agents)[None] + jnp.asarray(model.index)[:, None]) % agents
        return jax.vmap(lambda x, place: x[:, place])(rows, place).reshape(-1, agents)

    return spoiled


# --- nets ----------------------------------------------------------------------------------------


def departed_still_heard(attend):
    """Attention is paid to fellows that have left the game as to those that are in it."""
    return lambda self, seen, active: attend(self, seen, jnp.ones_like(active))


def history_never_learns(seen):
    """What a context makes of the past carries no gradient: its encoder and its memory stay as drawn."""

    def spoiled(self, memory, parts, first):
        remembered, said = seen(self, memory, parts, first)
        return remembered, jax.lax.stop_gradient(said)

    return spoiled


def only_what_stays(surprises):
    """Of things only those count that are there after the move: that one vanishes is never learned."""

    def spoiled(told, rows):
        costs = surprises(told, rows)
        return dataclasses.replace(costs, there=jnp.where(rows.after.there, costs.there, 0.0))

    return spoiled


# --- opponents and planning ----------------------------------------------------------------------


def some_steps_later(some_steps_before):
    """Moves are to be foretold by what was read so many steps after them, when they had been seen."""

    def spoiled(x, counts, first, steps):
        length = first.shape[1]
        time = jnp.arange(length)[None] + steps[:, None]
        at, episode = jnp.minimum(time, length - 1), jnp.cumsum(first, axis=1)
        is_same = (time < length) & (jnp.take_along_axis(episode, at, axis=1) == episode)

        def moved(x):
            return jnp.take_along_axis(x, at.reshape(*at.shape, *(1,) * (x.ndim - 2)), axis=1)

        return moved(x), moved(counts) & is_same.reshape(*at.shape, *(1,) * (counts.ndim - 2))

    return spoiled


def worth_nothing_untried(estimated_q):
    """An action that was not tried counts as worth 0, and not as much as its node."""
    return lambda nodes: jnp.where(nodes.visits > 0, nodes.q, 0.0)


# --- evaluation ----------------------------------------------------------------------------------


def memory_not_handed_on(step):
    """While it is scored a player's memory stays what it was before the first move."""

    def spoiled(env, algorithm, params, carry, key):
        after, moment = step(env, algorithm, params, carry, key)
        return after | {"memory": carry["memory"]}, moment

    return spoiled


HELD_OUT_FOURTH: tuple[Planted, ...] = (
    Planted(
        501,
        "every remover of a drift pays its whole cost",
        "envs",
        "",
        replacing("coplay.envs.snowdrift", "_reward", whole_cost_each),
        "ppo_snowdrift",
        {"game_options.size": 4},
    ),
    Planted(
        502,
        "the clock does not tell that the end has come nearer",
        "envs",
        "rules",
        both(*[replacing(module, "observe", told_the_horizon) for module in STAG_HUNTS]),
        "ppo_4h1s_4x4",
        {"game_options.end_after_first_hunt": 5},
    ),
    Planted(
        503,
        "who takes its own coin in a tie loses nothing to the other",
        "envs",
        "",
        replacing("coplay.envs.coin_game", "_reward", owner_spared),
        "ppo_coin_game",
    ),
    Planted(
        504,
        "minibatches are drawn with replacement",
        "training",
        "",
        replacing(STAGES, "_cut", drawn_and_put_back),
    ),
    Planted(
        505,
        "returns are told of what a round saw of a game",
        "training",
        "",
        both(*[replacing(module, "collect", counted_from_the_rounds_start) for module in COLLECTS]),
    ),
    Planted(
        506,
        "checkpoints do not bring back random keys",
        "training",
        "",
        replacing(CHECKPOINT, "_from_bytes", keys_as_at_the_start),
    ),
    Planted(
        507,
        "a round's end is valued with an empty memory",
        "algorithms",
        "references",
        replacing("coplay.algorithms.targets", "_last_values", nothing_remembered_at_the_end),
        "ppo_gru_4h1s_4x4",
    ),
    Planted(
        508,
        "the scale of values is not corrected for its start at zero",
        "algorithms",
        "",
        replacing("coplay.algorithms.value_scale", "mean_and_deviation", start_at_zero_counts),
        "ppo_snowdrift",
    ),
    Planted(
        509,
        "the generator learns at the policy's rate",
        "algorithms",
        "",
        replacing("coplay.algorithms.ppo", "step_by", one_rate_for_all),
        "hyper_mappo_4h1s_4x4",
        {"generator_rate": 0.00005},
    ),
    Planted(
        510,
        "imagined moves go to the wrong players for every second seat",
        "algorithms",
        "",
        replacing("coplay.algorithms.imagination", "_by_agent", turned_the_same_way),
        "hop_plus_4h1s_4x4",
        {"gates": "off"},
    ),
    Planted(
        511,
        "attention is paid to the departed",
        "nets",
        "departed",
        replacing("coplay.nets.context", "Attention.__call__", departed_still_heard),
        "hyper_a4_joint",
    ),
    Planted(
        512,
        "no gradient reaches what reads a context's history",
        "nets",
        "moves",
        replacing("coplay.nets.context", "Context._seen", history_never_learns),
        "hyper_a3_history",
    ),
    Planted(
        513,
        "the model of the game never learns that things vanish",
        "nets",
        "world_taught",
        replacing("coplay.nets.world_fit", "surprises", only_what_stays),
        "hop_plus_4h1s_4x4",
    ),
    Planted(
        514,
        "subgoals foretell earlier moves in place of later ones",
        "opponents",
        "moves_taught",
        replacing("coplay.algorithms.subgoal_stage", "some_steps_before", some_steps_later),
        "hop_plus_4h1s_4x4",
        {"ahead": 5},
    ),
    Planted(
        515,
        "untried actions are worth 0 to a search",
        "planning",
        "",
        both(
            replacing(SELECTION, "estimated_q", worth_nothing_untried),
            replacing(SELECTION, "Q_MODES.value", worth_nothing_untried),
            replacing("coplay.planning.search", "estimated_q", worth_nothing_untried),
        ),
        "hop_4h1s_4x4",
    ),
    Planted(
        516,
        "recurrent players are scored without their memory",
        "evaluation",
        "",
        replacing("coplay.evaluation.self_play", "_step", memory_not_handed_on),
        "ppo_gru_4h1s_4x4",
    ),
)
