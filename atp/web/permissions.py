"""Who may do what over HTTP: looking takes Django's view permissions, acting takes one (G14).

Inputs, responses and logs may hold what not everybody is to see, so each has
the permission of its own table.
"""

VIEW_TYPE = "atp.view_type"
VIEW_INSTANCE = "atp.view_instance"
VIEW_INPUTS = "atp.view_inputs"
VIEW_RESPONSE = "atp.view_response"
VIEW_LOG = "atp.view_logrecord"
VIEW_TASK = "atp.view_task"
VIEW_DAEMON = "atp.view_daemon"
OPERATE = "atp.operate"
DELETE = "atp.delete_instance"


def lacking(user, permissions):
    """Return those of ``permissions`` that the user has not got."""
    return [name for name in permissions if not user.has_perm(name)]


def refusal(names):
    """Return the sentence that says which permissions are lacking."""
    return f"You lack the permission {' and '.join(names)}."
