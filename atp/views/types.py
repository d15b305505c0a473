"""The Types: their parameters, and what became of them."""

from .. import documents, queue, told
from ..conf import settings
from ..models import Type
from ..registry import registry
from ..web import permissions
from .base import Page

# Rows of the log on a Type's own page.
SHOWN = 100


class TypesPage(Page):
    permissions = (permissions.VIEW_TYPE,)
    template_name = "atp/types.html"

    def get(self, request):
        types = Type.objects.using(settings.DATABASE)
        shut, limited = queue.gates(), queue.limits()
        return self.show(
            everything=[gate for gate in shut if gate.type_id is None],
            types=[
                documents.type(row)
                | {
                    "gates": [gate for gate in shut if gate.type_id == row.pk],
                    "limits": [_limit(limit) for limit in limited if limit.type_id == row.pk],
                }
                for row in types
            ],
        )


def _limit(limit):
    """A Limit in words, with its collection if it is of one."""
    return {"collection": limit.collection, "words": told.of_limits(limit)}


class TypePage(Page):
    permissions = (permissions.VIEW_TYPE,)
    template_name = "atp/type.html"

    def get(self, request, identifier):
        row = queue.get_type(identifier)
        may_see_log = request.user.has_perm(permissions.VIEW_LOG)
        return self.show(
            type=documents.type(row),
            gates=[gate for gate in queue.gates() if gate.type_id in (None, row.pk)],
            limits=queue.limits(identifier),
            declared=registry.get(identifier) if identifier in registry else None,
            log=queue.place_log(identifier, limit=SHOWN) if may_see_log else None,
        )
