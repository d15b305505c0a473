"""The store for PostgreSQL: arrays as text. What goes in comes out (G13)."""

from enum import IntEnum

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from atp.models import Inputs, Instance
from atp.payload.codec import Payload
from atp.store.values import Submission

from .world import ONE, registration

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="that of PostgreSQL"),
    pytest.mark.django_db,
]

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


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text)[:20])
def test_odd_texts(text):
    from atp.store.postgresql.driver.arrays import texts

    assert echo(texts([text]), "text") == [text]
    assert echo(texts(["a", text, None, text, "b"]), "text") == ["a", text, None, text, "b"]


@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"))))
def test_any_texts(values):
    from atp.store.postgresql.driver.arrays import texts

    assert (echo(texts(values), "text") or []) == values


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_any_integers(values):
    from atp.store.postgresql.driver.arrays import array

    assert (echo(array(values), "bigint") or []) == values


@given(st.lists(st.none() | st.floats(allow_nan=False)))
def test_any_floats(values):
    from atp.store.postgresql.driver.arrays import array

    assert (echo(array(values), "float8") or []) == values


class Urgency(IntEnum):
    HIGH = 10


def test_what_is_an_integer_by_another_name():
    """A caller may have names for its priorities."""
    from atp.store.postgresql.driver.arrays import array

    assert echo(array([Urgency.HIGH, True, 3]), "bigint") == [10, 1, 3]


@pytest.mark.parametrize("text", [text for text in ODD if text and len(text) < 100], ids=ascii)
def test_each_text_of_many_requests_is_kept(world, text):
    requests = [
        Submission(
            inputs=Payload("json", text),
            identifier=f"{text}{number or ''}",
            collection=text,
            created_by=text,
        )
        for number in range(2)
    ]
    world.store.register([registration(ONE)])
    made = world.store.enqueue(registration(ONE), requests)
    for request, instance in zip(requests, made, strict=True):
        row = Instance.objects.get(pk=instance.pk)
        assert (row.identifier, row.collection, row.created_by) == (
            *(request.identifier, request.collection, request.created_by),
        )
        assert Inputs.objects.get(pk=instance.pk).data == text
        assert world.task(instance.pk).collection == text
        assert world.log(instance.pk)[0].who == text
