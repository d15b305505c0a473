"""The overview: what waits, runs and failed, and who works on it."""

from .. import overview
from ..web import permissions
from .base import Page
from .daemons import daemon_rows


class OverviewPage(Page):
    permissions = (permissions.VIEW_INSTANCE,)
    template_name = "atp/overview.html"

    def get(self, request):
        queue = overview.overview(history=False)
        may_see_daemons = request.user.has_perm(permissions.VIEW_DAEMON)
        return self.show(
            queue=queue,
            now=queue.time,
            daemons=daemon_rows(queue.time) if may_see_daemons else None,
        )
