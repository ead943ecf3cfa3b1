"""Do a run's models hold up elsewhere than where they learned: among scripted players, and a round later?"""

from typing import Any

import numpy as np
from jaxtyping import Bool

from coplay.audit.by_seed import at_end, judged
from coplay.audit.finding import Check, Outcome, not_run
from coplay.audit.foretold import NOTHING, Skill, foretold, foretold_of, skill_of
from coplay.audit.subject import Budget, Subject
from coplay.types import Key, Trajectory

# --- 6.4 worse where they learn than among scripts? ----------------------------------------------


def company(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are the players that models learn from foreseen as well as scripted ones?

    Only one direction is a fault: strangers may be harder to foresee, but whoever foresees strangers and not
    its own company has lost what it knew, or learns from rows that are not theirs.
    """
    statistic = (
        "skill at foreseeing scripted players less that at foreseeing the company that is learned from"
    )
    at_home = [skill_of(rows) for rows in foretold_of(subject)]
    abroad = [skill_of(foretold(games, _scripts(subject, games))) for games in subject.trained_games("meets")]
    if not any(
        one.is_foreseeable and other.is_foreseeable for one, other in zip(at_home, abroad, strict=True)
    ):
        return not_run(statistic, NOTHING)
    strangers = dict.fromkeys(name for name in _lineup(subject) if name != subject.learner)
    home, away = (np.median([seed.skill for seed in seeds]) for seeds in (at_home, abroad))
    look = (
        f"how old what is learned from is (staleness), rates of models; skill {home:.2f} at its own company, "
        f"{away:.2f} at {', '.join(strangers)}"
    )
    gap = np.array([other.skill - one.skill for one, other in zip(at_home, abroad, strict=True)])
    return judged(statistic, gap, 0.4, 0.2, look, least=False, drawing=_drawing(at_home, abroad))


def _scripts(subject: Subject, games: Trajectory) -> Bool[np.ndarray, "time env agent"]:
    is_script = np.array([name != subject.learner for name in _lineup(subject)])
    return np.asarray(games.steps.before.active) & is_script


def _lineup(subject: Subject) -> tuple[str, ...]:
    return subject.trained("meets").job.stretches[0].lineup


def _drawing(at_home: list[Skill], abroad: list[Skill]) -> dict[str, Any]:
    groups = [("its own company", at_home), ("scripted players", abroad)]
    return {
        "kind": "boxes",
        "title": "share of what can be foreseen that is, by company",
        "unit": "",
        "groups": [{"name": name, "values": [seed.skill for seed in seeds]} for name, seeds in groups],
    }


# --- 6.4 stale? ----------------------------------------------------------------------------------

AGES = ("drift/model_staleness", "drift/world_staleness")


def staleness(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are models still right when they are used, one round after they have learned?"""
    statistic = "nats by which a round surprises models more than the one they learned from"
    ends = [end for end in (at_end(subject, name) for name in AGES) if end is not None]
    if not ends:
        return not_run(statistic, "the run tells nothing of how its models age")
    worst = np.max([np.nanmean(end, axis=1) for end in ends], axis=0)
    return judged(
        statistic, worst, 0.5, 0.1, "rates of models and of policies, model_epochs", least=False, unit="nats"
    )


COMPANY = (
    Check(
        "company",
        "models",
        "Is the company that models learn from foreseen as well as scripted players?",
        "judgement",
        "opponents",
        company,
        ("opponent_rows", "histories", "opponent_skill", "staleness"),
    ),
    Check("staleness", "models", "Are models out of date when used?", "judgement", "opponents", staleness),
)
