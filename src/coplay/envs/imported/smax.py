"""SMAX, JaxMARL's battles in the manner of StarCraft: our units against those of a fixed rule.

A unit moves, stops or attacks an enemy within its range. All units earn alike: the share of the enemies'
health that a step took, and 1 for a battle that is won, so that a unit which sees it through earns 2 at
most. A dead unit leaves, as players do in all our games, and earns nothing from then on, where JaxMARL pays
it on. Taught its own reward alone, a unit loses by dying what the others still earn; `learning_reward =
"team"` counts to the end of the battle, as the mean over all units, the dead included at 0.

A side that is wiped out ends the game, `terminated`. After `max_steps` it is cut, `truncated`; JaxMARL
itself counts one step more. The enemy is JaxMARL's heuristic one: it attacks what is in range and stays
with it, else it follows whom it sees, else it goes to the other side of the field.
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.envs.imported import jaxmarl
from coplay.errors import nearest, require
from coplay.types import Environment, EnvState, Goals, Key, Picture, TimeStep

MAPS: dict[str, str] = {
    "3m": "three marines against three.",
    "8m": "eight marines against eight.",
    "25m": "25 marines against 25.",
    "2s3z": "two stalkers and three zealots against the same.",
    "3s5z": "three stalkers and five zealots against the same.",
    "3s_vs_5z": "three stalkers against five zealots.",
    "5m_vs_6m": "five marines against six.",
    "10m_vs_11m": "ten marines against eleven.",
    "27m_vs_30m": "27 marines against 30.",
    "3s5z_vs_3s6z": "three stalkers and five zealots against one zealot more.",
    "6h_vs_8z": "six hydralisks against eight zealots.",
    "smacv2_5_units": "five units against five, kinds and places drawn.",
    "smacv2_10_units": "ten units against ten, kinds and places drawn.",
    "smacv2_20_units": "twenty units against twenty, kinds and places drawn.",
}
PRESETS: dict[str, dict[str, Any]] = {f"smax:{name}": {"map": name} for name in MAPS}

MOVES = ("up", "right", "down", "left", "stop")
STOP = 4
WON = 1.0  # what a won battle pays beside the health it took
UNIT, OWN = 13, 10  # numbers that describe another unit, and oneself


@dataclasses.dataclass(frozen=True)
class SMAXConfig:
    map: str = "3m"  # who fights whom; `coplay games` lists them as smax:MAP
    max_steps: int = 100  # after which a battle is cut
    enemy_attacks: Literal["closest", "random"] = "closest"  # whom, of those in its range
    see_enemy_actions: bool = True  # units see what enemies in sight did last
    walls_cause_death: bool = True  # who touches the edge of the field dies

    def __post_init__(self):
        require(self.map in MAPS, f"map={self.map!r} is not known; {nearest(self.map, MAPS)}")
        require(self.max_steps >= 1, f"max_steps={self.max_steps} must be at least 1")


def make(**options) -> Environment:
    config = SMAXConfig(**options)
    package = jaxmarl.load("smax")
    scenario = package.map_name_to_scenario(config.map)
    game = package.HeuristicEnemySMAX(
        scenario=scenario,
        max_steps=config.max_steps,
        attack_mode=config.enemy_attacks,
        see_enemy_actions=config.see_enemy_actions,
        walls_cause_death=config.walls_cause_death,
        won_battle_bonus=WON,
    )
    allies, enemies = game.num_allies, game.num_enemies
    attacks = tuple(f"attack {k + 1}" for k in range(enemies))
    adapted = jaxmarl.adapt(game)
    view = jaxmarl.as_written(lambda state: (adapted.observe(state), _legal(game, state)))
    return Environment(
        name="smax",
        options=config,
        kind="cooperative",
        num_agents=allies,
        num_actions=len(MOVES) + enemies,
        observation_size=UNIT * (allies - 1 + enemies) + OWN,
        action_names=MOVES + attacks,
        neutral_action=STOP,
        goals=Goals(
            names=tuple(f"enemy {k + 1}" for k in range(enemies)),
            features=UNIT,
            look=lambda row: _look_at_enemies(row, allies, enemies),
            shown=lambda row, action, reward, after: _attacked(action),
            tried=_attacked,
        ),
        horizon=config.max_steps,
        reset=lambda key: reset(adapted, view, allies, key),
        step=lambda state, action, key: step(config, adapted, view, allies, state, action, key),
        rename=rename,
        view=view,
        split=lambda row: split(row, allies, enemies),
        draw=lambda state: draw(game, state),
        outcomes=lambda before, after: outcomes(allies, before, after),
        reward_range=(0.0, 1.0 + WON),
        ceiling=1.0 + WON,
        can_truncate=True,
        symmetry="renaming units of one kind, in distribution, up to the order in which they see each other",
        alike=_kinds(scenario, allies),
        package=jaxmarl.PACKAGE,
    )


def _kinds(scenario: Any, allies: int) -> tuple[int, ...]:
    """What our units are, as the map says; those of maps that draw them are alike before they are drawn."""
    if scenario.smacv2_unit_type_generation:
        return ()
    return tuple(int(kind) for kind in scenario.unit_types[:allies])


def step(
    config: SMAXConfig,
    adapted: jaxmarl.Adapted,
    view,
    allies: int,
    state: EnvState,
    action: Int[Array, " agent"],
    key: Key,
) -> tuple[EnvState, TimeStep]:
    _, legal = view(state)
    lived = state.state.unit_alive[:allies]
    state, reward = adapted.step(state, jaxmarl.carried_out(action, legal, STOP), key)
    observation, legal = view(state)
    alive, decided = state.state.unit_alive[:allies], _is_decided(allies, state)
    return state, TimeStep(
        observation=observation,
        legal=legal,
        reward=jnp.where(lived, reward, 0.0),
        active=alive & ~decided,
        terminated=~alive | decided,
        truncated=(state.state.step >= config.max_steps) & ~decided,
        first=jnp.bool_(False),
    )


def _is_decided(allies: int, state: EnvState) -> Bool[Array, ""]:
    """One side, or both, has nobody left."""
    alive = state.state.unit_alive
    return ~jnp.any(alive[:allies]) | ~jnp.any(alive[allies:])


def _legal(game: Any, state: EnvState) -> Bool[Array, "agent action"]:
    """Who lives may move, stop and attack what is in its range; the dead may stop."""
    available = game.get_avail_actions(state)
    return jnp.stack([available[agent] > 0 for agent in game.agents])


def reset(adapted: jaxmarl.Adapted, view, allies: int, key: Key) -> tuple[EnvState, TimeStep]:
    state = adapted.reset(key)
    observation, legal = view(state)
    nobody = jnp.zeros(allies, bool)
    return state, TimeStep(
        observation=observation,
        legal=legal,
        reward=jnp.zeros(allies),
        active=~nobody,
        terminated=nobody,
        truncated=jnp.bool_(False),
        first=jnp.bool_(True),
    )


def outcomes(allies: int, before: EnvState, after: EnvState) -> dict[str, Array]:
    """Whether this step won the battle, and who fell in it."""
    lived, alive = before.state.unit_alive, after.state.unit_alive
    won = jnp.any(lived[allies:]) & ~jnp.any(alive[allies:]) & jnp.any(alive[:allies])
    fell = lived & ~alive
    return {
        "won": won.astype(jnp.int32),
        "enemies_killed": jnp.sum(fell[allies:]),
        "units_lost": jnp.sum(fell[:allies]),
    }


def rename(state: EnvState, order: Int[Array, " agent"]) -> EnvState:
    """The same battle with other names: new seat i is the old seat order[i]. Kinds of units go along, and so
    does whom each enemy attacks."""
    allies, enemy = order.shape[0], state.enemy_policy_state
    everyone = jnp.concatenate([order, jnp.arange(allies, state.state.unit_alive.shape[0])])
    units = jax.tree.map(
        lambda leaf: leaf[everyone] if leaf.ndim else leaf, state.state
    )  # all but clock and end
    attacks, last = units.prev_attack_actions, enemy.last_attacked_enemy
    targets = _renamed_targets(order, attacks[allies:] - len(MOVES)) + len(MOVES)
    return state.replace(
        state=units.replace(prev_attack_actions=attacks.at[allies:].set(targets)),
        enemy_policy_state=enemy.replace(last_attacked_enemy=_renamed_targets(order, last)),
    )


def _renamed_targets(order: Int[Array, " agent"], target: Int[Array, " enemy"]) -> Int[Array, " enemy"]:
    """Whom enemies attack, after the renaming; below 0: nobody. They count our units from the last one."""
    last = order.shape[0] - 1
    new_seat = jnp.argsort(order)[jnp.clip(last - target, 0, last)]
    return jnp.where(target >= 0, last - new_seat, target).astype(target.dtype)


# --- what players see ------------------------------------------------------------------------------


def split(row: Float[Array, " feature"], allies: int, enemies: int) -> dict[str, Array]:
    """Other units [unit, feature], friends by seat and then enemies, 0 where out of sight or dead; then
    oneself: health, place, wait until the weapon is ready, kind."""
    friends = UNIT * (allies - 1)
    own = row[-OWN:]
    return {
        "others": row[:friends].reshape(allies - 1, UNIT),
        "enemies": row[friends:-OWN].reshape(enemies, UNIT),
        "health": own[:1],
        "position": own[1:3],
        "cooldown": own[3:4],
        "kind": own[4:],
    }


def _look_at_enemies(row: Float[Array, " feature"], allies: int, enemies: int):
    """Enemies in sight, as they are seen."""
    seen = split(row, allies, enemies)["enemies"]
    return seen[:, 0] > 0, seen


def _attacked(action: Int[Array, ""]) -> Int[Array, ""]:
    return jnp.where(action >= len(MOVES), action - len(MOVES), -1).astype(jnp.int32)


def draw(game: Any, state: EnvState) -> Picture:
    """The field in cells of one unit of length; the dead are nowhere."""
    size = jnp.array([game.map_height, game.map_width])
    x, y = state.state.unit_positions[:, 0], state.state.unit_positions[:, 1]
    place = jnp.stack([game.map_height - 1 - jnp.floor(y), jnp.floor(x)], axis=1).astype(jnp.int32)
    place = jnp.clip(place, 0, size[None, :] - 1)
    place = jnp.where(state.state.unit_alive[:, None], place, -1)
    return Picture(grid=size, cells={"enemy": place[game.num_allies :]}, players=place[: game.num_allies])
