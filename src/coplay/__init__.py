"""coplay: learning with, and against, other learners.

    import coplay
    run = coplay.train("ppo_4h1s_4x4", steps=500_000)
    print(run.evaluate().mean_return)

Everything here is loaded when it is first asked for, so that `import coplay` is quick and the number of
devices can still be chosen.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coplay.envs import make_game
    from coplay.errors import BadInput
    from coplay.runs import Run, evaluate, load, resume, train

__version__ = "0.1.0"
__all__ = ["BadInput", "Run", "evaluate", "load", "make_game", "resume", "train"]

_HOMES = {
    "BadInput": "coplay.errors",
    "Run": "coplay.runs",
    "evaluate": "coplay.runs",
    "load": "coplay.runs",
    "make_game": "coplay.envs",
    "resume": "coplay.runs",
    "train": "coplay.runs",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'coplay' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
