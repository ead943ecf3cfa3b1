"""Further defects that checks were not written for (401 to 414), thought up from the product's code alone.

Nobody who writes a check is to look here first, as with those of `held_out.py` and `held_out_again.py`.
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from coplay.envs import grid
from coplay.envs.stag_hunt import HUNT_STAG
from tests.audit.planted import Planted, both, replacing

ROLLOUT, STAGES = "coplay.training.rollout", "coplay.training.stages"
COLLECTS = ("coplay.training.programs", "coplay.audit.captured")


# --- envs ----------------------------------------------------------------------------------------


def bystanders_eat(hunt):
    """Whoever stands where a stag falls has its share, and leaves, whatever it did there."""

    def spoiled(config, state, action):
        _, _, alive = hunt(config, state, action)
        falls = state.stag_alive & ~alive[: config.stags]
        stands = state.players[:, None] == state.stags[None, :]
        by_it = jnp.any(stands & falls[None, :], axis=1)
        return hunt(config, state, jnp.where(by_it, HUNT_STAG, action))

    return spoiled


def with_replacement(draw_distinct):
    """Every thing is laid anywhere, on another one, too."""
    return grid.draw_below


def one_free_cell_too_few(num_free):
    """No coin is ever laid on the last of the free cells."""
    return lambda config, players: num_free(config, players) - 1


# --- training ------------------------------------------------------------------------------------


def returns_run_on(play_step):
    """What a place's games have brought is added up from game to game, and told as the last one's return."""

    def spoiled(env, algorithm, params, actor, key):
        actor, transition, ended = play_step(env, algorithm, params, actor, key)
        return dataclasses.replace(actor, episode_return=ended.episode_return), transition, ended

    return spoiled


def goes_on_where_it_was(collect):
    """A round's last step leads to the moment in which it was taken: that is what its end is worth."""

    def spoiled(*arguments):
        actor, trajectory, tally = collect(*arguments)
        last = jax.tree.map(lambda x: x[-1], trajectory.steps.before)
        return actor, dataclasses.replace(trajectory, next=last), tally

    return spoiled


def mean_of_means(summed_gradient):
    """Gradients are divided by the rows of their chunk: where few are left, each counts for more."""

    def spoiled(loss, count, weights, chunks, first, number):
        def one_chunk(index):
            return summed_gradient(loss, count, weights, chunks, index, 1)

        each = jax.lax.map(one_chunk, first + jnp.arange(number))
        return jax.tree.map(lambda x: jnp.mean(x, axis=0), each)

    return spoiled


# --- algorithms ----------------------------------------------------------------------------------


def joint_length(clip_each_part):
    """The gradients of policy and critic are cut by their length together, not each by its own."""
    return optax.clip_by_global_norm


def as_they_were(taking_turns):
    """Those who come later are told how likely moves were before the others had learned."""
    return lambda descend, log_prob: taking_turns(descend, lambda networks, batch: batch.policy.log_prob)


def let_go_when_it_runs(strengthened):
    """Align's weight falls where play moved too far, and grows where it hardly moved."""

    def spoiled(config, strength, kl):
        return strengthened(config, strength, config.align_target**2 / jnp.maximum(kl, 1e-12))

    return spoiled


def taken_for_the_former(greeted):
    """New company is met with what was thought of those who sat there before."""

    def spoiled(*arguments):
        orders, is_new = greeted(*arguments)
        return orders, jnp.zeros_like(is_new)

    return spoiled


def by_the_commonest(chances):
    """Moves are drawn by the commonest reward they paid, not the rarest: few that matter are drawn."""

    def spoiled(paid, seen):
        commonest = jnp.argmax(jnp.where(paid, seen[None, None, :], -1.0), axis=-1)
        return chances(paid & jax.nn.one_hot(commonest, paid.shape[-1], dtype=bool), seen)

    return spoiled


# --- nets ----------------------------------------------------------------------------------------


def reset_left_out(remember):
    """The gradient that is written out for a GRU's memory weights has no reset gate in it."""

    def forward(from_memory, memory, drive, first):
        remembered = remember(from_memory, memory, drive, first)
        return remembered, (from_memory, memory, drive, first, remembered)

    def backward(kept, gradient):
        from_memory, memory, drive, first, remembered = kept
        pull = jax.vjp(lambda m, d: remember(from_memory, m, d, first), memory, drive)[1]
        at_start, to_drive = pull(gradient)
        before = jnp.concatenate([memory[None], remembered[:-1]])
        before = jnp.where(first[..., None], 0.0, before).reshape(-1, memory.shape[-1])
        return before.T @ to_drive.reshape(before.shape[0], -1), at_start, to_drive, None

    spoiled = jax.custom_vjp(lambda *arguments: remember(*arguments))
    spoiled.defvjp(forward, backward)
    return spoiled


# --- opponents and planning ----------------------------------------------------------------------


def any_move_at_all(whim_after_action):
    """Whoever acts on a whim is thought to choose among all moves, not only among those it may make."""

    def spoiled(whim, log_belief, policy, legal, action):
        return whim_after_action(whim, log_belief, policy, jnp.ones_like(legal), action)

    return spoiled


def root_of_the_fraction(puct_scores):
    """The bonus is c * prior * sqrt(N / (1 + n)) in place of c * prior * sqrt(N) / (1 + n)."""

    def spoiled(nodes, exploration, q_mode="value"):
        prior = nodes.prior * jnp.sqrt(1.0 + nodes.visits)  # an illegal one stays below 0
        return puct_scores(dataclasses.replace(nodes, prior=prior), exploration, q_mode)

    return spoiled


HELD_OUT_THIRD: tuple[Planted, ...] = (
    Planted(
        401,
        "who stands by a falling stag eats with its hunters",
        "envs",
        "",
        replacing("coplay.envs.stag_hunt.rules", "_hunt", bystanders_eat),
    ),
    Planted(
        402,
        "drifts may be laid on one another",
        "envs",
        "",
        replacing("coplay.envs.grid", "draw_distinct", with_replacement),
        "ppo_snowdrift",
    ),
    Planted(
        403,
        "no coin is laid on the last free cell",
        "envs",
        "",
        replacing("coplay.envs.coin_game", "_num_free", one_free_cell_too_few),
        "ppo_coin_game",
    ),
    Planted(
        404,
        "returns are told that run on from game to game",
        "training",
        "",
        replacing(ROLLOUT, "play_step", returns_run_on),
    ),
    Planted(
        405,
        "rounds go on from the moment before their last step",
        "training",
        "",
        both(*[replacing(module, "collect", goes_on_where_it_was) for module in COLLECTS]),
    ),
    Planted(
        406,
        "gradients are means of chunks' means",
        "training",
        "",
        replacing(STAGES, "_summed_gradient", mean_of_means),
    ),
    Planted(
        407,
        "policy's and critic's gradients are cut together",
        "algorithms",
        "",
        replacing("coplay.algorithms.ppo", "clip_each_part", joint_length),
    ),
    Planted(
        408,
        "ratios of earlier seats from before they learned",
        "algorithms",
        "",
        replacing("coplay.algorithms.happo", "taking_turns", as_they_were),
        "happo_4h1s_4x4",
    ),
    Planted(
        409,
        "align's weight follows play the wrong way",
        "algorithms",
        "",
        replacing("coplay.algorithms.alignment", "strengthened", let_go_when_it_runs),
        "hyper_mappo_4h1s_4x4",
    ),
    Planted(
        410,
        "beliefs about former company stay with the new",
        "algorithms",
        "",
        replacing("coplay.algorithms.hop", "greeted", taken_for_the_former),
        "hop_4h1s_4x4",
    ),
    Planted(
        411,
        "the learned game draws moves by their commonest reward",
        "algorithms",
        "",
        replacing("coplay.algorithms.world_stage", "_chances", by_the_commonest),
        "hop_plus_4h1s_4x4",
    ),
    Planted(
        412,
        "no reset gate in the gradient of a GRU's memory",
        "nets",
        "",
        replacing("coplay.nets.recurrent", "remember", reset_left_out),
        "ppo_gru_4h1s_4x4",
    ),
    Planted(
        413,
        "whims are thought to range over illegal moves, too",
        "opponents",
        "",
        replacing("coplay.opponents.minds", "whim_after_action", any_move_at_all),
        "hop_4h1s_4x4",
    ),
    Planted(
        414,
        "a search's bonus is the root of the whole fraction",
        "planning",
        "",
        replacing("coplay.planning.search", "puct_scores", root_of_the_fraction),
        "hop_4h1s_4x4",
    ),
)
