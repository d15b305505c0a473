"""The overview: what waits, runs and failed, and who works on it."""

from .. import health, overview, waiting
from .. import queue as verbs
from ..web import permissions
from .base import Page
from .daemons import daemon_rows

# Records of the log about everything.
SHOWN = 3


class OverviewPage(Page):
    permissions = (permissions.VIEW_INSTANCE,)
    template_name = "atp/overview.html"

    def get(self, request):
        queue = overview.overview(history=False)
        rows = daemon_rows(queue.time)
        shut = verbs.gates(now=queue.time)
        may_see_daemons = request.user.has_perm(permissions.VIEW_DAEMON)
        return self.show(
            queue=queue,
            now=queue.time,
            gates=shut,
            limited=waiting.limited(queue.time, shut),
            problems=health.problems([row.daemon for row in rows], queue.time, shut),
            quieted=health.quieted([row.daemon for row in rows], queue.time),
            log=verbs.place_log(limit=SHOWN) if self.may(permissions.VIEW_LOG) else None,
            daemons=rows if may_see_daemons else None,
        )
