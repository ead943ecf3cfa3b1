"""An algorithm of the user's own is asked what needs only the contract, and its faults are found."""

from pathlib import Path

import pytest

from coplay.audit import CHECKS, checks_of
from coplay.audit.finding import Finding
from coplay.audit.subject import Subject
from tests.audit.suite import BLIND, finding_of, subject_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "05_own_algorithm.py"
LEARNED = "weights, optimisers, figures = step(weights, optimisers, batch, keys)"
UNKNOWN_FORMULAS = """
from coplay.algorithms.ppo import ppo
from coplay.algorithms.ppo_config import PPOConfig

def make(env, seats, plan):
    return ppo(env, seats, PPOConfig(network="gru", hidden=(8,), minibatches=1, epochs=1), plan)
"""
BY_PLACE = """
import jax, jax.numpy as jnp, optax
from coplay.types import Algorithm, Decision, Stage

def make(env, seats, plan):
    own, optimiser = jnp.array(seats), optax.sgd(0.01)

    def init(key):
        shape = (len(seats), env.observation_size, env.num_actions)
        return {"weight": 0.01 * jax.random.normal(key, shape), "bias": jnp.zeros(shape[::2])}

    def log_all(params, seen):
        return jax.nn.log_softmax(jnp.einsum("tesf,sfa->tesa", seen[:, :, own], params["weight"])
                                  + params["bias"][None, None])

    def taken(log_chances, action):
        return jnp.take_along_axis(log_chances, action[..., None], axis=-1)[..., 0]

    def act(params, memory, timestep, state, key):
        chances = log_all(params, timestep.observation[None])[0]
        action = jax.random.categorical(key, chances).astype(jnp.int32)
        return memory, Decision(action, taken(chances, action), jnp.exp(chances))

    def update(params, learner, trajectory, key):
        steps = trajectory.steps
        follows = jnp.cumsum(steps.after.reward[::-1][..., own], axis=0)[::-1]

        def loss(params):
            chances = log_all(params, steps.before.observation)
            return -jnp.mean(taken(chances, steps.decision.action[..., own]) * follows)

        change, learner = optimiser.update(jax.grad(loss)(params), learner)
        return optax.apply_updates(params, change), learner, {}

    watch = lambda params, memory, transition: memory
    return Algorithm(init, lambda games: (), act, watch, Stage(optimiser.init, update))
"""


def subject(folder: Path, source: str, **settings) -> Subject:
    """An experiment with the algorithm in this source, two players and one round."""
    (folder / "mine.py").write_text(source)
    return subject_of("matrix_stag_hunt", {"algorithm": f"{folder}/mine.py:make"} | settings)


def asked(subject: Subject) -> dict[str, Finding]:
    areas = set(BLIND) - {"environment", "phenomenon"}
    return {check.name: finding_of(subject, check.name) for check in checks_of(areas)}


CLEAN = {
    "the example": (
        EXAMPLE.read_text().replace("def reinforce(", "def make("),
        {"rows", "repeats", "own_reward", "turns", "twins", "renamed_training", "moves", "reach", "numbers"},
        {"references": "does not tell", "term_weights": "does not tell"},
    ),
    "formulas that nobody told": (
        UNKNOWN_FORMULAS,
        {"boundaries", "own_reward", "renamed_training", "stillness", "resumes"},
        dict.fromkeys(
            ("references", "normaliser", "fit", "term_weights"), "an algorithm of your own does not say"
        )
        | {"moves": "over after one step"},
    ),
    "chance that goes by place": (
        BY_PLACE,
        {"repeats", "seeds_apart", "moves", "resumes", "scores"},
        {"renamed_training": "chance goes by seat", "forbidden": "every move is legal in this game"},
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found_where_nothing_is_wrong_and_what_is_not_asked_is_said(tmp_path, name):
    source, passes, not_asked = CLEAN[name]
    found = asked(subject(tmp_path, source, sequence_length=10))
    assert not {name: one.next for name, one in found.items() if one.verdict in ("warn", "fail")}
    assert all(found[name].verdict == "pass" for name in passes)
    for name, why in not_asked.items():
        assert found[name].verdict == "not_run" and why in found[name].next


@pytest.mark.parametrize(
    ("right", "wrong", "check", "says"),
    [
        (
            LEARNED,
            f"{LEARNED}\n        weights = jax.tree.map("
            "lambda old, new: new.at[-1].set(old[-1]), whose.weights(params), weights)",
            "moves",
            "of seat 1 did not move",
        ),
        (
            LEARNED,
            f"batch = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), batch)\n        {LEARNED}",
            "own_reward",
            "seat 1 learns nothing from its own reward",
        ),
        (
            "ends, cut, discount, 1.0)",
            "ends, cut, 0.95, 1.0)",
            "numbers",
            "algorithm_options.discount changes nothing",
        ),
    ],
)
def test_a_fault_in_it_is_found(tmp_path, right, wrong, check, says):
    source = CLEAN["the example"][0]
    assert source.count(right) == 1 and check in CHECKS
    found = finding_of(subject(tmp_path, source.replace(right, wrong)), check)
    assert found.verdict == "fail" and says in found.next
