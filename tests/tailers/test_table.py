"""The source Table: rows that are removed with the enqueue (G18)."""

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.db.models import Q

from atp.sources import Table

from ..helpers import open_transaction
from .test_reading import data, enqueued


@pytest.fixture
def tail(declare, work):
    """Declare a tailer of groups, whose calls have their names."""

    def make(function=None, **given):
        function = function or (lambda record: work.call(data=record.row.name))
        return declare(Table(Group, **given), function)

    return make


def groups(*names):
    for name in names:
        Group.objects.create(name=name)


def names():
    return sorted(Group.objects.values_list("name", flat=True))


@pytest.mark.django_db
def test_each_row_is_removed_and_enqueued(tail, read):
    """G18."""
    groups("b", "a", "c")
    assert read(tail()) == {"records": 3, "enqueued": 3, "rejected": 0, "behind": 0}
    assert (data(), names()) == (["b", "a", "c"], [])


@pytest.mark.django_db
def test_only_rows_that_match_are_records(tail, read):
    groups("order 1", "note 1", "order 2")
    read(tail(where=Q(name__startswith="order"), order_by=["-name"]))
    assert (data(), names()) == (["order 2", "order 1"], ["note 1"])


@pytest.mark.django_db
def test_a_row_that_is_changed_meanwhile_is_read_again(tail, read, work):
    groups("a", "b")

    def function(record):
        if record.row.name == "a":
            Group.objects.filter(name="a").update(name="changed")
        return work.call(data=record.row.name)

    made = tail(function)
    assert read(made) == {"records": 1, "enqueued": 1, "rejected": 0, "behind": 1}
    assert (data(), names()) == (["b"], ["changed"])
    read(made)
    assert (data(), names()) == (["b", "changed"], [])


@pytest.mark.django_db
def test_a_row_that_cannot_be_mapped_is_put_aside_with_its_values(tail, read, work, atp):
    groups("a")
    raising = [True]

    def function(record):
        if raising:
            raise KeyError(record.row.name)
        return work.call(data=record.row.name)

    made = tail(function)
    assert read(made)["rejected"] == 1
    assert names() == []
    assert enqueued("tests.tailer.rejected")[0]["record"]["fields"]["name"] == "a"
    raising.clear()
    [run] = atp.drain(made.rejected)
    assert (run.state, data()) == ("FINISHED", ["a"])


@pytest.mark.each_database
@pytest.mark.django_db(transaction=True)
def test_nobodys_open_transaction_stops_it(tail, read):
    """G9: a row that an application has locked is left for later; the others go on."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer, and no locks of rows")
    groups("a", "b")
    made = tail()
    with open_transaction(lambda: Group.objects.select_for_update().get(name="a")):
        assert read(made)["records"] == 1
    assert (data(), names()) == (["b"], ["a"])
    read(made)
    assert (data(), names()) == (["b", "a"], [])


@pytest.mark.django_db
def test_a_table_of_many_columns_is_carried(declare, read, atp):
    """Foreign keys come back as keys."""
    before = Permission.objects.order_by("pk").first()
    seen = []

    def function(record):
        seen.append(record.row)
        raise KeyError("a")

    made = declare(Table(Permission, where=Q(pk=before.pk)), function)
    read(made)
    atp.drain(made.rejected, raises=False)
    assert [row.content_type_id for row in seen] == [before.content_type_id] * 2
    assert seen[0] == seen[1]
