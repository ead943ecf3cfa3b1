"""Whole updates of an experiment (play, targets, epochs) as a call that can be timed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from coplay import experiment as experiments
from coplay.training import loop, programs
from coplay.training.job import Job, Stretch


class Updates(NamedTuple):
    run: Callable[[], Any]  # so many updates, each time on from where the last ended
    steps: int  # joint steps of a call
    job: Job
    program: programs.Program


def updates_of(built: experiments.Built, count: int, stretch: Stretch | None = None) -> Updates:
    """`count` updates a call, of one seed; by another line-up than the experiment's, if one is given."""
    job = experiments.job(built)._replace(tensorboard=False, evaluate=None)
    stretch = stretch or job.stretches[0]
    state = loop.seat(job, stretch, None, 0)
    program = programs.chunk_program(job, stretch, state)
    held = [state]

    def run():
        metrics = None
        for piece in _pieces(count, job.chunk_updates):
            held[0], metrics = program.run(held[0], jnp.int32(piece))
        return metrics

    return Updates(run, count * job.steps_per_update, job, program)


def _pieces(count: int, most: int) -> list[int]:
    return [min(most, count - done) for done in range(0, count, most)]
