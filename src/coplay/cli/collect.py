"""`collect`: play of known players into a file."""

import argparse
import dataclasses
import time
from pathlib import Path

import numpy as np

from coplay.cli.output import people, print_json, print_table, result
from coplay.cli.train import parse_overrides
from coplay.errors import BadInput
from coplay.experiment import Experiment, with_overrides
from coplay.offline import collect as recording
from coplay.offline import dataset
from coplay.players.catalogue import split_names

EPILOG = """options of the game may be given by name:
  coplay collect 4h1s_4x4 --players nearest_stag,nearest_hare,random --episodes 20000
  coplay collect 4h1s_8x8_walls --lineup nearest_stag,nearest_stag,nearest_hare,random --horizon 50
  coplay collect stag_hunt --players nearest_hare,random --game_options.players 3"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("game", help="a name from `coplay games`")
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--players", help="every seat of every episode is played by one of these, drawn")
    who.add_argument("--lineup", help="who sits in each seat, in every episode; runs too")
    parser.add_argument("--episodes", type=int, default=10_000, help="whole games (default 10000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="file to write (default: data/GAME.parquet)")


def collect(arguments: argparse.Namespace, rest: list[str]) -> int:
    path = Path(arguments.out or f"data/{Path(arguments.game).stem.replace(':', '_')}.parquet")
    if path.exists():
        raise BadInput(f"{path} is there already; name another with --out")
    options = _game_options(arguments.game, rest)
    is_drawn = arguments.players is not None
    players = tuple(split_names(arguments.players if is_drawn else arguments.lineup))
    wanted = recording.about(arguments.game, options, players, is_drawn, arguments.episodes, arguments.seed)
    began = time.perf_counter()
    play = recording.record(wanted, lambda done: people.print(f"{done:,} of {wanted.episodes:,} episodes"))
    dataset.write(path, wanted, play)
    found = _summary(path, wanted, play, time.perf_counter() - began)
    if arguments.json:
        print_json(found)
    else:
        _print(found)
    return 0


def _game_options(game: str, rest: list[str]) -> dict:
    """What is set otherwise in the game; other settings are refused, for they would change nothing."""
    plain = Experiment(game=game)
    changed = with_overrides(plain, parse_overrides(rest))
    if dataclasses.replace(changed, game_options={}) != plain:
        raise BadInput("collect takes options of the game only (`coplay games GAME` lists them)")
    return dict(changed.game_options)


def _summary(path: Path, wanted: dataset.About, play: dataset.Episodes, seconds: float) -> dict:
    env = wanted.env()
    taken = play.action[play.active & play.is_move[..., None]]
    shares = np.bincount(taken, minlength=env.num_actions) / max(len(taken), 1)
    paid = play.reward[play.active & play.is_move[..., None]]
    return {
        "data": str(path),
        "game": wanted.game,
        "players": list(wanted.players),
        "episodes": wanted.episodes,
        "moves": int(play.length.sum()),
        "rows_in_the_game": len(taken),
        "paid_share": float((paid != 0).mean()) if len(paid) else 0.0,
        "return_per_seat": [float(x) for x in play.reward.sum(axis=1).mean(axis=0)],
        "action_shares": dict(zip(env.action_names, map(float, shares), strict=True)),
        "megabytes": path.stat().st_size / 1e6,
        "seconds": seconds,
    }


def _print(found: dict) -> None:
    result.print(
        f"{found['data']}: {found['episodes']:,} episodes, {found['moves']:,} moves, "
        f"{found['rows_in_the_game']:,} of players in the game, "
        f"{100 * found['paid_share']:.1f}% of them paid; "
        f"{found['megabytes']:.1f} MB in {found['seconds']:.0f} s"
    )
    seats = ", ".join(f"{value:.3f}" for value in found["return_per_seat"])
    result.print(f"mean return per seat: {seats}")
    print_table(list(found["action_shares"]), [[f"{x:.3f}" for x in found["action_shares"].values()]])
