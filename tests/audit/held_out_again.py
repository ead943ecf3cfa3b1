"""More defects that checks were not written for (301 to 314), thought up from the product's code alone.

Nobody who writes a check is to look here first, as with those of `held_out.py`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from coplay.diagnostics import gates
from coplay.envs import grid
from coplay.types import Environment
from tests.audit.held_out import in_game, looked_at
from tests.audit.planted import Planted, both, replacing

ROLLOUT, TARGETS = "coplay.training.rollout", "coplay.algorithms.targets"
PPO, WORLD_STAGE = "coplay.algorithms.ppo", "coplay.algorithms.world_stage"
CONTEXTS = ("coplay.nets.context", "coplay.nets.hyper")
MINDS = ("coplay.opponents.minds", "coplay.algorithms.hop")
SEARCHES = ("coplay.planning.search", "coplay.algorithms.hop_search", "coplay.algorithms.imagined_search")


# --- envs ----------------------------------------------------------------------------------------


def others_seen_late(env: Environment) -> Environment:
    """Everyone sees itself where it stands, and the others where they stood before their last move."""
    size = env.options.size

    def view(state):
        stood = 2 * state.players - grid.moved(state.players, state.previous, size)

        def seen_by(seat):
            players = stood.at[seat].set(state.players[seat])
            return env.view(dataclasses.replace(state, players=players))[0][seat]

        return jax.vmap(seen_by)(jnp.arange(env.num_agents)), env.view(state)[1]

    def step(state, action, key):
        state, after = env.step(state, action, key)
        return state, looked_at(after, view, state)

    return dataclasses.replace(env, step=step, view=view)  # at a reset nobody has moved


def on_the_first_map(reset):
    """Of all wall maps only the first is ever drawn."""

    def spoiled(config, maps, key):
        first = {field.name: getattr(maps, field.name)[:1] for field in dataclasses.fields(maps)}
        return reset(config, dataclasses.replace(maps, **first), key)

    return spoiled


# --- training ------------------------------------------------------------------------------------


def always_the_same_starts(reset_finished):
    """What new games are drawn from hangs on their place alone: each has one start, for ever."""

    def spoiled(env, state, timestep, over, keys):
        return reset_finished(env, state, timestep, over, jax.random.split(jax.random.key(0), len(keys)))

    return spoiled


def once_anybody_left(is_over):
    """A game is taken for over as soon as it is for one of its players."""
    return lambda timestep: timestep.truncated | jnp.any(timestep.terminated, axis=-1)


# --- algorithms ----------------------------------------------------------------------------------


def epochs_forgotten(optimiser):
    """The rate falls as if every round were gone over once: it is nothing long before the run is over."""
    return lambda config, plan, rates: optimiser(dataclasses.replace(config, epochs=1), plan, rates)


def among_the_departed(standardiser):
    """Mean and deviation of advantages are those of all rows, whoever has left among them."""

    def spoiled(settings):
        scaled = standardiser(settings)

        def of_everyone(scale, advantage, counts):
            return jnp.where(counts, scaled(scale, advantage, jnp.ones_like(counts)), 0.0)

        return of_everyone

    return spoiled


def mean_over_games(mixed):
    """The team's mean is taken along the wrong axis: over one seat in all games."""

    def spoiled(reward, team_share):
        if team_share == 0.0:
            return mixed(reward, team_share)
        team = jnp.mean(reward, axis=-2, keepdims=True)
        return (1.0 - team_share) * reward + team_share * team

    return spoiled


def best_of_all_moves(best):
    """What is hoped for next may be a move that is not allowed."""
    return lambda pursuit, params, seen, legal: best(pursuit, params, seen, jnp.ones_like(legal))


CHANCES: dict[str, Any] = {}


def remembering_chances(chances):
    def spoiled(paid, seen):
        CHANCES["of all games"] = chances(paid, seen)
        return CHANCES["of all games"]

    return spoiled


def held_out_as_well(drawn):
    """Models of the game learn from the games that they are judged on, too."""

    def spoiled(rows, chance, count, key):
        held = gates.held_out(chance.shape[0])
        to_learn = jnp.any(chance[held:] > 0)
        return drawn(rows, jnp.where(to_learn, CHANCES["of all games"], chance), count, key)

    return spoiled


# --- nets ----------------------------------------------------------------------------------------


def spoken_before_it_was_seen(run):
    """The head speaks from the memory before each row, not after it; in an episode's first step from that
    of the last episode."""

    def spoiled(self, memory, inputs, first):
        remembered, _ = run(self, memory, inputs, first)
        return remembered, self.head(jnp.concatenate([memory[None], remembered[:-1]]))

    return spoiled


def length_over_rows(unit):
    """Lengths are taken along the first axis, not along features: what is said of a row depends on which
    others are read with it, in play other ones than in learning."""
    return lambda x: x * jax.lax.rsqrt(jnp.sum(x**2, axis=0, keepdims=True) + 1e-12)


# --- opponents and planning ----------------------------------------------------------------------


def from_the_readers_place(policies):
    """Models of others are told how goals look from where their owner stands, not from the co-player's
    place, which they have learned from."""

    def spoiled(models, weights, timestep, wished):
        agents = timestep.active.shape[-1]
        owners = ((models.others[:, 0] - 1) % agents).tolist()

        def by(owner):
            looks = wished.description[:, owner : owner + 1]
            looks = jnp.broadcast_to(looks, wished.description.shape)
            return policies(models, weights, timestep, dataclasses.replace(wished, description=looks))

        return jnp.stack([by(owner)[:, place] for place, owner in enumerate(owners)], axis=1)

    return spoiled


def worth_before_the_move(search):
    """A leaf counts for what the moment was worth from which it was reached."""

    def spoiled(model, config, state, keys):
        def look(come_to, keys):
            arrived, worth_before = come_to
            node, outlook = model.look(arrived, keys)
            value = outlook.value if worth_before is None else worth_before  # None at the root
            return (node, outlook.value), dataclasses.replace(outlook, value=value)

        def step(kept, action, keys):
            node, worth = kept
            arrived, reward, is_over = model.step(node, action, keys)
            return (arrived, worth), reward, is_over

        return search(model._replace(look=look, step=step), config, (state, None), keys)

    return spoiled


# --- evaluation ----------------------------------------------------------------------------------


def last_step_left_out(step):
    """Whether a game is over is asked after its step and not before: the last one is in no score."""

    def spoiled(env, algorithm, params, carry, key):
        after, moment = step(env, algorithm, params, carry, key)

        def unless_over(old, new):
            return jnp.where(after["over"].reshape(-1, *(1,) * (new.ndim - 1)), old, new)

        scores = jax.tree.map(unless_over, carry["scores"], after["scores"])
        return after | {"scores": scores}, dataclasses.replace(moment, playing=~after["over"])

    return spoiled


HELD_OUT_AGAIN: tuple[Planted, ...] = (
    Planted(301, "others are seen where they stood a move ago", "envs", "", in_game(others_seen_late)),
    Planted(
        302,
        "every game is played on the first wall map",
        "envs",
        "options",
        replacing("coplay.envs.stag_hunt", "reset", on_the_first_map),
        "ppo_4h1s_8x8_walls",
    ),
    Planted(
        303,
        "each place has one start for all its games",
        "training",
        "",
        replacing(ROLLOUT, "reset_finished", always_the_same_starts),
    ),
    Planted(
        304,
        "a game ends for all when one has left",
        "training",
        "",
        replacing(ROLLOUT, "is_over", once_anybody_left),
    ),
    Planted(
        305,
        "the rate falls four times too fast",
        "algorithms",
        "pace",
        replacing(PPO, "_optimiser", epochs_forgotten),
    ),
    Planted(
        306,
        "advantages are standardised with the departed among them",
        "algorithms",
        "",
        replacing(TARGETS, "standardiser", among_the_departed),
    ),
    Planted(
        307,
        "the team's reward is a mean over games, not players",
        "algorithms",
        "own_game",
        replacing("coplay.algorithms.rewards", "mixed", mean_over_games),
        "ppo_4h1s_4x4_team",
    ),
    Planted(
        308,
        "pursuit hopes for moves that are not allowed",
        "algorithms",
        "",
        replacing("coplay.algorithms.pursuit", "_best", best_of_all_moves),
        "hop_4h1s_4x4",
    ),
    Planted(
        309,
        "the learned game learns from the games it is judged on",
        "algorithms",
        "",
        both(
            replacing(WORLD_STAGE, "_chances", remembering_chances),
            replacing(WORLD_STAGE, "_drawn", held_out_as_well),
        ),
        "hop_plus_4h1s_4x4",
    ),
    Planted(
        310,
        "recurrent networks speak from the memory of the step before",
        "nets",
        "",
        replacing("coplay.nets.recurrent", "GRU.run", spoken_before_it_was_seen),
        "ppo_gru_4h1s_4x4",
    ),
    Planted(
        311,
        "contexts have length 1 along rows, not features",
        "nets",
        "",
        both(*[replacing(module, "unit", length_over_rows) for module in CONTEXTS]),
        "hyper_a3_history",
    ),
    Planted(
        312,
        "goals as they look to the reader, not to the co-player",
        "opponents",
        "",
        both(*[replacing(module, "policies", from_the_readers_place) for module in MINDS]),
        "hop_4h1s_4x4",
    ),
    Planted(
        313,
        "leaves of a search are worth what came before them",
        "planning",
        "",
        both(*[replacing(module, "search", worth_before_the_move) for module in SEARCHES]),
        "hop_4h1s_4x4",
    ),
    Planted(
        314,
        "scores leave out the last step of a game",
        "evaluation",
        "",
        replacing("coplay.evaluation.self_play", "_step", last_step_left_out),
    ),
)
