"""Generated actors: what they start as, what reaches whom, and that rows do not depend on their company."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.nets.context import EACH_EPISODE, ContextShape, Told, unit
from coplay.nets.hyper import Generator, GeneratorShape
from coplay.nets.mlp import MLP

FEATURES, ACTIONS, SEATS = 6, 5, 3
TOLD = Told(observation=FEATURES, action=ACTIONS, reward=1, active=1, identity=SEATS)
READS = ("observation", "action", "reward")
BOARD = (2, 1, 2)  # four of the numbers that a player sees


def shape(kind="identity", generate="full", **changes):
    """A generator by the name of its context."""
    generator = {name: changes.pop(name) for name in ("scale", "decay", "rank") if name in changes}
    if kind == "identity":
        context = ContextShape(told=Told(observation=FEATURES, identity=SEATS))
    else:
        heads = 2 if kind == "joint" else 0
        told = TOLD._replace(legal=ACTIONS) if "fusion_window" in changes else TOLD
        context = ContextShape(
            told=told, reads=READS, encoder=8, heads=heads, **{"history": "gru", "history_width": 8} | changes
        )
    return GeneratorShape(context, (8,), generate, **generator)


def made(wanted, seed=0, loud=0.0):
    """An actor and its generator; `loud` draws heads that start otherwise than at zero."""
    actor = MLP(jax.random.key(seed), FEATURES, (16, 16), ACTIONS, 0.01)
    generator = Generator(jax.random.key(seed + 1), wanted, actor)
    if loud:
        weight = loud * jax.random.normal(jax.random.key(seed + 2), generator.heads.weight.shape)
        generator = eqx.tree_at(lambda g: g.heads.weight, generator, weight)
    return actor, generator


def rows(generator, columns=4, time=6, seed=5):
    told = generator.shape.context.told
    key = jax.random.key(seed)
    row = jax.random.normal(key, (columns, time, SEATS, sum(told)))
    parts = {name: jnp.zeros((columns, time, SEATS, size)) for name, size in told._asdict().items()}
    parts |= {name: part for name, part in told.split(row).items() if name in ("observation", "reward")}
    if told.action:
        parts["action"] = jax.nn.one_hot(jnp.argmax(told.split(row)["action"], axis=-1), ACTIONS)
    if told.active:
        parts["active"] = jnp.ones((columns, time, SEATS, 1))
    if told.legal:
        parts["legal"] = (told.split(row)["legal"] > -1).astype(float).at[..., 0].set(1.0)
    parts["identity"] = jnp.broadcast_to(jnp.eye(SEATS), (columns, time, SEATS, SEATS))
    first = jnp.zeros((columns, time), bool).at[:, 0].set(True).at[1, 3].set(True)
    return jnp.concatenate([parts[name] for name in told._fields], axis=-1), first


def read(actor, generator, row, first, memory=None):
    memory = generator.empty(row.shape[0], SEATS) if memory is None else memory
    return generator.read(actor, memory, row, first)


VARIANTS = {
    "identity, full": shape(),
    "identity, last layer": shape(generate="last_layer"),
    "identity, low rank": shape(generate="low_rank"),
    "identity, scales": shape(generate="scales"),
    "local, full": shape("local", "full"),
    "local, last layer, lstm": shape("local", "last_layer", history="lstm"),
    "local, low rank, every 2": shape("local", "low_rank", every=2),
    "local, scales, no history": shape("local", "scales", history="none"),
    "local, low rank, transformer": shape("local", "low_rank", history="transformer", history_window=4),
    "joint, last layer, transformer, every 2": shape(
        "joint", "last_layer", history="transformer", history_window=3, every=2
    ),
    "local, low rank, fused": shape("local", "low_rank", fusion_window=3),
    "joint, full, lstm, fused, every 2": shape("joint", "full", history="lstm", fusion_window=2, every=2),
    "local, low rank, convolutions": shape("local", "low_rank", planes=BOARD),
    "joint, full, convolutions, no history": shape("joint", "full", planes=BOARD, history="none"),
    "joint, low rank": shape("joint", "low_rank"),
    "joint, last layer, once an episode": shape("joint", "last_layer", every=EACH_EPISODE),
    "joint, full, together": shape("joint", "full", together=True, history="none"),
    "local, last layer, added up": shape("local", "last_layer", decay=0.9),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("wanted", VARIANTS.values(), ids=VARIANTS)
def test_every_context_starts_with_the_plain_actors_policy(wanted):
    actor, generator = made(wanted)
    row, first = rows(generator)
    plain = actor(row[..., :FEATURES])
    assert_allclose(read(actor, generator, row, first).logits, plain, atol=1e-6)
    entropy = -jnp.sum(jax.nn.softmax(plain) * jax.nn.log_softmax(plain), axis=-1)
    assert float(jnp.mean(entropy)) >= 0.98 * np.log(ACTIONS)


@pytest.mark.parametrize("wanted", VARIANTS.values(), ids=VARIANTS)
def test_generated_weights_start_as_wide_and_as_undecided_as_the_plain_actors(wanted):
    """Section by section: entropy, what other contexts change on one observation, spread of each layer."""
    actor, generator = made(wanted)
    row, first = rows(generator)
    one = jnp.broadcast_to(row[:1, :1, :1, :FEATURES], (*row.shape[:3], FEATURES))
    spoken = read(actor, generator, row, first)
    chances = jax.nn.softmax(generator.speak(actor, one, spoken.numbers)).reshape(-1, ACTIONS)
    entropy = -jnp.sum(chances * jnp.log(chances), axis=-1)
    assert float(jnp.min(entropy)) >= 0.98 * np.log(ACTIONS)
    assert float(jnp.max(0.5 * jnp.sum(jnp.abs(chances - chances[:1]), axis=-1))) <= 0.02
    numbers = spoken.numbers.reshape(-1, spoken.numbers.shape[-1])[-1]
    for (weight, _), layer in zip(moved_weights(actor, generator, numbers), actor.layers, strict=True):
        assert_allclose(np.std(weight), np.std(layer.weight), rtol=0.1)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("wanted", VARIANTS.values(), ids=VARIANTS)
def test_a_column_says_the_same_alone_and_among_others(wanted):
    actor, generator = made(wanted, loud=0.3)
    row, first = rows(generator)
    together = read(actor, generator, row, first).logits
    for column in range(len(row)):
        alone = read(actor, generator, row[column : column + 1], first[column : column + 1]).logits
        assert_allclose(alone[0], together[column], atol=1e-5)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("wanted", VARIANTS.values(), ids=VARIANTS)
def test_steps_one_by_one_say_what_the_whole_sequence_says(wanted):
    actor, generator = made(wanted, loud=0.3)
    row, first = rows(generator)
    whole, memory = read(actor, generator, row, first), generator.empty(len(row), SEATS)
    for time in range(row.shape[1]):
        now = read(actor, generator, row[:, time : time + 1], first[:, time : time + 1], memory)
        memory = jax.tree.map(lambda x: x[:, 0], now.memory)
        assert_allclose(now.logits[:, 0], whole.logits[:, time], atol=1e-5)


def moved_weights(actor, generator, numbers):
    """Every layer's weight and bias with one row's increments added to them, in NumPy."""
    scale, delta, moved = generator.shape.scale, increments(generator, numbers), []
    for index, layer in enumerate(actor.layers):
        weight = np.asarray(layer.weight) + scale * delta.get((index, "weight"), 0.0)
        if (index, "left") in delta:
            weight = weight + scale * delta[index, "left"] @ delta[index, "right"]
        bias = np.asarray(layer.bias) + scale * delta.get((index, "bias"), 0.0)
        gain = 1 + scale * delta.get((index, "gain"), 0.0)
        moved.append((weight * gain, bias * gain + scale * delta.get((index, "shift"), 0.0)))
    return moved


def increments(generator, numbers):
    place, delta = 0, {}
    for piece in generator.pieces:
        size = int(np.prod(piece.shape))
        delta[piece.layer, piece.part] = np.asarray(numbers[place : place + size]).reshape(piece.shape)
        place += size
    return delta


def by_hand(actor, generator, own, numbers):
    """One row's logits, layer by layer, with weights that were moved before."""
    x, layers = np.asarray(own), moved_weights(actor, generator, numbers)
    for index, (weight, bias) in enumerate(layers):
        x = x @ weight + bias
        x = x if index == len(layers) - 1 else np.tanh(x)
    return x


@pytest.mark.parametrize("wanted", VARIANTS.values(), ids=VARIANTS)
def test_increments_are_the_weights_they_stand_for(wanted):
    actor, generator = made(wanted, loud=0.3)
    row, first = rows(generator)
    spoken = read(actor, generator, row, first)
    for column, time, seat in [(0, 0, 0), (1, 4, 2), (3, 5, 1)]:
        numbers = spoken.numbers[seat] if spoken.numbers.ndim == 2 else spoken.numbers[column, time, seat]
        expected = by_hand(actor, generator, row[column, time, seat, :FEATURES], numbers)
        assert_allclose(spoken.logits[column, time, seat], expected, atol=1e-5)


def reached(generator, actor, row, first, spoilt):
    """Which [time, seat] of the first column a NaN in `spoilt` of the row gets to."""
    bad = row.at[spoilt].set(jnp.nan)
    return np.isnan(np.asarray(read(actor, generator, bad, first).logits[0])).any(axis=-1)


@pytest.mark.parametrize(
    "changes", [{}, {"history": "transformer"}, {"fusion_window": 3}, {"planes": BOARD}], ids=str
)
@pytest.mark.parametrize("kind", ["identity", "local", "joint"])
def test_what_others_see_reaches_a_player_only_where_it_communicates(kind, changes):
    actor, generator = made(shape(kind, "low_rank", **changes), loud=0.3)
    row, first = rows(generator)
    hit = reached(generator, actor, row, first, (0, 2, 1, 0))  # one number of what seat 1 sees at time 2
    assert hit[2, 1]
    assert hit[:, [0, 2]].any() == (kind == "joint")
    assert not hit[:2].any()


@pytest.mark.parametrize("kind", ["identity", "local", "joint"])
def test_a_players_name_reaches_only_that_player(kind):
    actor, generator = made(shape(kind, "low_rank"), loud=0.3)
    row, first = rows(generator)
    hit = reached(generator, actor, row, first, np.s_[:, :, 1, -SEATS:])
    assert hit[:, 1].all() and not hit[:, [0, 2]].any()


def test_those_who_have_left_are_not_listened_to():
    actor, generator = made(shape("joint", "low_rank"), loud=0.3)
    row, first = rows(generator)
    place = FEATURES + ACTIONS + 1  # where a row says that its player is active
    gone = row.at[:, :, 1, place].set(0.0)
    changed = gone.at[:, :, 1, 0].add(7.0)
    a, b = (read(actor, generator, x, first).logits for x in (gone, changed))
    assert_array_equal(a[:, :, [0, 2]], b[:, :, [0, 2]])
    heard = read(actor, generator, row.at[:, :, 1, 0].add(7.0), first).logits
    assert not np.allclose(heard[:, :, 0], read(actor, generator, row, first).logits[:, :, 0])


@pytest.mark.parametrize("changes", [{"every": 2}, {"history": "transformer"}, {"fusion_window": 3}], ids=str)
def test_nothing_is_remembered_beyond_an_episode(changes):
    actor, generator = made(shape("local", "low_rank", **changes), loud=0.3)
    row, first = rows(generator)
    other = row.at[1, :3].add(1.0)  # before the second episode of column 1 begins
    a, b = (read(actor, generator, x, first).logits for x in (row, other))
    assert_array_equal(a[1, 3:], b[1, 3:])
    assert not np.allclose(a[1, :3], b[1, :3])


def test_a_context_is_kept_until_the_next_is_due():
    actor, generator = made(shape("local", "low_rank", every=2), loud=0.3)
    row, first = rows(generator)
    spoken = read(actor, generator, row, first)
    same = np.asarray(jnp.all(spoken.numbers[:, 1:] == spoken.numbers[:, :-1], axis=(-1, -2)))
    assert_array_equal(same[0], [True, False, True, False, True])
    assert_array_equal(same[1], [True, False, False, True, False])  # begins anew at 3
    moved = generator.is_moved(generator.empty(row.shape[0], SEATS), first, SEATS)
    assert_array_equal(moved[0, :, 0], [False, False, True, False, True, False])
    assert_array_equal(moved[1, :, 0], [False, False, True, False, False, True])


@pytest.mark.parametrize("changes", [{"every": 2}, {"decay": 0.5}], ids=str)
def test_the_increments_before_a_sequence_are_those_it_was_cut_from(changes):
    actor, generator = made(shape("local", "last_layer", **changes), loud=0.3)
    row, first = rows(generator)
    whole = read(actor, generator, row, first)
    memory = jax.tree.map(lambda x: x[:, 1], whole.memory)  # after the second step: the third is due
    numbers = read(actor, generator, row[:, 2:], first[:, 2:], memory).numbers
    assert_allclose(generator.before(memory, numbers), whole.numbers[:, 1:-1], atol=1e-6)
    assert generator.is_moved(memory, first[:, 2:], SEATS)[0, 0].all()


def test_what_is_not_known_before_a_sequence_is_not_compared():
    _, generator = made(shape("local", "last_layer"), loud=0.3)
    first = jnp.zeros((2, 3), bool)
    moved = generator.is_moved(generator.empty(2, SEATS), first, SEATS)
    assert_array_equal(moved[:, :, 0], [[False, True, True]] * 2)


def test_increments_add_up_and_fade():
    # decay 0.5 and the same increment d at each of three steps: d, 1.5 d, 1.75 d
    actor, generator = made(shape("local", "last_layer", history="none", decay=0.5), loud=0.3)
    row, first = rows(generator)
    still = jnp.broadcast_to(row[:, :1], row.shape)
    numbers = read(actor, generator, still, first).numbers
    assert_allclose(numbers[0, 1], 1.5 * numbers[0, 0], rtol=1e-5)
    assert_allclose(numbers[0, 2], 1.75 * numbers[0, 0], rtol=1e-5)
    assert_allclose(numbers[1, 3], numbers[1, 0], rtol=1e-5)  # an episode begins


def test_a_left_factor_is_drawn_and_a_right_one_is_zero():
    _, generator = made(shape(generate="low_rank", rank=2))
    left = 16 * 2
    assert np.abs(generator.heads.bias[:left]).min() > 0
    assert_array_equal(generator.heads.bias[left:], 0.0)


def test_the_length_of_an_increment_is_that_of_the_weights_it_adds():
    actor, generator = made(shape("local", "low_rank", scale=0.5), loud=0.3)
    row, first = rows(generator)
    numbers = np.asarray(read(actor, generator, row, first).numbers[0, 0, 0])
    left, right, bias = numbers[:64].reshape(16, 4), numbers[64:84].reshape(4, 5), numbers[84:]
    expected = 0.5 * np.sqrt(np.sum((left @ right) ** 2) + np.sum(bias**2))
    assert_allclose(generator.length(jnp.asarray(numbers)[None])[0], expected, rtol=1e-5)


def test_increments_are_apart_by_the_weights_they_add_not_by_their_factors():
    actor, generator = made(shape("local", "low_rank", scale=0.5), loud=0.3)
    row, first = rows(generator)
    mine, theirs = read(actor, generator, row, first).numbers[0, :2, 0]

    def added(numbers):
        left, right, bias = numbers[:64].reshape(16, 4), numbers[64:84].reshape(4, 5), numbers[84:]
        return 0.5 * np.concatenate([np.ravel(left @ right), bias])

    expected = np.mean((added(np.asarray(mine)) - added(np.asarray(theirs))) ** 2)
    assert_allclose(generator.apart(mine[None], theirs[None])[0], expected, rtol=1e-4)
    still = mine.at[64:].set(0.0)  # no right factor and no bias: nothing is added, whatever the left one is
    assert_array_equal(generator.apart(still[None], still.at[:64].add(1.0)[None]), [0.0])


def test_a_unit_vector_points_the_same_way():
    assert_allclose(unit(jnp.array([3.0, 4.0])), [0.6, 0.8], rtol=1e-6)
    assert np.isfinite(unit(jnp.zeros(3))).all()
