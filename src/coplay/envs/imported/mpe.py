"""MPE, the particle games of JaxMARL: discs that push themselves about a plane, for 25 steps.

`mpe:simple_spread`: cover every landmark without bumping into each other. `mpe:simple_tag`: slow predators
chase quick prey round obstacles. Rewards and rows are JaxMARL's, per agent; where roles see rows of
different length, shorter ones are padded with zeros and each is followed by a one-hot of its role.

An episode is cut after `max_steps` (`truncated`: no rule of the game ends it, and no clock is shown).
JaxMARL itself counts one step more before it starts anew, so its returns are sums of 26 rewards where ours
are of 25.
"""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.envs.imported import jaxmarl
from coplay.errors import require
from coplay.types import Environment, EnvState, Goals, Key, Picture, TimeStep

ACTION_NAMES = ("coast", "left", "right", "down", "up")  # pushes; who does not push glides on
COAST = 0
COVERED = 0.1  # who is nearer to a landmark than this covers it
CELLS, EDGE = 25, 1.5  # of a picture: cells a side, and how far from the middle it reaches
STEPS_PER_UNIT = 5  # at full speed a disc moves 0.2 in a step


@dataclasses.dataclass(frozen=True)
class SpreadConfig:
    num_agents: int = 3  # players, 2 to 10
    num_landmarks: int = 3  # places to cover, 1 to 10
    local_ratio: float = 0.5  # weight of one's own collisions; the rest is for distances, which all share
    max_steps: int = 25  # after which an episode is cut

    def __post_init__(self):
        require(2 <= self.num_agents <= 10, f"num_agents={self.num_agents} must lie between 2 and 10")
        require(
            1 <= self.num_landmarks <= 10, f"num_landmarks={self.num_landmarks} must lie between 1 and 10"
        )
        require(0 <= self.local_ratio <= 1, f"local_ratio={self.local_ratio} must lie between 0 and 1")
        require(self.max_steps >= 1, f"max_steps={self.max_steps} must be at least 1")


@dataclasses.dataclass(frozen=True)
class TagConfig:
    num_predators: int = 3  # in the first seats, 1 to 8
    num_prey: int = 1  # in the last seats, 1 to 4
    num_obstacles: int = 2  # discs nobody can pass, 0 to 8
    max_steps: int = 25  # after which an episode is cut

    def __post_init__(self):
        require(1 <= self.num_predators <= 8, f"num_predators={self.num_predators} must lie between 1 and 8")
        require(1 <= self.num_prey <= 4, f"num_prey={self.num_prey} must lie between 1 and 4")
        require(0 <= self.num_obstacles <= 8, f"num_obstacles={self.num_obstacles} must lie between 0 and 8")
        require(self.max_steps >= 1, f"max_steps={self.max_steps} must be at least 1")


def simple_spread(**options) -> Environment:
    """Everyone earns by how near somebody is to each landmark, and loses by its own collisions.

    A step pays every agent -(1 - local_ratio) * (sum over landmarks of the distance of the nearest agent) and
    -local_ratio for each agent it touches. JaxMARL logs the sum of this over agents: three times our mean.
    """
    config = SpreadConfig(**options)
    game = jaxmarl.load("mpe").SimpleSpreadMPE(
        num_agents=config.num_agents,
        num_landmarks=config.num_landmarks,
        local_ratio=config.local_ratio,
        max_steps=config.max_steps,
    )
    landmarks = tuple(f"landmark {k + 1}" for k in range(config.num_landmarks))
    return _environment(
        game,
        config,
        features=4 + 2 * config.num_landmarks + 4 * (config.num_agents - 1),
        roles=np.zeros((config.num_agents, 0)),
        name="mpe:simple_spread",
        kind="cooperative",
        split=lambda row: split_spread(config, row),
        goals=Goals(
            names=landmarks,
            features=3,
            look=lambda row: _look_at_landmarks(config, row),
            shown=lambda row, action, reward, after: _landmark_covered(config, after),
            away=(2, STEPS_PER_UNIT),
        ),
        outcomes=lambda before, after: {
            "covered": jnp.sum(jnp.min(_distances(after, config.num_agents), axis=0) < COVERED),
            "collisions": jnp.sum(_touching(game, after)) // 2,
        },
        reward_range=_spread_range(config, game),
        # Uniform play of 100,000 episodes, standard error 0.025; not measured with other options.
        random_return=-26.47 if config == SpreadConfig() else None,
        symmetry="every renaming of the players, up to the order in which they see each other",
        things="landmark",
    )


def simple_tag(**options) -> Environment:
    """Each predator earns 10 for every touch of a prey by any of them; a prey loses 10 for each, and up to 10
    on either axis for leaving the field."""
    config = TagConfig(**options)
    game = jaxmarl.load("mpe").SimpleTagMPE(
        num_good_agents=config.num_prey,
        num_adversaries=config.num_predators,
        num_obs=config.num_obstacles,
        max_steps=config.max_steps,
    )
    predators, prey = config.num_predators, config.num_prey
    names = [f"predator {k + 1}" for k in range(predators)] + [f"prey {k + 1}" for k in range(prey)]
    return _environment(
        game,
        config,
        features=4 + 2 * config.num_obstacles + 2 * (predators + prey - 1) + 2,
        roles=np.eye(2)[[0] * predators + [1] * prey],
        name="mpe:simple_tag",
        kind="mixed-motive",
        split=lambda row: split_tag(config, row),
        goals=Goals(
            names=tuple(names),
            features=3,
            look=lambda row: _look_at_the_other_role(config, row),
            shown=lambda row, action, reward, after: _prey_caught(config, game, after),
            away=(2, STEPS_PER_UNIT),
        ),
        outcomes=lambda before, after: {"catches": jnp.sum(_touching(game, after)[:predators, predators:])},
        reward_range=(-10.0 * predators - 20.0, 10.0 * predators * prey),  # leaving costs 10 a side at most
        symmetry="renaming predators among themselves, and prey among themselves",
        things="obstacle",
    )


def _environment(
    game: Any, config: Any, features: int, roles: np.ndarray, things: str, **particular
) -> Environment:
    """What both games share. JaxMARL's longest row has `features` numbers; `roles` [agent, role] follow."""
    adapted = jaxmarl.adapt(game)
    legal = jnp.asarray(adapted.has_action)
    shown_roles = jnp.asarray(roles, jnp.float32)

    def view(state: EnvState):
        return jnp.concatenate([adapted.observe(state), shown_roles], axis=1), legal

    def reset(key: Key) -> tuple[EnvState, TimeStep]:
        state = adapted.reset(key)
        return state, _timestep(config, state, view(state), jnp.zeros(len(roles)), first=True)

    def step(state: EnvState, action: Int[Array, " agent"], key: Key) -> tuple[EnvState, TimeStep]:
        state, reward = adapted.step(state, jaxmarl.carried_out(action, legal, COAST), key)
        return state, _timestep(config, state, view(state), reward, first=False)

    return Environment(
        options=config,
        num_agents=len(roles),
        num_actions=adapted.num_actions,
        observation_size=features + roles.shape[1],
        action_names=ACTION_NAMES,
        neutral_action=COAST,
        horizon=config.max_steps,
        reset=reset,
        step=step,
        rename=rename,
        view=view,
        draw=lambda state: draw(state, len(roles), things),
        can_truncate=True,
        alike=tuple(int(role) for role in roles.argmax(axis=1)) if roles.shape[1] else (),
        package=jaxmarl.PACKAGE,
        **particular,
    )


def _timestep(
    config: Any, state: EnvState, seen: tuple, reward: Float[Array, " agent"], first: bool
) -> TimeStep:
    observation, legal = seen
    nobody = jnp.zeros(reward.shape, bool)
    return TimeStep(
        observation=observation,
        legal=legal,
        reward=reward,
        active=~nobody,
        terminated=nobody,
        truncated=state.step >= config.max_steps,
        first=jnp.bool_(first),
    )


def rename(state: EnvState, order: Int[Array, " agent"]) -> EnvState:
    """The same game with other names: new seat i is the old seat order[i]. What a disc can do hangs on its
    seat, so the order must keep every role in its seats."""
    things = jnp.arange(order.shape[0], state.p_pos.shape[0])
    everything = jnp.concatenate([order, things])
    return state.replace(p_pos=state.p_pos[everything], p_vel=state.p_vel[everything], c=state.c[order])


# --- where everything is ---------------------------------------------------------------------------


def _distances(state: EnvState, players: int) -> Float[Array, "agent landmark"]:
    return jnp.linalg.norm(state.p_pos[:players, None] - state.p_pos[None, players:], axis=-1)


def _touching(game: Any, state: EnvState) -> Bool[Array, "agent agent"]:
    place, reach = state.p_pos[: game.num_agents], game.rad[: game.num_agents]
    distance = jnp.linalg.norm(place[:, None] - place[None, :], axis=-1)
    return (distance < reach[:, None] + reach[None, :]) & ~jnp.eye(game.num_agents, dtype=bool)


def draw(state: EnvState, players: int, things: str) -> Picture:
    """Discs in the cells that hold their middle; who is outside stands on the border."""
    size = 2 * EDGE / CELLS
    x, y = state.p_pos[:, 0], state.p_pos[:, 1]
    cells = jnp.stack([(EDGE - y) / size, (x + EDGE) / size], axis=1)
    cells = jnp.clip(jnp.floor(cells), 0, CELLS - 1).astype(jnp.int32)
    return Picture(grid=jnp.array([CELLS, CELLS]), cells={things: cells[players:]}, players=cells[:players])


def _spread_range(config: SpreadConfig, game: Any) -> tuple[float, float]:
    """Rewards lie between these, whatever happens; play stays far above the lower one.

    Speed stays below dt * force / damping, force being the own push and that of all others at their
    closest; nobody starts farther than sqrt(2) from the middle, and no landmark lies farther out.
    """
    others = config.num_agents - 1
    closest = 2 * float(game.rad[0]) + game.contact_margin * math.log(2)
    force = float(game.accel[0]) + others * game.contact_force * closest
    farthest = 2 * math.sqrt(2) + config.max_steps * game.dt * (game.dt * force / game.damping)
    share = config.local_ratio
    return -(1 - share) * config.num_landmarks * farthest - share * others, 0.0


# --- what players see ------------------------------------------------------------------------------


def split_spread(config: SpreadConfig, row: Float[Array, " feature"]) -> dict[str, Array]:
    """Velocity and position, then offsets [thing, xy] of landmarks and others; nobody says anything in this
    game, so messages are 0."""
    others = config.num_agents - 1
    parts = _cut(row, {"velocity": 1, "position": 1, "landmarks": config.num_landmarks, "others": others})
    return parts | {"messages": row[-2 * others :].reshape(others, 2)}


def split_tag(config: TagConfig, row: Float[Array, " feature"]) -> dict[str, Array]:
    """Velocity and position, offsets [thing, xy] of obstacles and others, the velocity of the last prey
    (predators only, for prey 0), the role (predator, prey), and which of the others are predators."""
    others = config.num_predators + config.num_prey - 1
    parts = _cut(row, {"velocity": 1, "position": 1, "obstacles": config.num_obstacles, "others": others})
    is_prey = row[-1] > 0.5
    predators = config.num_predators - 1 + is_prey.astype(jnp.int32)  # among the others, who come in order
    hunting = jnp.arange(others) < predators
    return parts | {"prey_velocity": row[-4:-2], "role": row[-2:], "hunting": hunting}


def _cut(row: Float[Array, " feature"], counts: dict[str, int]) -> dict[str, Array]:
    """So many pairs of numbers for each name, [pair, xy]; a single pair as it is."""
    parts, start = {}, 0
    for name, count in counts.items():
        part = row[start : start + 2 * count]
        parts[name] = part if name in ("velocity", "position") else part.reshape(count, 2)
        start += 2 * count
    return parts


# --- what players can be after ---------------------------------------------------------------------


def _described(offset: Float[Array, "goal xy"]) -> Float[Array, "goal feature"]:
    """Where it is from here, and how far."""
    return jnp.concatenate([offset, jnp.linalg.norm(offset, axis=1, keepdims=True)], axis=1)


def _look_at_landmarks(config: SpreadConfig, row: Float[Array, " feature"]):
    offset = split_spread(config, row)["landmarks"]
    return jnp.ones(config.num_landmarks, bool), _described(offset)


def _landmark_covered(config: SpreadConfig, after: Float[Array, " feature"]) -> Int[Array, ""]:
    return _nearest_within(split_spread(config, after)["landmarks"], COVERED)


def _look_at_the_other_role(config: TagConfig, row: Float[Array, " feature"]):
    """Predators are after prey; prey may be after getting away from any predator."""
    parts = split_tag(config, row)
    is_prey = parts["role"][1] > 0.5
    for_prey = _goal_rows(config, parts["others"], 0, config.num_predators, 0)
    for_predators = _goal_rows(
        config, parts["others"], config.num_predators - 1, config.num_prey, config.num_predators
    )
    possible = jnp.arange(config.num_predators + config.num_prey) < config.num_predators
    return possible == is_prey, _described(jnp.where(is_prey, for_prey, for_predators))


def _goal_rows(config: TagConfig, others: Float[Array, "other xy"], first: int, count: int, at: int):
    """Offsets of `count` others from the first on, in the places of their goals from `at` on; 0 elsewhere."""
    seen = others[first : first + count]
    behind = config.num_predators + config.num_prey - at - seen.shape[0]
    return jnp.pad(seen, ((at, behind), (0, 0)))


def _prey_caught(config: TagConfig, game: Any, after: Float[Array, " feature"]) -> Int[Array, ""]:
    """The prey that a predator touches; getting away shows nothing."""
    parts = split_tag(config, after)
    prey = parts["others"][config.num_predators - 1 :][: config.num_prey]
    caught = _nearest_within(prey, float(game.rad[0] + game.rad[config.num_predators]))
    is_predator = parts["role"][0] > 0.5
    return jnp.where(is_predator & (caught >= 0), config.num_predators + caught, -1).astype(jnp.int32)


def _nearest_within(offset: Float[Array, "thing xy"], reach: float) -> Int[Array, ""]:
    distance = jnp.linalg.norm(offset, axis=1)
    return jnp.where(jnp.min(distance) < reach, jnp.argmin(distance), -1).astype(jnp.int32)
