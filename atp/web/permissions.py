"""Permissions over HTTP: looking takes Django's view permissions, acting takes one (G14).

Inputs, responses and logs may hold what not everybody is to see, so each has
the permission of its own table.
"""

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
VIEW_ERROR = "atp.view_errorgroup"
OPERATE = "atp.operate"
DELETE = "atp.delete_instance"


def to_delete(instance):
    """Return the permissions that it takes to delete an Instance: what lives is cancelled first."""
    return (VIEW_INSTANCE, DELETE) if instance.is_terminal else (VIEW_INSTANCE, DELETE, OPERATE)


def may_see_errors(user):
    """Whether the user is told why Instances FAILED: who reads logs, and who has to act on it."""
    return user.has_perm(VIEW_LOG) or user.has_perm(OPERATE)


def told_to(user):
    """Return what an explanation tells this user: errors of handlers, and names of daemons."""
    return {"errors": may_see_errors(user), "daemons": user.has_perm(VIEW_DAEMON)}


def lacking(user, permissions):
    """Return those of ``permissions`` that the user has not got."""
    return [name for name in permissions if not user.has_perm(name)]


def refusal(names):
    """Return the sentence that says which permissions are lacking."""
    return f"You lack the permission {' and '.join(names)}."
