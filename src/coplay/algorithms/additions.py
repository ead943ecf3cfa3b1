"""What a policy's learning may have beside PPO's own terms, and where in a round each part of it is asked."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array

from coplay.algorithms.actor_critic import ActorCritic, memory_of, sequences
from coplay.algorithms.glance import Glance
from coplay.algorithms.targets import Batch
from coplay.types import Metrics, PyTree, Seated, Trajectory


class Additions(NamedTuple):
    begin: Callable[[Seated], Seated]  # fresh weights -> with what else is kept beside them
    init: Callable[[Seated], PyTree]  # weights -> state of its own, () for none
    prepare: Callable[[Seated, PyTree, Trajectory, Batch], Batch]  # before the descent: what its terms read
    speak: Callable[[PyTree, Batch], tuple[Any, dict, dict]]  # weights, chunk -> logits, terms, figures
    tell: Callable[[Metrics, PyTree], Metrics]  # figures of the descent, state -> more figures
    finish: Callable[[Seated, PyTree, Glance, Array], tuple[Seated, PyTree, dict]]
    # new weights, state, a sample of the round, how far each seat moved there -> weights, state, figures
    rates: dict[str, float]  # of networks that learn at another rate than the policy


def nothing_added(model: ActorCritic) -> Additions:
    def speak(weights: PyTree, batch: Batch):
        memory = memory_of(model, batch.memory, "policy")
        return sequences(model, "policy", weights, memory, batch.policy_input, batch.first)[1], {}, {}

    return Additions(
        begin=lambda params: params,
        init=lambda params: (),
        prepare=lambda params, state, trajectory, batch: batch,
        speak=speak,
        tell=lambda figures, state: {},
        finish=lambda after, state, seen, moved: (after, state, {}),
        rates={},
    )
