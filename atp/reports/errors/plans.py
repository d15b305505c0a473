"""Plans as plain values."""

from ...verbs.matching import told
from ...verbs.matching.plan import Plan
from ..documents import Document


def document(plan: Plan) -> Document:
    """Return a plan as plain values by name."""
    return {
        "count": plan.count,
        "by_error": dict(plan.by_error),
        "by_type": dict(plan.by_type),
        "by_collection": dict(plan.by_collection),
        "cannot": dict(plan.cannot),
        "judged": plan.judged,
        "takes": None if plan.takes is None else plan.takes.total_seconds(),
        "told": told.plan(plan),
    }
