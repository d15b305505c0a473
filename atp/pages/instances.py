"""The pages for Instances: the list, each Instance with its parts, and the form to enqueue one."""

import contextlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from inspect import Signature
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from .. import contracts, queue, text
from ..conf import settings
from ..exceptions import ATPError, CorruptData, DuplicateIdentifier, InvalidInputs, NotSerializable
from ..graphs.operations import get_node
from ..models import ErrorGroup, Instance, LogRecord, Node, Schedule, Task
from ..operations.operation import PRIORITY, RETRIES, TIMEOUT, Moment, Text
from ..operations.registry import Declaration, is_enqueueable, is_identifier
from ..operations.table import INSTANCE, OPERATIONS, allowed_operations
from ..options import EXISTING, MAX_IDENTIFIER
from ..payload import binding, codec
from ..payload import json as tagged_json
from ..reports import documents, listing, overview, paging
from ..reports.explaining.explain import explain, main_causes
from ..reports.explaining.sentences import start_sentence
from ..reports.timeline import (
    ShownStack,
    newest_stack,
    read_history,
    run_time_without_pauses,
    timeline,
)
from ..states import Event, Reason, State
from ..web import permissions, raw
from ..web.filters import ListedFilter, bind_filters
from ..web.permissions import PAGE, actor, enqueue, require_enqueue
from ..web.problems import status_of
from .base import Page, query_without_page, shared, show_inputs, show_response
from .bulk import TICKED, operations_on_all
from .operations import KindField

# How often a page reads an Instance whose state changes meanwhile.
READS = 3
PAGE_SIZE = 50
# Log records on an Instance's own page, and on a page of its log.
LOG_SHOWN = 50
LOG_PAGE_SIZE = 200
# Steps on an Instance's own page; the API lists all.
STEPS_SHOWN = 50
# The message of these events says why the last attempt failed.
_ENDED_BADLY = (Event.FAIL, Event.RETRY, Event.EXPIRE)
# The orders of a page of the log.
_ORDERS = {"oldest": ("id",), "newest": listing.NEWEST_FIRST}

# The page to enqueue an Instance: a form for each Type that this process declares.

_OPTIONS = (
    *("identifier", "existing", "priority", "collection", "run_after", "start_before"),
    *("timeout", "max_retries", "unique"),
)


class EnqueueForm(forms.Form):
    inputs = forms.CharField(
        label="Inputs",
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "autocapitalize": "off"}),
        help_text="JSON: an object of keyword arguments, or an array of positional ones",
    )
    identifier = forms.CharField(
        required=False, max_length=MAX_IDENTIFIER, help_text="idempotency key, unique in its Type"
    )
    unique = forms.CharField(
        required=False,
        max_length=MAX_IDENTIFIER,
        label="Unique key",
        help_text="only one live Instance of its Type may have it",
    )
    existing = forms.ChoiceField(
        required=False,
        choices=[
            ("raise", "refuse"),
            ("return", "show that one"),
            ("redrive", "identifier: run it again if it failed"),
            ("replace", "unique key: replace the inputs of the waiting one"),
            ("debounce", "unique key: move the waiting one to “not before”"),
        ],
        label="If one of these is taken",
    )
    priority = KindField(PRIORITY)
    collection = KindField(Text(), help_text="label of a subset of the Type")
    run_after = KindField(Moment(), label="Not before")
    start_before = KindField(Moment(), label="Start before", help_text="otherwise FAILED (MISSED)")
    timeout = KindField(TIMEOUT, label="Time-out", help_text="empty: as the Type says")
    max_retries = KindField(RETRIES, label="Retries", help_text="empty: as the Type says")

    def clean_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Parse the field ``inputs``, and return ``(args, kwargs)`` for the handler."""
        try:
            return binding.split_arguments(
                tagged_json.from_plain(tagged_json.parse_json(self.cleaned_data["inputs"]))
            )
        except NotSerializable as error:
            raise forms.ValidationError(f"This is {error}.") from None
        except (CorruptData, InvalidInputs) as error:
            raise forms.ValidationError(str(error)) from None

    def options(self, now: Callable[[], datetime]) -> dict[str, Any]:
        """Return the options that the user has filled in, as arguments for an enqueue."""
        values = {name: self.cleaned_data[name] for name in _OPTIONS}
        options = {name: value for name, value in values.items() if value not in (None, "")}
        if "collection" in self.data:
            # The form starts with the Type's collection. An emptied field means no collection.
            options["collection"] = self.cleaned_data["collection"]
        if isinstance(options.get("start_before"), timedelta):
            options["start_before"] = now() + options["start_before"]
        return options


class EnqueuePage(Page):
    permissions = (permissions.ENQUEUE,)
    template_name = "atp/enqueue.html"
    parameters = ("like",)
    fields = tuple(EnqueueForm.base_fields)

    def get(self, request: HttpRequest, identifier: str) -> HttpResponseBase:
        self.check_touches(identifier, permissions.ENQUEUE)
        declared = queue.declared(identifier)
        form = EnqueueForm(initial=self._initial_values(declared))
        return self._show_form(declared, form)

    def post(self, request: HttpRequest, identifier: str) -> HttpResponseBase:
        self.check_touches(identifier, permissions.ENQUEUE)
        declared = queue.declared(identifier)
        form = EnqueueForm(request.POST)
        if not form.is_valid():
            return self._show_form(declared, form, status=422)
        args, kwargs = form.cleaned_data["inputs"]
        try:
            options = form.options(overview.now)
            called = declared.using(created_by=actor(request, PAGE), **options)
            require_enqueue(request.user, [called])
            contracts.require(declared, args, kwargs)
            call = queue.Call(task_type=called, args=args, kwargs=kwargs)
            [instance] = enqueue(request.user, [call])
        except ATPError as error:
            if isinstance(error, InvalidInputs):
                sentences = [_describe_problem(*each) for each in error.problems]
                form.add_error("inputs", sentences or str(error))
            else:
                form.add_error(None, str(error))
            taken = error.instance if isinstance(error, DuplicateIdentifier) else None
            return self._show_form(declared, form, status=status_of(error), taken=taken)
        outcome = "Enqueued." if instance.is_new else "This one had been enqueued before."
        if permissions.holds(request.user, permissions.VIEW_INSTANCE, instance):
            messages.success(request, outcome, fail_silently=True)
            return redirect("atp:instance", uuid=instance.uuid)
        messages.success(request, f"Enqueued as {instance.uuid}.", fail_silently=True)
        return redirect("atp:enqueue", identifier)

    def _show_form(
        self, declared: Declaration, form: EnqueueForm, **context: Any
    ) -> HttpResponseBase:
        signature = f"{declared.identifier}{declared.signature}"
        explanation = inspect.getdoc(declared.handler)
        return self.show(
            declared=declared,
            form=form,
            signature=signature,
            explanation=explanation,
            parameters=contracts.described(contracts.schema_of(declared), declared.signature),
            **context,
        )

    def _initial_values(self, declared: Declaration) -> dict[str, Any]:
        """Return the form's initial values.

        They come from the Instance that ``like`` names in the query string, or else from the Type.
        """
        like = self.request.GET.get("like")
        if like is None:
            return {
                "inputs": as_json(sketch(declared.signature)),
                "existing": EXISTING[0],
                "priority": declared.options.priority,
                "collection": declared.options.collection,
            }
        self.check_permissions(permissions.VIEW_INSTANCE, permissions.VIEW_INPUTS)
        other = permissions.look_up(
            self.request.user,
            lambda: queue.get(like),
            *(Instance, like, permissions.VIEW_INSTANCE, permissions.VIEW_INPUTS),
        )
        if other.type.identifier != declared.identifier:
            raise BadRequest(f"The Instance {other.uuid} is of Type {other.type}, not {declared}.")
        return {
            "inputs": _stored_inputs(other),
            "existing": EXISTING[0],
            "priority": other.priority,
            "collection": other.collection,
            "timeout": _delay_text(other.timeout),
            "max_retries": other.max_retries,
        }


def _describe_problem(path: str, sentence: str) -> str:
    """Return the sentence about an error in the inputs, preceded by the error's path."""
    return f"{path}: {sentence}" if path else sentence


def _delay_text(timeout: timedelta | None) -> str | None:
    """Return a time-out as text for its form field, rounded up to seconds, such as "90s"."""
    return None if timeout is None else f"{math.ceil(timeout.total_seconds())}s"


def _stored_inputs(instance: Instance) -> str:
    """Return an Instance's inputs as JSON text. Raises BadRequest if they are not JSON."""
    inputs = queue.inputs(instance)
    if inputs is not None and inputs.format == codec.JSON:
        with contextlib.suppress(ValueError, RecursionError):
            return as_json(json.loads(documents.masked_data(inputs)))
    raise BadRequest(f"The inputs of {instance.uuid} are not JSON, so a form cannot show them.")


def sketch(signature: Signature) -> dict[str, Any]:
    """Return the default values of a handler's parameters, if JSON can represent them."""
    sketch = {}
    for name, parameter in signature.parameters.items():
        if parameter.default is not parameter.empty:
            with contextlib.suppress(NotSerializable):
                sketch[name] = json.loads(tagged_json.to_json(parameter.default))
    return sketch


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


# The pages of Instances: the list, one Instance, its log, its response and its files.


# The filters that the form hides in a fold until one of them is set.
_MORE_FILTERS = frozenset(
    {"ended_after", "ended_before", "daemon", "created_by", "longer_than", "tried_again"}
    | {"due", "no_collection"}
)


class InstancesPage(Page):
    """The list of Instances, with its filters, a tab for each state, and what acts on many."""

    permissions = (permissions.VIEW_INSTANCE,)
    template_name = "atp/instances.html"
    parameters = (*ListedFilter.base_filters, "page")

    def get(self, request: HttpRequest) -> HttpResponseBase:
        rows = self.narrow_rows(Instance.objects.using(settings.DATABASE).select_related("type"))
        filters = bind_filters(ListedFilter, request.GET, rows, others=("page",), user=request.user)
        key = request.GET.get("page")
        found = filters.qs
        page = paging.page(found, listing.NEWEST_FIRST, size=PAGE_SIZE, key=key)
        now = overview.now()
        _add_due_times(page.rows)
        _add_causes(page.rows, now, request.user)
        # A search would have to read all rows to count those that match.
        counts = None if found.search else _count_states(filters)
        values = filters.values
        return self.show(
            now=now,
            form=filters.form,
            main_fields=[f for f in filters.form if f.name not in {*_MORE_FILTERS, "state"}],
            more_fields=[f for f in filters.form if f.name in _MORE_FILTERS],
            is_more_set=any(name in values for name in _MORE_FILTERS),
            state=values.get("state", ""),
            is_filtered=bool(values),
            tabs=_tabs(request, values.get("state", ""), counts),
            number=counts and counts[values.get("state", "")],
            most_counted=listing.MOST_COUNTED,
            page=page,
            is_first=key is None,
            query=query_without_page(request),
            on_all=operations_on_all(request.user, values),
            on_ticked=[OPERATIONS[INSTANCE][name] for name in TICKED if self._may_tick(name)],
        )

    def _may_tick(self, name: str) -> bool:
        return self.may(*OPERATIONS[INSTANCE][name].needs)


def _count_states(filters: ListedFilter) -> dict[str, int]:
    """Return the numbers of rows that match the other filters, by state, and by "" for all."""
    values = {name: value for name, value in filters.values.items() if name != "state"}
    return listing.count_by_state(
        lambda state: filters.select(
            filters.queryset, **values | ({"state": state} if state else {})
        )
    )


def _tabs(
    request: HttpRequest, current: str, counts: dict[str, int] | None
) -> list[dict[str, Any]]:
    """Return the tabs above the list: the query string, the label and the number of each."""
    tabs = []
    for state in ("", *State):
        query = request.GET.copy()
        query.pop("page", None)
        query.pop("state", None)
        if state:
            query["state"] = state
        tabs.append(
            {
                "query": query.urlencode(),
                "label": state or "All",
                "number": None if counts is None else _bounded(counts[state]),
                "is_current": state == current,
            }
        )
    return tabs


def _bounded(count: int) -> str:
    """Return a bounded count as text: "1,000+" where the counting stopped."""
    most = listing.MOST_COUNTED
    return f"{text.number(most)}+" if count > most else text.number(count)


def _add_due_times(instances: Iterable[Any]) -> None:
    """Set the attribute ``due`` on each Instance: its due time if it is waiting, else None."""
    waiting = Task.objects.using(settings.DATABASE).waiting()
    tasks = waiting.in_bulk([row.pk for row in instances if row.state == State.ACCEPTED])
    for row in instances:
        row.due = documents.blocked_due(tasks[row.pk]) if row.pk in tasks else None


def _add_causes(instances: Sequence[Any], now: datetime, user: Any) -> None:
    """Set the attribute ``cause`` on each Instance: why it does not run, in brief, or None."""
    options = permissions.explanation_options(user, *instances)
    rows = tuple((row.pk, row.state) for row in instances)
    found = shared.get(
        ("causes", rows, *options.values()), lambda: main_causes(instances, now, **options)
    )
    for row in instances:
        row.cause = found.get(row.pk)


class InstancePage(Page):
    permissions = (permissions.VIEW_INSTANCE,)
    template_name = "atp/instance.html"

    def get(self, request: HttpRequest, uuid: str) -> HttpResponseBase:
        instance, task, explanation = self._read(uuid)
        context: dict[str, Any] = {}
        has_begun = instance.attempt > 0
        if has_begun and self.may(permissions.VIEW_RESPONSE):
            context["response"] = show_response(queue.response(instance))
        if has_begun and self.may(permissions.VIEW_STEP):
            context |= _step_context(instance)
        now = overview.now()
        log = list(instance.log.reverse()[: LOG_SHOWN + 1])
        history = log if len(log) <= LOG_SHOWN else read_history(instance)
        if self.may(permissions.VIEW_LOG):
            context |= _log_context(instance, log, history, now)
            context["ran"] = run_time_without_pauses(context["timeline"], now)
        if self.may(permissions.VIEW_INPUTS):
            context["inputs"] = show_inputs(queue.inputs(instance))
            context["carried"] = instance.carried
        daemon = None if task is None else task.daemon
        holder = None if daemon is None else overview.condition(daemon, now)
        return self.show(
            now=now,
            instance=instance,
            task=task,
            asked=documents.pending_command(instance.state, task.request)
            if task is not None
            else "",
            **explanation,
            verbs=[
                verb
                for verb in allowed_operations(instance, task)
                if self.may(*verb.permissions(instance))
            ],
            holder=holder,
            may_enqueue_again=self._may_enqueue_again(instance),
            schedule=self._schedule_identifier(instance),
            hooks=[
                each
                for each in documents.enqueued_hooks(instance, history)
                if each.instance is None or self.filter_permitted([each.instance])
            ],
            is_parent_kept=_is_kept(instance.hook_of),
            node=self._node(instance),
            error=self._error_group(instance),
            **context,
        )

    def _read(self, uuid: str) -> tuple[Instance, Task | None, dict[str, Any]]:
        """Return an Instance, its Task and its explanation, all for the same state.

        If the state changes between the queries, the Instance is read again, up to READS times.
        """
        for _ in range(READS):
            instance = self.look_up(Instance, uuid, lambda: queue.get(uuid))
            task = None if instance.is_terminal else queue.task(instance)
            explanation = self._explanation(instance)
            if not explanation or explanation["explanation"].state == instance.state:
                break
        return instance, task, explanation

    def _explanation(self, instance: Instance) -> dict[str, Any]:
        """Return a dict with a live Instance's explanation and likely start; {} if it has ended."""
        if instance.is_terminal:
            return {}
        options = permissions.explanation_options(self.request.user, instance)
        found = shared.get(
            ("why", instance.pk, instance.state, instance.attempt, *options.values()),
            lambda: explain(instance, **options),
            fresh=self.wants_news,
        )
        return {"explanation": found, "starts": start_sentence(found.starts)}

    def _node(self, instance: Instance) -> Node | None:
        """Return the Instance's node in a graph, or None.

        Return None if the Instance belongs to no graph, or if the user may not see the graph.
        """
        node, user = get_node(instance.pk), self.request.user
        is_seen = node is not None and permissions.holds(user, permissions.VIEW_GRAPH, node.graph)
        return node if is_seen else None

    def _error_group(self, instance: Instance) -> ErrorGroup | None:
        """Return the error group of the Instance's failure, or None.

        Return None if there is no group, or if the user may not see the group. A daemon adds a
        failure to its group, which may be new, about a second after the failure.
        """
        if not instance.error_id:
            return None
        rows = ErrorGroup.objects.using(settings.DATABASE)
        found = rows.filter(pk=instance.error_id).first()
        is_seen = found and permissions.holds(self.request.user, permissions.VIEW_ERROR, found)
        return found if is_seen else None

    def _may_enqueue_again(self, instance: Instance) -> bool:
        needed = (permissions.VIEW_INPUTS, permissions.ENQUEUE)
        return is_enqueueable(instance.type.identifier) and self.may(*needed)

    def _schedule_identifier(self, instance: Instance) -> str | None:
        """Return the identifier of the schedule that enqueued the Instance.

        Return None if no schedule did, if the schedule was deleted, or if the user may not see
        schedules.
        """
        word, _, identifier = instance.created_by.partition(" ")
        is_link = word == "schedule" and is_identifier(identifier)
        if not is_link or not self.may(permissions.VIEW_SCHEDULE):
            return None
        rows = Schedule.objects.using(settings.DATABASE).filter(identifier=identifier)
        return identifier if rows.exists() else None


def _is_kept(uuid: str | None) -> bool:
    """Return True if an Instance with this uuid still exists."""
    return uuid is not None and Instance.objects.using(settings.DATABASE).named(uuid).exists()


def _step_context(instance: Instance) -> dict[str, Any]:
    """Return the template's context for the latest steps, with abbreviated results."""
    latest = documents.abbreviate_steps(queue.steps(instance).reverse(), STEPS_SHOWN + 1)
    return {"steps": latest[:STEPS_SHOWN][::-1], "are_steps_cut": len(latest) > STEPS_SHOWN}


def _log_context(
    instance: Instance, latest: list[LogRecord], history: list[LogRecord], now: datetime
) -> dict[str, Any]:
    """Return the template's context for the latest log records and what they tell.

    This is the failure, the newest stack, and the time line. ``latest`` are the newest LOG_SHOWN
    log records and one more, newest first, or the whole log if it is shorter. ``history`` is that
    of :func:`read_history`.
    """
    is_cut = len(latest) > LOG_SHOWN
    last = next((record for record in latest if record.event), None)
    message = last.message if last is not None and last.event in _ENDED_BADLY else ""
    if instance.reason == Reason.STALE:
        # Begin with the message of the last expiry, which says why the attempts were lost.
        lost = next((record.message for record in latest if record.event == Event.EXPIRE), "")
        message = f"{lost}\n{message}".strip()
    stack = newest_stack(instance, history, now)
    return {
        "stack": stack,
        "is_stack_of_failure": bool(message) and _is_of_failure(stack, last),
        "log": _mark_repetitions(latest[:LOG_SHOWN][::-1]),
        "is_log_cut": is_cut,
        "failure": _split_failure(message) if message else None,
        "timeline": timeline(instance, history),
    }


def _is_of_failure(stack: ShownStack | None, failure: LogRecord | None) -> bool:
    """Return True if the stack was taken before the kill that made the attempt fail."""
    if stack is None or failure is None:
        return False
    return stack.is_before_kill and stack.attempt == failure.attempt


def _split_failure(message: str) -> dict[str, str]:
    """Return a dict with a failure's headline, and its traceback, or "" if it has none."""
    headline = text.headline(message)
    rest = text.without_own_frames(message) if message != headline else ""
    return {"headline": headline, "traceback": rest}


def _mark_repetitions(records: list[Any]) -> list[Any]:
    """Return the log records, after setting the attribute ``same_as`` on each of them.

    The attribute is the number of the attempt whose traceback the record repeats, or None.
    """
    repeated = text.repetitions((record.message, record.attempt) for record in records)
    for record, same_as in zip(records, repeated, strict=True):
        record.same_as = same_as
    return records


class LogPage(Page):
    permissions = (permissions.VIEW_INSTANCE, permissions.VIEW_LOG)
    template_name = "atp/log.html"
    parameters = ("page", "order")

    def get(self, request: HttpRequest, uuid: str) -> HttpResponseBase:
        instance = self.look_up(Instance, uuid, lambda: queue.get(uuid))
        records = LogRecord.objects.using(settings.DATABASE).filter(instance=instance)
        order, key = request.GET.get("order", "oldest"), request.GET.get("page")
        if order not in _ORDERS:
            raise BadRequest(f"order={order!r} must be one of: {', '.join(_ORDERS)}.")
        page = paging.page(records, _ORDERS[order], size=LOG_PAGE_SIZE, key=key)
        is_end = key is None if order == "newest" else page.next is None
        return self.show(
            instance=instance,
            page=page,
            is_newest_first=order == "newest",
            is_followed=is_end and not instance.is_terminal,
        )


class ResponseBody(Page):
    """The raw response of an Instance; see :mod:`atp.web.raw`."""

    permissions = (permissions.VIEW_INSTANCE, permissions.VIEW_RESPONSE)

    def get(self, request: HttpRequest, uuid: str) -> HttpResponseBase:
        instance = self.look_up(Instance, uuid, lambda: queue.get(uuid))
        return raw.response_with_body(queue.response(instance), f"response-{instance.uuid}")


class PublishedFile(Page):
    """A raw file that an Instance's handler published; see :mod:`atp.web.raw`."""

    permissions = (permissions.VIEW_INSTANCE, permissions.VIEW_RESPONSE)

    def get(self, request: HttpRequest, uuid: str, number: int) -> HttpResponseBase:
        instance = self.look_up(Instance, uuid, lambda: queue.get(uuid))
        return raw.response_with_file(queue.response(instance), number)
