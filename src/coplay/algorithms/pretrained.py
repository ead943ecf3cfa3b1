"""Parts of HOP+ that were learned from recorded play (`coplay pretrain`), put in before training begins.

From then on a run carries them in its own checkpoints and needs their folders no more.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from coplay.algorithms.hop_plus_parts import Parts
from coplay.algorithms.readers import OTHERS
from coplay.algorithms.sharing import PER_AGENT
from coplay.errors import BadInput
from coplay.training.part_folder import PartFolder
from coplay.types import PyTree, Seated

# What decides a part's shapes: its names in `coplay pretrain`, and here.
SHAPES = {
    "vae": {"hidden": "prior_hidden", "subgoal": "subgoal_size"},
    "moa": {"hidden": "model_hidden", "subgoal": "subgoal_size", "pay": "pay"},
    "world": {"hidden": "world_hidden", "members": "world_members"},
}


def with_pretrained(parts: Parts, params: PyTree) -> PyTree:
    """The prior, which stays as it is; models of the others and of the game, which go on learning."""
    config, params = parts.config, dict(params)
    if config.prior:
        like = params["prior"].common["prior"]
        params["prior"] = Seated({}, {"prior": _loaded(config.prior, "vae", _one(like), _first)})
    if config.models_from:
        sharing = parts.policy.sharing
        weights = sharing.weights(params["policy"])
        axes = 2 if sharing is PER_AGENT else 1  # of one seat's, or the seats' common, model of one co-player
        like = jax.tree.map(lambda x: jnp.zeros(x.shape[axes:], x.dtype), weights[OTHERS])
        model = _loaded(config.models_from, "moa", _one(like), _first)
        everyone = jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), model, weights[OTHERS])
        merged = weights | {OTHERS: everyone}
        params["policy"] = sharing.pack(merged, params["policy"].own["seat"])
    if config.world_from:
        like = params["world"].common["members"]
        params["world"] = Seated({}, {"members": _loaded(config.world_from, "world", like, lambda x: x)})
    return params


def _one(weights: PyTree) -> PyTree:
    """As the only member."""
    return jax.tree.map(lambda x: x[None], weights)


def _first(weights: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x[0], weights)


def _loaded(path: str, kind: str, like: PyTree, taken: Callable[[PyTree], PyTree]) -> PyTree:
    """The best epoch's weights, if they are of this kind and have these shapes."""
    folder = PartFolder.open(path)
    if folder.kind != kind:
        raise BadInput(f"{path} holds a trained {folder.kind}, not a {kind}")
    try:
        return taken(folder.best_weights(like))
    except BadInput as error:
        made = {name: x for name, x in folder.said["settings"].items() if name in SHAPES[kind]}
        told = ", ".join(f"{SHAPES[kind][name]}={value!r}" for name, value in made.items())
        raise BadInput(
            f"{path} does not fit what this experiment needs of a {kind}: {error}; "
            f"{path} was made as this experiment has it with {told}"
        ) from error
