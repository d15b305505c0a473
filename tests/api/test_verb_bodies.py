"""Bodies that are made from the parameters of a verb."""

from datetime import timedelta

import pytest

from atp.api.base import body_of
from atp.verbs.table.verb import Parameter, Verb
from atp.words.kinds import Moment, Text, WholeNumber


def verb(*parameters):
    return Verb(
        name="do-it",
        label="Do it",
        explanation="Do it.",
        call=lambda subject, by: None,
        told=lambda subject, value: "",
        parameters=parameters,
    )


BODY = body_of(
    verb(
        Parameter(name="due", field="due_at", kind=Moment(), help="", is_required=True),
        Parameter(name="count", kind=WholeNumber(1, 3), help="", can_be_none=True),
        Parameter(name="note", kind=Text(), help=""),
    )
)


@pytest.mark.parametrize(
    ("data", "values"),
    [
        ({"due_at": 5}, {"due": timedelta(seconds=5)}),
        ({"due_at": 5, "count": None}, {"due": timedelta(seconds=5), "count": None}),
        ({"due_at": 0, "count": 2.0, "note": ""}, {"due": timedelta(), "count": 2, "note": ""}),
    ],
)
def test_what_fits(data, values):
    """By the names that the verb has for them; what is not given is not there."""
    body = BODY(data=data)
    assert body.is_valid()
    assert body.validated_data == values


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        ({}, {"due_at": "It is required."}),
        ({"due_at": None, "count": 4}, {"due_at": "None is not", "count": "from 1 to 3"}),
        ({"due_at": 1, "note": None}, {"note": "It must be text, not None."}),
        ({"due": 1, "due_at": 1}, {"due": "Did you mean 'due_at'?"}),
        ([], {"": "JSON object"}),
    ],
)
def test_what_does_not(data, wrong):
    """G13: all of it is told, each with its field."""
    body = BODY(data=data)
    assert not body.is_valid()
    assert body.errors.keys() == wrong.keys()
    for field, text in wrong.items():
        assert text in str(body.errors[field][0])


def test_without_parameters_there_is_no_body():
    assert body_of(verb()) is None


def test_a_body_has_the_name_of_its_verb():
    """Clients that are generated have a class of this name."""
    assert BODY.__name__ == "DoItSerializer"
