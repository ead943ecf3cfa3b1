"""Plan one move by tree search in the true game, against three players whose behaviour is known.

No network: every move is tried alike, and a leaf is worth nothing. The search only knows how the game goes on
and what nearest_hare would do. It prints the board, and what each legal first move is worth.
"""

import jax
import jax.numpy as jnp
import numpy as np

from coplay.envs import make_game
from coplay.planning.search import Model, Outlook, SearchConfig, drawn, search
from coplay.players.catalogue import make_player

env = make_game("4h1s_4x4", observation="entities")
other = make_player("nearest_hare", env)


def look(arrived, keys):
    """Draw what the others do here, and say what we think of it: nothing."""
    state, timestep = arrived
    chances = jax.vmap(jax.vmap(lambda row, legal: other.policy(jnp.int32(0), row, legal)))(
        timestep.observation, timestep.legal
    )
    noise = drawn(jax.random.gumbel, keys, chances.shape)
    moves = jnp.argmax(jnp.log(jnp.maximum(chances, 1e-9)) + noise, axis=-1).astype(jnp.int32)
    legal = timestep.legal[:, 0]
    alike = legal / legal.sum(axis=-1, keepdims=True)
    return (state, moves), Outlook(alike, legal, jnp.zeros(legal.shape[0]))


def step(node, action, keys):
    """Our move with theirs."""
    state, moves = node
    step_keys = jax.random.split(keys[0], action.shape[0])
    state, after = jax.vmap(env.step)(state, moves.at[:, 0].set(action), step_keys)
    return (state, after), after.reward[:, 0], after.terminated[:, 0]


start = jax.vmap(env.reset)(jax.random.split(jax.random.key(3), 1))
found = search(
    Model(look, step), SearchConfig(simulations=400), start, jax.random.split(jax.random.key(4), 1)
)

picture = jax.tree.map(lambda x: np.asarray(x)[0], jax.vmap(env.draw)(start[0]))
print("we stand on", tuple(map(int, picture.players[0])), "; stag", picture.cells["stag"].tolist())
print("hares", picture.cells["hare"].tolist())
for action in np.flatnonzero(start[1].legal[0, 0]):
    worth, visits = float(found.q[0, action]), int(found.visits[0, action])
    print(f"{env.action_names[action]:10s} worth {worth:.3f}  tried {visits} times")
