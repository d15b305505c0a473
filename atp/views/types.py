"""The pages of Types: a list, and a single one with its parameters, gates, limits and log."""

from .. import contracts, queue
from ..conf import settings
from ..models import Type
from ..reports import documents, schedules
from ..reports.explaining.explain import explain
from ..reports.explaining.when import starts
from ..reports.tailing.documents import of_type
from ..verbs import migrated
from ..verbs.control.limits import fullness
from ..verbs.registry import is_enqueueable, registry
from ..verbs.table import SCOPE, VERBS
from ..verbs.table.scopes import Level
from ..web import permissions
from ..words import sentences
from .base import Page

# Log records on a Type's own page.
SHOWN = 100


class TypesPage(Page):
    permissions = (permissions.VIEW_TYPE,)
    template_name = "atp/types.html"

    def get(self, request):
        types = self.narrowed(Type.objects.using(settings.DATABASE))
        shut, limited = queue.gates(), queue.limits()
        return self.show(
            migrate=migrated.command(settings.DATABASE),
            everything=[gate for gate in shut if gate.type_id is None],
            types=[
                documents.type(row)
                | {
                    "gates": [gate for gate in shut if gate.type_id == row.pk],
                    "limits": [_limit(limit) for limit in limited if limit.type_id == row.pk],
                    "is_enqueueable": is_enqueueable(row.identifier)
                    and self.touches(row.identifier, permissions.ENQUEUE),
                }
                for row in types
            ],
        )


def _limit(limit):
    """Return a Limit in words, with its collection, None for the whole Type."""
    return {"collection": limit.collection, "words": sentences.of_limits(limit)}


class TypePage(Page):
    permissions = (permissions.VIEW_TYPE,)
    template_name = "atp/type.html"

    def get(self, request, identifier):
        row = self.look_up(Type, identifier, lambda: queue.get_type(identifier))
        declared = registry.get(identifier) if identifier in registry else None
        contract = None if declared is None else contracts.schema_of(declared)
        may_see_log = self.may(permissions.VIEW_LOG)
        explanation = explain(row, **permissions.told_to(request.user, row))
        shut = queue.gates(now=explanation.looked_at)
        return self.show(
            now=explanation.looked_at,
            explanation=explanation,
            starts=starts(explanation.starts),
            type=documents.type(row),
            gates=[gate for gate in shut if gate.type_id in (None, row.pk)],
            limits=[(limit, fullness(limit)) for limit in queue.limits(identifier)],
            declared=declared,
            is_enqueueable=is_enqueueable(identifier)
            and self.touches(identifier, permissions.ENQUEUE),
            contract=contract,
            parameters=contract and contracts.described(contract, declared.signature),
            returned=contract and contracts.words_of(contract.outputs, contract.defs),
            tailer=of_type(identifier) if self.may(permissions.VIEW_TAILER) else None,
            verbs=self._verbs(),
            schedules=self._schedules(row),
            log=queue.scope_log(identifier, limit=SHOWN) if may_see_log else None,
        )

    def _schedules(self, row):
        """Return its schedules, as far as the user may see them; None without the permission."""
        if permissions.lacking(self.request.user, [permissions.VIEW_SCHEDULE]):
            return None
        return [
            each
            for each in schedules.documents(row)
            if self.seen([(each["type"], each["collection"])], permissions.VIEW_SCHEDULE)
        ]

    def _verbs(self):
        """Return the verbs on the whole Type; gates and limits have pages of their own."""
        return [
            verb
            for verb in VERBS[SCOPE].values()
            if not verb.of and Level.TYPE in verb.levels and self.may(*verb.needs)
        ]
