"""The store for PostgreSQL: values in arrays and statements mean what they are (G13)."""

from enum import IntEnum

import pytest
from django.db import connection
from hypothesis import given, settings
from hypothesis import strategies as st

from atp.models import Instance
from atp.payload import codec
from atp.store.values import Submission

from .internals import THRESHOLD, PostgreSQLStore, array, enqueueing, literal, texts
from .test_postgresql_statements import prepared
from .world import ONE, World, only_postgresql, registration

ODD = [
    *("", " ", "\t", "\n", "a\nb", " a ", "\u00a0", "\u2028"),
    *("NULL", "null", "Null", "nUlL", "NULLS", "none"),
    *('"', '""', "\\", "\\\\", '\\"', '"\\', "'", "''", "%", "%s", "%(a)s", "%%"),
    *("{", "}", "{}", "{a,b}", ",", "a,b", "[1:2]={1,2}", ";", "--", "$1", "$$"),
    *("ä", "ﬀ", "²", "٣", "İ", "日本語", "🜚", "e\u0301", "\u200d", "\ufeff", "\uffff", "\x01"),
    "long " * 200_000,
    '\\"' * 100_000,
]


def echo(words, kind):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT array_agg(v ORDER BY n) FROM unnest(%s::{kind}[]) "
                       "WITH ORDINALITY AS a (v, n)", [words])  # fmt: skip
        return cursor.fetchone()[0]


class Urgency(IntEnum):
    HIGH = 10


@only_postgresql
@pytest.mark.django_db
@pytest.mark.parametrize("examples", [30, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("kind", "write", "value", "odd"),
    [
        ("text", texts, st.text(st.characters(exclude_characters="\0", codec="utf-8")), ODD),
        # A caller may have names for its priorities.
        ("bigint", array, st.integers(-(2**63), 2**63 - 1), [Urgency.HIGH, True, 3]),
        ("float8", array, st.floats(allow_nan=False), []),
    ],
    ids=["text", "bigint", "float8"],
)
def test_values_in_arrays_are_read_as_they_are(examples, kind, write, value, odd):
    @settings(max_examples=examples)
    @given(st.lists(st.none() | value))
    def is_read_as_it_is(values):
        assert (echo(write(values), kind) or []) == values

    is_read_as_it_is()
    for values in ([*odd, None, *odd], *([one] for one in odd)):
        assert echo(write(values), kind) == values


ODD_LITERALS = [
    *("", "a", "it's", "''", "\\", "\\'", "a\\nb", "%s %(x)s %%", "$", "$1", "$$"),
    *("$atp$; SELECT 1; --", "ends with $atp", "-- no comment", "/* nor", "line\nbreak\ttab"),
    *("é ß 漢 😀", "١٢", "NULL"),  # the second are digits of another script
]


@pytest.fixture
def cursor(db):
    with connection.cursor() as cursor:
        yield cursor


@only_postgresql
@pytest.mark.parametrize("backslashes", ["on", "off"])
def test_a_value_is_read_as_it_is(cursor, backslashes):
    cursor.execute(f"SET LOCAL standard_conforming_strings = {backslashes}")
    cursor.execute("SET LOCAL escape_string_warning = off")
    for text in ODD_LITERALS:
        said = literal(text)
        assert (said is None) == ("$" in text)
        if said is not None:
            cursor.execute(f"SELECT {said}::text")
            assert cursor.fetchone() == (text,)
    for value in (None, True, False, 0, 1, -1, 2**63 - 1):
        kind = "bool" if isinstance(value, bool) else "bigint"
        cursor.execute(f"SELECT {literal(value)}::{kind}")
        assert cursor.fetchone() == (value,)


def test_what_is_anything_else_is_the_drivers():
    for value in (1.5, float("nan"), "a\0b", b"a", [1], object()):
        assert literal(value) is None


@given(st.text())
def test_nothing_ends_it(text):
    said = literal(text)
    if said is not None and said.startswith("$atp$"):
        assert said.count("$") == 4
        assert said[5:-5] == text
    elif said is not None:
        assert said == f"'{text}'"
        assert not set(text) & set("'\\")


@only_postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("apart", [0.0, float("inf")])
def test_what_is_enqueued_arrives_as_it_was(transactional_db, tmp_path, monkeypatch, apart):
    """G13: also by what was prepared, to which values are given in other words."""
    monkeypatch.setattr(enqueueing, "APART", apart)
    with World(PostgreSQLStore("default"), tmp_path) as world:

        def check(*words):
            """Enqueue requests that have these texts everywhere, at once."""
            asked = [
                Submission(codec.encode({"text": text}), collection=text, created_by=text)
                for text in words
            ]
            made = world.store.enqueueing.enqueue(registration(ONE), asked)
            for text, instance in zip(words, made, strict=True):
                row, task = Instance.objects.get(pk=instance.pk), world.task(instance.pk)
                assert row.inputs.value == {"text": text}
                said = {row.collection, row.created_by, task.collection, world.log(row.pk)[0].who}
                assert said == {text}

        for number, text in enumerate(ODD_LITERALS):
            if number % THRESHOLD == 0:
                connection.close()  # what was prepared before is gone
            check(text)
        assert prepared() == set()
        for text in ODD_LITERALS:
            check(text)
        assert prepared() == {"enqueue_one_plain" if apart else "enqueue_handing_plain"}
    connection.close()


@only_postgresql
@pytest.mark.django_db(transaction=True)
def test_who_traces_sees_no_inputs_in_a_statement(transactional_db, tmp_path, monkeypatch):
    """They are its parameters, as they are of any statement of Django."""
    monkeypatch.setattr(enqueueing, "APART", float("inf"))
    seen = []

    def see(execute, sql, parameters, many, context):
        seen.append((sql, parameters))
        return execute(sql, parameters, many, context)

    request = Submission(inputs=codec.encode({"text": "a secret"}))
    with World(PostgreSQLStore("default"), tmp_path) as world, connection.execute_wrapper(see):
        for _ in range(THRESHOLD + 2):
            world.store.enqueueing.enqueue(registration(ONE), [request])
    executed = [(sql, parameters) for sql, parameters in seen if sql.startswith("EXECUTE atp_enq")]
    assert executed
    for sql, parameters in executed:
        assert "secret" not in sql
        assert request.inputs.data in parameters
    connection.close()
