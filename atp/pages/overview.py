"""The overview page, and the pages for Types."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from .. import contracts, queue, text
from ..conf import settings
from ..deadletters import operations as errors
from ..models import Gate, Limit, LogRecord, Task, Type
from ..operations import base
from ..operations.gates import describe_queue_depth
from ..operations.registry import is_enqueueable, registry
from ..operations.table import OPERATIONS, TARGET, Level
from ..reports import documents, health, overview, paging, statistics
from ..reports.explaining.explain import explain
from ..reports.explaining.facts import Explanation
from ..reports.explaining.sentences import start_sentence
from ..reports.statistics import SPANS, usage
from ..schedules import reports as schedules
from ..states import DEAD_LETTER
from ..tailers.operations import tailer_of_type
from ..web import permissions
from ..web.filters import TypeListFilter, bind_filters
from . import charts
from .activity import address_of, address_of_operation, marks_since
from .base import LONGEST_KEPT, Page, query_without_page, shared
from .daemons import A_DAY, DaemonRow, daemon_rows, departed_daemons

# Log records about the whole queue.
OVERVIEW_LOG_SHOWN = 3
# The most lanes, attempts and error groups on a Type's own page.
MOST_LANES, MOST_ATTEMPTS, MOST_ERRORS = 20, 10, 5
# Log records on a Type's own page.
TYPE_LOG_SHOWN = 100
# If there are more problems, the page folds the rest. If there are more Types, it folds the idle
# ones.
PROBLEMS, TYPES = 12, 10
TYPES_PAGE_SIZE = 50
# The most Types that the page shows: those with the most to see.
MOST_TYPES = 25


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What the overview page shows to everybody, at the time of its Overview."""

    queue: overview.Overview
    daemons: list[DaemonRow]
    gone: list[overview.DepartedDaemon]
    gates: list[Gate]
    problems: list[health.QueueProblem]
    figures: dict[str, statistics.Figures]

    @classmethod
    def take(cls) -> Self:
        """Read the state of the queue."""
        found = overview.overview(history=False)
        rows = daemon_rows(found.time)
        daemons = [row.daemon for row in rows]
        shut = queue.gates(now=found.time)
        return cls(
            queue=found,
            daemons=rows,
            gone=departed_daemons(found.time, rows),
            gates=shut,
            problems=health.problems_now(found, daemons, shut=shut),
            figures=statistics.figures(
                [each.type for each in _worst_first(found.types)[:MOST_TYPES]], found.time
            ),
        )


def draw_charts(span: str, *, marked: bool) -> SafeString:
    """Return the charts of the queue as HTML. ``span`` is a key of SPANS."""
    now = overview.now()
    series = statistics.series(None, SPANS[span], now)
    marks = marks_since(series.points[0].begin) if marked else []
    drawn = [
        charts.throughput_chart(series, marks),
        charts.waiting_chart(series, marks),
        charts.utilisation_chart(usage(SPANS[span], now), marks),
    ]
    return render_to_string("atp/parts/charts.html", {"charts": drawn})


def _periods_kept(span: str) -> float:
    """Return for how many KEPT_FOR charts are kept: points of a long span last longer."""
    return 1 if span == "1h" else LONGEST_KEPT


@dataclass(frozen=True, kw_only=True)
class ProblemRow:
    """A problem with its links on the page.

    ``address`` leads to the page of the problem's subject, or is "". ``button`` is the address of
    the operation that helps, or "" if the user cannot perform it on a page. The operation needs a
    form if ``has_page`` is True, otherwise a POST.
    """

    problem: health.QueueProblem
    address: str
    button: str
    has_page: bool


class OverviewPage(Page):
    """The overview page: the problems of the queue, its counts by Type, and the daemons."""

    permissions = (permissions.VIEW_INSTANCE,)
    template_name = "atp/overview.html"
    parameters = ("span",)

    def get(self, request: HttpRequest) -> HttpResponseBase:
        snapshot = shared.get("snapshot", Snapshot.take, fresh=self.wants_news)
        found = snapshot.queue
        is_all = permissions.holds(request.user, permissions.VIEW_INSTANCE)
        if not is_all:
            found = self._narrow_overview(found)
        span = charts.span_of(request.GET)
        types = [
            TypeRow(
                counts=each,
                figures=snapshot.figures.get(each.type),
                gates=tuple(
                    gate
                    for gate in snapshot.gates
                    if gate.type is not None and gate.type.identifier == each.type
                ),
            )
            for each in _worst_first(found.types)
        ]
        shown = types[:MOST_TYPES]
        is_folded = len(shown) > TYPES
        visible = permissions.visible_problems(request.user, snapshot.problems)
        problems = [self._problem_row(each) for each in visible]
        may_see_daemons = permissions.holds(request.user, permissions.VIEW_DAEMON)
        return self.show(
            queue=found,
            now=found.time,
            problems=problems[:PROBLEMS],
            problems_folded=problems[PROBLEMS:],
            spans=SPANS,
            span=span,
            charts=self._draw_charts(span) if is_all else "",
            gates=snapshot.gates,
            types_shown=[row for row in shown if not (is_folded and row.counts.is_idle)],
            types_idle=[row for row in shown if is_folded and row.counts.is_idle],
            types_left=len(types) - len(shown),
            dead=DEAD_LETTER,
            log=self._find_log(),
            daemons=snapshot.daemons if may_see_daemons else None,
            gone=snapshot.gone if may_see_daemons else None,
        )

    def _narrow_overview(self, found: overview.Overview) -> overview.Overview:
        """Return the overview with only those Types of which the user may see all Instances."""
        types = tuple(each for each in found.types if self.filter_permitted([(each.type, None)]))
        return replace(found, types=types, oldest_due=None, next_due=None)

    def _draw_charts(self, span: str) -> SafeString:
        marked = not permissions.missing_permissions(
            self.request.user, [permissions.VIEW_LOG, permissions.VIEW_DAEMON]
        )
        key = span, marked, timezone.get_current_timezone_name()
        return shared.get(key, lambda: draw_charts(span, marked=marked), times=_periods_kept(span))

    def _find_log(self) -> list[LogRecord] | None:
        may_see = permissions.holds(self.request.user, permissions.VIEW_LOG)
        return queue.scope_log(limit=OVERVIEW_LOG_SHOWN) if may_see else None

    def _problem_row(self, problem: health.QueueProblem) -> ProblemRow:
        helps = problem.helps
        button, has_page = "", False
        if helps is not None and helps.verb:
            places = [(type, problem.collection) for type in problem.types]
            if permissions.holds(self.request.user, helps.permission, *places):
                button, has_page = _address_of_help(problem, helps.verb)
        address = address_of(problem.kind, problem.name, problem.collection)
        if problem.code == "lost":
            chosen = {"type": problem.name, "tried_again": "true"}
            address = f"{reverse('atp:instances')}?{urlencode(chosen)}"
        return ProblemRow(problem=problem, address=address, button=button, has_page=has_page)


def _address_of_help(problem: health.QueueProblem, verb: str) -> tuple[str, bool]:
    """Return the address of the operation that helps, and True if it needs a form."""
    if verb == "end-session":
        return f"{reverse('atp:verb', args=[verb])}?{urlencode({'pid': problem.name})}", True
    if verb in ("hold", "limit"):
        [type] = problem.types
        kind = "gate" if verb == "hold" else "limit"
        return address_of(kind, type, problem.collection), True
    if problem.kind in ("gate", "limit"):
        return address_of(problem.kind, problem.name, problem.collection), True
    address = address_of_operation(problem.kind, problem.name, verb)
    return address, OPERATIONS[problem.kind][verb].has_page


@dataclass(frozen=True, kw_only=True)
class TypeRow:
    """A Type in the table of the overview; ``figures`` are of its last hour.

    ``gates`` are the shut gates over the Type and its lanes.
    """

    counts: overview.RecentCounts
    figures: statistics.Figures | None
    gates: tuple[Gate, ...] = ()

    @property
    def claimed(self) -> int:
        """The number of Instances that daemons hold."""
        return self.counts.scheduled + self.counts.running + self.counts.paused


def _worst_first(types: Iterable[Any]) -> list[Any]:
    """Sort Types: those with recent failures first, then those with due work, then busy ones."""
    return sorted(
        types, key=lambda counts: (-counts.failed_lately, -counts.due, -counts.ended, counts.type)
    )


class TypesPage(Page):
    """The list of the Types that the user may see."""

    permissions = (permissions.VIEW_TYPE,)
    template_name = "atp/types.html"
    parameters = (*TypeListFilter.base_filters, "page")

    def get(self, request: HttpRequest) -> HttpResponseBase:
        rows = self.narrow_rows(Type.objects.using(settings.DATABASE))
        filters = bind_filters(TypeListFilter, request.GET, rows, others=("page",))
        key = request.GET.get("page")
        page = paging.page(filters.qs, ("identifier",), size=TYPES_PAGE_SIZE, key=key)
        shut, limits = queue.gates(), queue.limits()
        return self.show(
            form=filters.form,
            is_filtered=bool(filters.values),
            page=page,
            is_first=key is None,
            query=query_without_page(request),
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
                for row in page.rows
            ],
        )


def _describe_limit(limit: Limit) -> dict[str, str | None]:
    """Return a dict with a Limit in words, and its collection, or None for the whole Type."""
    return {"collection": limit.collection, "words": text.describe_limits(limit)}


@dataclass(frozen=True, kw_only=True)
class TypeSnapshot:
    """What the page of a Type shows to everybody with the same ``errors`` and ``names``.

    ``errors`` is True for users who may see the errors of handlers, and ``names`` for those who may
    see the names of daemons.
    """

    explanation: Explanation
    lanes: list[overview.Lane]
    lanes_left: int
    attempts: list[Task]
    daemons: list[DaemonRow]
    groups: list[errors.Group]
    gates: list[Gate]
    limits: list[tuple[Limit, str]]
    schedules: list[dict[str, Any]]
    tailer: str | None
    log: list[LogRecord]

    @classmethod
    def take(cls, row: Type, *, errors: bool, names: bool) -> Self:
        """Read the state of a Type."""
        explanation = explain(row, errors=errors, daemons=names)
        now = explanation.looked_at
        lanes, number = overview.lanes(row, now, MOST_LANES)
        return cls(
            explanation=explanation,
            lanes=lanes,
            lanes_left=number - len(lanes),
            attempts=overview.longest_attempts(row, MOST_ATTEMPTS),
            daemons=[each for each in daemon_rows(now) if row.identifier in each.types],
            groups=_newest_groups(row, lines=errors),
            gates=[each for each in queue.gates(now=now) if each.type_id in (None, row.pk)],
            limits=[(each, describe_queue_depth(each)) for each in queue.limits(row.identifier)],
            schedules=schedules.documents(row),
            tailer=tailer_of_type(row.identifier),
            log=queue.scope_log(row.identifier, limit=TYPE_LOG_SHOWN),
        )


def _newest_groups(row: Type, *, lines: bool) -> list[errors.Group]:
    """Return the newest error groups of a Type, with their error lines if ``lines`` is True."""
    rows = queue.error_groups().filter(type=row.identifier).order_by("-last_seen", "-pk")
    return errors.load_groups(rows[:MOST_ERRORS], lines=lines)


def draw_type_charts(identifier: str, span: str, *, marked: bool) -> SafeString:
    """Return the charts of a Type as HTML, with those of a day before in pale behind them."""
    now = overview.now()
    series = statistics.series(identifier, SPANS[span], now)
    before = statistics.series(identifier, SPANS[span], now - A_DAY) if span != "7d" else None
    marks = marks_since(series.points[0].begin, type=identifier) if marked else []
    drawn = [
        draw(series, marks, before)
        for draw in (charts.throughput_chart, charts.waiting_chart, charts.running_chart)
    ]
    return render_to_string("atp/parts/charts.html", {"charts": drawn})


class TypePage(Page):
    """The page for one Type: charts, lanes, errors, attempts, parameters, limits and log."""

    permissions = (permissions.VIEW_TYPE,)
    template_name = "atp/type.html"
    parameters = ("span",)

    def get(self, request: HttpRequest, identifier: str) -> HttpResponseBase:
        row = self.look_up(Type, identifier, lambda: queue.get_type(identifier))
        declared = registry.get(identifier) if identifier in registry else None
        contract = None if declared is None else contracts.schema_of(declared)
        found = self._take_snapshot(row)
        span = charts.span_of(request.GET)
        return self.show(
            now=found.explanation.looked_at,
            explanation=found.explanation,
            starts=start_sentence(found.explanation.starts),
            type=documents.type(row),
            spans=SPANS,
            span=span,
            charts=self._draw_charts(row, span),
            work=found if self.may(permissions.VIEW_INSTANCE) else None,
            daemons=found.daemons
            if permissions.holds(request.user, permissions.VIEW_DAEMON)
            else None,
            errors=found.groups if self.may(permissions.VIEW_ERROR) else None,
            gates=found.gates,
            limits=found.limits,
            declared=declared,
            is_enqueueable=is_enqueueable(identifier)
            and self.touches(identifier, permissions.ENQUEUE),
            contract=contract,
            parameters=contract and declared and contracts.described(contract, declared.signature),
            returned=contract and contracts.words_of(contract.outputs, contract.defs),
            tailer=found.tailer if self.may(permissions.VIEW_TAILER) else None,
            verbs=self._type_operations(),
            schedules=self._visible_schedules(found.schedules),
            log=found.log if self.may(permissions.VIEW_LOG) else None,
        )

    def _take_snapshot(self, row: Type) -> TypeSnapshot:
        user = self.request.user
        errors = permissions.may_see_errors(user, row)
        names = permissions.holds(user, permissions.VIEW_DAEMON)
        return shared.get(
            ("type", row.pk, errors, names),
            lambda: TypeSnapshot.take(row, errors=errors, names=names),
            fresh=self.wants_news,
        )

    def _draw_charts(self, row: Type, span: str) -> SafeString | str:
        if not self.may(permissions.VIEW_INSTANCE):
            return ""
        marked = self.may(permissions.VIEW_LOG)
        key = row.identifier, span, marked, timezone.get_current_timezone_name()
        return shared.get(
            key,
            lambda: draw_type_charts(row.identifier, span, marked=marked),
            times=_periods_kept(span),
        )

    def _visible_schedules(self, found: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """Return those of a Type's schedules that the user may see.

        Return None if the user lacks the permission to see schedules.
        """
        if permissions.missing_permissions(self.request.user, [permissions.VIEW_SCHEDULE]):
            return None
        return [
            each
            for each in found
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
