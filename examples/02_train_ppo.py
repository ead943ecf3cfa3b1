"""Train four independent learners for a few updates, score them, and name the report."""

import tempfile
from pathlib import Path

import coplay

with tempfile.TemporaryDirectory() as folder:
    run = coplay.train("ppo_4h1s_4x4", out=Path(folder) / "run", steps=40_000, num_envs=64, num_steps=35)
    score = run.evaluate(episodes=256)
    print(f"mean return {score.mean_return:.2f} of at most {score.ceiling}, per seat {score.per_seat}")
    print(f"report: {run.folder.report.name}, {run.metrics().num_rows} metric rows")
