"""Filters for lists on the pages and in the API.

django-filter parses the filters, and QuerySets select the rows. An unknown filter or value is an
error. If it were ignored, the user would mistake the longer list for the answer.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from html import escape
from typing import Any

import django_filters
from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.forms.models import ModelChoiceIterator
from django.forms.utils import flatatt
from django.http import QueryDict
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..conf import settings
from ..deadletters import operations as groups
from ..exceptions import InvalidSelection, UnknownDaemon
from ..models import Daemon, ErrorGroup, Graph, Instance, Kind, LogRecord, Node, Task, Type
from ..operations.operation import Delay
from ..options import MAX_IDENTIFIER
from ..reports import listing, overview
from ..states import Reason, State
from ..text import did_you_mean
from .permissions import (
    VIEW_DAEMON,
    VIEW_INPUTS,
    VIEW_INSTANCE,
    describe_missing,
    grant_of,
    holds,
    narrow_rows,
)

# The kinds of records about Types, lanes, daemons, downstreams and schedules.
KINDS_OF_ACTIVITY = (
    *(Kind.GATE, Kind.LIMITS, Kind.FULL, Kind.REGISTERED, Kind.PARAMETERS, Kind.UNREGISTERED),
    *(Kind.REMOVED, Kind.CURSOR, Kind.GAP, Kind.SOURCE, Kind.DOWNSTREAM, Kind.SCHEDULE),
    *(Kind.STARTED, Kind.REJOINED, Kind.LEFT, Kind.LOST, Kind.ORDER, Kind.MENDED),
    Kind.SESSION,
)
_UUID = re.compile(r"[0-9a-f]{8,32}")
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
# A uuid as pages show it: its first eight digits and its last four.
_SHORT_UUID = re.compile(r"([0-9a-f]{8})(?:…|\.\.\.)([0-9a-f]{4})")


def bind_filters(
    filterset: Any,
    data: QueryDict,
    rows: QuerySet[Any],
    *,
    others: Iterable[str] = (),
    user: Any = None,
) -> Any:
    """Return the filter set bound to ``data``. Its attribute ``qs`` contains the selected rows.

    ``filterset`` is a subclass of FilterSet. ``others`` are further names that ``data`` may have.
    If ``user`` is given, the list can be filtered only by Types with Instances that this user may
    see, and only by what the user may see. Raises InvalidSelection, PermissionDenied.
    """
    for name, permission in filterset.permissions.items():
        if data.get(name) and user is not None and not user.has_perm(permission):
            raise PermissionDenied(describe_missing([permission]))
    names = [*filterset.base_filters, *others]
    unknown = [name for name in data if name not in names]
    errors = [
        (name, f"There is no filter {name!r}.{did_you_mean(name, names)}") for name in unknown
    ]
    errors += [
        (name, f"{name!r} is given more than once.") for name in data if len(data.getlist(name)) > 1
    ]
    bound = filterset(data=_normalize_case(filterset, data), queryset=rows, request=user)
    if not bound.is_valid():
        errors += [(name, text) for name, texts in bound.errors.items() for text in texts]
    if errors:
        raise InvalidSelection(" ".join(text for _, text in errors), errors=tuple(errors))
    return bound


def _normalize_case(filterset: Any, data: QueryDict) -> QueryDict:
    """Return ``data`` with each word for a WordFilter written in the same case as its choices."""
    data = data.copy()
    for name, each in filterset.base_filters.items():
        if isinstance(each, WordFilter) and data.get(name):
            words = {word.upper(): word for word, _ in each.extra["choices"]}
            word = str(data[name])
            data[name] = words.get(word.upper(), word)
    return data


class _Select(forms.Select):
    """A select that needs little time for hundreds of options.

    Django renders a template for each option.
    """

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        selected = self.format_value(value)
        options = "".join(
            f'<option value="{escape(str(key))}"{" selected" if str(key) in selected else ""}>'
            f"{escape(str(label))}</option>"
            for key, label in self.choices
        )
        attributes = flatatt({"name": name, **self.build_attrs(self.attrs, attrs)})
        return format_html("<select{}>{}</select>", attributes, SafeString(options))


class _Identifiers(ModelChoiceIterator):
    """The choices of a list of Types. They are read as words, not as models."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        yield "", str(self.field.empty_label)
        for identifier in self.queryset.values_list("identifier", flat=True):
            yield identifier, identifier


class _TypeField(forms.ModelChoiceField):
    """A form field for the identifier of a registered Type. Its error suggests a similar one."""

    widget = _Select
    iterator = _Identifiers

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except ValidationError:
            known = self.queryset.values_list("identifier", flat=True)  # type: ignore[union-attr]
            raise ValidationError(
                f"No Type {value!r} is registered.{did_you_mean(value, known)}"
            ) from None


class _WordField(forms.ChoiceField):
    """A form field for one of a few words. Its error suggests a similar word."""

    widget = _Select

    def validate(self, value: Any) -> None:
        words = [word for word, _ in self.choices if word]  # type: ignore[misc, union-attr]
        if value and value not in words:
            raise ValidationError(
                f"{value!r} must be one of: {', '.join(words)}.{did_you_mean(value, words)}"
            )
        super().validate(value)


class _UUIDField(forms.CharField):
    """A form field for a uuid, at least its first eight digits, or its short form on pages."""

    def clean(self, value: Any) -> str:
        value = super().clean(value).lower()
        if _SHORT_UUID.fullmatch(value):
            return value
        if value and not _UUID.fullmatch(value.replace("-", "")):
            raise ValidationError(
                f"{value!r} must be a uuid, or at least the first 8 digits of one."
            )
        return value


class _InstantField(django_filters.fields.IsoDateTimeField):
    """A form field for a time in ISO 8601. Without an offset it is in the current time zone."""

    def to_python(self, value: Any) -> datetime | None:
        try:
            time = super().to_python(value)
            return None if time is None else time.astimezone(UTC)
        except (ValidationError, OverflowError):
            raise ValidationError(f"{value!r} is not a time such as 2030-01-31T18:00.") from None


class _DurationField(forms.CharField):
    """A form field for a duration: a number of seconds, or text such as "5m"."""

    def clean(self, value: Any) -> timedelta | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            return (
                Delay().from_json(float(text))
                if _NUMBER.fullmatch(text)
                else Delay().from_text(text)
            )
        except ValueError as error:
            raise ValidationError(f"{error} Give seconds, or a duration as 90s or 5m.") from None


class _DaemonField(forms.CharField):
    """A form field for a daemon, by its uuid or as HOST:PID. Its value is a list of rows."""

    def clean(self, value: Any) -> list[Daemon]:
        text = super().clean(value)
        if not text:
            return []
        try:
            return listing.daemons_named(text)
        except UnknownDaemon as error:
            raise ValidationError(str(error)) from None


class TypeFilter(django_filters.ModelChoiceFilter):
    field_class = _TypeField

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            queryset=_visible_types, to_field_name="identifier", empty_label="any", **kwargs
        )


def _visible_types(user: Any) -> QuerySet[Type]:
    # django-filter passes its "request". ``bind_filters`` sets it to the user, because the filters
    # need nothing else from the request.
    rows = Type.objects.using(settings.DATABASE).only("identifier")
    grant = None if user is None else grant_of(user, VIEW_INSTANCE)
    if grant is None or grant.is_everything:
        return rows
    known = rows.values_list("identifier", flat=True)
    return rows.filter(identifier__in=[each for each in known if grant.touches(each)])


class WordFilter(django_filters.Filter):
    field_class = _WordField

    def __init__(self, words: Iterable[str], **kwargs: Any) -> None:
        choices = [("", "any"), *((str(word), str(word)) for word in words)]
        super().__init__(choices=choices, **kwargs)


class UUIDFilter(django_filters.Filter):
    field_class = _UUIDField


class InstantFilter(django_filters.Filter):
    field_class = _InstantField


class DurationFilter(django_filters.Filter):
    field_class = _DurationField


class DaemonFilter(django_filters.Filter):
    field_class = _DaemonField


def _example(text: str) -> forms.TextInput:
    return forms.TextInput(attrs={"placeholder": text})


class _FilterSet(django_filters.FilterSet):
    """A filter set that passes all its values to ``select``, which can then use the indexes.

    ``permissions`` are the permissions that some filters need, by the name of the filter.
    """

    permissions: dict[str, str] = {}

    @property
    def values(self) -> dict[str, Any]:
        """The values of the filters that are set, by name."""
        return {name: value for name, value in self.form.cleaned_data.items() if value}

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return self.select(queryset, **self.values)

    def select(self, rows: Any, **values: Any) -> Any:
        """Return the rows that match ``values``, the values of the filters by name."""
        raise NotImplementedError


class InstanceFilter(_FilterSet):
    """The filters for Instances that the pages and the API share.

    The comment at each filter names the index that answers it. A filter without an index becomes a
    :class:`~atp.querysets.Search`, which reads a limited number of rows for each page.
    """

    permissions = {"daemon": VIEW_DAEMON, "input": VIEW_INPUTS}

    # By atp_instance_of_type; with a state, by the index of the state.
    type = TypeFilter(label="Type")
    # Live states by the indexes of Task, ended ones by atp_instance_newest_finished and
    # atp_instance_failed.
    state = WordFilter(State, label="State")
    # By atp_instance_failed.
    reason = WordFilter(Reason, label="Reason")
    # By atp_instance_collection.
    collection = django_filters.CharFilter(
        max_length=MAX_IDENTIFIER, strip=False, label="Collection"
    )
    # By the unique index atp_instance_identifier.
    identifier = django_filters.CharFilter(
        max_length=MAX_IDENTIFIER, strip=False, label="Identifier"
    )
    # By the unique index on uuid.
    uuid = UUIDFilter(
        label="UUID",
        widget=forms.TextInput(attrs={"placeholder": "or its first 8 digits, or as lists show it"}),
    )
    # The index on uuid turns the span into a range of primary keys.
    created_after = InstantFilter(label="Created after", widget=_example("2030-01-31T18:00"))
    created_before = InstantFilter(label="Created before", widget=_example("2030-01-31T19:00"))
    # A search; with an end, it begins at the primary key that the index on uuid finds.
    ended_after = InstantFilter(label="Ended after", widget=_example("2030-01-31T18:00"))
    ended_before = InstantFilter(label="Ended before", widget=_example("2030-01-31T19:00"))
    # By atp_task_held.
    daemon = DaemonFilter(
        max_length=MAX_IDENTIFIER,
        label="Held by daemon",
        help_text="HOST:PID or uuid. Needs `atp.view_daemon`",
        widget=_example("host:pid, or its uuid"),
    )
    # A search.
    created_by = django_filters.CharFilter(
        max_length=MAX_IDENTIFIER, strip=False, label="Created by"
    )
    # A search.
    longer_than = DurationFilter(
        max_length=20,
        label="Ran longer than",
        help_text="Seconds, or as 5m; the last attempt",
        widget=_example("seconds, or as 5m"),
    )
    # A search.
    tried_again = WordFilter(("true",), label="Tried again")
    # A search over at most 20,000 Instances, which atp_instance_of_type has in their order.
    input = django_filters.CharFilter(
        max_length=MAX_IDENTIFIER,
        strip=False,
        label="Inputs contain",
        help_text="As key=value or text; within a Type, and within a day unless `created_after` "
        "says otherwise. Needs `atp.view_inputs`",
        widget=_example("key=value, or a text"),
    )

    class Meta:
        model = Instance
        fields = ()

    def select(
        self,
        rows: Any,
        uuid: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        daemon: list[Daemon] | None = None,
        input: str = "",
        tried_again: str = "",
        **values: Any,
    ) -> Any:
        if uuid is not None:
            short = _SHORT_UUID.fullmatch(uuid)
            rows = rows.named_between(*short.groups()) if short else rows.named(uuid)
        if daemon and self.request is not None and not holds(self.request, VIEW_DAEMON):
            raise PermissionDenied(f"Your permission {VIEW_DAEMON} does not apply here.")
        rows = rows.filter(self._span)
        if input and self.request is not None:
            visible: Any = narrow_rows(self.request, VIEW_INPUTS, rows)
            rows = visible
        if "longer_than" in values:
            values["now"] = self._now
        rows = rows.selected(**values, daemons=daemon, tried_again=bool(tried_again))
        return listing.search_inputs(rows, values.get("type"), input) if input else rows

    @cached_property
    def _now(self) -> datetime:
        return overview.now()

    @cached_property
    def _span(self) -> Q:
        """The condition on the time of creation; it takes queries, and all states share it."""
        after, before = self.values.get("created_after"), self.values.get("created_before")
        if self.values.get("input"):
            after, before = listing.span_of_search(after, before, self._now)
        return Instance.objects.using(settings.DATABASE).created_between(after, before)


class ListedFilter(InstanceFilter):
    """The filters for the list of Instances on pages: those of the API, and two more."""

    due = WordFilter(("now", "later"), label="Due")
    no_collection = WordFilter(("yes",), label="Without a collection")

    def select(  # type: ignore[override]
        self, rows: Any, due: str = "", no_collection: str = "", **values: Any
    ) -> Any:
        if no_collection:
            rows = rows.filter(collection="")
        if due:
            tasks = Task.objects.using(settings.DATABASE).waiting()
            tasks = tasks.due(self._now) if due == "now" else tasks.filter(due_at__gt=self._now)
            rows = rows.filter(pk__in=tasks.values("pk"))
        return super().select(rows, **values)


class TaskFilter(_FilterSet):
    type = TypeFilter(label="Type")
    collection = django_filters.CharFilter(
        max_length=MAX_IDENTIFIER, strip=False, label="Collection"
    )
    claimed = WordFilter(("true", "false"), label="Claimed")

    class Meta:
        model = Task
        fields = ()

    def select(self, rows: Any, claimed: str = "false", **values: str) -> Any:
        rows = rows.claimed() if claimed == "true" else rows.waiting()
        return rows.filter(**values)


class TypeListFilter(_FilterSet):
    """The filters for the list of Types."""

    name = django_filters.CharFilter(max_length=MAX_IDENTIFIER, label="Name contains")

    class Meta:
        model = Type
        fields = ()

    def select(self, rows: Any, **values: str) -> Any:
        return rows.filter(identifier__icontains=values.get("name", ""))


class GraphFilter(_FilterSet):
    name = django_filters.CharFilter(max_length=MAX_IDENTIFIER, strip=False, label="Name")
    ended = WordFilter(("true", "false"), label="Ended")

    class Meta:
        model = Graph
        fields = ()

    def select(self, rows: Any, ended: str = "", **values: str) -> Any:
        if ended:
            rows = rows.filter(ended__isnull=ended == "false")
        return rows.filter(**values)


class ErrorFilter(_FilterSet):
    type = django_filters.CharFilter(
        max_length=MAX_IDENTIFIER, strip=False, label="Type", help_text="Or a pattern."
    )
    muted = WordFilter(("true", "false"), label="Muted")
    left = WordFilter(("true", "false"), label="Dead letters left")

    class Meta:
        model = ErrorGroup
        fields = ()

    def select(self, rows: Any, **values: str) -> Any:
        return groups.filter_groups(rows, **values)


class ActivityFilter(_FilterSet):
    """The filters for the list of activity; each text is looked for anywhere in its column."""

    who = django_filters.CharFilter(max_length=200, label="Who")
    kind = WordFilter(KINDS_OF_ACTIVITY, label="What")
    subject = django_filters.CharFilter(max_length=255, label="Subject")
    since = django_filters.IsoDateTimeFilter(label="Since")
    until = django_filters.IsoDateTimeFilter(label="Until")

    class Meta:
        model = LogRecord
        fields = ()

    def select(self, rows: Any, **values: Any) -> Any:
        conditions = {
            {
                "who": "who__contains",
                "kind": "kind",
                "subject": "subject__contains",
                "since": "time__gte",
                "until": "time__lte",
            }[name]: value
            for name, value in values.items()
        }
        return rows.filter(**conditions)


class NodeFilter(_FilterSet):
    name = django_filters.CharFilter(max_length=MAX_IDENTIFIER, strip=False, label="Name")
    type = TypeFilter(label="Type")
    state = WordFilter(State, label="State")

    class Meta:
        model = Node
        fields = ()

    def select(self, rows: Any, name: str = "", **values: str) -> Any:
        if name:
            # A pattern alone is not enough, because SQLite ignores case in patterns.
            head = Left("name", len(name))
            rows = rows.alias(head=head).filter(name__startswith=name, head=name)
        return rows.filter(**{f"instance__{key}": value for key, value in values.items()})
