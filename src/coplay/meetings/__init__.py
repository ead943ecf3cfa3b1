"""Players among others, from names to figures: how do a run's players come to do in a company never met?"""

from coplay.meetings.adapting import Adaptation, Companies, adapt, over_companies
from coplay.meetings.anchoring import anchors_of, measure_anchors
from coplay.meetings.cross_play import Cell, CrossPlay, cross_play
from coplay.meetings.tables import Focal, Table, open_focal, sit_down

__all__ = [
    "Adaptation",
    "Cell",
    "Companies",
    "CrossPlay",
    "Focal",
    "Table",
    "adapt",
    "anchors_of",
    "cross_play",
    "measure_anchors",
    "open_focal",
    "over_companies",
    "sit_down",
]
