"""Filters of the lists in the API and on the pages."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import QueryDict
from django.utils import timezone

from atp.exceptions import InvalidSelection
from atp.fields import first_uuid7
from atp.models import Instance, Task, Type
from atp.reports import paging
from atp.states import Event, State
from atp.web.filters import InstanceFilter, TaskFilter, bind_filters
from tests.app.tasks import add, echo
from tests.helpers import remove_by_hand

pytestmark = pytest.mark.django_db
NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


def select(query, filters=InstanceFilter, model=Instance, user=None):
    rows = model.objects.order_by("pk")
    return list(bind_filters(filters, QueryDict(query), rows, user=user).qs)


def found(user=None, **query):
    """Return the rows that a list shows for these filters, oldest first."""
    data = QueryDict(mutable=True)
    data.update(query)
    rows = bind_filters(InstanceFilter, data, Instance.objects.all(), user=user).qs
    return paging.page(rows, ["-id"], size=50).rows[::-1]


def test_each_filter_selects_matching_instances_and_an_empty_one_selects_all():
    one = echo.using(identifier="a", collection="books").enqueue()
    two = add.enqueue(1)
    assert select("") == select("state=&type=&collection=") == [one, two]
    assert select("type=tests.add") == [two]
    assert select("identifier=a") == select("collection=books") == [one]
    assert select(f"uuid={one.uuid}") == [one]
    assert select(f"uuid={two.uuid.hex[:24]}&state=accepted") == [two]
    assert select("state=RUNNING") == select("reason=ERROR") == []


@pytest.fixture
def hours():
    """Return three ended Instances by name, created at ten, eleven and noon."""
    made = {}
    for hour, name in ((2, "ten"), (1, "eleven"), (0, "noon")):
        created = NOON - timedelta(hours=hour)
        made[name] = Instance.objects.create(
            type=echo.enqueue().type,
            uuid=first_uuid7(created),
            state=State.FINISHED,
            created=created,
            started=created + timedelta(minutes=1),
            finished=created + timedelta(minutes=3 + hour),
            retries=hour % 2,
            created_by=f"user {name}",
        )
    remove_by_hand(Instance.objects.exclude(pk__in=[each.pk for each in made.values()]))
    return made


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"created_after": "2030-01-31T11:00:00Z"}, ["eleven", "noon"]),
        ({"created_before": "2030-01-31T12:00:00+01:00"}, ["ten", "eleven"]),
        (
            {"created_after": "2030-01-31T10:30Z", "created_before": "2030-01-31T11:30Z"},
            ["eleven"],
        ),
        ({"created_after": "9999-12-31T23:59:59Z"}, []),
        ({"created_before": "0001-01-02T00:00:00Z"}, []),
        ({"ended_after": "2030-01-31T11:04:00Z"}, ["eleven", "noon"]),
        ({"ended_before": "2030-01-31T11:04:00Z"}, ["ten", "eleven"]),
        ({"ended_after": "2030-01-31T11:05:00Z", "type": "tests.echo"}, ["noon"]),
        ({"created_by": "user noon"}, ["noon"]),
        ({"longer_than": "200"}, ["ten"]),
        ({"longer_than": "2m"}, ["ten", "eleven"]),
        ({"tried_again": "true"}, ["eleven"]),
        ({"tried_again": "true", "created_by": "user noon"}, []),
    ],
    ids=str,
)
def test_filters_by_time_person_and_attempts_select_instances(hours, query, names):
    assert found(**query) == [hours[name] for name in names]


def test_a_time_without_an_offset_is_in_the_current_time_zone(hours):
    with timezone.override("Asia/Tokyo"):
        assert found(created_after="2030-01-31T21:00") == [hours["noon"]]


def test_a_span_of_creation_is_a_range_of_primary_keys(hours):
    """No index has ``created``, so a list of a day would otherwise read the whole history."""
    day = timedelta(days=1)
    for name, pair in (("gt", (NOON + day, None)), ("lt", (None, NOON - day))):
        condition = Instance.objects.created_between(*pair)
        assert f"pk__{name}" in dict(condition.children), name


def test_filters_by_duration_and_daemon_select_what_a_daemon_holds(world):
    """The filter by duration selects attempts that still run, too."""
    echo.enqueue()
    host = world.host("tests.echo")
    [case] = host.claim()
    host.move(case, Event.START)
    echo.enqueue()
    for name in (str(host.row), str(host.uuid), host.row.uuid.hex):
        assert [row.pk for row in found(daemon=name)] == [case.instance]
    with pytest.raises(InvalidSelection, match="There is no daemon 'elsewhere:7'"):
        found(daemon="elsewhere:7")
    assert found(longer_than="1h") == []
    Instance.objects.update(started=world.store.now() - timedelta(hours=2))
    assert [row.pk for row in found(longer_than="1h")] == [case.instance]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ("region=alps", [0, 2]),
        ("number=7", [1]),
        ("number=70", [2]),
        ("region=alp", []),
        ("lps", [0, 2]),
        ('a "quoted" word', [1]),
        ("flag=true", [1]),
        ("inner=1", []),
        ("inner", [0]),
    ],
)
def test_inputs_are_searched_for_arguments_and_texts(wanted, numbers):
    made = [
        echo.enqueue(region="alps", nested={"inner": 1}),
        echo.enqueue(number=7, said='a "quoted" word', flag=True),
        echo.enqueue(number=70, region="alps"),
    ]
    assert found(type="tests.echo", input=wanted) == [made[number] for number in numbers]


def test_a_search_in_inputs_needs_a_type_and_covers_a_day():
    old = echo.enqueue(region="alps")
    with pytest.raises(InvalidSelection, match="within one Type") as refused:
        found(input="alps")
    assert refused.value.errors[0][0] == "input"
    time = old.created - timedelta(days=2)
    Instance.objects.update(created=time, uuid=first_uuid7(time))
    assert found(type="tests.echo", input="alps") == []
    assert found(type="tests.echo", input="alps", created_after=time.isoformat()) == [old]


def test_sensitive_arguments_are_not_searched():
    made = echo.enqueue(user="ann", password="hunter2")
    Type.objects.filter(identifier="tests.echo").update(sensitive=["password"])
    assert found(type="tests.echo", input="hunter2") == []
    assert found(type="tests.echo", input="ann") == [made]
    with pytest.raises(InvalidSelection, match=r"'password' of tests\.echo is sensitive"):
        found(type="tests.echo", input="password=hunter2")


def test_a_search_needs_the_permission_to_see_what_it_looks_for(world):
    user = User.objects.create_user("olga")
    echo.enqueue(region="alps")
    for query, name in (
        ({"type": "tests.echo", "input": "alps"}, "view_inputs"),
        ({"daemon": "host:1"}, "view_daemon"),
    ):
        with pytest.raises(PermissionDenied, match=f"atp.{name}"):
            found(user, **query)
    user.user_permissions.add(Permission.objects.get(codename="view_inputs"))
    user = User.objects.get(pk=user.pk)
    assert len(found(user, type="tests.echo", input="alps")) == 1


def test_a_search_stops_at_its_limit_and_goes_on_from_there(monkeypatch):
    monkeypatch.setattr(paging, "_FIRST_PORTION", 2)
    made = [echo.using(created_by="ann" if n < 2 else "bob").enqueue() for n in range(10)]
    rows = Instance.objects.all().searched(Q(created_by="ann"), most=4)
    page, pages = paging.page(rows, ["-id"], size=50), []
    while page.reached is not None:
        pages.append((page.rows, page.reached))
        page = paging.page(rows, ["-id"], size=50, key=page.next)
    assert pages == [([], made[6]), ([], made[2])]
    assert page.rows == [made[1], made[0]]
    assert page.next is None
    first = paging.page(rows, ["-id"], size=1, key=paging.key_after(made[2], ["-id"]))
    assert (first.rows, first.reached) == ([made[1]], None)
    assert paging.page(rows, ["-id"], size=1, key=first.next).rows == [made[0]]


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
        ("created_after=noon", "created_after", "'noon' is not a time"),
        ("ended_before=0001-01-01T00:00%2B14:00", "ended_before", "is not a time"),
        ("longer_than=long", "longer_than", "5m"),
        ("longer_than=-1", "longer_than", "5m"),
    ):
        with pytest.raises(InvalidSelection) as refused:
            select(query)
        [(name, told)] = refused.value.errors
        assert name == field
        assert said in told
