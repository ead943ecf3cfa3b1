"""How subgoals and models of co-players are learned: from what the others then did, and what it paid them.

The networks are those of `readers.py`. Only steps of players still in the game count. Subgoals may also have
to foretell moves some steps later and what the player is paid next, so that they say what it is after. A
fifth of the games is held out, and tells how well the others are foreseen now. With a prior, subgoals are
kept near what was chosen in hindsight (`hindsight.py`), and models of the others learn with that too, the
less the longer training is.
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms.actor_critic import from_columns, to_columns
from coplay.algorithms.glance import how_many, some_games
from coplay.algorithms.hindsight import Chosen
from coplay.algorithms.losses import Terms, ToldTerms, told_terms, weighed
from coplay.algorithms.readers import (
    OTHERS,
    LearnedRows,
    Readers,
    Settings,
    foreseen,
    prospect_of,
    read_columns,
    sights_of,
    starts_of,
    with_kept,
)
from coplay.algorithms.staleness import aged, mean_surprise, unborn
from coplay.diagnostics import gates
from coplay.opponents.balance import MOST, balanced_surprise, rarity_weights
from coplay.opponents.prospects import Prospect, prospects
from coplay.opponents.subgoals import (
    Subgoal,
    divergence,
    drawn_with,
    some_steps_before,
    spread,
)
from coplay.taps import TERMS, tap
from coplay.training.devices import masked_mean, total
from coplay.training.stages import Fit, fit
from coplay.types import Key, Metrics, PyTree, Seated, Stage, Trajectory, Transition, pytree, stream


@pytree
class Rows:
    """What the networks learn from, [column, time, seat, other, ...]."""

    seen: Float[Array, "*rows feature"]
    kept: Float[Array, "*rows kept"] | tuple[()]
    legal: Bool[Array, "*rows action"]
    action: Int[Array, "*rows"]
    counts: Bool[Array, "*rows"]
    held_out: Bool[Array, "*rows"]
    noise: Float[Array, "*rows number"]  # what subgoals are drawn with
    policy: Float[Array, "*rows action"]  # the co-player's own
    chosen: Chosen | tuple[()]  # in hindsight; () where there is no prior
    prospect: Prospect | tuple[()]  # what is paid next; () where that is not asked for
    ahead: Int[Array, "*columns"]  # so many steps before a move it is to be foretold, too
    weight: Float[Array, "*columns action"] | tuple[()]  # of every action; () where all count alike
    first: Bool[Array, "*columns"]
    hidden: Float[Array, "*starts hidden"]  # at the start of each column


@pytree
class ToldSubgoals:
    """What the loss is made of, for who audits it, and what its first term is about."""

    terms: ToldTerms
    subgoal: Subgoal  # [*group, column, time, seat, other, number]
    target: Subgoal | tuple[()]  # that it is kept near; () for a standard Gaussian
    taught: Bool[Array, "*rows"]


def subgoal_stage(reader: Readers, settings: Settings, length: int, chosen: Chosen | tuple[()] = ()) -> Stage:
    """`chosen`: subgoals in hindsight of the round that is learned from, where there is a prior."""
    optimiser = optax.adam(settings.model_learning_rate, eps=1e-5)
    sharing = reader.sharing

    weigh = {"subgoal": settings.subgoal_weight, "surprise": 1.0, "ahead": 1.0, "pay": settings.pay}

    def loss(weights, rows: Rows):
        cost = weighed(_terms(reader, settings, weights[OTHERS], rows), weigh)
        return _added(cost, rows), {}

    def told(models: PyTree, rows: Rows) -> ToldSubgoals:
        def terms(models: PyTree, rows: Rows) -> Terms:
            each = _terms(reader, settings, models[OTHERS], rows)
            return {name: _added(cost, rows) for name, cost in each.items()}

        return ToldSubgoals(
            terms=told_terms(loss, terms, models, rows),
            subgoal=_told(reader, models[OTHERS], rows)[1],
            target=rows.chosen.target if rows.chosen else (),
            taught=rows.counts & ~rows.held_out,
        )

    pieces = Fit(settings.model_epochs, settings.model_minibatches, settings.chunk_rows)
    descend = fit(loss, optimiser, pieces)

    def init(params: Seated):
        models = {OTHERS: sharing.weights(params)[OTHERS]}
        kept = {"optimiser": sharing.map(optimiser.init)(models), "age": sharing.map(unborn)(models)}
        return sharing.pack(kept, {})

    def update(params: Seated, learner: Seated, trajectory: Trajectory, key: Key):
        rows = _rows(reader, settings, params, trajectory, chosen, length, stream(key, "noise"))
        tap("opponents/rows", lambda: _told_rows(reader, rows, trajectory.steps.before.first.shape))
        weights = sharing.weights(params)
        keys = sharing.keys(stream(key, "fit"), params.own["seat"]["identity"])
        models, kept = {OTHERS: weights[OTHERS]}, sharing.weights(learner)
        tap(TERMS + "subgoals", lambda: sharing.map(told)(models, rows))
        learned, state, _ = sharing.map(lambda w, o, rows, k: descend(w, o, rows, _counted, k))(
            models, kept["optimiser"], rows, keys
        )
        figures = sharing.map(lambda w, rows: _figures(reader, w[OTHERS], rows))(learned, rows)
        few = _rows(reader, settings, params, _unlearned(trajectory), (), length, stream(key, "age"))

        def surprise(weights: PyTree) -> Float[Array, "*group"]:
            return sharing.map(lambda w, rows: _surprise_at(reader, w[OTHERS], rows))(weights, few)

        age, stale = aged("drift/model_staleness", surprise, kept["age"], models, learned)
        packed = sharing.pack(weights | learned, params.own["seat"])
        return packed, sharing.pack({"optimiser": state, "age": age}, {}), figures | stale

    return Stage(init, update)


def _terms(reader: Readers, settings: Settings, weights: PyTree, rows: Rows) -> Terms:
    """What a row costs: how much is said of a subgoal, and surprise at what is to be foretold by it."""
    told, subgoal, supposed = _told(reader, weights, rows)
    apart = divergence(subgoal, rows.chosen.target) if rows.chosen else spread(subgoal)
    terms = {"subgoal": apart, "surprise": _surprise(told, rows)}
    if settings.ahead:
        terms["ahead"] = _ahead(reader, weights, rows, supposed)
    if rows.prospect:
        terms["pay"] = _at_pay(reader, weights, rows.prospect, supposed)
    return terms


def _added(cost: Float[Array, "*rows"], rows: Rows) -> Float[Array, ""]:
    """Over rows that are learned from."""
    return jnp.sum(jnp.where(rows.counts & ~rows.held_out, cost, 0.0))


def _rows(
    reader: Readers, settings: Settings, params: Seated, trajectory: Trajectory, chosen, length: int, key: Key
) -> Rows:
    """A round as one row per group, then [column, time, seat, other, ...]."""
    steps, others = trajectory.steps, reader.others
    before, sharing = steps.before, reader.sharing
    shape = (*before.first.shape, others.shape[1], reader.model.size)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, params.own["seat"]["identity"])
    noise = jax.vmap(lambda k: jax.random.normal(k, shape), out_axes=2)(keys)
    by_pair = [
        sights_of(reader, before),
        steps.decision.notes["reading"].kept,
        before.legal[:, :, others],
        steps.decision.action[:, :, others],
        before.active[:, :, others],
        _held_out(before.active[:, :, others]),
        noise,
        steps.decision.policy[:, :, others],
        chosen,
        _prospects(reader, steps) if settings.pay else (),
    ]
    columns = sharing.groups(jax.tree.map(lambda x: to_columns(x, length), by_pair), 2)
    first = to_columns(before.first, length)
    ahead = jax.random.randint(stream(key, "ahead"), first.shape[:1], 1, settings.ahead + 1)
    return Rows(
        *columns,
        ahead=sharing.alike(jnp.broadcast_to(ahead[:, None], first.shape), len(others)),
        weight=sharing.alike(_weights(steps, first.shape), len(others)) if settings.model_balanced else (),
        first=sharing.alike(first, len(others)),
        hidden=sharing.groups(starts_of(trajectory.memory.read), 1),
    )


def _told_rows(reader: Readers, rows: Rows, shape: tuple[int, ...]) -> LearnedRows:
    told = (rows.seen, rows.action, rows.counts, rows.counts & ~rows.held_out)
    return LearnedRows(*[from_columns(x, shape) for x in reader.sharing.seats(told, 2)])


def _weights(steps: Transition, columns: tuple[int, ...]) -> Float[Array, "column time action"]:
    """Of every action, by how often it was taken in this round; the same in every column."""
    actions, active = steps.before.legal.shape[-1], steps.before.active[..., None]
    taken = jnp.where(active, jax.nn.one_hot(steps.decision.action, actions), 0.0)
    count = total(jnp.sum(taken, axis=(0, 1, 2)))
    weight = rarity_weights(count / jnp.maximum(jnp.sum(count), 1.0), MOST)
    return jnp.broadcast_to(weight.reshape(1, 1, -1), (*columns, actions))


def _prospects(reader: Readers, steps: Transition) -> Prospect:
    """What every co-player is paid next, as far as the round tells."""
    values, after = reader.model.env.reward_values, steps.after
    assert values is not None, "the game has been refused otherwise"
    cut = jnp.broadcast_to(after.truncated[..., None], after.reward.shape)
    told = prospects(after.reward, after.terminated, cut, values)
    return jax.tree.map(lambda x: x[:, :, reader.others], told)


def _held_out(rows: Bool[Array, "time env seat other"]) -> Bool[Array, "time env seat other"]:
    """Whether a game is one that nobody learns from."""
    games = rows.shape[1]
    is_held = jnp.arange(games) < gates.held_out(games)
    return jnp.broadcast_to(is_held[None, :, None, None], rows.shape)


def _told(
    reader: Readers, weights: PyTree, rows: Rows
) -> tuple[Float[Array, "*rows action"], Subgoal, Float[Array, "*rows number"]]:
    """Log probabilities of what everyone may do, under subgoals that are drawn; where those may be; and what
    was drawn."""
    seen = with_kept(rows.seen, rows.kept)
    _, subgoal = read_columns(reader, weights, rows.hidden, seen, rows.first)
    drawn = drawn_with(subgoal, rows.noise)
    if rows.chosen:
        drawn = jnp.where(rows.chosen.is_used[..., None], drawn_with(rows.chosen.target, rows.noise), drawn)
    return foreseen(reader, weights, rows.seen, rows.legal, with_kept(drawn, rows.kept)), subgoal, drawn


def _ahead(reader: Readers, weights: PyTree, rows: Rows, supposed) -> Float[Array, "*rows"]:
    """Surprise at every move by what was read some steps before it, where anything was."""
    earlier, follows = some_steps_before(supposed, rows.counts, rows.first, rows.ahead[:, 0])
    told = foreseen(reader, weights, rows.seen, rows.legal, with_kept(earlier, rows.kept))
    return jnp.where(follows, _surprise(told, rows), 0.0)


def _surprise(told: Float[Array, "*rows action"], rows: Rows) -> Float[Array, "*rows"]:
    """At what was done; where it is to be balanced, the more the rarer that is."""
    if isinstance(rows.weight, tuple):
        return -_of_action(told, rows)[..., 0]
    return balanced_surprise(told, rows.action, rows.weight[0, 0])


def _at_pay(reader: Readers, weights: PyTree, prospect: Prospect, supposed) -> Float[Array, "*rows"]:
    """Surprise at what is paid next, where that is known."""
    told = prospect_of(reader, weights, supposed)
    paid = jnp.take_along_axis(told, prospect.paid[..., None], axis=-1)[..., 0]
    return jnp.where(prospect.is_known, -paid, 0.0)


def _of_action(log_chance: Float[Array, "*rows action"], rows: Rows) -> Float[Array, "*rows 1"]:
    return jnp.take_along_axis(log_chance, rows.action[..., None], axis=-1)


def _counted(rows: Rows) -> Float[Array, ""]:
    return jnp.sum(rows.counts & ~rows.held_out, dtype=jnp.float32)


def _unlearned(trajectory: Trajectory) -> Trajectory:
    """Some of the games that are held out: a model's age is told by these, so that it is not what it has
    learned by heart."""
    time, games = trajectory.steps.before.first.shape
    return some_games(trajectory, min(how_many(time, games), gates.held_out(games)))


def _surprise_at(reader: Readers, weights: PyTree, rows: Rows) -> Float[Array, ""]:
    """Cross-entropy of what co-players did."""
    told = _told(reader, weights, rows)[0]
    return mean_surprise(-_of_action(told, rows)[..., 0], rows.counts, (0, 1, 2, 3))


def _figures(reader: Readers, weights: PyTree, rows: Rows) -> Metrics:
    """On games that nobody has learned from, over all co-players of a group: surprise beside that of the
    players' own policies and that of a guess over what is legal."""
    counts = rows.counts & rows.held_out
    axes = tuple(range(counts.ndim))
    told, subgoal, supposed = _told(reader, weights, dataclasses.replace(rows, chosen=()))
    true = jnp.log(jnp.maximum(rows.policy, 1e-9))
    chosen, best = _of_action(told, rows), _of_action(true, rows)
    evenly = jnp.log(jnp.sum(rows.legal, axis=-1).astype(jnp.float32))

    def mean(x: Array) -> Array:
        return masked_mean(x, counts, axes)

    figures = {
        "opponents/surprise": mean(-chosen[..., 0]),
        "opponents/true_surprise": mean(-best[..., 0]),
        "opponents/even_surprise": mean(evenly),
        "opponents/top1": mean(jnp.sum(told > chosen, axis=-1) == 0),
        "opponents/true_top1": mean(jnp.sum(true > best, axis=-1) == 0),
        "opponents/top3": mean(jnp.sum(told > chosen, axis=-1) < 3),
        "opponents/macro_f1": macro_f1(told, rows.action, counts),
        "opponents/true_macro_f1": macro_f1(true, rows.action, counts),
        "subgoal/spread": mean(spread(subgoal)),
        "subgoal/deviation": jnp.sqrt(
            mean(jnp.mean((subgoal.mean - _mean_of(mean, subgoal.mean)) ** 2, axis=-1))
        ),
    }
    if rows.prospect:
        figures["subgoal/pay_surprise"] = masked_mean(
            _at_pay(reader, weights, rows.prospect, supposed), counts & rows.prospect.is_known, axes
        )
    return figures


def macro_f1(
    told: Float[Array, "*rows action"], action: Int[Array, "*rows"], counts: Bool[Array, "*rows"]
) -> Float[Array, ""]:
    """F1 of foretelling each action as the likeliest, averaged over the actions that were taken."""
    actions, axes = told.shape[-1], tuple(range(counts.ndim))
    is_told = jax.nn.one_hot(jnp.argmax(told, axis=-1), actions, dtype=bool) & counts[..., None]
    is_taken = jax.nn.one_hot(action, actions, dtype=bool) & counts[..., None]
    said, taken, right = total(
        tuple(jnp.sum(x, axes, dtype=jnp.float32) for x in (is_told, is_taken, is_told & is_taken))
    )
    f1 = 2.0 * right / jnp.maximum(said + taken, 1.0)
    return jnp.sum(jnp.where(taken > 0, f1, 0.0)) / jnp.maximum(jnp.sum(taken > 0), 1)


def _mean_of(mean, x: Float[Array, "*rows number"]) -> Float[Array, "*one number"]:
    parts = jnp.stack([mean(x[..., i]) for i in range(x.shape[-1])])
    return parts.reshape((1,) * (x.ndim - 1) + (-1,))
