"""What it costs to tell how far each update moves the players: the same training with and without."""

from collections.abc import Callable

from coplay import experiment as experiments
from coplay.algorithms.happo import happo
from coplay.algorithms.hyper_mappo import hyper_mappo
from coplay.algorithms.ppo import Plan, mappo, ppo
from coplay.bench.item import Item, seconds_of
from coplay.bench.updates import updates_of
from coplay.players.lineup import Member, seated
from coplay.training.job import Stretch

# Experiments, and updates a call: a multiple of ten, since gradients are looked at every tenth update.
MEASURED = {
    "ppo_4h1s_4x4": 10,
    "mappo_simple_spread": 200,
    "happo_4h1s_4x4": 10,
    "hyper_mappo_4h1s_4x4": 10,
}
MAKERS: dict[str, Callable] = {"ppo": ppo, "mappo": mappo, "happo": happo, "hyper_mappo": hyper_mappo}
REPEATS = 5


def drift() -> Item:
    """Share of training time that goes into the drift watch: long rounds first, then rounds of 16 x 25."""
    shares = {name: share(name, updates) for name, updates in MEASURED.items()}
    headline = shares["ppo_4h1s_4x4"]
    return Item(
        name="drift",
        figure=100 * headline,
        unit="% of the time",
        against="the same training without the drift watch, ppo_4h1s_4x4",
        ratio=1.0 / (1.0 - headline),
        details={f"percent_{name}": 100 * part for name, part in shares.items()},
    )


def share(name: str, updates: int) -> float:
    settings = {"evaluation.every": 0, "rollout.total_steps": 10_000_000}
    built = experiments.build(experiments.read_experiment(name, settings))
    works = [updates_of(built, updates), updates_of(built, updates, unwatched(built))]
    watched, plain = seconds_of(*[work.run for work in works], repeats=REPEATS, warm_up=1)
    return 1.0 - plain / watched


def unwatched(built: experiments.Built) -> Stretch:
    """The same players, of whom nobody asks how far they move."""
    experiment, stretch = built.experiment, built.stretches[0]
    rollout, name = experiment.rollout, experiment.algorithm
    plan = Plan(rollout.num_updates, rollout.sequence_length, rollout.num_envs, rollout.num_steps)
    config = getattr(experiment, name)
    player = Member(
        name,
        lambda seats: MAKERS[name](built.env, seats, config, plan, watched=False),
        tuple(range(built.env.num_agents)),
    )
    return stretch._replace(algorithm=seated([player], stretch.lineup))
