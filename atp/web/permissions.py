"""Permissions over HTTP: Django's view permissions to look, and four permissions to act (G14).

Inputs, responses and logs may hold secrets. So each needs the view permission of its own
table.
"""

from ..verbs.table.verb import CONTROL, DELETE, ENQUEUE, OPERATE
from . import authorization

__all__ = ["CONTROL", "DELETE", "ENQUEUE", "OPERATE"]

VIEW_TYPE = "atp.view_type"
VIEW_INSTANCE = "atp.view_instance"
VIEW_INPUTS = "atp.view_inputs"
VIEW_RESPONSE = "atp.view_response"
VIEW_LOG = "atp.view_logrecord"
VIEW_STEP = "atp.view_step"
VIEW_TASK = "atp.view_task"
VIEW_DAEMON = "atp.view_daemon"
VIEW_SCHEDULE = "atp.view_schedule"
VIEW_GRAPH = "atp.view_graph"
VIEW_DOWNSTREAM = "atp.view_downstream"
VIEW_TAILER = "atp.view_tailer"
VIEW_ERROR = "atp.view_errorgroup"


def holds(user, name, *subjects):
    """Return whether the user has a permission that holds on all subjects; without any, on all."""
    found = subjects or (authorization.EVERYTHING,)
    return user.has_perm(name) and all(authorization.allows(user, name, each) for each in found)


def may_see_errors(user, *subjects):
    """Return whether the user may see why these FAILED: it takes VIEW_LOG or OPERATE on them."""
    return any(holds(user, name, *subjects) for name in (VIEW_LOG, OPERATE))


def to_enqueue(existing):
    """Return the permissions to enqueue with ``existing``, an option of enqueue or None.

    An enqueue may find another Instance, which it then shows, or also changes.
    """
    if existing in (None, "raise"):
        return (ENQUEUE,)
    return (ENQUEUE, VIEW_INSTANCE) if existing == "return" else (ENQUEUE, VIEW_INSTANCE, OPERATE)


def told_to(user, *subjects):
    """Return the options of an explanation: may this user see errors, and names of daemons?"""
    return {"errors": may_see_errors(user, *subjects), "daemons": holds(user, VIEW_DAEMON)}


def lacking(user, permissions):
    """Return those of ``permissions`` that the user does not have."""
    return [name for name in permissions if not user.has_perm(name)]


def refusal(names):
    """Return the sentence that names the missing permissions."""
    return f"You lack the permission {' and '.join(names)}."
