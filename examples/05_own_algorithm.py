"""An algorithm of one's own, named as file.py:function, without changing coplay: REINFORCE.

Every seat has a small network of its own, and what it did counts by what came of it. What follows env, seats
and plan in the signature are settings (`--algorithm_options.discount 0.9`). `coplay audit mine.toml` says
what may be wrong with it.
"""

import tempfile
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import coplay
from coplay.algorithms.actor_critic import draw_actions, to_columns
from coplay.algorithms.losses import log_policy
from coplay.algorithms.returns import advantages
from coplay.algorithms.sharing import sharing
from coplay.nets.mlp import MLP
from coplay.training.stages import Fit, fit
from coplay.types import Algorithm, Decision, Stage


def reinforce(env, seats, plan, learning_rate=0.01, discount=0.95, width=32):
    own, whose, optimiser = np.array(seats), sharing("per_agent"), optax.adam(learning_rate)
    shape = eqx.partition(network(env, jax.random.key(0), width), eqx.is_array)[1]

    def init(key):
        def one(key):
            return {"policy": eqx.filter(network(env, key, width), eqx.is_array)}

        return whose.pack(whose.init(one, key, len(seats)), {"identity": jnp.asarray(seats, jnp.int32)})

    def log_chances(weights, seen, legal):
        return log_policy(eqx.combine(shape, weights["policy"])(seen), legal)

    def act(params, memory, timestep, state, key):
        rows = whose.groups((timestep.observation[:, own], timestep.legal[:, own]), 1)
        log_all = whose.seats(whose.map(log_chances)(whose.weights(params), *rows), 1)
        action = draw_actions(key, params.own["seat"]["identity"], jnp.exp(log_all))
        return memory, Decision(action, taken(log_all, action), jnp.exp(log_all))

    def loss(weights, rows):
        log_prob = taken(log_chances(weights, rows["seen"], rows["legal"]), rows["action"])
        total = -jnp.sum(jnp.where(rows["counts"], log_prob * rows["worth"], 0.0))
        return total, {"policy/loss": total}

    descend = fit(loss, optimiser, Fit(epochs=1, minibatches=1, chunk_rows=512))

    def update(params, learner, trajectory, key):
        weights, optimisers = whose.weights(params), whose.weights(learner)
        batch = whose.groups(jax.tree.map(lambda x: to_columns(x, plan.num_steps), rows_of(trajectory)), 2)
        keys = whose.keys(key, params.own["seat"]["identity"])
        step = whose.map(lambda w, o, b, k: descend(w, o, b, lambda rows: jnp.sum(rows["counts"]), k))
        weights, optimisers, figures = step(weights, optimisers, batch, keys)
        return whose.pack(weights, params.own["seat"]), whose.pack(optimisers, {}), figures

    def rows_of(trajectory):
        before, after = trajectory.steps.before, trajectory.steps.after
        counts, nothing = before.active[..., own], jnp.zeros_like(after.reward[..., own])
        ends = after.terminated[..., own]
        cut = jnp.broadcast_to(after.truncated[..., None], ends.shape)
        worth = advantages(after.reward[..., own], nothing, nothing, ends, cut, discount, 1.0)
        mean = jnp.mean(worth, axis=(0, 1), where=counts, keepdims=True)
        seen, legal = before.observation[..., own, :], before.legal[..., own, :]
        action = trajectory.steps.decision.action[..., own]
        return {"seen": seen, "legal": legal, "action": action, "counts": counts, "worth": worth - mean}

    return Algorithm(
        init=init,
        remember=lambda num_envs: (),
        act=act,
        watch=lambda params, memory, transition: memory,
        learn=Stage(lambda params: whose.pack(whose.map(optimiser.init)(whose.weights(params)), {}), update),
    )


def network(env, key, width):
    return MLP(key, env.observation_size, (width,), env.num_actions, output_gain=0.01)


def taken(log_all, action):
    return jnp.take_along_axis(log_all, action[..., None], axis=-1)[..., 0]


EXPERIMENT = """
game = "matrix_stag_hunt"
algorithm = "{here}:reinforce"

[algorithm_options]
discount = 0.9

[rollout]
total_steps = 50_000
num_envs = 64
num_steps = 20
"""

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        toml = Path(folder) / "mine.toml"
        toml.write_text(EXPERIMENT.format(here=__file__))
        run = coplay.train(str(toml), out=Path(folder) / "run")
        print(f"mean return {run.evaluate(episodes=256).mean_return:.2f}")
