"""The source Table: rows are deleted in the transaction that enqueues their Tasks (G18)."""

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection, models
from django.db.models import Q
from django.test.utils import isolate_apps

from atp import queue
from atp.exceptions import Fatal, InvalidType
from atp.sources import RowRecord, Table

from ..helpers import open_transaction
from .test_reading import data, enqueued


@pytest.fixture
def tail(declare, work):
    """A function that declares a tailer of Groups, whose calls have the names of the groups."""

    def make(function=None, batch=500, **given):
        function = function or (lambda record: work.call(data=record.row.name))
        return declare(Table(Group, **given), function, batch=batch)

    return make


def groups(*names):
    for name in names:
        Group.objects.create(name=name)


def names():
    return sorted(Group.objects.values_list("name", flat=True))


def add_trigger(postgresql, sqlite):
    """Add a trigger that runs before the DELETE of a row whose name begins with "kept"."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            when = "when old.name like 'kept%'"
            cursor.execute(f"create trigger keep before delete on auth_group {when} {sqlite}")
            return
        body = f"begin if old.name like 'kept%' then {postgresql} end if; return old; end"
        cursor.execute(f"create function keep() returns trigger language plpgsql as $${body}$$")
        on = "before delete on auth_group for each row"
        cursor.execute(f"create trigger keep {on} execute function keep()")


def test_only_matching_rows_are_records(tail, read):
    groups("order 1", "note 1", "order 2")
    read(tail(where=Q(name__startswith="order"), order_by=["-name"]))
    assert (data(), names()) == (["order 2", "order 1"], ["note 1"])


@pytest.mark.django_db(transaction=True)
def test_a_locked_row_does_not_block_other_rows(tail, read):
    """The locked row is left for a later scan (G9)."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer, and no locks of rows")
    groups("a", "b")
    made = tail()
    with open_transaction(lambda: Group.objects.select_for_update().get(name="a")):
        assert read(made)["records"] == 1
    assert (data(), names()) == (["b"], ["a"])
    read(made)
    assert (data(), names()) == (["b", "a"], [])


def test_changes_that_the_function_makes_to_its_row_are_ignored(tail, read, work, atp):
    """The row is compared and stored as it was read."""
    groups("a ", "b ")

    def function(record):
        record.row.name = record.row.name.strip()
        if record.row.name == "b":
            raise KeyError(record.row.name)
        return work.call(data=record.row.name)

    assert read(tail(function)) == {"records": 2, "enqueued": 1, "rejected": 1, "behind": 0}
    assert (data(), names()) == (["a"], [])
    assert enqueued("tests.tailer.rejected")[0]["record"]["fields"]["name"] == "b "


def test_a_row_that_can_be_neither_mapped_nor_stored_blocks_no_other_row(
    tail, read, work, settings
):
    """The row exists nowhere else (G1). The log reports it, and other rows are read."""
    settings.ATP = settings.ATP | {"MAX_INPUTS_SIZE": 200}
    groups("x" * 150, "b")

    def function(record):
        if record.row.name != "b":
            raise KeyError("too large for inputs")
        return work.call(data=record.row.name)

    found = read(tail(function, batch=1))
    assert found == {"records": 1, "enqueued": 1, "rejected": 0, "behind": 1}
    assert (data(), names()) == (["b"], ["x" * 150])
    assert "1 rows can neither be mapped nor be stored" in read.context.messages[0][1]


@pytest.mark.parametrize(
    ("postgresql", "sqlite"),
    [
        ("return null;", "begin select raise(ignore); end"),
        ("raise exception 'not you';", "begin select raise(abort, 'not you'); end"),
    ],
    ids=["without an error", "with an error"],
)
def test_a_row_that_cannot_be_deleted_pauses_the_tailer(tail, read, postgresql, sqlite):
    """Otherwise each scan would enqueue its calls again (G18). Other rows are read first."""
    add_trigger(postgresql, sqlite)
    groups("kept 1", "b", "kept 2", "c")
    made = tail(batch=3)
    queue.register_all()
    for _ in range(2):
        with pytest.raises(Fatal, match=r"2 rows of auth\.Group cannot be removed"):
            read(made)
    assert (data(), names()) == (["b", "c"], ["kept 1", "kept 2"])
    assert "cannot be removed" in queue.get_schedule("tests.tailer").paused_reason


def test_a_row_that_is_marked_instead_of_deleted_counts_as_removed(tail, read):
    """A marked row no longer matches the filter, so no Task is enqueued twice."""
    mark = "update auth_group set name = 'gone' where id = old.id;"
    add_trigger(f"{mark} return null;", f"begin {mark} select raise(ignore); end")
    groups("kept 1", "b")
    made = tail(where=~Q(name="gone"))
    read(made)
    assert read(made)["records"] == 0
    assert (data(), names()) == (["kept 1", "b"], ["gone"])


@isolate_apps("tests.app")
def test_a_row_with_incomparable_values_is_read(declare, read, work):
    """The values in the database are compared, not the Python objects of the model fields."""

    class Words(list):
        def __deepcopy__(self, memo):
            raise TypeError("it cannot be copied")

        __eq__ = object.__eq__
        __hash__ = object.__hash__

    class WordsField(models.TextField):
        def from_db_value(self, value, expression, connection):
            return Words([value])

    class Outbox(models.Model):  # noqa: DJ008
        name = WordsField()

        class Meta:
            app_label = "tests"
            db_table = "auth_group"

    groups("a", "b")
    made = declare(Table(Outbox), lambda record: work.call(data=record.row.name[0]))
    assert read(made)["records"] == 2
    assert (data(), names()) == (["a", "b"], [])


def test_a_row_that_changes_while_it_is_mapped_is_left_for_the_next_attempt(tail, read, work):
    seen = []

    def function(record):
        seen.append(record.row.name)
        if seen == ["a"]:
            groups("b", "c")  # they come before
            Group.objects.filter(name="a").update(name="changed")
        return work.call(data=record.row.name)

    groups("a")
    made = tail(function, batch=1, order_by=["-pk"])
    assert read(made) == {"records": 2, "enqueued": 2, "rejected": 0, "behind": 1}
    assert sorted(seen) == ["a", "b", "c"]
    assert (sorted(data()), names()) == (["b", "c"], ["changed"])
    [(_, text)] = read.context.messages
    assert "1 rows are left for the next attempt" in text
    read(made)
    assert (sorted(data()), names()) == (["b", "c", "changed"], [])


def test_large_rows_are_read_a_few_at_a_time(tail, read, monkeypatch):
    """The size of a batch is limited in bytes too."""
    monkeypatch.setattr("atp.sources.table.BATCH_BYTES", 300)
    groups(*(f"{number:0100}" for number in range(8)))
    with Table(Group).open({}) as reader:
        assert 2 <= len(reader.read(500)) <= 4
    assert read(tail())["records"] == 8


@pytest.mark.django_db
@isolate_apps("tests.app")
def test_rows_of_other_and_of_inherited_models_are_rejected():
    """The inputs of a rejected record can be written by hand (G14).

    The columns in the table of a parent model would be lost (G13).
    """
    packed = Table(Permission).pack(RowRecord(row=Permission.objects.first()))
    with pytest.raises(ValueError, match=r"a row of 'auth.permission' is not a row of auth.Group"):
        Table(Group).unpack(packed)

    class Outbox(models.Model):  # noqa: DJ008
        class Meta:
            app_label = "tests"

    class Order(Outbox):  # noqa: DJ008
        class Meta:
            app_label = "tests"

    with pytest.raises(InvalidType, match="must not inherit columns from another table"):
        Table(Order)
