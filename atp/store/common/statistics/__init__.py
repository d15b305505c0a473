"""Statistic in the portable store: adding, counting from the log, folding."""

from .adding import Adding
from .counting import Counting
from .folding import Folding


class Statistics(Adding, Counting, Folding):
    """The verbs on Statistic: the counts per minute and Type."""
