"""What random play and a best response earn in some company: looked up, or measured and kept."""

import dataclasses
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jax

from coplay import experiment as experiments
from coplay import runs
from coplay.evaluation import adaptation_figures as figures
from coplay.evaluation import anchors as tables
from coplay.evaluation.adaptation import Protocol
from coplay.evaluation.anchors import Anchors
from coplay.experiment import Built, Experiment
from coplay.meetings.tables import Say, Table, open_focal, player_at, sit_down
from coplay.players.catalogue import make_player, plain_players, settled
from coplay.players.frozen import greedy
from coplay.players.scripted import scripted
from coplay.training.run_folder import RunFolder
from coplay.types import Algorithm, PyTree

BEST_OF = 3  # seeds of a best response


def anchors_of(built: Built, table: Table, say: Say) -> Anchors:
    """Looked up, or measured now and kept. A company that changes is measured as what it becomes."""
    names = [settled(name)[0] for name in table.names]
    wanted = tables.situation(table.env, [_identity(name) for name in names], len(table.focal_seats))
    found = tables.find(wanted)
    if found is None:
        say(f"no anchors are known for {', '.join(names)}: measuring them once (a few minutes)")
        found = measure_anchors(built, names, table.focal_seats[0], say)
        tables.keep(wanted, found)
    return found


def _identity(name: str) -> str:
    """A run or a file by its name and content: if it changes, what was measured with it no longer holds."""
    if experiments.is_run(name):
        files = sorted(RunFolder.open(experiments.parse_run(name).path).checkpoints.glob("*.json"))
        content = b"".join(file.read_bytes() for file in files)
    elif ".py:" in name:
        content = Path(name.partition(":")[0]).read_bytes()
    else:
        return name
    return f"{name} {hashlib.sha256(content).hexdigest()[:16]}"


class Quarters(runs.Watcher):
    """Says how far training is, a few times."""

    def __init__(self, say: Say):
        self.say, self.told = say, 0

    def progressed(self, progress) -> None:
        quarter = 4 * progress.step // progress.total_steps
        if quarter > self.told:
            self.told = quarter
            self.say(f"  {25 * quarter}% of {progress.total_steps:,} steps")


def measure_anchors(
    built: Built, names: Sequence[str], seat: int, say: Say, steps: int | None = None
) -> Anchors:
    """A uniform player in the focal seats; and the best of PPO learners trained there and of the game's own
    scripts, for learners may stop short of what a simple rule earns.

    Without `steps` they train for as long as the shipped experiment of that game.
    """
    env, protocol = built.env, Protocol()
    table = sit_down(env, names, seat)
    say(f"random play and scripts with {', '.join(names)}")
    by_rule = script_scores(table, protocol)
    experiment = _best_response(built, table, steps)
    with tempfile.TemporaryDirectory() as folder:
        total = experiment.rollout.total_steps
        say(f"PPO with {', '.join(names)}: {BEST_OF} seeds of {total:,} steps")
        run = runs.train(experiment, Path(folder) / "best", Quarters(say))
        learned = open_focal(str(run.path), {})
    scores = []
    for algorithm in (learned.algorithm(table.focal_seats), greedy(learned.algorithm(table.focal_seats))):
        scores += [_mean_score(table, algorithm, params, protocol) for params in learned.params]
    how = f"PPO, {total:,} steps, best of {BEST_OF} seeds, drawn or likeliest actions"
    return better_of(Anchors(by_rule["random"], max(scores), how), by_rule)


def better_of(found: Anchors, by_rule: dict[str, float]) -> Anchors:
    """With the best script in place of what was found, where that earns more."""
    name = max(by_rule, key=lambda name: by_rule[name])
    if by_rule[name] <= found.best:
        return found
    return dataclasses.replace(found, best=by_rule[name], best_from=f"the script {name}")


def script_scores(table: Table, protocol: Protocol) -> dict[str, float]:
    """What each shipped player of the game that needs no settings earns in the focal seats."""
    scores = {}
    for name in plain_players(table.env):
        player = scripted(make_player(name, table.env), table.env, table.focal_seats)
        scores[name] = _mean_score(table, player, player.init(jax.random.key(0)), protocol)
    return scores


def _best_response(built: Built, table: Table, steps: int | None) -> Experiment:
    """The shipped PPO experiment of that game, or PPO as it comes, with learners in the focal seats only."""
    given = built.experiment
    shipped = f"ppo_{given.game}"
    known = shipped in experiments.experiment_names()
    base = experiments.read_experiment(shipped) if known else experiments.Experiment(game=given.game)
    lineup = ["ppo"] * table.env.num_agents
    for name, place in zip(table.names, table.seats, strict=True):
        lineup[place] = name
    return dataclasses.replace(
        base,
        game_options=given.game_options,
        lineup=tuple(lineup),
        seeds=BEST_OF,
        rollout=dataclasses.replace(base.rollout, total_steps=steps or base.rollout.total_steps),
        evaluation=dataclasses.replace(base.evaluation, every=0),
        saving=dataclasses.replace(base.saving, tensorboard=False),
    )


def _mean_score(table: Table, algorithm: Algorithm, params: PyTree, protocol: Protocol) -> float:
    played = player_at(table.with_focal(algorithm), protocol)(params, 1)
    found = figures.episodes(played.early, played.late, table.focal_seats, protocol.kept_games)
    return float(figures.scores(found, protocol).mean())
