"""Does every setting do something, and does what is switched off do nothing?

Programs are traced, not run: a setting that leaves the programs of learning and of play as they were has no
effect, whatever its name promises. What only figures depend on is taken out of them first.
"""

import dataclasses
import functools
import re
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from coplay import settings
from coplay.algorithms import ALGORITHMS
from coplay.algorithms.own import is_own, own_settings
from coplay.algorithms.ppo import Plan
from coplay.algorithms.ppo_config import PPOConfig
from coplay.audit import captured
from coplay.audit.captured import parts_of, rounds_from
from coplay.audit.compare import differences, disturbed, is_still, module_at, modules, told
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.rungs import rungs
from coplay.audit.small_scale import at_small_scale
from coplay.audit.subject import Budget, Subject
from coplay.errors import BadInput
from coplay.experiment import Experiment, algorithms_in_play, build, job, with_overrides
from coplay.training.job import Job
from coplay.types import Algorithm, Key, PyTree, as_played

FORCED = 1e-5  # relative: the same by another program
WEIGHS = re.compile("weight|clip|share|scale|discount|trace|doubt|pay|norm|kl|huber|whim|explore|decay")
EFFECT = ["it has an effect"]
SPELLED = {"True": True, "False": False, "true": True, "false": False}


# --- every setting -------------------------------------------------------------------------------


def flags(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is every switch and choice read as it is written, and does it change what it should?"""
    statistic = "switches and choices that are read wrongly, or change neither what is learned nor play"
    wrong, seen = _tried(subject, budget, _is_switch)
    return _told_settings(statistic, _misread() + wrong, seen + len(SPELLED))


def numbers(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is every number read as it is written, and does it change what it should?"""
    statistic = "numbers in the settings that change neither what is learned nor how it is played"
    wrong, seen = _tried(subject, budget, lambda config, field: not _is_switch(config, field))
    if not seen:
        return not_run(statistic, "there is nothing to set")
    return _told_settings(statistic, wrong, seen)


def _told_settings(statistic: str, wrong: list[str], seen: int) -> Outcome:
    room = "cli" if wrong and "is read as" in wrong[0] else ""
    return exact(statistic, len(wrong), seen, "; ".join(wrong[:3]), room=room)


def _tried(subject: Subject, budget: Budget, is_one: Callable) -> tuple[list[str], int]:
    """What is wrong with settings of one sort, and how many were asked."""
    assert subject.learning_job() and subject.experiment is not None
    experiment, wrong, seen = subject.experiment, [], 0
    for name in subject.learners:
        config = _settings(experiment, name)
        bases = subject.once(
            f"traced {name}", lambda name=name: [_Traced(base, name) for base in _bases(experiment, name)]
        )
        for field in dataclasses.fields(config):
            is_alone = "team" in field.name and _is_single(subject)
            is_asked = is_one(config, field) and (budget.is_full or _is_asked(config, field))
            if is_asked and not is_alone:
                seen += 1
                wrong += _without_effect(bases, field.name)
    return wrong, seen


def _settings(experiment: Experiment, name: str) -> Any:
    """What can be set in an algorithm, as it is: a section, or what the user's own asks for."""
    options = experiment.algorithm_options
    return own_settings(name, options) if is_own(name) else getattr(experiment, name)


def _is_single(subject: Subject) -> bool:
    """One player is no team."""
    return len(subject.learners) == 1 and len(subject.seats) == 1


def _is_asked(config: Any, field: dataclasses.Field) -> bool:
    """Switches, what terms and rows weigh, and what the experiment has set; all of them only in full."""
    is_set = getattr(config, field.name) != field.default
    return is_set or _is_switch(config, field) or bool(WEIGHS.search(field.name))


def _is_switch(config: Any, field: dataclasses.Field) -> bool:
    """On or off, or one of a few."""
    kind = typing.get_type_hints(type(config))[field.name]
    return kind is bool or typing.get_origin(kind) is Literal


def _without_effect(bases: list["_Traced"], field: str) -> list[str]:
    """What is wrong with a setting: tried where little else is on, and then as the experiment has it."""
    said = []
    for base in bases:
        said = base.without_effect(field)
        if said == EFFECT:
            return []
    return said


def _misread() -> list[str]:
    """Switches as people write them."""
    return [
        f"{text!r} is read as {settings.parse_text(text)!r}"
        for text, value in SPELLED.items()
        if settings.parse_text(text) is not value
    ]


def _bases(experiment: Experiment, name: str) -> list[Experiment]:
    plain, full = plain_of(experiment, name), at_small_scale(experiment)
    return [full] if plain is None or plain == full else [plain, full]


def plain_of(experiment: Experiment, name: str) -> Experiment | None:
    """The same algorithm with most of its parts switched off, where that can be."""
    ladder = [rung.experiment for rung in rungs(experiment)]
    same = [rung for rung in ladder if rung is not None and algorithms_in_play(rung) == [name]]
    return at_small_scale(same[0]) if same else None


class _Print(NamedTuple):
    """What programs are, without figures: text and the numbers they hold."""

    text: str
    numbers: tuple[bytes, ...]


class _Traced:
    """Programs of an experiment, and of the same with one setting changed."""

    def __init__(self, experiment: Experiment, name: str):
        self.experiment, self.name = experiment, name
        self.work = job(build(experiment))
        self.state = state = captured.start_shapes(self.work)
        algorithm = self.work.stretches[0].algorithm
        collect = captured.collecting(self.work, algorithm)
        self.actor, self.trajectory, _ = jax.eval_shape(collect, state.params, state.actor, state.key)
        self.base = [functools.cache(made) for made in self.prints(algorithm)]

    def prints(self, algorithm: Algorithm) -> list[Callable[[], _Print]]:
        """Of play, of how learning starts, of learning and of weights; made one by one, what is cheap to ask
        first: the first that is another one tells."""
        state, actor = self.state, self.actor
        now = (state.params, actor.memory, actor.timestep, actor.env_state, state.key)
        learned = (state.params, state.learner, self.trajectory, state.key)
        watched = (state.params, actor.memory, _first_step(self.trajectory.steps))
        return [
            lambda: _shapes(jax.eval_shape(lambda: algorithm.remember(self.work.num_envs))),
            lambda: _print(algorithm.learn.init, state.params),
            lambda: _print(lambda *x: algorithm.act(*x)[1].policy, *now),
            lambda: _print(lambda *x: as_played(algorithm).act(*x)[1].policy, *now),
            lambda: _print(algorithm.watch, *watched),
            lambda: _print(lambda *x: algorithm.learn.update(*x)[:2], *learned),
            lambda: _shapes(algorithm.init(jax.random.key(self.work.seed))),
        ]

    def without_effect(self, field: str) -> list[str]:
        name, config = self.name, _settings(self.experiment, self.name)
        place = f"algorithm_options.{field}" if is_own(name) else f"{name}.{field}"
        said: list[str] = []
        if field in _idle(config):
            return said
        for value in far_values(typing.get_type_hints(type(config))[field], getattr(config, field)):
            try:
                parsed = settings.parse_text(_written(value))
                changed = with_overrides(self.experiment, {place: parsed})
                algorithm = job(build(changed)).stretches[0].algorithm
            except (BadInput, ValueError):
                continue  # refused with the others as they are
            now = getattr(_settings(changed, name), field)
            if now != value:
                return [f"{place}={_written(value)} is read as {now!r}"]
            if not self.is_the_same(algorithm):
                return EFFECT
            said = [f"{place} changes nothing: {getattr(config, field)!r} is as good as {value!r}"]
        return said

    def is_the_same(self, algorithm: Algorithm) -> bool:
        try:
            return all(new() == old() for new, old in zip(self.prints(algorithm), self.base, strict=True))
        except Exception:  # weights or memory of another shape: it does change something
            return False


def plans(config: Any) -> bool:
    """Whether it plans its moves, if only when it counts."""
    return getattr(config, "acts", "policy") not in ("policy", "network")


def _shapes(tree: PyTree) -> _Print:
    """Of what is remembered, or of weights."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return _Print(str([(jax.tree_util.keystr(path), x.shape) for path, x in leaves]), ())


def _first_step(steps: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), steps)


def _print(function, *arguments) -> _Print:
    traced = jax.make_jaxpr(function)(*arguments)
    used, _ = partial_eval.dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))
    numbers = tuple(np.asarray(x).tobytes() for x in traced.consts if not _is_key(x))
    return _Print(str(used), numbers)


def _is_key(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _idle(config: Any) -> frozenset[str]:
    """Settings that say themselves that they change nothing as the others are."""
    return getattr(config, "idle", frozenset())


def far_values(kind: Any, value: Any) -> list[Any]:
    """Other values of a setting, well apart from what it is."""
    origin, choices = typing.get_origin(kind), typing.get_args(kind)
    if kind is bool:
        return [not value]
    if origin is Literal:
        return [choice for choice in choices if choice != value]
    if kind is int:
        return [value * 2 + 1, value + 1, 1]
    if kind is float or float in choices:
        return _far_numbers(value)
    return []


def _far_numbers(value: float | None) -> list[float]:
    if value is None:
        return [0.01]
    return [x for x in (value * 3 if value else 0.3, value / 3, 0.5, 0.1) if x != value]


def _written(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


# --- what is switched off ------------------------------------------------------------------------

OFF = {"hyper_mappo": ("context", "none", "mappo")}  # a switch, what turns it off, and the rung it then is
SILENT = {"hyper_mappo": ("delta_scale", 0.0, "generator")}  # a weight, and the network it silences at 0


def off_is_off(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is what is switched off the baseline, to the bit, and is what is weighed by 0 silent?"""
    statistic = "parts that are switched off and felt all the same"
    assert subject.learning_job() and subject.experiment is not None
    pairs, silent = _off_pairs(subject), _silenced(subject, key)
    if not pairs and silent is None:
        return not_run(statistic, "there is nothing to switch off")
    wrong = [] if not silent else [silent]
    for what, off, baseline in pairs:
        found = differences(_policy_and_critic(off), _policy_and_critic(baseline))
        wrong += [f"{what}: {told(found)} is not the baseline's after two updates"] if found else []
    return exact(statistic, len(wrong), len(pairs) + (silent is not None), wrong[0] if wrong else "")


def _off_pairs(subject: Subject) -> list[tuple[str, Experiment, Experiment]]:
    assert subject.experiment is not None
    experiment, name, found = subject.experiment, subject.learner, []
    ladder = {rung.name: rung.experiment for rung in rungs(experiment)}
    if name in OFF:
        field, value, rung = OFF[name]
        baseline = ladder.get(rung)
        if baseline is not None:
            off = with_overrides(experiment, {f"{name}.{field}": value})
            found.append((f"{field}={value}", off, baseline))
    barest = ladder.get("ppo")
    if name == "hop_plus" and barest is not None and set(subject.lineup) == {name}:
        found.append(("all parts off", barest, as_ppo(barest)))
    return found


def _silenced(subject: Subject, key: Key) -> str | None:
    """What is wrong with a network that its weight should silence; None where there is none."""
    assert subject.experiment is not None
    name = subject.learner
    if name not in SILENT:
        return None
    field, value, network = SILENT[name]
    work = job(build(with_overrides(at_small_scale(subject.experiment), {f"{name}.{field}": value})))
    algorithm, state = work.stretches[0].algorithm, captured.start(work)
    act = captured.quick(lambda *arguments: algorithm.act(*arguments)[1].policy)
    now = state.actor.memory, state.actor.timestep, state.actor.env_state, key
    module = next((m for m in modules(state.params) if m.short == network), None)
    if module is None:
        return None
    noisy = _where_still(algorithm.still, state.params, disturbed(state.params, module, key))
    apart = float(np.abs(np.asarray(act(state.params, *now)) - np.asarray(act(noisy, *now))).max())
    return f"{field}={value} leaves {network} felt by {apart:.2g}" if apart > FORCED else ""


def _where_still(still: tuple[str, ...], params: PyTree, noisy: PyTree) -> PyTree:
    """Noise only on what counts for nothing now: gains that stand beside it are felt as before."""
    return jax.tree_util.tree_map_with_path(
        lambda path, a, b: b if is_still(path, still) else a, params, noisy
    )


def as_ppo(barest: Experiment) -> Experiment:
    """Plain PPO with the settings of a learner whose parts are off."""
    config = barest.hop_plus
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(PPOConfig)}
    return with_overrides(barest, {"algorithm": "ppo"} | {f"ppo.{n}": x for n, x in fields.items()})


def _policy_and_critic(experiment: Experiment) -> list[np.ndarray]:
    """After two updates."""
    work = _alone(at_small_scale(experiment))
    after = rounds_from(work, parts_of(work), captured.start(work), 2)[-1].after.params
    found = jax.tree_util.tree_leaves_with_path(after)
    return [np.asarray(leaf) for path, leaf in found if module_at(path).short in ("policy", "critic")]


def _alone(experiment: Experiment) -> Job:
    """Its learner in every seat, not in a line-up: there, chance would go by its name."""
    work, (name,) = job(build(experiment)), algorithms_in_play(experiment)
    plan = Plan(work.num_updates, work.sequence_length, work.num_envs, work.num_steps)
    seats = tuple(range(work.env.num_agents))
    algorithm = ALGORITHMS[name](work.env, seats, getattr(experiment, name), plan)
    return work._replace(stretches=[work.stretches[0]._replace(algorithm=algorithm)])


SETTINGS = (
    Check("flags", "liveness", "Does every switch do something?", "exact", "algorithms", flags),
    Check("off_is_off", "liveness", "Is what is switched off off?", "exact", "nets", off_is_off),
    Check("numbers", "liveness", "Does every number do something?", "exact", "algorithms", numbers),
)
