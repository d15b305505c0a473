"""The overview page: counts of waiting, running and failed Instances, and the daemons."""

from .. import queue as verbs
from ..reports import health, overview
from ..reports.explaining import notes
from ..web import permissions
from .base import Page
from .daemons import daemon_rows, gone

# Log records about the whole queue.
SHOWN = 3
# If there are more gates, those of Types are folded; if there are more Types, the idle ones are.
GATES, TYPES = 3, 10


class OverviewPage(Page):
    permissions = (permissions.VIEW_INSTANCE,)
    template_name = "atp/overview.html"

    def get(self, request):
        queue = overview.overview(history=False)
        rows = daemon_rows(queue.time)
        shut = verbs.gates(now=queue.time)
        everything = [gate for gate in shut if gate.type_id is None]
        shown, idle = _by_urgency(queue.types)
        may_see_daemons = request.user.has_perm(permissions.VIEW_DAEMON)
        return self.show(
            queue=queue,
            now=queue.time,
            gates=shut,
            gates_shown=shut if len(shut) <= GATES else everything,
            gates_folded=[] if len(shut) <= GATES else [gate for gate in shut if gate.type_id],
            types_shown=shown,
            types_idle=idle,
            limited=notes.limited(queue.time, shut),
            problems=health.problems(
                [row.daemon for row in rows],
                queue.time,
                shut,
                names=self.may(permissions.VIEW_DAEMON),
            ),
            quieted=health.quieted([row.daemon for row in rows], queue.time),
            log=verbs.scope_log(limit=SHOWN) if self.may(permissions.VIEW_LOG) else None,
            daemons=rows if may_see_daemons else None,
            gone=gone(queue.time, rows) if may_see_daemons else None,
        )


def _by_urgency(types):
    """Return the Types to show, by recent failures and due Tasks, and the idle Types to fold."""
    rows = sorted(types, key=lambda counts: (-counts.failed_lately, -counts.due))
    if len(rows) <= TYPES:
        return rows, []
    idle = [counts for counts in rows if counts.is_idle]
    return [counts for counts in rows if not counts.is_idle], idle
