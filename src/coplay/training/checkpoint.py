"""Checkpoints: a pytree of arrays in one safetensors file, and a JSON file beside it that vouches for it.

    step-000000017920.safetensors   the leaves, named by their place in the tree
    step-000000017920.json          format, step, meta, every leaf's shape and type, checksums

The JSON is renamed into place last, so a checkpoint exists only when its JSON does. Both files are
checked when read: one that was cut off, emptied or hit by a flipped bit is passed over for the one before.
"""

import hashlib
import json
import re
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from coplay.errors import BadInput
from coplay.files import SaveFailed, replace_files, sweep
from coplay.types import PyTree

__all__ = ["FORMAT", "SaveFailed", "arrays", "best", "forget_after", "load", "prune", "save", "steps"]

FORMAT = 1
SHOWN_DIFFERENCES = 3
PYTHON_SCALARS = {"bool": bool, "int": int, "float": float}


def save(folder: Path, step: int, tree: PyTree, meta: dict) -> Path:
    """Write the checkpoint of `step` and return its JSON file; raises SaveFailed if the disk refuses."""
    folder = Path(folder)
    sweep(folder)
    named = _named_leaves(tree)
    leaves = [{"path": name, **_describe(leaf)} for name, leaf in named.items()]
    content = safetensors.numpy.save({name: _to_numpy(leaf) for name, leaf in named.items()})
    record = {
        "format": FORMAT,
        "step": int(step),
        "meta": meta,
        "tensors_sha256": hashlib.sha256(content).hexdigest(),
        "leaves": leaves,
    }
    record["record_sha256"] = _record_checksum(record)
    vouching = json.dumps(record, indent=1).encode()
    replace_files({_tensors_file(folder, step): content, _record_file(folder, step): vouching})
    return _record_file(folder, step)


def load(folder: Path, like: PyTree, step: int | None = None, part: str = "") -> tuple[PyTree, dict]:
    """The tree and meta of `step`, or of the newest sound checkpoint; `like` has the tree's structure.

    With `part`, only the leaves below that field of the saved tree are read, and `like` is that part.
    """
    folder = Path(folder)
    record, content = _read_newest(folder) if step is None else _read_chosen(folder, step)
    if part:
        record["leaves"] = [_below(part, leaf) for leaf in record["leaves"] if _is_below(part, leaf)]
    _require_same_structure(folder, record, like)
    tensors = dict(safetensors.deserialize(content))
    leaves, structure = jax.tree_util.tree_flatten(like)
    restored = [
        _from_bytes(tensors[part + described["path"]]["data"], described, leaf)
        for described, leaf in zip(record["leaves"], leaves, strict=True)
    ]
    return jax.tree_util.tree_unflatten(structure, restored), record["meta"]


def arrays(folder: Path, part: str) -> tuple[dict[str, np.ndarray], dict]:
    """The newest sound checkpoint's arrays below a field of its tree, by the rest of their path, and meta.

    For what may differ in shape from what is wanted."""
    record, content = _read_newest(Path(folder))
    tensors = dict(safetensors.deserialize(content))
    found = {
        leaf["path"].removeprefix(part): np.frombuffer(
            tensors[leaf["path"]]["data"], dtype=jnp.dtype(leaf["dtype"])
        ).reshape(leaf["shape"])
        for leaf in record["leaves"]
        if _is_below(part, leaf)
    }
    return found, record["meta"]


def _is_below(part: str, leaf: dict) -> bool:
    return leaf["path"].startswith(part)


def _below(part: str, leaf: dict) -> dict:
    return leaf | {"path": leaf["path"].removeprefix(part)}


def newest_meta(folder: Path) -> dict[str, Any]:
    """The meta that `load` without a step would return, without building the tree."""
    return _read_newest(Path(folder))[0]["meta"]


def best(folder: Path) -> tuple[int, float] | None:
    """Step and score of the checkpoint whose meta carries the highest `score`; None where none has one.

    Only scores of the latest `stretch` count: another line-up's are not comparable.
    """
    metas = {step: _meta(folder, step) for step in steps(folder)}
    has_score = {step: meta for step, meta in metas.items() if meta.get("score") is not None}
    scored = [(meta.get("stretch", 0), meta["score"], step) for step, meta in has_score.items()]
    if not scored:
        return None
    _, score, step = max(scored)
    return step, score


def _meta(folder: Path, step: int) -> dict:
    """What a checkpoint says of itself; nothing if it is damaged."""
    try:
        return _read_record(folder, step)["meta"]
    except _Damaged:
        return {}


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint, oldest first; whether each is sound shows when it is read."""
    found = (re.fullmatch(r"step-(\d+)\.json", file.name) for file in Path(folder).glob("step-*.json"))
    return sorted(int(match.group(1)) for match in found if match)


def prune(folder: Path, keep: int, also: set[int]) -> None:
    """Remove all but the newest `keep` checkpoints and those of the steps in `also`."""
    if keep < 1:
        raise ValueError(f"keep={keep} would remove the last checkpoint; it must be at least 1")
    kept = set(steps(folder)[-keep:]) | also
    _remove(folder, [step for step in steps(folder) if step not in kept])


def forget_after(folder: Path, step: int) -> None:
    """Remove checkpoints beyond `step`, from which a run goes on: damaged ones would outlive good ones."""
    _remove(folder, [later for later in steps(folder) if later > step])


def _remove(folder: Path, unwanted: list[int]) -> None:
    for step in unwanted:
        _record_file(folder, step).unlink(missing_ok=True)
        _tensors_file(folder, step).unlink(missing_ok=True)


def _tensors_file(folder: Path, step: int) -> Path:
    return Path(folder) / f"step-{step:012d}.safetensors"


def _record_file(folder: Path, step: int) -> Path:
    return Path(folder) / f"step-{step:012d}.json"


# --- reading what may be damaged -----------------------------------------------------------------


class _Damaged(Exception):
    """Why a checkpoint cannot be trusted."""


def _read_newest(folder: Path) -> tuple[dict[str, Any], bytes]:
    found = steps(folder)
    for step in reversed(found):
        try:
            return _read(folder, step)
        except _Damaged as reason:
            warnings.warn(
                f"checkpoint {step} in {folder} is damaged ({reason}); trying the one before", stacklevel=3
            )
    if found:
        raise BadInput(
            f"none of the {len(found)} checkpoints in {folder} is sound; train again or restore a copy"
        )
    raise BadInput(f"there is no checkpoint in {folder}; train first, or name another run")


def _read_chosen(folder: Path, step: int) -> tuple[dict[str, Any], bytes]:
    if step not in steps(folder):
        known = ", ".join(map(str, steps(folder))) or "none"
        raise BadInput(f"there is no checkpoint of step {step} in {folder}; there are: {known}")
    try:
        return _read(folder, step)
    except _Damaged as reason:
        raise BadInput(f"checkpoint {step} in {folder} is damaged ({reason}); choose another step") from None


def _read(folder: Path, step: int) -> tuple[dict[str, Any], bytes]:
    record = _read_record(folder, step)
    if record["format"] != FORMAT:
        raise BadInput(
            f"checkpoint {step} in {folder} has format {record['format']} and this coplay reads {FORMAT}; "
            "use the coplay version named in the run's versions.json"
        )
    try:
        content = _tensors_file(folder, step).read_bytes()
    except OSError as error:
        raise _Damaged(f"its tensor file cannot be read: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() != record["tensors_sha256"]:
        raise _Damaged("its tensor file does not match its checksum")
    return record, content


def _read_record(folder: Path, step: int) -> dict[str, Any]:
    try:
        record = json.loads(_record_file(folder, step).read_bytes())
    except OSError as error:
        raise _Damaged(f"its JSON cannot be read: {error.strerror}") from None
    except ValueError:
        raise _Damaged("its JSON is not valid") from None
    if not isinstance(record, dict) or record.get("record_sha256") != _record_checksum(record):
        raise _Damaged("its JSON does not match its checksum")
    return record


def _record_checksum(record: dict) -> str:
    """Of everything else in the record, so that a flipped bit in a step or in meta is noticed too."""
    rest = {key: value for key, value in record.items() if key != "record_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


# --- leaves --------------------------------------------------------------------------------------


def _named_leaves(tree: PyTree) -> dict[str, Any]:
    return {
        jax.tree_util.keystr(path) or "value": leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }


def _describe(leaf: Any) -> dict[str, Any]:
    """Shape, type and, for a random key, the generator it belongs to."""
    if type(leaf).__name__ in PYTHON_SCALARS:
        return {"kind": type(leaf).__name__, "shape": [], "dtype": str(np.asarray(leaf).dtype)}
    if not hasattr(leaf, "dtype"):
        raise TypeError(f"a checkpoint holds arrays and numbers, not {type(leaf).__name__}: {leaf!r}")
    if _is_key(leaf):
        return _describe_key(leaf)
    return {"kind": "array", "shape": list(leaf.shape), "dtype": str(leaf.dtype)}


def _describe_key(key: Any) -> dict[str, Any]:
    """Traced, because a ShapeDtypeStruct does not say which generator it stands for."""
    impl = []

    def look(key):
        impl.append(str(jax.random.key_impl(key)))
        return jax.random.key_data(key)

    data = jax.eval_shape(look, key)
    return {"kind": "key", "shape": list(data.shape), "dtype": str(data.dtype), "impl": impl[0]}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(leaf: Any) -> np.ndarray:
    if hasattr(leaf, "dtype") and _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, order="C")


def _from_bytes(data: bytes | bytearray, described: dict, like: Any) -> Any:
    """The stored leaf as the kind of thing `like` is, on the same devices if those were chosen."""
    array = np.frombuffer(data, dtype=jnp.dtype(described["dtype"])).reshape(described["shape"])
    if described["kind"] in PYTHON_SCALARS:
        return PYTHON_SCALARS[described["kind"]](array[()])
    if isinstance(like, np.ndarray | np.generic):
        return array[()] if isinstance(like, np.generic) else array.copy()
    # A copy: a donated buffer must not be memory that NumPy still owns.
    restored = jnp.array(array, copy=True)
    if described["kind"] == "key":
        restored = jax.random.wrap_key_data(restored, impl=described["impl"])
    chosen = isinstance(like, jax.Array) and like.committed
    return jax.device_put(restored, like.sharding) if chosen else restored


def _require_same_structure(folder: Path, record: dict, like: PyTree) -> None:
    stored = {leaf["path"]: {k: v for k, v in leaf.items() if k != "path"} for leaf in record["leaves"]}
    wanted = {name: _describe(leaf) for name, leaf in _named_leaves(like).items()}
    differences = [
        f"{name} is {_in_words(stored.get(name))} in the file and {_in_words(wanted.get(name))} here"
        for name in [*wanted, *(name for name in stored if name not in wanted)]
        if stored.get(name) != wanted.get(name)
    ]
    if not differences and list(stored) != list(wanted):
        differences = ["the same leaves come in another order"]
    if differences:
        more = len(differences) - SHOWN_DIFFERENCES
        tail = f"; and {more} more" if more > 0 else ""
        raise BadInput(
            f"checkpoint {record['step']} in {folder} was made by other settings: "
            f"{'; '.join(differences[:SHOWN_DIFFERENCES])}{tail}"
        )


def _in_words(described: dict | None) -> str:
    if described is None:
        return "absent"
    if described["kind"] in PYTHON_SCALARS:
        return f"a Python {described['kind']}"
    name = f"{described['impl']} key data" if described["kind"] == "key" else described["dtype"]
    return f"{name}{described['shape']}"
