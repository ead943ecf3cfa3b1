"""What generated actors cost: training beside MAPPO with the same actor, and memory of one per sample."""

from typing import Any

import jax.numpy as jnp

from coplay import experiment as experiments
from coplay.algorithms.hyper_config import HyperMAPPOConfig
from coplay.bench import sized_game
from coplay.bench.item import Item, seconds_of
from coplay.bench.updates import updates_of
from coplay.training import loop, programs

# Experiments of MAPPO whose game, rollout and actor are kept, and updates a call.
MEASURED = {"mappo_4h1s_4x4": 2, "mappo_simple_spread": 20}
ARMS = {
    "identity": {"context": "identity"},
    "local_history": {"context": "local_history"},
    "joint": {"context": "joint"},
}
HEADLINE = ("identity", "mappo_4h1s_4x4")  # the default context; those that change in time cost far more
REPEATS = 3


def hyper_speed() -> Item:
    """Steps a second with a generated last layer, by context and game, relative to MAPPO in the same turn."""
    found = {name: _beside_mappo(name, updates) for name, updates in MEASURED.items()}
    arm, name = HEADLINE
    rate = found[name][arm]
    return Item(
        name="hyper_speed",
        figure=rate,
        unit="joint steps/s",
        against=f"MAPPO with the same actor, {name}; context {arm}, last layer",
        ratio=rate / found[name]["mappo"],
        details={
            f"{game}/{each}": {"steps_per_second": rate, "ratio": rate / rates["mappo"]}
            for game, rates in found.items()
            for each, rate in rates.items()
        },
    )


def _beside_mappo(name: str, updates: int) -> dict[str, float]:
    arms = {"mappo": _built(name)} | {arm: _built(name, settings) for arm, settings in ARMS.items()}
    works = [updates_of(built, updates) for built in arms.values()]
    seconds = seconds_of(*[work.run for work in works], repeats=REPEATS, warm_up=1)
    return {arm: works[0].steps / second for arm, second in zip(arms, seconds, strict=True)}


def _built(name: str, arm: dict[str, Any] | None = None) -> experiments.Built:
    """MAPPO as shipped, or hypernetwork MAPPO with all that the two have in common set alike."""
    settings: dict[str, Any] = {"evaluation.every": 0, "rollout.total_steps": 10_000_000}
    experiment = experiments.read_experiment(name, settings)
    if arm is None:
        return experiments.build(experiment)
    common = ("hidden", "activation", "learning_rate", "epochs", "minibatches", "max_grad_norm")
    settings = {f"hyper_mappo.{field}": getattr(experiment.mappo, field) for field in common}
    settings |= {"algorithm": "hyper_mappo"} | {f"hyper_mappo.{key}": value for key, value in arm.items()}
    settings |= {"hyper_mappo.generate": "last_layer", "hyper_mappo.regenerate_every": 5}
    settings |= {"rollout.sequence_length": _sequence(experiment.rollout.num_steps)}
    return experiments.build(experiments.with_overrides(experiment, settings))


def _sequence(num_steps: int) -> int:
    """The longest sequence of 35 steps or fewer that cuts a round evenly."""
    return max(length for length in range(1, 36) if num_steps % length == 0)


def hyper_memory() -> Item:
    """Memory of a training program that makes a whole actor of 3s5z's size (136 - 64 - 64 - 14) for each of
    25,600 samples, on one device: arguments, results and temporaries as XLA plans them."""
    job = experiments.job(experiments.build(whole_actors()))
    stretch = job.stretches[0]
    state = loop.seat(job, stretch, None, 0)
    compiled = programs.chunk_program(job, stretch, state).compiled_for(state, jnp.int32(1))
    planned = compiled.memory_analysis()
    parts = {
        "arguments": planned.argument_size_in_bytes,
        "results": planned.output_size_in_bytes,
        "temporaries": planned.temp_size_in_bytes,
    }
    samples = job.steps_per_update * job.env.num_agents
    weights = 136 * 64 + 64 + 64 * 64 + 64 + 64 * 14 + 14
    at_once = 4 * weights * samples / 1e6  # float32
    megabytes = sum(parts.values()) / 1e6
    details = {f"{name}_mb": size / 1e6 for name, size in parts.items()} | {"samples": samples}
    against = f"{at_once:,.0f} MB of one actor for every sample, all at once"
    return Item("hyper_memory", megabytes, "MB", against, megabytes / at_once, details)


def whole_actors() -> experiments.Experiment:
    """8 players x 160 games x 20 steps, every step with weights of its own."""
    return experiments.Experiment(
        game=f"{sized_game.__file__}:make",
        algorithm="hyper_mappo",
        devices=1,
        rollout=experiments.RolloutConfig(num_envs=160, num_steps=20, sequence_length=20),
        evaluation=experiments.EvaluationConfig(every=0),
        hyper_mappo=HyperMAPPOConfig(
            hidden=(64, 64), context="local_history", generate="full", regenerate_every=1
        ),
    )
