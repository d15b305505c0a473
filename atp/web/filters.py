"""Filters for lists on the pages and in the API.

django-filter parses the filters, and QuerySets select the rows. An unknown filter or value is an
error. If it were ignored, the user would mistake the longer list for the answer.
"""

import re
from collections.abc import Iterable
from typing import Any

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import QueryDict

from ..conf import settings
from ..deadletters import operations as groups
from ..exceptions import InvalidSelection
from ..models import ErrorGroup, Graph, Instance, Node, Task, Type
from ..options import MAX_IDENTIFIER
from ..reports import overview
from ..states import Reason, State
from ..text import did_you_mean
from .permissions import VIEW_INSTANCE, grant_of

_UUID = re.compile(r"[0-9a-f]{8,32}")
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
    see. Raises InvalidSelection.
    """
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


class _TypeField(forms.ModelChoiceField):
    """A form field for the identifier of a registered Type. Its error suggests a similar one."""

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


class TypeFilter(django_filters.ModelChoiceFilter):
    field_class = _TypeField

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            queryset=_visible_types, to_field_name="identifier", empty_label="any", **kwargs
        )


def _visible_types(user: Any) -> QuerySet[Type]:
    # django-filter passes its "request". ``bind_filters`` sets it to the user, because the filters
    # need nothing else from the request.
    rows = Type.objects.using(settings.DATABASE)
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


class _FilterSet(django_filters.FilterSet):
    """A filter set that passes all its values to ``select``, which can then use the indexes."""

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        values = {name: value for name, value in self.form.cleaned_data.items() if value}
        return self.select(queryset, **values)

    def select(self, rows: Any, **values: str) -> Any:
        """Return the rows that match ``values``, the values of the filters by name."""
        raise NotImplementedError


class InstanceFilter(_FilterSet):
    type = TypeFilter(label="Type")
    state = WordFilter(State, label="State")
    reason = WordFilter(Reason, label="Reason")
    collection = django_filters.CharFilter(
        max_length=MAX_IDENTIFIER, strip=False, label="Collection"
    )
    identifier = django_filters.CharFilter(
        max_length=MAX_IDENTIFIER, strip=False, label="Identifier"
    )
    uuid = UUIDFilter(
        label="UUID",
        widget=forms.TextInput(attrs={"placeholder": "or its first 8 digits, or as lists show it"}),
    )

    class Meta:
        model = Instance
        fields = ()

    def select(self, rows: Any, uuid: str | None = None, **values: str) -> Any:
        rows = rows.selected(**values)
        if uuid is None:
            return rows
        short = _SHORT_UUID.fullmatch(uuid)
        return rows.named_between(*short.groups()) if short else rows.named(uuid)


class ListedFilter(InstanceFilter):
    """The filters for the list of Instances on pages: those of the API, and two more."""

    due = WordFilter(("now", "later"), label="Due")
    no_collection = WordFilter(("yes",), label="Without a collection")

    def select(  # type: ignore[override]
        self, rows: Any, due: str = "", no_collection: str = "", **values: str
    ) -> Any:
        rows = super().select(rows, **values)
        if no_collection:
            rows = rows.filter(collection="")
        if due:
            now = overview.now()
            tasks = Task.objects.using(settings.DATABASE).waiting()
            tasks = tasks.due(now) if due == "now" else tasks.filter(due_at__gt=now)
            rows = rows.filter(pk__in=tasks.values("pk"))
        return rows


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
