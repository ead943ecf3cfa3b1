"""Defects of targets, losses, imagination and what models learn from (30 to 50, 59 to 61, 64 to 67, 76)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from coplay.algorithms import value_scale
from coplay.algorithms.losses import log_policy
from coplay.algorithms.readers import OTHERS
from coplay.algorithms.targets import Targets
from coplay.algorithms.views import joint_view
from coplay.types import Seated
from tests.audit.planted import Planted, keeping, replacing

PPO, TARGETS = "coplay.algorithms.ppo", "coplay.algorithms.targets"
HOP_PLUS, IMAGINATION = "coplay.algorithms.hop_plus", "coplay.algorithms.imagination"
SUBGOALS = "coplay.algorithms.subgoal_stage"
HOP_PLUS_RUN, HYPER_RUN = "hop_plus_4h1s_4x4", "hyper_mappo_4h1s_4x4"


def returns_with(change):
    """`change(ends, cut, discount) -> ends, cut, discount`, of every advantage."""

    def spoil(known):
        gae = known["gae"]

        def spoiled(reward, value, next_value, ends, cut, discount, trace):
            return gae(reward, value, next_value, *change(ends, cut, discount), trace)

        return known | {"gae": spoiled}

    return replacing(TARGETS, "RETURNS", spoil)


def by_seat_0(make_batch):
    """Advantages of everyone by the mean and deviation that the first seat's have."""

    def spoiled(env, model, settings, lesson, length, params, trajectory):
        targets = make_batch(env, model, settings, lesson, length, params, trajectory)
        batch, scale = targets.batch, targets.scale
        old = jax.vmap(value_scale.scale_of)(model.sharing.weights(params))
        raw = jax.vmap(value_scale.denormalised)(scale, batch.target)
        raw -= jax.vmap(value_scale.denormalised)(old, batch.value)
        counts = batch.policy.counts[0]
        mean = jnp.sum(jnp.where(counts, raw[0], 0.0)) / jnp.sum(counts)
        deviation = jnp.sqrt(jnp.sum(jnp.where(counts, (raw[0] - mean) ** 2, 0.0)) / jnp.sum(counts))
        advantage = jnp.where(batch.policy.counts, (raw - mean) / (deviation + 1e-8), 0.0)
        policy = dataclasses.replace(batch.policy, advantage=advantage)
        return Targets(dataclasses.replace(batch, policy=policy), *targets[1:])

    return spoiled


def all_counted(count):
    return lambda batch: jnp.float32(batch.valued.size)


def made_anew(clipped_policy_loss):
    def spoiled(logits, rows, clip, floor=None):
        log_all = jax.lax.stop_gradient(log_policy(logits, rows.legal))
        now = jnp.take_along_axis(log_all, rows.action[..., None], axis=-1)[..., 0]
        return clipped_policy_loss(logits, dataclasses.replace(rows, log_prob=now), clip, floor)

    return spoiled


def fixed_clip(clipped_policy_loss):
    return lambda logits, rows, clip, floor=None: clipped_policy_loss(logits, rows, 0.2, floor)


def terms_with(change):
    return replacing(PPO, "loss_terms", lambda terms: lambda config: change(terms(config)))


def without_mask(log_policy):
    return lambda logits, legal: jax.nn.log_softmax(logits, axis=-1)


def generator_stands_still(step_by):
    return lambda rate, others: step_by(rate, others | {"generator": 0.0})


def plain_while_learning(make):
    """The generator's heads are silent in play that is learned from."""

    def spoiled(*arguments):
        algorithm = make(*arguments)

        def act(params, *rest):
            weights = dict(params.common["group"])
            generator = weights["generator"]
            weights["generator"] = jax.tree.map(jnp.zeros_like, generator)
            plain = Seated(params.own, params.common | {"group": weights})
            return algorithm.act(plain, *rest)

        return algorithm._replace(act=act, play=algorithm.act)

    return spoiled


def imagined_feed_the_scale(ppo_stage):
    def spoiled(env, model, *rest, **options):
        stage = ppo_stage(env, model, *rest, **options)

        def update(params, learner, trajectory, key, beside=None):
            after, learner, figures = stage.update(params, learner, trajectory, key, beside)
            if beside is not None:
                weights = model.sharing.weights(after)
                scale = jax.vmap(value_scale.updated)(
                    weights["scale"], beside.rows.returns, beside.rows.policy.counts
                )
                after = model.sharing.pack(weights | {"scale": scale}, after.own["seat"])
            return after, learner, figures

        return stage._replace(update=update)

    return spoiled


def off_by_one(written):
    def spoiled(env, world, memory, trajectory, rounds):
        steps = trajectory.steps
        later = jax.tree.map(lambda x: jnp.roll(x, -1, axis=0), steps.next_state)
        shifted = dataclasses.replace(trajectory, steps=dataclasses.replace(steps, next_state=later))
        return written(env, world, memory, shifted, rounds)

    return spoiled


def ends_at_the_cut(lambda_returns):
    def spoiled(reward, next_value, goes_on, cut, discount, trace):
        return lambda_returns(reward, next_value, jnp.where(cut, 0.0, goes_on), cut, discount, trace)

    return spoiled


def old_log_probs(one_step):
    """As another policy would have decided: the same but a tenth shyer."""

    def spoiled(imagination, params, moment, key):
        moment, row = one_step(imagination, params, moment, key)
        return moment, row._replace(log_prob=0.9 * row.log_prob)

    return spoiled


def no_subgoals(start):
    def spoiled(model, trajectory, memory):
        moment = start(model, trajectory, memory)
        return dataclasses.replace(moment, notes=jax.tree.map(jnp.zeros_like, moment.notes))

    return spoiled


def of_another_round(ppo_stage):
    """Imagined rows are those of games played before: here, of other games of the round."""

    def spoiled(env, model, *rest, **options):
        stage = ppo_stage(env, model, *rest, **options)

        def update(params, learner, trajectory, key, beside=None):
            if beside is not None:
                rows = jax.tree.map(lambda x: jnp.roll(x, 1, axis=1), beside.rows)
                beside = beside._replace(rows=rows)
            return stage.update(params, learner, trajectory, key, beside)

        return stage._replace(update=update)

    return spoiled


def models_after(change):
    """`change(params before, params after, key) -> params after`, of what models of co-players learn."""

    def spoil(subgoal_stage):
        def spoiled(*arguments):
            stage = subgoal_stage(*arguments)

            def update(params, learner, trajectory, key):
                after, learner, figures = stage.update(params, learner, trajectory, key)
                return change(params, after, key), learner, figures

            return stage._replace(update=update)

        return spoiled

    return replacing(HOP_PLUS, "subgoal_stage", spoil)


def a_hundred_times(subgoal_stage):
    """Subgoals are kept near a standard Gaussian a hundred times as hard as is asked for."""

    def spoiled(reader, settings, *rest):
        heavy = dataclasses.replace(settings, subgoal_weight=100 * settings.subgoal_weight)
        return subgoal_stage(reader, heavy, *rest)

    return spoiled


def only_seat_1(before, after, key):
    for seat in (0, 2, 3):
        after = keeping(seat, before, after)
    return after


def begun_anew(before, after, key):
    weights = after.own["group"]
    fresh = jax.tree.map(lambda x: 0.5 * jax.random.normal(key, x.shape), weights[OTHERS])
    return Seated(after.own | {"group": weights | {OTHERS: fresh}}, after.common)


def rows_with(change):
    """`change(rows) -> counts`, of what models of co-players learn from."""

    def spoil(make_rows):
        def spoiled(*arguments):
            rows = make_rows(*arguments)
            return dataclasses.replace(rows, counts=change(rows))

        return spoiled

    return replacing(SUBGOALS, "_rows", spoil)


def by_fixed_models(foretold):
    def spoiled(reader, params, *rows):
        weights = reader.sharing.weights(params)
        fixed = jax.tree.map(lambda x: jnp.full_like(x, 0.01), weights[OTHERS])
        return foretold(reader, reader.sharing.pack(weights | {OTHERS: fixed}, params.own["seat"]), *rows)

    return spoiled


def the_next_one(those_after):
    return lambda seats, agents: np.roll(those_after(seats, agents), 1, axis=1)


def swapped(value_fit):
    return lambda value, returns, counts: value_fit(returns, value, counts)


ALGORITHMS = (
    Planted(
        30,
        "imagined end flagged terminal",
        "algorithms",
        "imagined_ends",
        replacing(IMAGINATION, "lambda_returns", ends_at_the_cut),
        HOP_PLUS_RUN,
    ),
    Planted(
        31,
        "imagined samples of other moments kept",
        "algorithms",
        "imagined_rows",
        replacing(HOP_PLUS, "ppo_stage", of_another_round),
        HOP_PLUS_RUN,
    ),
    Planted(
        32,
        "imagined log-probs from another policy",
        "algorithms",
        "stillness",
        replacing(IMAGINATION, "_one_step", old_log_probs),
        HOP_PLUS_RUN,
    ),
    Planted(
        33,
        "zero subgoal in imagination",
        "algorithms",
        "imagined_rows",
        replacing(IMAGINATION, "_start", no_subgoals),
        HOP_PLUS_RUN,
    ),
    Planted(
        34,
        "GAE bootstraps across resets",
        "algorithms",
        "references",
        returns_with(lambda ends, cut, discount: (jnp.zeros_like(ends), jnp.zeros_like(cut), discount)),
    ),
    Planted(
        35,
        "truncation treated as termination",
        "algorithms",
        "references",
        returns_with(lambda ends, cut, discount: (ends | cut, cut, discount)),
        "mappo_simple_spread",
    ),
    Planted(
        36,
        "discount applied twice",
        "algorithms",
        "references",
        returns_with(lambda ends, cut, discount: (ends, cut, discount**2)),
    ),
    Planted(
        37,
        "advantages use normalised values",
        "algorithms",
        "references",
        replacing(TARGETS, "_in_the_games_units", lambda units: lambda weights, value: value),
    ),
    Planted(
        38,
        "value normaliser never updated",
        "algorithms",
        "normaliser",
        replacing("coplay.algorithms.value_scale", "updated", lambda updated: lambda scale, *seen: scale),
    ),
    Planted(
        39,
        "losses average over the departed",
        "algorithms",
        "steps_taken",
        replacing(PPO, "_counted", all_counted),
    ),
    Planted(
        40,
        "old log-probs recomputed each epoch",
        "algorithms",
        "stillness",
        replacing(PPO, "clipped_policy_loss", made_anew),
    ),
    Planted(
        41,
        "entropy sign flipped",
        "algorithms",
        "terms",
        terms_with(lambda terms: terms | {"entropy": -terms.get("entropy", 0.0)}),
    ),
    Planted(
        42, "clip range ignored", "algorithms", "numbers", replacing(PPO, "clipped_policy_loss", fixed_clip)
    ),
    Planted(
        43,
        "all seats' advantages scaled by seat 0's moments",
        "algorithms",
        "references",
        replacing(PPO, "make_batch", by_seat_0),
    ),
    Planted(
        44,
        "mask used in acting but not in the loss",
        "algorithms",
        "stillness",
        replacing("coplay.algorithms.losses", "log_policy", without_mask),
    ),
    Planted(
        45,
        "generator missing from the optimiser",
        "algorithms",
        "moves",
        replacing(PPO, "step_by", generator_stands_still),
        HYPER_RUN,
    ),
    Planted(
        46,
        "rollout uses the plain actor, evaluation the generated one",
        "algorithms",
        "reach",
        replacing("coplay.algorithms", "ALGORITHMS.hyper_mappo", plain_while_learning),
        HYPER_RUN,
    ),
    Planted(
        47,
        "imagined returns feed the normaliser",
        "algorithms",
        "normaliser",
        replacing(HOP_PLUS, "ppo_stage", imagined_feed_the_scale),
        HOP_PLUS_RUN,
    ),
    Planted(
        48,
        "world target off by one step",
        "algorithms",
        "world_rows",
        replacing("coplay.algorithms.world_stage", "_written", off_by_one),
        HOP_PLUS_RUN,
    ),
    Planted(
        49,
        "smoothness term left out of the sum",
        "algorithms",
        "numbers",
        terms_with(lambda terms: {name: weight for name, weight in terms.items() if name != "smooth"}),
        HYPER_RUN,
        {"hyper_mappo.context": "local_history", "rollout.num_steps": 80},
    ),
    Planted(
        50,
        "decentralised actor reads the joint view",
        "algorithms",
        "sight",
        replacing(PPO, "own_view", lambda own_view: joint_view),
    ),
    Planted(
        59, "model trained only for seat 1", "algorithms", "moves", models_after(only_seat_1), HOP_PLUS_RUN
    ),
    Planted(
        60,
        "padding after exit kept as rows to learn from",
        "algorithms",
        "opponent_rows",
        rows_with(lambda rows: jnp.ones_like(rows.counts)),
        HOP_PLUS_RUN,
    ),
    Planted(
        61,
        "predictions come from a model that never learned",
        "algorithms",
        "reach",
        replacing(HOP_PLUS, "foretold", by_fixed_models),
        HOP_PLUS_RUN,
    ),
    Planted(
        64,
        "co-player j read from j+1's history",
        "opponents",
        "histories",
        replacing("coplay.algorithms.readers", "those_after", the_next_one),
        HOP_PLUS_RUN,
    ),
    Planted(
        65,
        "the divergence of subgoals weighs 100 times what its setting says",
        "algorithms",
        "term_weights",
        replacing(HOP_PLUS, "subgoal_stage", a_hundred_times),
        HOP_PLUS_RUN,
    ),
    Planted(
        66,
        "subgoal encoder re-initialised every update",
        "algorithms",
        "stays",
        models_after(begun_anew),
        HOP_PLUS_RUN,
    ),
    Planted(
        67,
        "hunting actions dropped from the buffer",
        "algorithms",
        "opponent_rows",
        rows_with(lambda rows: rows.counts & (rows.action < 5)),
        HOP_PLUS_RUN,
    ),
    Planted(
        76,
        "explained variance with arguments swapped",
        "algorithms",
        "fit",
        replacing(TARGETS, "value_fit", swapped),
    ),
)
