"""Tests of keyset paging: each row appears once, whatever is inserted or deleted meanwhile."""

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
    """Create a Task with the given values to sort by; return the primary key of the Task."""
    instance = Instance.objects.create(
        type_id=type, state=State.ACCEPTED, priority=priority, created=NOON
    )
    due_at = NOON + timedelta(minutes=minutes)
    Task.objects.create(instance=instance, type_id=type, priority=priority, due_at=due_at)
    return instance.pk


def keys(rows):
    return [row.pk for row in rows]


def walk(order, size, turn="next", key=None):
    """Return all pages from ``key`` on; ``turn`` is ``next`` or ``previous``."""
    pages = [paging.page(rows_of(order), order, size=size, key=key)]
    while (key := getattr(pages[-1], turn)) is not None:
        pages.append(paging.page(rows_of(order), order, size=size, key=key))
        assert len(pages) < 100, "paging does not end"
    return pages


TYPES = st.integers(0, 2)
PLACES = st.tuples(TYPES, st.integers(-1, 1), st.integers(0, 2))


class Walks(TestCase):
    """Random lists of rows. Hypothesis runs each example in its own transaction."""

    def types(self):
        return list(Type.objects.order_by("pk").values_list("pk", flat=True)[:3])

    def fill(self, places):
        types = self.types()
        return [add(types[type], priority, minutes) for type, priority, minutes in places]

    @pytest.mark.slow
    @settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=20)
    @given(
        places=st.lists(PLACES, max_size=14), size=st.integers(1, 5), order=st.sampled_from(ORDERS)
    )
    def test_paging_forward_and_back_returns_each_row_once_in_order(self, places, size, order):
        self.fill(places)
        expected = keys(rows_of(order).order_by(*order))
        there = walk(order, size)
        assert [key for page in there for key in keys(page.rows)] == expected
        assert [len(page.rows) for page in there[:-1]] == [size] * (len(there) - 1)
        assert there[0].previous is None
        back = walk(order, size, "previous", there[-2].next if len(there) > 1 else None)
        assert [page.rows for page in reversed(back)] == [page.rows for page in there]

    @pytest.mark.slow
    @settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=20)
    @given(
        places=st.lists(PLACES, min_size=4, max_size=14),
        late=st.lists(PLACES, max_size=4),
        gone=st.sets(st.integers(0, 13)),
        order=st.sampled_from(ORDERS),
    )
    def test_each_kept_row_appears_once_despite_inserts_and_deletes(
        self, places, late, gone, order
    ):
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
def test_new_rows_fill_the_first_page_and_a_page_of_deleted_rows_is_empty():
    """New rows at the front do not become a short page of their own."""
    made = [echo.enqueue().pk for _ in range(6)]
    rows = Instance.objects.all()
    first = paging.page(rows, NEWEST_FIRST, size=3)
    assert paging.key_after(rows.get(pk=made[3]), NEWEST_FIRST) == first.next
    second = paging.page(rows, NEWEST_FIRST, size=3, key=first.next)
    newest = echo.enqueue().pk
    back = paging.page(rows, NEWEST_FIRST, size=3, key=second.previous)
    assert keys(back.rows) == made[:2:-1]
    assert back.previous is not None
    front = paging.page(rows, NEWEST_FIRST, size=3, key=back.previous)
    assert keys(front.rows) == [newest, made[5], made[4]]
    assert front.previous is None
    Task.objects.all().delete()
    remove_by_hand(Instance.objects.filter(pk__lt=made[3]))
    assert paging.page(rows, NEWEST_FIRST, size=3, key=first.next) == paging.Page(rows=[])


@pytest.mark.django_db
def test_page_takes_at_most_one_query_for_each_field_of_its_order(django_assert_max_num_queries):
    """A page keeps the ``select_related`` of its QuerySet."""
    types = list(Type.objects.values_list("pk", flat=True)[:3])
    for number in range(30):
        add(types[number % 3], number % 2, number % 5)
    for order in (NEWEST_FIRST, CLAIMING):
        middle = walk(order, 4)[3]
        for key in (middle.next, middle.previous):
            # A page that turns out to be the first is queried again.
            with django_assert_max_num_queries(len(order)):
                paging.page(rows_of(order), order, size=4, key=key)
    tasks = Task.objects.waiting().select_related("instance", "type")
    with django_assert_max_num_queries(1):
        for row in paging.page(tasks, CLAIMING, size=2).rows:
            assert (row.instance.pk, row.type.pk) == (row.pk, row.type_id)


def written(*values):
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


TIME = NOON.isoformat()
BAD = [
    *((NEWEST_FIRST, text) for text in ("", "1", "ä", "\ud800", "\x00", "====", "W10=")),
    (NEWEST_FIRST, base64.urlsafe_b64encode(b"\xff\xfe").decode()),
    (NEWEST_FIRST, base64.urlsafe_b64encode(b"[" * 9000).decode()),
    *((NEWEST_FIRST, written(*key)) for key in (["a"], ["x", 1])),
    *((NEWEST_FIRST, written("a", value)) for value in ("1", True, None, float("nan"))),
    *((NEWEST_FIRST, written("a", value)) for value in (2**63, -(2**63))),
    (CLAIMING, written("a", 1)),
    (CLAIMING, written("a", 1, 0, 0, 1)),
    (CLAIMING, written("a", 1, 0, "noon", 1)),
    (CLAIMING, written("a", 1, 0, "2030-01-31T12:00:00", 1)),
    (CLAIMING, written("a", 1, 0, "0001-01-01T00:00:00+23:59", 1)),
    (CLAIMING, written("a", 1, 0, "9999-12-31T23:59:59-23:59", 1)),
    (CLAIMING, written("a", 1, TIME, TIME, 1)),
]
FAR = [
    (NEWEST_FIRST, written("a", 2**63 - 1)),
    (NEWEST_FIRST, written("b", 1 - 2**63)),
    (CLAIMING, written("a", 2**62, 10**6, TIME, 2**63 - 1)),
    (CLAIMING, written("b", -(2**62), -(10**6), "0001-01-01T00:00:00+00:00", 0)),
    (CLAIMING, written("a", 1, 0, "9999-12-31T23:59:59.999999+00:00", 1)),
]


@pytest.mark.django_db
def test_invalid_page_key_is_refused():
    """A valid key that lies beyond all rows is accepted."""
    for order, key in BAD:
        with pytest.raises(InvalidPageKey, match="is not a page key of this list"):
            paging.page(rows_of(order), order, size=3, key=key)
    for order, key in FAR:
        paging.page(rows_of(order), order, size=3, key=key)
