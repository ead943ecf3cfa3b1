"""The verbs of the command, one entry each: what it is called, takes and does."""

import argparse
from collections.abc import Callable
from typing import NamedTuple

from coplay.cli import (
    ablate,
    adapt,
    audit,
    bench,
    catalogues,
    collect,
    compare,
    cross_play,
    evaluate,
    export,
    pretrain,
    replay,
    reproduce,
    train,
)


class Verb(NamedTuple):
    name: str
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    call: Callable[[argparse.Namespace, list[str]], int]
    epilog: str = ""


VERBS = [
    Verb(
        "games", "List the games, or show one game's options.", catalogues.games_arguments, catalogues.games
    ),
    Verb(
        "algorithms",
        "List the algorithms, or show one algorithm's settings.",
        catalogues.algorithms_arguments,
        catalogues.algorithms,
    ),
    Verb("players", "List the scripted players of a game.", catalogues.players_arguments, catalogues.players),
    Verb("train", "Train an experiment in a new run folder.", train.arguments, train.train, train.EPILOG),
    Verb(
        "resume",
        "Go on with a run from its last good checkpoint, bit for bit.",
        train.resume_arguments,
        train.resume,
    ),
    Verb(
        "evaluate",
        "Score a run's players among themselves, per seat, with intervals; or a part on recorded play.",
        evaluate.arguments,
        evaluate.evaluate,
        evaluate.EPILOG,
    ),
    Verb(
        "audit",
        "Say what is wrong with a run or an experiment, and where.",
        audit.arguments,
        audit.audit_command,
        audit.EPILOG,
    ),
    Verb(
        "ablate",
        "Add a learner's parts one by one, and name the rung where a symptom first appears.",
        ablate.arguments,
        ablate.ablate,
        ablate.EPILOG,
    ),
    Verb(
        "adapt",
        "Seat a run's players among others they never met, and see how they come to do.",
        adapt.arguments,
        adapt.adapt,
        adapt.EPILOG,
    ),
    Verb(
        "anchors",
        "Measure what random play and a best response earn in a company.",
        adapt.anchors_arguments,
        adapt.anchors,
    ),
    Verb(
        "cross-play",
        "Seat every run among copies of every other one, as a matrix.",
        cross_play.arguments,
        cross_play.cross_play,
    ),
    Verb(
        "collect",
        "Record whole games of known players in a file.",
        collect.arguments,
        collect.collect,
        collect.EPILOG,
    ),
    Verb(
        "pretrain",
        "Train a part of a learner from recorded play, with its errors on held-out episodes.",
        pretrain.arguments,
        pretrain.pretrain,
        pretrain.EPILOG,
    ),
    Verb(
        "replay", "Show one episode in the terminal, or write it as a GIF.", replay.arguments, replay.replay
    ),
    Verb(
        "export",
        "Write one seed's weights as a small run folder, to share or to meet.",
        export.arguments,
        export.export,
    ),
    Verb(
        "compare",
        "Compare runs: interquartile means, intervals, chance of improvement.",
        compare.arguments,
        compare.compare,
    ),
    Verb(
        "reproduce",
        "Run a shipped study: arms, tasks and seeds into a table, a figure and what may be claimed.",
        reproduce.arguments,
        reproduce.reproduce,
        reproduce.EPILOG,
    ),
    Verb(
        "bench",
        "Measure speed against this machine's limit and, where installed, peers.",
        bench.arguments,
        bench.bench,
    ),
]
