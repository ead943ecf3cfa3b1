"""Independent PPO training as a share of the machine's matmul peak, measured in the same run."""

import jax
import jax.numpy as jnp

from coplay import experiment as experiments
from coplay.bench.item import Item, seconds_of
from coplay.bench.machine import best_rate, products
from coplay.training import loop, programs

UPDATES, REPEATS = 6, 12


def training(name: str = "ppo_4h1s_4x4") -> Item:
    """Whole updates (play, targets, epochs) of a shipped experiment, one seed, all cores."""
    built = experiments.build(experiments.read_experiment(name, {"evaluation.every": 0}))
    work = experiments.job(built)._replace(tensorboard=False)
    stretch = work.stretches[0]
    state = loop.seat(work, stretch, None, 0)
    chunk = programs.chunk_program(work, stretch, state)
    held = [state]

    def updates():
        held[0], metrics = chunk.run(held[0], jnp.int32(UPDATES))
        return metrics

    work_at_peak = products()
    seconds, *peak_seconds = seconds_of(updates, *[call for call, _ in work_at_peak], repeats=REPEATS)
    steps = UPDATES * work.steps_per_update / seconds
    flops = steps * flop_per_step(built)
    peak = best_rate(work_at_peak, peak_seconds)
    return Item(
        name="training",
        figure=steps,
        unit="joint steps/s",
        against=f"matmul peak of all cores, {peak / 1e9:.0f} GFLOP/s",
        ratio=flops / peak,
        details={
            "experiment": name,
            "gflops": flops / 1e9,
            "devices": work.devices,
            "recompiles": chunk.recompiles,
        },
    )


def flop_per_step(built: experiments.Built) -> float:
    """2 x weights x (1 + 3 x epochs) for each agent's sample of a joint step."""
    params = built.stretches[0].algorithm.init(jax.random.key(0))
    weights = sum(x.size for x in jax.tree.leaves(params) if x.dtype == jnp.float32)
    return 2.0 * weights * (1 + 3 * built.experiment.ppo.epochs)
