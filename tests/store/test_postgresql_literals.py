"""Values that stand in a statement mean what they are, whatever is in them (G13)."""

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from atp.models import Instance
from atp.payload import codec
from atp.store import handover
from atp.store.postgresql import PostgreSQLStore
from atp.store.postgresql.driver.literals import literal
from atp.store.postgresql.driver.statements import THRESHOLD
from atp.store.values import Submission

from .test_postgresql_statements import prepared
from .world import ONE, World, registration

needs_postgres = pytest.mark.skipif(connection.vendor != "postgresql", reason="that of PostgreSQL")

ODD = [
    "",
    "a",
    "it's",
    "''",
    "\\",
    "\\'",
    "a\\nb",
    "%s %(x)s %%",
    "$",
    "$1",
    "$$",
    "$atp$; SELECT 1; --",
    "ends with $atp",
    "-- no comment",
    "/* nor",
    "line\nbreak\ttab",
    "é ß 漢 😀",
    "١٢",  # digits of another script
    "NULL",
]


@pytest.fixture
def cursor(db):
    with connection.cursor() as cursor:
        yield cursor


@needs_postgres
@pytest.mark.parametrize("backslashes", ["on", "off"])
@pytest.mark.parametrize("text", ODD)
def test_a_text_is_read_as_it_is(cursor, text, backslashes):
    said = literal(text)
    if "$" in text:
        assert said is None
        return
    cursor.execute(f"SET LOCAL standard_conforming_strings = {backslashes}")
    cursor.execute("SET LOCAL escape_string_warning = off")
    cursor.execute(f"SELECT {said}::text")
    assert cursor.fetchone() == (text,)


@needs_postgres
@pytest.mark.parametrize("value", [None, True, False, 0, 1, -1, 2**63 - 1])
def test_so_is_another_value(cursor, value):
    kind = "bool" if isinstance(value, bool) else "bigint"
    cursor.execute(f"SELECT {literal(value)}::{kind}")
    assert cursor.fetchone() == (value,)


@pytest.mark.parametrize("value", [1.5, float("nan"), "a\0b", b"a", [1], object()])
def test_what_is_anything_else_is_the_drivers(value):
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


@needs_postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("apart", [0.0, float("inf")])
@pytest.mark.parametrize("text", ODD)
def test_what_is_enqueued_arrives_as_it_was(transactional_db, tmp_path, monkeypatch, text, apart):
    """G13: also by what was prepared, to which values are given in other words."""
    monkeypatch.setattr(handover, "APART", apart)
    connection.close()  # what was prepared before is gone
    inputs = codec.encode({"text": text})
    usual = Submission(inputs=inputs)
    with World(PostgreSQLStore("default"), tmp_path) as world:
        for request in [usual, usual._replace(created_by=text)] * (THRESHOLD + 2):
            [made] = world.store.enqueue(registration(ONE), [request])
            found = Instance.objects.get(pk=made.pk)
            assert (found.inputs.value, found.created_by) == ({"text": text}, request.created_by)
    assert prepared() == {"enqueue_one" if apart else "enqueue_handing"}
    connection.close()


@needs_postgres
@pytest.mark.django_db(transaction=True)
def test_who_traces_sees_no_inputs_in_a_statement(transactional_db, tmp_path, monkeypatch):
    """They are its parameters, as they are of any statement of Django."""
    monkeypatch.setattr(handover, "APART", float("inf"))
    seen = []

    def see(execute, sql, parameters, many, context):
        seen.append((sql, parameters))
        return execute(sql, parameters, many, context)

    request = Submission(inputs=codec.encode({"text": "a secret"}))
    with World(PostgreSQLStore("default"), tmp_path) as world, connection.execute_wrapper(see):
        for _ in range(THRESHOLD + 2):
            world.store.enqueue(registration(ONE), [request])
    executed = [(sql, parameters) for sql, parameters in seen if sql.startswith("EXECUTE atp_enq")]
    assert executed
    for sql, parameters in executed:
        assert "secret" not in sql
        assert request.inputs.data in parameters
    connection.close()
