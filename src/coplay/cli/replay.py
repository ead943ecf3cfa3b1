"""`replay`: one episode in the terminal, as a GIF, or both."""

import argparse
import time
from pathlib import Path

from coplay import runs
from coplay.cli.output import print_json, refuse_rest, result
from coplay.errors import BadInput
from coplay.experiment import parse_run
from coplay.reports.episodes import load_episode
from coplay.reports.replay import as_gif, as_text


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", help="a run folder (RUN@best:3 chooses checkpoint and seed), or an episode .npz"
    )
    parser.add_argument("--gif", metavar="FILE", help="write the episode as a GIF")
    parser.add_argument("--seed", type=int, default=0, help="which game: the same seed is the same game")
    parser.add_argument("--greedy", action="store_true", help="always take the likeliest action")
    parser.add_argument(
        "--speed", type=float, default=4.0, help="steps a second in the terminal; 0: all at once"
    )


def replay(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json", "gif", "seed", "greedy", "speed"])
    if arguments.gif and not arguments.gif.endswith(".gif"):
        raise BadInput(f"--gif {arguments.gif!r} should end in .gif")
    path = _episode_path(arguments)
    episode = load_episode(path)
    if arguments.gif:
        as_gif(episode, Path(arguments.gif))
    if arguments.json:
        print_json(
            {
                "episode": str(path),
                "gif": arguments.gif,
                "length": len(episode.action),
                "returns": [float(x) for x in episode.reward.sum(axis=0)],
                "members": list(episode.members),
            }
        )
    elif arguments.gif:
        result.print(f"wrote {arguments.gif}", markup=False)
    else:
        _show(as_text(episode), arguments.speed)
    return 0


def _episode_path(arguments: argparse.Namespace) -> Path:
    if arguments.run.endswith(".npz"):
        if not Path(arguments.run).is_file():
            raise BadInput(f"there is no episode file {arguments.run!r}")
        return Path(arguments.run)
    reference = parse_run(arguments.run)
    run = runs.load(reference.path)
    mode = "greedy" if arguments.greedy else "sample"
    return runs.record_episode(run, None, reference.best, arguments.seed, reference.seed, mode)


def _show(frames: list[str], speed: float) -> None:
    moving = result.is_terminal and speed > 0
    for frame in frames:
        if moving:
            result.clear()
        result.print(frame, markup=False)
        if moving:
            time.sleep(1.0 / speed)
