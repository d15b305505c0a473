"""The source Table: rows that are removed with the enqueue (G18)."""

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection, models
from django.db.models import Q
from django.test.utils import isolate_apps

from atp.exceptions import InvalidType
from atp.sources import RowRecord, Table

from ..helpers import open_transaction
from .test_reading import data, enqueued


@pytest.fixture
def tail(declare, work):
    """Declare a tailer of groups, whose calls have their names."""

    def make(function=None, batch=500, **given):
        function = function or (lambda record: work.call(data=record.row.name))
        return declare(Table(Group, **given), function, batch=batch)

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
def test_what_the_function_does_to_its_row_changes_nothing(tail, read, work, atp):
    """The row that was read is compared, and kept."""
    groups("a ", "b ")

    def function(record):
        record.row.name = record.row.name.strip()
        if record.row.name == "b":
            raise KeyError(record.row.name)
        return work.call(data=record.row.name)

    assert read(tail(function)) == {"records": 2, "enqueued": 1, "rejected": 1, "behind": 0}
    assert (data(), names()) == (["a"], [])
    assert enqueued("tests.tailer.rejected")[0]["record"]["fields"]["name"] == "b "


@pytest.mark.django_db
def test_a_row_that_cannot_be_kept_stays_and_keeps_no_other(tail, read, work, settings):
    """G1: it is in no other place; the others go on, and the log tells."""
    settings.ATP = settings.ATP | {"MAX_INPUTS_SIZE": 200}
    groups("x" * 150, "b")

    def function(record):
        if record.row.name != "b":
            raise KeyError("too large for inputs")
        return work.call(data=record.row.name)

    found = read(tail(function, batch=1))
    assert found == {"records": 1, "enqueued": 1, "rejected": 0, "behind": 1}
    assert (data(), names()) == (["b"], ["x" * 150])
    assert "1 rows are left" in read.context.messages[0][1]


@isolate_apps("tests.app")
def test_a_model_with_columns_elsewhere_is_refused():
    """G13: the other table's columns would be lost."""

    class Outbox(models.Model):  # noqa: DJ008
        class Meta:
            app_label = "tests"

    class Order(Outbox):  # noqa: DJ008
        class Meta:
            app_label = "tests"

    with pytest.raises(InvalidType, match="has columns in the table of another model"):
        Table(Order)


@pytest.mark.django_db
def test_a_row_of_another_model_is_refused():
    """G14: inputs may be made by hand."""
    packed = Table(Permission).pack(RowRecord(row=Permission.objects.first()))
    with pytest.raises(ValueError, match=r"a row of 'auth.permission' is none of auth.Group"):
        Table(Group).unpack(packed)


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
