"""Play one episode of the stag hunt with scripted players, and print it."""

import jax

from coplay.envs import make_game
from coplay.players.catalogue import make_player
from coplay.players.lineup import Member, seated
from coplay.players.scripted import scripted
from coplay.training.rollout import play_step, start_playing

env = make_game("4h1s_4x4")
names = ("nearest_stag", "nearest_stag", "nearest_hare", "nearest_hare")
members = [
    Member(name, lambda seats, name=name: scripted(make_player(name, env), env, seats), seats)
    for name, seats in (("nearest_stag", (0, 1)), ("nearest_hare", (2, 3)))
]
players = seated(members, names)
params = players.init(jax.random.key(0))
actor = start_playing(env, players, jax.random.key(1), num_envs=1)
step = jax.jit(lambda actor, key: play_step(env, players, params, actor, key))

for time in range(env.horizon):
    actor, transition, ended = step(actor, jax.random.key(100 + time))
    actions = [env.action_names[int(a)] for a in transition.decision.action[0]]
    print(f"{time:2d}", actions, [float(r) for r in transition.after.reward[0]])
    if bool(ended.over[0]):
        break
