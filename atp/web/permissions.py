"""Permissions over HTTP: Django's view permissions to look, ``atp.operate`` to act (G14).

Inputs, responses and logs may hold secrets. So each needs the view permission of its own
table.
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
VIEW_TAILER = "atp.view_tailer"
VIEW_ERROR = "atp.view_errorgroup"
OPERATE = "atp.operate"
DELETE = "atp.delete_instance"


def to_delete(instance):
    """Return the permissions to delete an Instance. A live one is cancelled first: OPERATE too."""
    return (VIEW_INSTANCE, DELETE) if instance.is_terminal else (VIEW_INSTANCE, DELETE, OPERATE)


def may_see_errors(user):
    """Return whether the user may see why Instances FAILED: it takes VIEW_LOG or OPERATE."""
    return user.has_perm(VIEW_LOG) or user.has_perm(OPERATE)


def told_to(user):
    """Return the options of an explanation: may this user see errors, and names of daemons?"""
    return {"errors": may_see_errors(user), "daemons": user.has_perm(VIEW_DAEMON)}


def lacking(user, permissions):
    """Return those of ``permissions`` that the user does not have."""
    return [name for name in permissions if not user.has_perm(name)]


def refusal(names):
    """Return the sentence that names the missing permissions."""
    return f"You lack the permission {' and '.join(names)}."
