"""The overview page, and the pages for Types."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from .. import contracts, queue, text
from ..conf import settings
from ..models import Limit, LogRecord, Type
from ..operations import base
from ..operations.gates import describe_queue_depth
from ..operations.registry import is_enqueueable, registry
from ..operations.table import OPERATIONS, TARGET, Level
from ..reports import documents, health, overview
from ..reports.explaining.explain import explain
from ..reports.explaining.sentences import start_sentence
from ..schedules import reports as schedules
from ..tailers.operations import tailer_of_type
from ..web import permissions
from .base import Page
from .daemons import daemon_rows, departed_daemons

# Log records about the whole queue.
OVERVIEW_LOG_SHOWN = 3
# Log records on a Type's own page.
TYPE_LOG_SHOWN = 100
# If there are more gates, the page folds those over Types. If there are more Types, it folds the
# idle ones.
GATES, TYPES = 3, 10


class OverviewPage(Page):
    """The overview page: how many Instances are waiting, running and failed, and the daemons."""

    permissions = (permissions.VIEW_INSTANCE,)
    template_name = "atp/overview.html"

    def get(self, request: HttpRequest) -> HttpResponseBase:
        found = overview.overview(history=False)
        is_all = permissions.holds(request.user, permissions.VIEW_INSTANCE)
        if not is_all:
            found = self._narrow_overview(found)
        now = found.time
        rows = daemon_rows(now)
        daemons = [row.daemon for row in rows]
        shut = [
            gate
            for gate in queue.gates(now=now)
            if gate.type_id is None or self.filter_permitted([gate])
        ]
        over_everything = [gate for gate in shut if gate.type_id is None]
        shown, idle = _split_idle(found.types)
        may_see_daemons = permissions.holds(request.user, permissions.VIEW_DAEMON)
        problems: tuple[str, ...] = ()
        if is_all:
            problems = health.problems(daemons, now, shut, names=may_see_daemons)
        return self.show(
            queue=found,
            now=now,
            gates=shut,
            gates_shown=shut if len(shut) <= GATES else over_everything,
            gates_folded=[] if len(shut) <= GATES else [gate for gate in shut if gate.type_id],
            types_shown=shown,
            types_idle=idle,
            limited=health.limited_notes(now, shut) if is_all else (),
            problems=problems,
            quieted=health.quiet_types(daemons, now) if is_all else (),
            log=self._find_log(),
            daemons=rows if may_see_daemons else None,
            gone=departed_daemons(now, rows) if may_see_daemons else None,
        )

    def _narrow_overview(self, found: overview.Overview) -> overview.Overview:
        """Return the overview with only those Types of which the user may see all Instances."""
        types = tuple(each for each in found.types if self.filter_permitted([(each.type, None)]))
        return replace(found, types=types, oldest_due=None, next_due=None)

    def _find_log(self) -> list[LogRecord] | None:
        may_see = permissions.holds(self.request.user, permissions.VIEW_LOG)
        return queue.scope_log(limit=OVERVIEW_LOG_SHOWN) if may_see else None


def _split_idle(types: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Return two lists: the Types to show, those with recent failures first, and those to fold.

    If there are many Types, the idle ones are folded.
    """
    rows = sorted(types, key=lambda counts: (-counts.failed_lately, -counts.due))
    if len(rows) <= TYPES:
        return rows, []
    idle = [counts for counts in rows if counts.is_idle]
    return [counts for counts in rows if not counts.is_idle], idle


class TypesPage(Page):
    """The page that lists all Types that the user may see."""

    permissions = (permissions.VIEW_TYPE,)
    template_name = "atp/types.html"

    def get(self, request: HttpRequest) -> HttpResponseBase:
        types = self.narrow_rows(Type.objects.using(settings.DATABASE))
        shut, limits = queue.gates(), queue.limits()
        return self.show(
            migrate=base.migrate_command(settings.DATABASE),
            everything=[gate for gate in shut if gate.type_id is None],
            types=[
                documents.type(row)
                | {
                    "gates": [gate for gate in shut if gate.type_id == row.pk],
                    "limits": [
                        _describe_limit(limit) for limit in limits if limit.type_id == row.pk
                    ],
                    "is_enqueueable": is_enqueueable(row.identifier)
                    and self.touches(row.identifier, permissions.ENQUEUE),
                }
                for row in types
            ],
        )


def _describe_limit(limit: Limit) -> dict[str, str | None]:
    """Return a dict with a Limit in words, and its collection, or None for the whole Type."""
    return {"collection": limit.collection, "words": text.describe_limits(limit)}


class TypePage(Page):
    """The page for one Type: its parameters, gates, limits and log."""

    permissions = (permissions.VIEW_TYPE,)
    template_name = "atp/type.html"

    def get(self, request: HttpRequest, identifier: str) -> HttpResponseBase:
        row = self.look_up(Type, identifier, lambda: queue.get_type(identifier))
        declared = registry.get(identifier) if identifier in registry else None
        contract = None if declared is None else contracts.schema_of(declared)
        may_see_log = self.may(permissions.VIEW_LOG)
        explanation = explain(row, **permissions.explanation_options(request.user, row))
        shut = queue.gates(now=explanation.looked_at)
        return self.show(
            now=explanation.looked_at,
            explanation=explanation,
            starts=start_sentence(explanation.starts),
            type=documents.type(row),
            gates=[gate for gate in shut if gate.type_id in (None, row.pk)],
            limits=[(limit, describe_queue_depth(limit)) for limit in queue.limits(identifier)],
            declared=declared,
            is_enqueueable=is_enqueueable(identifier)
            and self.touches(identifier, permissions.ENQUEUE),
            contract=contract,
            parameters=contract and declared and contracts.described(contract, declared.signature),
            returned=contract and contracts.words_of(contract.outputs, contract.defs),
            tailer=tailer_of_type(identifier) if self.may(permissions.VIEW_TAILER) else None,
            verbs=self._type_operations(),
            schedules=self._visible_schedules(row),
            log=queue.scope_log(identifier, limit=TYPE_LOG_SHOWN) if may_see_log else None,
        )

    def _visible_schedules(self, row: Type) -> list[dict[str, Any]] | None:
        """Return the Type's schedules that the user may see.

        Return None if the user lacks the permission to see schedules.
        """
        if permissions.missing_permissions(self.request.user, [permissions.VIEW_SCHEDULE]):
            return None
        return [
            each
            for each in schedules.documents(row)
            if self.filter_permitted(
                [(each["type"], each["collection"])], permissions.VIEW_SCHEDULE
            )
        ]

    def _type_operations(self) -> list[Any]:
        """Return the operations on whole Types that the user may perform.

        Operations on gates and limits are not among them, because these have their own pages.
        """
        return [
            operation
            for operation in OPERATIONS[TARGET].values()
            if not operation.of and Level.TYPE in operation.levels and self.may(*operation.needs)
        ]
