"""Where two trees differ, and trees of which some rows are disturbed: what exact checks are made of."""

import re
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coplay.types import Key, PyTree, Seated

RATE = re.compile(r"\['optimiser'\]\[\d+\]\['\w+'\]$")  # a learning rate, where optimisers keep theirs
BESIDE = {"scale", "seat"}  # what is kept beside networks: a scale of returns, what a seat knows of itself


class Difference(NamedTuple):
    name: str  # of the leaf
    count: int  # of its numbers
    first: tuple[int, ...]  # place of the first


def differences(left: PyTree, right: PyTree, tolerance: float = 0.0) -> list[Difference]:
    """Leaves that are not the same: to the bit, or within `tolerance` of the leaf's own size."""
    found = []
    pairs = zip(jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right), strict=True)
    for (path, a), b in pairs:
        is_other = _is_other(plain(a), plain(b), tolerance)
        if np.any(is_other):
            places = np.argwhere(is_other)
            found.append(Difference(jax.tree_util.keystr(path), len(places), tuple(map(int, places[0]))))
    return found


def plain(x: PyTree) -> np.ndarray:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.asarray(x)


def _is_other(a: np.ndarray, b: np.ndarray, tolerance: float) -> np.ndarray:
    if a.shape != b.shape:
        return np.ones(1, bool)
    is_other = np.asarray(a != b)
    if a.dtype.kind != "f":
        return is_other
    is_other = is_other & ~(np.isnan(a) & np.isnan(b))
    size = max(np.max(np.abs(a[np.isfinite(a)]), initial=0.0), 1.0)
    with np.errstate(invalid="ignore"):
        is_near = np.abs(a - b) <= tolerance * size
    return np.asarray(is_other & ~is_near)


def told(found: list[Difference]) -> str:
    """The first of them, and how many more."""
    if not found:
        return ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{found[0].name}{more}"


# --- weights by module and seat ------------------------------------------------------------------


class Module(NamedTuple):
    """Weights that belong together: a network of some player, by its path in the tree."""

    name: str  # the path, such as ppo/policy
    is_own: bool  # one row per seat first

    @property
    def short(self) -> str:
        return self.name.rpartition("/")[2]


def modules(params: PyTree) -> list[Module]:
    """Networks, by the names they have in the tree of weights."""
    found: dict[Module, None] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            found[module_at(path)] = None
    return list(found)


def module_at(path: tuple) -> Module:
    """Up to the first part below `own` or `common` that names a network."""
    names = [str(getattr(part, "key", getattr(part, "name", getattr(part, "idx", "")))) for part in path]
    place = next((i for i, name in enumerate(names) if name in ("own", "common")), None)
    if place is None:
        return Module("/".join(names[:2]), False)
    below = [part.key for part in path[place + 1 :][:2] if hasattr(part, "key") and part.key != "group"]
    return Module("/".join([*names[:place], *below[:1]]), names[place] == "own")


def is_still(path: tuple, still: tuple[str, ...]) -> bool:
    """Whether a tensor belongs to what an algorithm says stays as it is (`Algorithm.still`)."""
    beside = {"own", "common", "group"}
    names = jax.tree_util.keystr(path, simple=True, separator="/").split("/")
    place = "/".join(name for name in names if name not in beside)
    return any(place == name or place.startswith(f"{name}/") for name in still)


def own_tensors(params: PyTree) -> list[tuple[str, np.ndarray]]:
    """Weights [seat, ...] by name; not what a seat merely knows of itself."""
    found = []
    for seated in jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, Seated)):
        if isinstance(seated, Seated):
            own = seated.own
            group = own["group"] if isinstance(own, dict) and "group" in own else own
            for path, leaf in jax.tree_util.tree_leaves_with_path(group):
                if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.ndim > 1:
                    found.append((jax.tree_util.keystr(path), np.asarray(leaf)))
    return found


def keeps_names(params: PyTree) -> bool:
    """Whether weights say who each seat is (`identity`), so that chance can go by that and not by place."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    return any("identity" in jax.tree_util.keystr(path) for path in paths)


def changed_modules(left: PyTree, right: PyTree) -> dict[Module, np.ndarray]:
    """Which modules differ: for own ones by seat, else in one."""
    found: dict[Module, np.ndarray] = {}
    pairs = zip(jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right), strict=True)
    for (path, a), b in pairs:
        if jnp.issubdtype(a.dtype, jnp.floating):
            module, rows = module_at(path), plain(a).shape[0] if module_at(path).is_own else 1
            is_other = _is_other(plain(a), plain(b), 0.0).reshape(rows, -1).any(axis=1)
            found[module] = found.get(module, np.zeros(rows, bool)) | is_other
    return found


def disturbed(
    params: PyTree, module: Module, key: Key, seat: int | None = None, size: float = 0.3, only: str = ""
) -> PyTree:
    """With noise on the weights of one module, or of one seat's row of it, or `only` of one tensor of it."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    new = []
    for number, (path, leaf) in enumerate(leaves):
        is_asked = not only or jax.tree_util.keystr(path) == only
        if is_asked and jnp.issubdtype(leaf.dtype, jnp.floating) and module_at(path) == module:
            leaf = np.asarray(leaf) + noise_like(leaf, number, key, size, seat)
        new.append(leaf)
    return jax.tree.unflatten(structure, new)


def all_disturbed(params: PyTree, key: Key, size: float) -> PyTree:
    """With noise on the weights of every network, not on numbers beside them."""
    for number, module in enumerate(modules(params)):
        if module.short not in BESIDE:
            params = disturbed(params, module, jax.random.fold_in(key, number), size=size)
    return params


def noise_like(leaf: jax.Array, number: int, key: Key, size: float, seat: int | None) -> np.ndarray:
    """In NumPy: nothing has to be compiled for every shape."""
    random = np.random.default_rng([number, *np.asarray(jax.random.key_data(key)).ravel().tolist()])
    noise = np.asarray(size * random.standard_normal(leaf.shape))
    if seat is not None:
        is_its = (np.arange(leaf.shape[0]) == seat).reshape(-1, *(1,) * (leaf.ndim - 1))
        noise = np.where(is_its, noise, 0.0)
    return noise.astype(leaf.dtype)


def without_rates(learner: PyTree) -> tuple[PyTree, int]:
    """The learner with every rate at 0, and how many there were."""
    return with_rates(learner, 0.0)


def with_rates(learner: PyTree, times: float) -> tuple[PyTree, int]:
    """The learner with every rate so many times as high, and how many there were."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(learner)
    is_rate = [
        bool(RATE.search(jax.tree_util.keystr(path))) and jnp.issubdtype(leaf.dtype, jnp.floating)
        for path, leaf in leaves
    ]
    new = [times * leaf if rate else leaf for (_, leaf), rate in zip(leaves, is_rate, strict=True)]
    return jax.tree.unflatten(structure, new), sum(is_rate)


def map_seated(function: Callable, *trees: PyTree) -> PyTree:
    return jax.tree.map(function, *trees, is_leaf=lambda x: isinstance(x, Seated))
