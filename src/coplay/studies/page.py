"""A study's page: tables and sentences as Markdown, curves as a picture, figures as JSON beside them."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from coplay.evaluation.drift_curves import return_at
from coplay.studies.arms import command_of
from coplay.studies.running import Chosen
from coplay.studies.study import BUDGETS, Study
from coplay.studies.verdicts import (
    LAST,
    SURE,
    ArmFigures,
    Claim,
    Comparison,
    Findings,
    Level,
    controlled_by,
)
from coplay.training.run_folder import RunFolder

MAY_NOT = (
    "that smoother is better: who learns less moves less;",
    "that non-stationarity is solved: drift is measured, not removed;",
    "anything about a game that was not run here, or about another implementation of it.",
)
STYLES = {"baseline": ("black", "-"), "rival": ("grey", "--"), "control": ("tab:brown", ":")}
COLOURS = [f"tab:{name}" for name in ("blue", "orange", "green", "red", "purple", "cyan", "olive", "pink")]


def write_page(
    study: Study, done: list[Chosen], found: Findings, budget: str, made_by: str, out: Path
) -> Path:
    """`NAME.md`, `NAME.png` and `NAME.json` in a folder; the first is returned. `made_by` is the command."""
    page = out / f"{study.name}.md"
    picture = out / f"{study.name}.png"
    page.write_text(page_text(study, done, found, budget, made_by, picture.name), encoding="utf-8")
    (out / f"{study.name}.json").write_text(json.dumps(as_numbers(found), indent=1), encoding="utf-8")
    draw(study, found).savefig(picture, dpi=110)
    return page


def page_text(
    study: Study, done: list[Chosen], found: Findings, budget: str, made_by: str, picture: str
) -> str:
    tasks = list(dict.fromkeys(figures.job.task for figures in found.arms))
    parts = [
        f"# Study: {study.name}",
        study.question,
        f"Made by `{made_by}`. Intervals are 95% bootstrap intervals of interquartile means over seeds. "
        "Return is that of play while learning.",
        f"![Return against joint drift, and against steps, by task]({picture})",
        "## What may be claimed",
        *[f"- {sentence(study, found, claim)}" for claim in found.claims],
        "What may not be said: " + " ".join(MAY_NOT),
        *[text for task in tasks for text in _task(study, done, found, task, budget)],
    ]
    return "\n\n".join(parts) + "\n"


# --- sentences -----------------------------------------------------------------------------------


def sentence(study: Study, found: Findings, claim: Claim) -> str:
    """The claim as it may be made, or why none may."""
    arm = _of(found, claim.task, claim.arm)
    head = f"**{claim.task}, {claim.arm}** ({study.arms[claim.arm].says}; {arm.label}):"
    p = f"p = {claim.p:.3g} after Holm over {len(found.claims)} questions, {arm.seeds} seeds"
    if claim.may_be_made:
        return f"{head} {_better(study, claim)}; {p}.{_drift_saved(study, claim)}{_context(claim)}"
    return f"{head} no claim. {_why_not(claim)}; {p}.{_context(claim)}"


def _better(study: Study, claim: Claim) -> str:
    first, least = claim.baseline, claim.hardest
    better = f"at equal joint drift it earns {_difference(first)} more than {first.against}"
    if not study.in_role("rival"):
        return better
    return (
        f"{better}, and more than every null and capacity control "
        f"(least over {least.against}: {_difference(least)})"
    )


def _why_not(claim: Claim) -> str:
    against = claim.hardest
    if against.coincide:
        return f"Its curve is {against.against}'s to the bit: what makes it another arm is not wired in"
    if claim.unrun:
        return f"What it has to beat was not all run: {', '.join(claim.unrun)}"
    if against.difference <= 0:
        return f"At equal joint drift {against.against} earns as much or more ({_difference(against)})"
    return f"It is not shown to be above {against.against} at equal joint drift ({_difference(against)})"


def _difference(c: Comparison) -> str:
    return f"{c.difference:+.3g} [{c.interval.low:+.3g}, {c.interval.high:+.3g}]"


def _drift_saved(study: Study, claim: Claim) -> str:
    """Of the baseline's drift, and of the rival's that needs least."""
    told = [
        f"{abs(share):.0%} {'less' if share >= 0 else 'more'} joint drift than {name}"
        for name, share in claim.saved.items()
        if math.isfinite(share)
    ]
    level = study.tasks[claim.task].level
    return f" It reaches {level:g} with {' and '.join(told)}." if told else ""


def _context(claim: Claim) -> str:
    if claim.context is None:
        return ""
    c = claim.context
    if c.interval.low > 0:
        return f" Its context matters: {_difference(c)} over {c.against}."
    return f" Its context is not shown to matter: {_difference(c)} over {c.against}."


# --- tables --------------------------------------------------------------------------------------


def _task(study: Study, done: list[Chosen], found: Findings, task: str, budget: str) -> list[str]:
    arms = sorted((a for a in found.arms if a.job.task == task), key=lambda a: -a.over_training.mean)
    own = study.tasks[task]
    head = [
        "arm",
        "what it is",
        "needs",
        "weights",
        "rate",
        "return over training",
        f"in its last {LAST:.0%}",
    ]
    head += ["joint drift, nats", f"drift to {own.level:g}"]
    rows = [_row(study, a) for a in arms]
    compared = [c for c in found.comparisons if c.task == task]
    pairs = [
        (c.arm, c.against, f"{c.up_to:.3g}", _difference(c), f"{c.improvement:.2f}", f"{c.p:.3g}")
        for c in compared
    ]
    first = next(chosen for chosen in done if chosen.job.task == task)
    return [
        f"## {task}",
        f"{arms[0].steps:,} steps, {arms[0].seeds} seeds, {_seconds(done, task) / 60:.0f} minutes of "
        f"training in all; {_sweep(study, task)} Arms are ordered by their return over training.",
        _table(head, rows),
        *at_the_edge(done, task),
        *idle(study, found, task),
        "At equal joint drift, mean return of the first less that of the second:",
        _table(["arm", "against", "up to, nats", "difference", "chance of improvement", "p"], pairs),
        f"One arm by itself: `{command_of(study, task, first.job.arm, first.rate, BUDGETS[budget])}`",
    ]


def at_the_edge(done: list[Chosen], task: str) -> list[str]:
    """Arms whose best rate is the first or the last of those tried: a better one may lie beyond."""
    swept = [chosen for chosen in done if chosen.job.task == task and len(chosen.tried) > 1]
    edges = {"largest": max, "smallest": min}
    named = {
        edge: [chosen.job.arm for chosen in swept if chosen.rate == pick(chosen.tried)]
        for edge, pick in edges.items()
    }
    said = [
        f"the {edge} rate tried is the best for {', '.join(arms)}" for edge, arms in named.items() if arms
    ]
    return [f"Weak: {'; '.join(said)}, so that a better one may lie beyond."] if said else []


def idle(study: Study, found: Findings, task: str) -> list[str]:
    """A sentence for every arm that has controls which repeat its curves."""
    names = [job.arm for job in found.idle if job.task == task]
    said = []
    for arm in dict.fromkeys(controlled_by(study, name) for name in names):
        alike = ", ".join(name for name in names if controlled_by(study, name) == arm)
        said.append(
            f"{alike}: the curves of {arm} to the bit, so what is changed never came to bear, and nothing "
            "was controlled by it."
        )
    return said


def _sweep(study: Study, task: str) -> str:
    own = study.tasks[task]
    if own.rates_from:
        return f"learning rates as chosen for {own.rates_from}."
    if len(own.rates) == 1:
        return f"learning rate {own.rates[0]:g} for every arm, no sweep."
    rates = ", ".join(f"{rate:g}" for rate in own.rates)
    return (
        f"every arm without a base was tried at rates of {rates} on {own.tuning_seeds} other seeds, and "
        "the best by return over training was taken."
    )


def _seconds(done: list[Chosen], task: str) -> float:
    return sum(_training_seconds(chosen.folder) for chosen in done if chosen.job.task == task)


def _training_seconds(folder: RunFolder) -> float:
    return float(np.sum(folder.read_timing()["seconds"].to_numpy()))


def _row(study: Study, a: ArmFigures) -> tuple[str, ...]:
    lost = f", {a.lost} never" if a.lost else ""
    return (
        a.job.arm,
        study.arms[a.job.arm].says,
        a.label,
        f"{a.weights:,}",
        f"{a.rate:g}",
        _with_interval(a.over_training),
        _with_interval(a.at_end),
        _with_interval(a.moved),
        _with_interval(a.to_level) + lost,
    )


def _with_interval(level: Level) -> str:
    if not math.isfinite(level.mean):
        return "-"
    return f"{level.mean:.3g} [{level.interval.low:.3g}, {level.interval.high:.3g}]"


def _table(head: list[str], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _of(found: Findings, task: str, arm: str) -> ArmFigures:
    return next(a for a in found.arms if (a.job.task, a.job.arm) == (task, arm))


# --- figure --------------------------------------------------------------------------------------


def draw(study: Study, found: Findings) -> Figure:
    """A row for each task: return against joint drift, and against steps; means over seeds."""
    tasks = list(dict.fromkeys(figures.job.task for figures in found.arms))
    figure = Figure(figsize=(12, 3.6 * len(tasks)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(tasks), 2, squeeze=False)
    colours = _colours(study)
    for (by_drift, by_steps), task in zip(grid, tasks, strict=True):
        own = [a for a in found.arms if a.job.task == task]
        for arm in own:
            colour, line = colours[arm.job.arm]
            far = float(np.median(arm.curve.moved[:, -1]))
            reached = np.linspace(0.0, far, 120)
            earned = [np.mean(return_at(arm.curve, moved)) for moved in reached]
            by_drift.plot(reached, earned, color=colour, linestyle=line, label=arm.job.arm, linewidth=1.4)
            steps = np.linspace(0, arm.steps, arm.curve.earned.shape[1])
            by_steps.plot(steps, arm.curve.earned.mean(axis=0), color=colour, linestyle=line, linewidth=1.4)
        by_drift.set_xlim(0.0, 2.0 * np.median([np.median(a.curve.moved[:, -1]) for a in own]))
        by_drift.set_xlabel("joint KL moved through, nats")
        by_steps.set_xlabel("steps")
        by_drift.set_ylabel("mean return per player")
        by_drift.set_title(task, loc="left")
        by_steps.legend(*by_drift.get_legend_handles_labels(), fontsize=7, ncol=2, loc="lower right")
        for axes in (by_drift, by_steps):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25)
    return figure


def _colours(study: Study) -> dict[str, tuple[str, str]]:
    """Black for the baseline, grey for its rivals, brown for controls, a colour for everyone else."""
    found, coloured = {}, 0
    for name, arm in study.arms.items():
        if arm.role in STYLES:
            found[name] = STYLES[arm.role]
        else:
            found[name] = (COLOURS[coloured % len(COLOURS)], "-" if coloured < len(COLOURS) else "-.")
            coloured += 1
    return found


def as_numbers(found: Findings) -> dict[str, Any]:
    """Everything but the curves, for other programs."""
    arms = [
        {"task": a.job.task, "arm": a.job.arm, "label": a.label, "weights": a.weights, "rate": a.rate}
        | {"steps": a.steps, "seeds": a.seeds, "lost": a.lost, "rates_tried": a.tried}
        | {
            name: {"iqm": level.mean, "interval": list(level.interval)}
            for name, level in zip(
                ("over_training", "at_end", "moved", "to_level"),
                (a.over_training, a.at_end, a.moved, a.to_level),
                strict=True,
            )
        }
        for a in found.arms
    ]
    claims = [
        {
            "task": c.task,
            "arm": c.arm,
            "p": c.p,
            "may_be_made": c.may_be_made,
            "least_above": c.hardest.against,
        }
        | {"difference_to_it": c.hardest.difference, "sure_below": SURE}
        for c in found.claims
    ]
    return {"arms": arms, "comparisons": [c._asdict() for c in found.comparisons], "claims": claims}
