"""Studies: one question, several arms, several tasks, and what may be claimed afterwards.

A study is a TOML file in this folder, fixed before anything is run. `study.py` reads it, `arms.py` turns an
arm on a task into an experiment, `running.py` trains what is not trained yet, `verdicts.py` compares,
`page.py` writes the table, the figure and the sentences.
"""

from coplay.studies.page import write_page
from coplay.studies.running import Chosen, Job, jobs_of, run_study
from coplay.studies.study import BUDGETS, Arm, Budget, Study, Task, read_study, study_names
from coplay.studies.verdicts import Findings, findings

__all__ = [
    "BUDGETS",
    "Arm",
    "Budget",
    "Chosen",
    "Findings",
    "Job",
    "Study",
    "Task",
    "findings",
    "jobs_of",
    "read_study",
    "run_study",
    "study_names",
    "write_page",
]
