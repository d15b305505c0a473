"""The overview; the pages of Types."""

from dataclasses import replace

from .. import contracts, text
from .. import queue as verbs
from ..conf import settings
from ..models import Type
from ..operations import base as migrated
from ..operations.gates import fullness
from ..operations.registry import is_enqueueable, registry
from ..operations.table import SCOPE, VERBS, Level
from ..reports import documents, health, overview
from ..reports.explaining.explain import explain
from ..reports.explaining.sentences import start_sentence
from ..schedules import reports as schedules
from ..tailers.operations import of_type
from ..web import permissions
from .base import Page
from .daemons import daemon_rows, gone

# The overview page: counts of waiting, running and failed Instances, and the daemons.

# Log records about the whole queue.
OVERVIEW_LOG_SHOWN = 3
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
            limited=health.limited_notes(queue.time, shut) if is_all else (),
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
        return verbs.scope_log(limit=OVERVIEW_LOG_SHOWN) if may_see else None


def _by_urgency(types):
    """Return the Types to show, by recent failures and due Tasks, and the idle Types to fold."""
    rows = sorted(types, key=lambda counts: (-counts.failed_lately, -counts.due))
    if len(rows) <= TYPES:
        return rows, []
    idle = [counts for counts in rows if counts.is_idle]
    return [counts for counts in rows if not counts.is_idle], idle


# The pages of Types: a list, and a single one with its parameters, gates, limits and log.

# Log records on a Type's own page.
TYPE_LOG_SHOWN = 100


class TypesPage(Page):
    permissions = (permissions.VIEW_TYPE,)
    template_name = "atp/types.html"

    def get(self, request):
        types = self.narrowed(Type.objects.using(settings.DATABASE))
        shut, limited = verbs.gates(), verbs.limits()
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
    return {"collection": limit.collection, "words": text.of_limits(limit)}


class TypePage(Page):
    permissions = (permissions.VIEW_TYPE,)
    template_name = "atp/type.html"

    def get(self, request, identifier):
        row = self.look_up(Type, identifier, lambda: verbs.get_type(identifier))
        declared = registry.get(identifier) if identifier in registry else None
        contract = None if declared is None else contracts.schema_of(declared)
        may_see_log = self.may(permissions.VIEW_LOG)
        explanation = explain(row, **permissions.told_to(request.user, row))
        shut = verbs.gates(now=explanation.looked_at)
        return self.show(
            now=explanation.looked_at,
            explanation=explanation,
            starts=start_sentence(explanation.starts),
            type=documents.type(row),
            gates=[gate for gate in shut if gate.type_id in (None, row.pk)],
            limits=[(limit, fullness(limit)) for limit in verbs.limits(identifier)],
            declared=declared,
            is_enqueueable=is_enqueueable(identifier)
            and self.touches(identifier, permissions.ENQUEUE),
            contract=contract,
            parameters=contract and contracts.described(contract, declared.signature),
            returned=contract and contracts.words_of(contract.outputs, contract.defs),
            tailer=of_type(identifier) if self.may(permissions.VIEW_TAILER) else None,
            verbs=self._verbs(),
            schedules=self._schedules(row),
            log=verbs.scope_log(identifier, limit=TYPE_LOG_SHOWN) if may_see_log else None,
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
