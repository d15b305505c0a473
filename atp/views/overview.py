"""The overview page: counts of waiting, running and failed Instances, and the daemons."""

from dataclasses import replace

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
        is_all = permissions.holds(request.user, permissions.VIEW_INSTANCE)
        if not is_all:
            queue = self._narrowed(queue)
        rows = daemon_rows(queue.time)
        shut = verbs.gates(now=queue.time)
        shut = [gate for gate in shut if gate.type_id is None or self.seen([gate])]
        everything = [gate for gate in shut if gate.type_id is None]
        shown, idle = _by_urgency(queue.types)
        may_see_daemons = permissions.holds(request.user, permissions.VIEW_DAEMON)
        return self.show(
            queue=queue,
            now=queue.time,
            gates=shut,
            gates_shown=shut if len(shut) <= GATES else everything,
            gates_folded=[] if len(shut) <= GATES else [gate for gate in shut if gate.type_id],
            types_shown=shown,
            types_idle=idle,
            limited=notes.limited(queue.time, shut) if is_all else (),
            problems=()
            if not is_all
            else health.problems(
                [row.daemon for row in rows],
                queue.time,
                shut,
                names=may_see_daemons,
            ),
            quieted=health.quieted([row.daemon for row in rows], queue.time) if is_all else (),
            log=self._log(),
            daemons=rows if may_see_daemons else None,
            gone=gone(queue.time, rows) if may_see_daemons else None,
        )

    def _narrowed(self, found):
        """Return the overview of the Types on which the permission holds as a whole."""
        types = tuple(each for each in found.types if self.seen([(each.type, None)]))
        return replace(found, types=types, oldest_due=None, next_due=None)

    def _log(self):
        may_see = permissions.holds(self.request.user, permissions.VIEW_LOG)
        return verbs.scope_log(limit=SHOWN) if may_see else None


def _by_urgency(types):
    """Return the Types to show, by recent failures and due Tasks, and the idle Types to fold."""
    rows = sorted(types, key=lambda counts: (-counts.failed_lately, -counts.due))
    if len(rows) <= TYPES:
        return rows, []
    idle = [counts for counts in rows if counts.is_idle]
    return [counts for counts in rows if not counts.is_idle], idle
