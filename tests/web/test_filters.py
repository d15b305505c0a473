"""Filters of the lists in the API and on the pages."""

import pytest
from django.http import QueryDict

from atp.exceptions import InvalidSelection
from atp.models import Instance, Task
from atp.web.filters import InstanceFilter, TaskFilter, bind_filters
from tests.app.tasks import add, echo

pytestmark = pytest.mark.django_db


def select(query, filters=InstanceFilter, model=Instance):
    return list(bind_filters(filters, QueryDict(query), model.objects.order_by("pk")).qs)


def test_each_filter_selects_matching_instances_and_an_empty_one_selects_all():
    one = echo.using(identifier="a", collection="books").enqueue()
    two = add.enqueue(1)
    assert select("") == select("state=&type=&collection=") == [one, two]
    assert select("type=tests.add") == [two]
    assert select("identifier=a") == select("collection=books") == [one]
    assert select(f"uuid={one.uuid}") == [one]
    assert select(f"uuid={two.uuid.hex[:24]}&state=accepted") == [two]
    assert select("state=RUNNING") == select("reason=ERROR") == []


def test_task_filter_selects_waiting_or_claimed_tasks():
    one = echo.using(collection="books").enqueue()
    add.enqueue(1)
    assert len(select("", TaskFilter, Task)) == 2
    assert select("claimed=true", TaskFilter, Task) == []
    [task] = select("type=tests.echo&collection=books&claimed=False", TaskFilter, Task)
    assert task.pk == one.pk


def test_the_error_for_an_invalid_filter_names_the_filter():
    """Ignoring a filter would return a wrong list without an error (G13)."""
    echo.enqueue()
    for query, field, said in (
        ("stat=RUNNING", "stat", "Did you mean 'state'?"),
        ("state=RUNING", "state", "Did you mean 'RUNNING'?"),
        ("reason=stall", "reason", "STALE"),
        ("reason=stale&reason=error", "reason", "more than once"),
        ("type=tests.ecko", "type", "Did you mean 'tests.echo'?"),
        ("type=%00", "type", "is registered"),
        ("uuid=1234567", "uuid", "first 8 digits"),
        ("collection=" + "x" * 201, "collection", "at most 200"),
        ("identifier=a%00b", "identifier", "Null characters"),
    ):
        with pytest.raises(InvalidSelection) as refused:
            select(query)
        [(name, told)] = refused.value.errors
        assert name == field
        assert said in told
