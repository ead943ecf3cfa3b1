"""What a player had been after, told in hindsight: the goal that it next gave away in the same game.

In the stag hunt that is the prey it finally caught, in the snowdrift game the drift it removed next. Steps
after which it gave nothing away have no label. Nor, if asked, have steps before another of its goals was
gone: who takes a hare once the stag is taken may have been after the stag. Labels never use what a scripted
player declares.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from coplay.opponents.goal_policy import wishes
from coplay.types import Environment, Goals, Transition

UNKNOWN = -1


def shown_goals(env: Environment, steps: Transition) -> Int[Array, "*batch agent"]:
    """The goal each player gave away in each step, or UNKNOWN; players who had left give nothing away."""
    before, after = steps.before, steps.after
    shown = env.goals.shown
    assert shown is not None, f"{env.name} as set up does not show goals; algorithms refuse it when built"
    for _ in range(before.active.ndim):
        shown = jax.vmap(shown)
    told = shown(before.observation, steps.decision.action, after.reward, after.observation)
    return jnp.where(before.active, told, UNKNOWN)


def tried_goals(env: Environment, steps: Transition) -> Int[Array, "*batch agent"]:
    """The goal each player tried for in each step, with or without success, or UNKNOWN."""
    tried = env.goals.tried
    if tried is None:
        return shown_goals(env, steps)
    action = steps.decision.action
    for _ in range(action.ndim):
        tried = jax.vmap(tried)
    taken = jax.nn.one_hot(action, env.num_actions, dtype=bool)
    is_legal = jnp.any(steps.before.legal & taken, axis=-1)
    return jnp.where(steps.before.active & is_legal, tried(action), UNKNOWN)


def hindsight_labels(
    shown: Int[Array, "time env agent"],
    is_over: Bool[Array, "time env"],
    upcoming: Int[Array, "env agent"],
    lost: Bool[Array, "time env agent"] | None = None,
) -> tuple[Int[Array, "time env agent"], Int[Array, "env agent"]]:
    """Every step's label, UNKNOWN for none, and what an earlier round's last steps are to be told.

    `upcoming` labels steps of games that go on after the last row: the label of the row that follows. `lost`
    marks steps with which a goal was gone: what is given away later says nothing about them.
    """
    is_cut = jnp.broadcast_to(is_over[..., None], shown.shape)
    is_cut = is_cut if lost is None else is_cut | lost

    def one_step(following, step):
        shown, is_cut = step
        label = jnp.where(shown != UNKNOWN, shown, jnp.where(is_cut, UNKNOWN, following))
        return label, label

    first, labels = jax.lax.scan(one_step, upcoming, (shown, is_cut), reverse=True)
    return labels, first


def lost_goals(goals: Goals, steps: Transition) -> Bool[Array, "*batch agent"]:
    """Whether something a player could be after was gone with this step."""
    before, after = (wishes(goals, timestep).possible for timestep in (steps.before, steps.after))
    return jnp.any(before & ~after, axis=-1)
