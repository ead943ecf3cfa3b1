"""The search, on worlds small enough to work out by hand and beside mctx on the same model."""

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.planning import search as planning
from coplay.planning.search import Model, Outlook, SearchConfig

ACTIONS, SIZE, DISCOUNT = 7, 8, 0.95
INPUTS = SIZE + ACTIONS


# The model and the settings are part of the program, the state and the keys are given to it.
search = jax.jit(planning.search, static_argnums=(0, 1))


def world(seed=0, is_over=lambda state: jnp.zeros(state.shape[0], bool)):
    """A random smooth world: next state, reward, prior and value are fixed functions of the state."""
    keys = jax.random.split(jax.random.key(seed), 4)
    move, pay = (
        jax.random.normal(keys[0], (SIZE + ACTIONS, SIZE)),
        jax.random.normal(keys[1], (SIZE + ACTIONS,)),
    )
    prefer, worth = jax.random.normal(keys[2], (SIZE, ACTIONS)), jax.random.normal(keys[3], (SIZE,))

    def after(state, action):
        joined = jnp.concatenate([state, jax.nn.one_hot(action, ACTIONS)], axis=1)
        return jnp.tanh(joined @ move), 0.3 * joined @ pay

    def think(state):
        return state @ prefer, 0.5 * state @ worth

    def look(state, key):
        logits, value = think(state["x"])
        return state, Outlook(jax.nn.softmax(logits), jnp.ones_like(logits, bool), value)

    def step(state, action, key):
        x, reward = after(state["x"], action)
        return {"x": x}, reward, is_over(x)

    return Model(look, step), after, think


def starts(batch, seed=1):
    return jax.random.normal(jax.random.key(seed), (batch, SIZE))


def by_mctx(after, think, is_over, state, simulations):
    """mctx with raw Q, the node's value for untried actions, and no noise."""

    def one_step(params, key, action, state):
        state, reward = after(state, action)
        logits, value = think(state)
        discount = jnp.where(is_over(state), 0.0, DISCOUNT)
        output = mctx.RecurrentFnOutput(reward=reward, discount=discount, prior_logits=logits, value=value)
        return output, state

    def raw_q(tree, node):
        return jnp.where(tree.children_visits[node] > 0, tree.qvalues(node), tree.node_values[node])

    logits, value = think(state)
    root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state)
    output = mctx.muzero_policy(
        None, jax.random.key(0), root, one_step, simulations,
        dirichlet_fraction=0.0, pb_c_init=1.0, pb_c_base=1e9, qtransform=raw_q,
    )  # fmt: skip
    return output.search_tree.summary()


@pytest.mark.parametrize("ending", [False, True])
def test_visits_and_q_are_those_of_mctx_on_the_same_model(ending):
    def is_over(state):
        return (state[:, 0] > 0.8) & ending

    model, after, think = world(is_over=is_over)
    config = SearchConfig(simulations=50, discount=DISCOUNT, max_depth=50)
    with jax.numpy_rank_promotion("allow"):
        theirs = jax.jit(lambda s: by_mctx(after, think, is_over, s, 50))(starts(32))
    found = search(model, config, {"x": starts(32)}, jax.random.key(3)[None])
    assert_array_equal(found.visits, theirs.visit_counts)
    assert_allclose(
        np.where(found.visits > 0, found.q, 0.0), np.where(found.visits > 0, theirs.qvalues, 0.0), atol=1e-5
    )


def corridor(steps_to_end):
    """One way on, which pays 10 at its end; all other moves are illegal, and values are as they should be."""

    def look(state, key):
        legal = jnp.broadcast_to(jnp.arange(3)[None] == 1, (state["at"].shape[0], 3))
        value = 10.0 * 0.95 ** (steps_to_end - 1 - state["at"]).astype(jnp.float32)
        return state, Outlook(legal.astype(jnp.float32), legal, value)

    def step(state, action, key):
        at = state["at"] + 1
        return {"at": at}, jnp.where(at == steps_to_end, 10.0, 0.0), at == steps_to_end

    return Model(look, step)


@pytest.mark.parametrize(("steps_to_end", "expected"), [(1, 10.0), (2, 9.5)])
def test_a_reward_at_the_end_counts_once(steps_to_end, expected):
    # Reward 10 that ends the game now is worth 10; one move later 0.95 * 10.
    config = SearchConfig(simulations=40, discount=0.95)
    found = search(corridor(steps_to_end), config, {"at": jnp.zeros(2, jnp.int32)}, jax.random.key(0)[None])
    assert_allclose(found.q[:, 1], expected, rtol=1e-5)


def bandit(rewards, prior=None, value=0.0):
    """A game of one move."""
    pays = jnp.asarray(rewards, jnp.float32)
    given = jnp.ones_like(pays) / len(rewards) if prior is None else jnp.asarray(prior, jnp.float32)

    def look(state, key):
        batch = state["done"].shape[0]
        shown = jnp.broadcast_to(given[None], (batch, len(rewards)))
        return state, Outlook(shown, shown > 0, jnp.full(batch, value))

    def step(state, action, key):
        return {"done": state["done"] | True}, pays[action], jnp.ones_like(state["done"])

    return Model(look, step), {"done": jnp.zeros(4, bool)}


@pytest.mark.parametrize("root", ["puct", "gumbel"])
def test_visits_add_up_and_illegal_actions_get_none(root):
    model, state = bandit([1.0, 0.0, 5.0, 2.0], prior=[0.5, 0.3, 0.0, 0.2])
    found = search(model, SearchConfig(simulations=33, root=root), state, jax.random.key(0)[None])
    assert_array_equal(found.visits.sum(axis=1), 33)
    assert_array_equal(found.visits[:, 2], 0)


@pytest.mark.parametrize("root", ["puct", "gumbel"])
def test_the_best_move_is_chosen(root):
    model, state = bandit([0.0, 0.1, 1.0, 0.3])
    found = search(model, SearchConfig(simulations=64, root=root), state, jax.random.key(0)[None])
    assert_array_equal(found.choice, 2)


def test_halving_tries_all_alike_and_then_the_better_half():
    # 16 walks over 4 moves: two rounds of 8. First every move twice, then the best two four times each.
    model, state = bandit([0.0, 10.0, 9.0, 0.1])
    found = search(model, SearchConfig(simulations=16, root="gumbel"), state, jax.random.key(0)[None])
    assert_array_equal(found.visits, [[2, 6, 6, 2]] * 4)


def test_an_untried_action_is_worth_its_node_and_not_nothing():
    # All moves pay 5. With so much trust in one move the others are never tried.
    model, state = bandit([5.0, 5.0, 5.0], prior=[0.998, 0.001, 0.001], value=5.0)
    config = SearchConfig(simulations=3, exploration=1.0)
    found = search(model, config, state, jax.random.key(0)[None])
    assert_array_equal(found.visits[:, 1:], 0)
    assert_allclose(found.q, 5.0)


def test_the_published_q_pulls_what_was_never_tried_to_nothing():
    # All moves pay 5. By the node's value they are tried in turn; as published, the first one tried gets all.
    model, state = bandit([5.0, 5.0, 5.0], value=5.0)
    spread = search(model, SearchConfig(simulations=12), state, jax.random.key(0)[None])
    assert_array_equal(spread.visits, 4)
    config = SearchConfig(simulations=12, q_mode="reference")
    stuck = search(model, config, state, jax.random.key(0)[None])
    assert_array_equal(np.sort(stuck.visits, axis=1), [[0, 0, 12]] * 4)


def test_equal_moves_are_told_apart_by_the_key():
    model, state = bandit([1.0] * 8)
    first = [
        np.asarray(search(model, SearchConfig(simulations=1), state, jax.random.key(k)[None]).visits).argmax(
            axis=1
        )
        for k in range(20)
    ]
    assert len(np.unique(first)) >= 6


def test_searches_of_a_batch_do_not_touch_each_other():
    model, _, _ = world()
    config = SearchConfig(simulations=20)
    together = search(model, config, {"x": starts(16)}, jax.random.key(0)[None])
    turned = search(model, config, {"x": starts(16)[::-1]}, jax.random.key(0)[None])
    assert_array_equal(together.visits, turned.visits[::-1])


def test_each_part_of_a_batch_draws_with_its_own_key():
    model, _ = bandit([1.0] * 8)
    state, keys = {"done": jnp.zeros(6, bool)}, jax.random.split(jax.random.key(0), 2)
    config = SearchConfig(simulations=3)
    found = search(model, config, state, keys).visits
    turned = search(model, config, state, keys[::-1]).visits
    assert_array_equal(jnp.concatenate([found[3:], found[:3]]), turned)
    assert not np.array_equal(found[:3], found[3:])


def test_a_walk_ends_at_the_depth_it_is_allowed():
    model, _, _ = world()
    found = search(
        model, SearchConfig(simulations=60, max_depth=2), {"x": starts(8)}, jax.random.key(0)[None]
    )
    assert float(found.depth.max()) <= 2
    assert_array_equal(found.visits.sum(axis=1), 60)


def test_a_value_that_is_not_a_number_reaches_the_result():
    model, state = bandit([1.0, 2.0], value=jnp.nan)
    found = search(model, SearchConfig(simulations=4), state, jax.random.key(0)[None])
    assert np.isnan(found.value).all()
