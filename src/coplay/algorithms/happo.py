"""HAPPO: MAPPO with separate actors that are updated one after the other, in an order drawn for every round.

Whoever comes later learns from advantages weighted by how much likelier those before it have made their own
moves (their ratios multiplied), so that each improves on what the others have just become.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coplay.algorithms.actor_critic import actor_critic, as_algorithm
from coplay.algorithms.ppo import Plan, ppo_stage
from coplay.algorithms.ppo_config import MAPPOConfig
from coplay.algorithms.rewards import learning_reward
from coplay.algorithms.targets import Batch
from coplay.algorithms.views import joint_view, own_view
from coplay.training.stages import in_order
from coplay.types import Algorithm, Environment, Key, PyTree, stream


@dataclasses.dataclass(frozen=True)
class HAPPOConfig(MAPPOConfig):
    parameters: str = "per_agent"

    def __post_init__(self):
        super().__post_init__()
        if self.parameters != "per_agent":
            raise ValueError(
                f"happo updates actors in turns, so each has its own: parameters={self.parameters!r} must be "
                "'per_agent' (with shared weights take mappo)"
            )


def happo(
    env: Environment, seats: tuple[int, ...], config: HAPPOConfig, plan: Plan, watched: bool = True
) -> Algorithm:
    learning_reward(config.learning_reward, config.team_share)  # a bad name is refused before anything runs
    model, init = actor_critic(env, seats, config, {"policy": own_view, "critic": joint_view})
    stage = ppo_stage(env, model, config, plan, learners=taking_turns, watched=watched)
    return as_algorithm(model, init, in_order({"policy": stage}))._replace(in_turns=True)


def taking_turns(descend: Callable, log_prob: Callable) -> Callable:
    """A function (networks, optimiser states, batch, count, keys), all [seat, ...]: seat after seat descends.

    `log_prob` of networks and a batch is that of the actions taken. The order hangs on the seats' own keys,
    so that it goes with the players and not with their places.
    """

    def update(networks: PyTree, optimisers: PyTree, batch: Batch, count: Callable, keys: Key):
        order = jnp.argsort(jax.vmap(lambda key: jax.random.uniform(stream(key, "turn")))(keys))

        def one_turn(carry, seat):
            networks, optimisers, others = carry
            own = jax.tree.map(lambda x: x[seat], (networks, optimisers, batch, keys))
            own_networks, own_optimiser, own_batch, key = own
            changed, state, sums = descend(
                own_networks, own_optimiser, _weighted(own_batch, others), count, key
            )
            log_ratio = log_prob(changed, own_batch) - own_batch.policy.log_prob
            others = others * jnp.exp(jnp.where(own_batch.policy.counts, log_ratio, 0.0))
            networks, optimisers = jax.tree.map(
                lambda all_, one: all_.at[seat].set(one), (networks, optimisers), (changed, state)
            )
            return (networks, optimisers, others), sums

        nobody_yet = jnp.ones(batch.policy.advantage.shape[1:])
        carry, sums = jax.lax.scan(one_turn, (networks, optimisers, nobody_yet), order)
        by_seat = jax.tree.map(lambda x: x[jnp.argsort(order)], sums)
        return carry[0], carry[1], by_seat

    return update


def _weighted(batch: Batch, others: Float[Array, "column time seat"]) -> Batch:
    """Advantages now that others have moved: the surrogate is linear in them and weights are positive."""
    policy = dataclasses.replace(batch.policy, advantage=batch.policy.advantage * others)
    return dataclasses.replace(batch, policy=policy)
