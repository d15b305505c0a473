"""Tests of :mod:`atp.reports.paging`."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from atp.exceptions import InvalidPageKey
from atp.models import Instance, Task, Type
from atp.reports import paging
from atp.states import State
from tests.helpers import remove_by_hand

from .app.tasks import echo

NEWEST_FIRST = ["-id"]
CLAIMING = ["type_id", "-priority", "due_at", "instance_id"]
ORDERS = [NEWEST_FIRST, ["id"], CLAIMING, ["-type_id", "priority", "-due_at", "-instance_id"]]
NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


def rows_of(order):
    return Instance.objects.all() if "id" in order[0] and len(order) == 1 else Task.objects.all()


def add(type, priority, minutes):
    """Add a Task with these places in every order; returns its key."""
    instance = Instance.objects.create(
        type_id=type, state=State.ACCEPTED, priority=priority, created=NOON
    )
    due_at = NOON + timedelta(minutes=minutes)
    Task.objects.create(instance=instance, type_id=type, priority=priority, due_at=due_at)
    return instance.pk


def keys(rows):
    return [row.pk for row in rows]


def walk(order, size, turn="next", key=None):
    """Return the pages from ``key`` on, the way that ``turn`` says."""
    pages = [paging.page(rows_of(order), order, size=size, key=key)]
    while (key := getattr(pages[-1], turn)) is not None:
        pages.append(paging.page(rows_of(order), order, size=size, key=key))
        assert len(pages) < 100, "it goes round in a circle"
    return pages


TYPES = st.integers(0, 2)
PLACES = st.tuples(TYPES, st.integers(-1, 1), st.integers(0, 2))


class Walks(TestCase):
    """Hypothesis puts each example into a transaction of its own."""

    def types(self):
        return list(Type.objects.order_by("pk").values_list("pk", flat=True)[:3])

    def fill(self, places):
        types = self.types()
        return [add(types[type], priority, minutes) for type, priority, minutes in places]

    @settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=50)
    @given(
        places=st.lists(PLACES, max_size=14), size=st.integers(1, 5), order=st.sampled_from(ORDERS)
    )
    def test_there_and_back_every_row_comes_once_and_in_order(self, places, size, order):
        self.fill(places)
        expected = keys(rows_of(order).order_by(*order))
        there = walk(order, size)
        assert [key for page in there for key in keys(page.rows)] == expected
        assert [len(page.rows) for page in there[:-1]] == [size] * (len(there) - 1)
        assert there[0].previous is None
        back = walk(order, size, "previous", there[-2].next if len(there) > 1 else None)
        assert [page.rows for page in reversed(back)] == [page.rows for page in there]

    @settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=50)
    @given(
        places=st.lists(PLACES, min_size=4, max_size=14),
        late=st.lists(PLACES, max_size=4),
        gone=st.sets(st.integers(0, 13)),
        order=st.sampled_from(ORDERS),
    )
    def test_what_stays_comes_once_whatever_else_comes_and_goes(self, places, late, gone, order):
        made = self.fill(places)
        first = paging.page(rows_of(order), order, size=3)
        gone = {made[number] for number in gone if number < len(made)}
        Task.objects.filter(pk__in=gone).delete()
        remove_by_hand(Instance.objects.filter(pk__in=gone))
        new = set(self.fill(late))
        if first.next is None:
            return
        pages = walk(order, 3, key=first.next)
        later = [key for page in pages for key in keys(page.rows)]
        seen = keys(first.rows) + later
        assert len(seen) == len(set(seen))
        assert set(seen) >= set(made) - gone
        assert set(later) <= (set(made) - gone) | new
        expected = keys(rows_of(order).order_by(*order))
        assert later == [key for key in expected if key in set(later)]


@pytest.mark.django_db
def test_a_page_back_at_the_beginning_is_full():
    """Rows that came in at the front are not left alone on a page of their own."""
    made = [echo.enqueue().pk for _ in range(6)]
    second = paging.page(Instance.objects.all(), NEWEST_FIRST, size=3)
    second = paging.page(Instance.objects.all(), NEWEST_FIRST, size=3, key=second.next)
    newest = echo.enqueue().pk
    back = paging.page(Instance.objects.all(), NEWEST_FIRST, size=3, key=second.previous)
    assert keys(back.rows) == made[:2:-1]
    assert back.previous is not None
    front = paging.page(Instance.objects.all(), NEWEST_FIRST, size=3, key=back.previous)
    assert keys(front.rows) == [newest, made[5], made[4]]
    assert front.previous is None


@pytest.mark.django_db
def test_a_page_whose_rows_are_all_gone_is_empty():
    made = [echo.enqueue() for _ in range(4)]
    key = paging.key_after(made[2], NEWEST_FIRST)
    Task.objects.all().delete()
    remove_by_hand(Instance.objects.filter(pk__lt=made[2].pk))
    assert paging.page(Instance.objects.all(), NEWEST_FIRST, size=3, key=key) == paging.Page(
        rows=[]
    )


@pytest.mark.django_db
def test_the_key_after_a_row_is_that_of_the_next_page():
    made = [echo.enqueue() for _ in range(5)]
    first = paging.page(Instance.objects.all(), NEWEST_FIRST, size=2)
    assert paging.key_after(made[3], NEWEST_FIRST) == first.next


@pytest.mark.django_db
@pytest.mark.parametrize("turn", ["next", "previous"])
def test_queries(turn, django_assert_max_num_queries):
    """One, or one for each field of the order."""
    types = list(Type.objects.values_list("pk", flat=True)[:3])
    for number in range(30):
        add(types[number % 3], number % 2, number % 5)
    for order in (NEWEST_FIRST, CLAIMING):
        middle = walk(order, 4)[3]
        key = getattr(middle, turn)
        # A page that turns out to be the first is asked for anew.
        with django_assert_max_num_queries(len(order)):
            paging.page(rows_of(order), order, size=4, key=key)


@pytest.mark.django_db
def test_what_a_selection_reads_with_its_rows_is_read(django_assert_num_queries):
    made = [echo.enqueue() for _ in range(3)]
    rows = Task.objects.waiting().select_related("instance", "type")
    with django_assert_num_queries(1):
        page = paging.page(rows, CLAIMING, size=2)
        assert [row.instance for row in page.rows] == made[:2]
        assert {row.type.identifier for row in page.rows} == {"tests.echo"}


def written(*values):
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


TIME = NOON.isoformat()


@pytest.mark.parametrize(
    ("order", "key"),
    [
        (NEWEST_FIRST, ""),
        (NEWEST_FIRST, "1"),
        (NEWEST_FIRST, "ä"),
        (NEWEST_FIRST, "\ud800"),
        (NEWEST_FIRST, "a b"),
        (NEWEST_FIRST, base64.urlsafe_b64encode(b"\xff\xfe").decode()),
        (NEWEST_FIRST, base64.urlsafe_b64encode(b"[" * 9000).decode()),
        (NEWEST_FIRST, written()),
        (NEWEST_FIRST, written("a")),
        (NEWEST_FIRST, written("x", 1)),
        (NEWEST_FIRST, written(["a"], 1)),
        (NEWEST_FIRST, written("a", 1, 2)),
        (NEWEST_FIRST, written("a", "1")),
        (NEWEST_FIRST, written("a", 1.0)),
        (NEWEST_FIRST, written("a", True)),
        (NEWEST_FIRST, written("a", None)),
        (NEWEST_FIRST, written("a", float("nan"))),
        (NEWEST_FIRST, written("a", 2**63)),
        (NEWEST_FIRST, written("a", -(2**63))),
        (CLAIMING, written("a", 1)),
        (CLAIMING, written("a", 1, 0, 0, 1)),
        (CLAIMING, written("a", 1, 0, "noon", 1)),
        (CLAIMING, written("a", 1, 0, "2030-01-31T12:00:00", 1)),
        (CLAIMING, written("a", 1, 0, "0001-01-01T00:00:00+23:59", 1)),
        (CLAIMING, written("a", 1, 0, "9999-12-31T23:59:59-23:59", 1)),
        (CLAIMING, written("a", 1, TIME, TIME, 1)),
    ],
)
def test_what_is_no_key_of_the_list_is_refused(order, key):
    with pytest.raises(InvalidPageKey, match="is not a page key of this list"):
        paging.page(rows_of(order), order, size=3, key=key)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("order", "key"),
    [
        (NEWEST_FIRST, written("a", 2**63 - 1)),
        (NEWEST_FIRST, written("b", 1 - 2**63)),
        (CLAIMING, written("a", 2**62, 10**6, TIME, 2**63 - 1)),
        (CLAIMING, written("b", -(2**62), -(10**6), "0001-01-01T00:00:00+00:00", 0)),
        (CLAIMING, written("a", 1, 0, "9999-12-31T23:59:59.999999+00:00", 1)),
    ],
)
def test_a_key_of_the_list_may_be_far_off(order, key):
    echo.enqueue()
    paging.page(rows_of(order), order, size=3, key=key)


@pytest.mark.django_db
@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(key=st.text() | st.binary().map(lambda b: base64.urlsafe_b64encode(b).decode()))
@pytest.mark.parametrize("order", [NEWEST_FIRST, CLAIMING])
def test_any_text_is_a_key_or_refused(order, key):
    try:
        paging.page(rows_of(order), order, size=3, key=key)
    except InvalidPageKey:
        pass
