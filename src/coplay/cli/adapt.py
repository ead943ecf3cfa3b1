"""`adapt` and `anchors`: a run's players among others, and what their scores are measured by."""

import argparse
import math
import time
from pathlib import Path

from coplay import experiment as experiments
from coplay import meetings
from coplay.cli.output import people, print_json, print_table, result
from coplay.cli.train import parse_overrides
from coplay.envs import option_names
from coplay.errors import BadInput
from coplay.evaluation import anchors as tables
from coplay.evaluation.adaptation import Protocol
from coplay.players.catalogue import split_names
from coplay.training.devices import forget_programs, prepare
from coplay.training.run_folder import RunFolder
from coplay.types import Environment

SHIPPED = "shipped"
LEARNING = {"nobody": (), "focal": ("focal",), "company": ("company",), "both": ("focal", "company")}

EPILOG = """settings of the run's algorithm and game may be given as in `train`:
  coplay adapt runs/hop --against nearest_hare,nearest_hare,nearest_hare --simulations 64
  coplay adapt runs/hop --against "changing('nearest_hare','nearest_stag',30),nearest_hare,nearest_hare"
  coplay adapt runs/ppo@best:0 --against zoo:hop_4h1s_4x4     one name: three focal players
  coplay adapt zoo:hop_4h1s_4x4 --against shipped             every shipped company, mean and worst
  coplay adapt zoo:hop_4h1s_4x4 --against runs/ppo@best:0,runs/ppo@best:1,runs/ppo@best:2 --learning company
Scores: 0 is random play in the same seats, 1 a best response (PPO trained among these very players)."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder, RUN@best, RUN@best:3 for its seed 3, or zoo:NAME")
    against = "PLAYER,PLAYER,... (RUN fills the rest), or `shipped` for every company that has anchors"
    parser.add_argument("--against", required=True, help=against)
    parser.add_argument("--episodes", type=int, help="play so many full episodes instead of 2,400 steps")
    parser.add_argument("--games", type=int, default=256, help="side by side (default 256)")
    parser.add_argument("--seat", type=int, default=0, help="of the first focal player (default 0)")
    parser.add_argument("--seed", type=int, default=0, help="of the boards and draws")
    parser.add_argument(
        "--learning", choices=LEARNING, default="nobody", help="who goes on learning (default nobody)"
    )
    parser.add_argument("--no-oracle", action="store_true", help="leave out the arm that is told all goals")


def adapt(arguments: argparse.Namespace, rest: list[str]) -> int:
    if arguments.games < 8 or arguments.games % 8:
        raise BadInput(f"--games {arguments.games} must be a multiple of 8: a quarter of each half plays on")
    if arguments.episodes is not None and arguments.episodes < 11:
        raise BadInput(f"--episodes {arguments.episodes} must be at least 11, ten of them to learn from")
    overrides = _overrides(arguments, rest)
    prepare(2)
    env = meetings.open_focal(arguments.run, overrides).built.env
    if arguments.against != SHIPPED:
        found = _met(arguments, split_names(arguments.against), overrides, env)
        return _show(arguments, found, _print)
    each = []
    for team in _shipped_teams(env):
        each.append(_met(arguments, split_names(team), overrides, env))
        forget_programs()
        people.print(f"{team}: {_score(each[-1])} ({each[-1].seconds:.0f} s)", markup=False)
    return _show(arguments, meetings.over_companies(each), _print_all)


def _overrides(arguments: argparse.Namespace, rest: list[str]) -> dict[str, str]:
    """Other ways to play; how rounds are collected matters to focal players that go on learning only."""
    overrides = parse_overrides(rest)
    if "focal" not in LEARNING[arguments.learning]:
        folder = RunFolder.open(experiments.parse_run(arguments.run).path)
        experiments.played_otherwise(experiments.read_run(folder), overrides)
    return overrides


def _met(
    arguments: argparse.Namespace, company: list[str], overrides: dict[str, str], env: Environment
) -> meetings.Adaptation:
    steps = {} if arguments.episodes is None else {"steps": arguments.episodes * env.horizon}
    return meetings.adapt(
        arguments.run,
        company,
        overrides,
        Protocol(games=arguments.games, **steps),
        seat=arguments.seat,
        seed=arguments.seed,
        with_oracle=not arguments.no_oracle,
        learning=LEARNING[arguments.learning],
        say=people.print,
    )


def _shipped_teams(env: Environment) -> list[str]:
    if env.name not in tables.TEAMS:
        raise BadInput(f"no companies are shipped for {env.name}; name one with --against")
    return tables.TEAMS[env.name]


def _show(arguments: argparse.Namespace, found, in_words) -> int:
    if arguments.json:
        print_json(found)
    else:
        in_words(found)
    return 0


def _score(found: meetings.Adaptation) -> str:
    """All that would be missed if the companies after this one were never met."""
    names = ("random", "best", "return", "normalised", "95%", "episodes 6-10", "told goals", "skill")
    return ", ".join(f"{name} {cell}" for name, cell in zip(names, _cells(found)[1:], strict=True))


def _print_all(found: meetings.Companies) -> None:
    scores = ["normalised", "95%", "episodes 6-10", "told goals", "skill"]
    print_table(["company", "random", "best", "return", *scores], map(_cells, found.companies))
    result.print(
        f"normalised, over companies: mean {_number(found.mean)}, worst {_number(found.worst)}; "
        f"episodes 6 to 10: mean {_number(found.mean_after_5_episodes)}"
    )


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _cells(found: meetings.Adaptation) -> list[str]:
    low, high = found.interval or (None, None)
    told, model = found.oracle_goals or {}, found.opponent_model or {}
    return [
        _in_short(found.company),
        *map(_number, (found.random, found.best, found.raw, found.normalised)),
        f"{_number(low)} to {_number(high)}",
        _number(found.after_5_episodes),
        _number(told.get("normalised")),
        _number(model.get("skill"), 2),
    ]


def _in_short(company: list[str]) -> str:
    """`2 nearest_stag, nearest_hare` for three names."""
    counts = {name: company.count(name) for name in company}
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in counts.items())


def _print(found: meetings.Adaptation) -> None:
    who = f"seat{'s' if len(found.seats) > 1 else ''} {', '.join(map(str, found.seats))}"
    result.print(f"{found.run} in {who} with {', '.join(found.company)}", markup=False)
    low, high = found.raw_interval
    result.print(
        f"return {found.raw:.3f} (95% {low:.3f} to {high:.3f}) in the last quarter of {found.steps} steps"
    )
    if found.normalised is None or found.interval is None:
        result.print(
            f"not normalised: random play {found.random:.3f} and best {found.best:.3f} hardly differ"
        )
    else:
        result.print(
            f"normalised {found.normalised:.3f} (95% {found.interval[0]:.3f} to {found.interval[1]:.3f}), "
            f"episodes 6 to 10 {found.after_5_episodes:.3f}; random play {found.random:.3f} is 0, "
            f"best response {found.best:.3f} is 1"
        )
    if found.learning:
        named = {"focal": "the focal players", "company": "the company"}
        who = " and ".join(named[part] for part in found.learning)
        result.print(f"{who} went on learning; random play and best response are among frozen players")
    if found.oracle_goals:
        result.print(f"told what everyone is after: return {found.oracle_goals['raw']:.3f}")
    _print_curve(found)
    if found.change:
        c = found.change
        result.print(
            f"change after episode {c['after_episode']}: {c['before']:.3f} before, {c['next_20']:.3f} in "
            f"the 20 episodes after it, {c['share_of_best']:.2f} of the best response"
        )
    if found.belief:
        steps = ", ".join(f"{x:.2f}" for x in found.belief["in_true_goal"] if x is not None)
        result.print(f"belief in the true goal, step by step: {steps}")
    if found.opponent_model:
        m = found.opponent_model
        result.print(
            f"co-players foreseen: top-1 {m['top1']:.3f} (best possible {m['bayes_top1']:.3f}), surprise "
            f"{m['surprise']:.3f} nats ({m['bayes_surprise']:.3f}), skill {_number(m['skill'], 2)}"
        )
    result.print(f"{found.seeds} seed(s), {found.games} games, {found.seconds:.0f} s")


def _print_curve(found: meetings.Adaptation) -> None:
    shown = [n for n in (1, 2, 3, 4, 5, 10, 20, 30, 40, 50, 60) if n <= len(found.curve)]
    print_table(["episode", *map(str, shown)], [["return", *[f"{found.curve[n - 1]:.2f}" for n in shown]]])


# --- anchors -------------------------------------------------------------------------------------


def anchors_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("game", help="a name from `coplay games`")
    parser.add_argument("--against", help="one company only (default: the teams of the docs)")
    parser.add_argument("--steps", type=int, help="of each best response (default: as PPO is shipped)")
    parser.add_argument("--write", help="table to keep them in (default: the user's cache)")


def anchors(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Measure, print and keep what random play and a best response earn."""
    if arguments.steps is not None and arguments.steps < 1:
        raise BadInput(f"--steps {arguments.steps} must be at least 1")
    prepare(2)
    small_rows = {"observation": "entities"} if "observation" in option_names(arguments.game) else {}
    experiment = experiments.Experiment(game=arguments.game, game_options=small_rows)
    experiment = experiments.with_overrides(experiment, parse_overrides(rest))
    built = experiments.build(experiment)
    teams = [arguments.against] if arguments.against else tables.TEAMS.get(built.env.name, [])
    if not teams:
        raise BadInput(f"no teams are listed for {arguments.game}; name one with --against")
    rows = []
    for team in teams:
        began, names = time.perf_counter(), split_names(team)
        found = meetings.measure_anchors(built, names, 0, people.print, arguments.steps)
        wanted = tables.situation(built.env, names, built.env.num_agents - len(names))
        tables.keep(wanted, found, Path(arguments.write) if arguments.write else None)
        forget_programs()
        rows.append((team, found, time.perf_counter() - began))
    if arguments.json:
        print_json([{"company": team, "random": a.random, "best": a.best} for team, a, _ in rows])
    else:
        cells = [(team, f"{a.random:.3f}", f"{a.best:.3f}", f"{s:.0f}") for team, a, s in rows]
        print_table(["company", "random", "best response", "seconds"], cells)
    return 0
