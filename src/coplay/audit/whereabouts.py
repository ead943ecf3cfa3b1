"""Which file of a room a failing check points to, where one can be named; at which scale a check is made."""

import inspect
from pathlib import Path

import coplay
from coplay.audit.environment import ENVIRONMENT
from coplay.audit.finding import Check, Outcome
from coplay.audit.phenomenon import PHENOMENON
from coplay.audit.subject import Subject
from coplay.audit.trained_models import OPPONENTS
from coplay.audit.trained_values import IMAGINED, SEARCHES
from coplay.audit.trained_worlds import WORLDS
from coplay.types import Environment

SOURCES = Path(coplay.__file__).parent

FILES: dict[str, tuple[str, ...]] = {  # by check; of several, the one in the room that is named
    "seeds_apart": ("training/loop.py",),
    "rows": ("training/rollout.py",),
    "ledger": ("training/rollout.py",),
    "figures": ("training/rollout.py",),
    "draws": ("training/rollout.py",),
    "samples": ("training/stages.py",),
    "steps_taken": ("training/stages.py",),
    "loop": ("training/programs.py",),
    "resumes": ("training/checkpoint.py",),
    "scores": ("evaluation/self_play.py", "training/loop.py"),
    "sight": ("algorithms/views.py",),
    "world_rows": ("algorithms/world_stage.py",),
    "imagined_rows": ("algorithms/imagination.py",),
    "imagined_ends": ("algorithms/imagination.py",),
    "references": ("algorithms/targets.py",),
    "fit": ("algorithms/targets.py",),
    "own_game": ("algorithms/targets.py",),
    "pace": ("algorithms/ppo.py",),
    "loud_critic": ("algorithms/ppo.py",),
    "normaliser": ("algorithms/value_scale.py",),
    "labels": ("opponents/goals.py", "algorithms/opponent_stage.py"),
    "belief": ("opponents/minds.py",),
    "terms": ("algorithms/ppo.py",),
    "search": ("planning/search.py",),
    "ties": ("planning/selection.py",),
    "tree_company": ("algorithms/hop_search.py",),
    "world_names": ("nets/world.py",),
    "imagined_range": ("nets/world.py",),
}


def file_of(check: Check, outcome: Outcome, env: Environment) -> str:
    """From `src/coplay` on, or where a user's own game lies; "" where the room is all that is known."""
    room = outcome.room or check.room
    if room == "envs":
        return game_file(env, "views.py" if check.name == "views" else "rules.py")
    return next((file for file in FILES.get(check.name, ()) if file.startswith(f"{room}/")), "")


def game_file(env: Environment, part: str) -> str:
    """Where its step is written; a game with a folder of its own has a file for each part."""
    try:
        file = Path(inspect.getfile(inspect.unwrap(env.step)))
    except TypeError:  # no function: nobody knows where it was written
        return ""
    if file.name == "__init__.py" and file.with_name(part).is_file():
        file = file.with_name(part)
    return str(file.relative_to(SOURCES)) if file.is_relative_to(SOURCES) else str(file)


SCALES: dict[str, str] = {  # of what is neither: "small", whatever learns at the size of `small_scale.py`
    **{check.name: "run" for check in (*PHENOMENON, *OPPONENTS, *WORLDS, *SEARCHES, *IMAGINED)},
    **{check.name: "" for check in ENVIRONMENT},
    **dict.fromkeys(("code", "search", "ties", "options"), ""),
}


def scale_of(check: Check, outcome: Outcome, subject: Subject) -> str:
    """`run`: the run itself, at its own sizes; `small`: afresh at a small scale; "": nothing of any size."""
    if outcome.verdict == "not_run" or (check.name == "permuted_ids" and not _asks_learners(subject)):
        return ""
    return SCALES.get(check.name, "small")


def _asks_learners(subject: Subject) -> bool:
    """Whom it asks about a game of ours where all learn alike; otherwise random players."""
    return len(set(subject.lineup)) == 1 and not subject.env.package and bool(subject.learners)
