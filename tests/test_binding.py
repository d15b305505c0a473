"""Tests of :mod:`atp.payload.binding`."""

from functools import wraps

import pytest

from atp.exceptions import CorruptData, InvalidInputs
from atp.payload.binding import bind, signature_of, split_arguments, unbind


def keywords(context, *, path, azimuth=315.0): ...
def mixed(context, first, second=2): ...
def positional(context, first, second=2, /): ...
def variable(context, first, *more): ...
def named(context, first, **more): ...
def by_position(context, /, **more): ...
def everything(context, a, /, b, *more, c, d=4, **others): ...


@pytest.mark.parametrize(
    ("handler", "args", "kwargs", "inputs"),
    [
        (keywords, (), {"path": "x"}, {"path": "x"}),
        (mixed, (1,), {}, {"first": 1}),
        (mixed, (1, 3), {}, {"first": 1, "second": 3}),
        (mixed, (), {"second": 3, "first": 1}, {"first": 1, "second": 3}),
        (positional, (1,), {}, {"*": [1]}),
        (positional, (1, 3), {}, {"*": [1, 3]}),
        (variable, (1,), {}, {"first": 1}),
        (variable, (1, 2, 3), {}, {"*": [1, 2, 3]}),
        (named, (1,), {"x": 2}, {"first": 1, "x": 2}),
        (by_position, (), {"context": 5}, {"context": 5}),
        (everything, (1, 2), {"c": 3}, {"*": [1], "b": 2, "c": 3}),
        (
            everything,
            (1, 2, 9, 8),
            {"c": 3, "d": 5, "a": 6, "e": 7},
            {"*": [1, 2, 9, 8], "c": 3, "d": 5, "a": 6, "e": 7},
        ),
    ],
)
def test_bound_arguments_reach_the_handler_unchanged(handler, args, kwargs, inputs):
    signature = signature_of(handler)
    bound = bind("t", signature, args, kwargs)
    assert bound == inputs
    again, more = unbind(bound)
    assert signature.bind(*again, **more).arguments == signature.bind(*args, **kwargs).arguments


def test_bind_rejects_arguments_that_do_not_fit_the_handler():
    """G13: the error has Python's own message, the name of the Type, and the argument."""
    for handler, args, kwargs, told, argument in (
        (keywords, (), {}, "missing a required", "path"),
        (keywords, ("x",), {}, "too many positional arguments", None),
        (keywords, (), {"path": "x", "azimut": 1}, "Did you mean 'azimuth'", "azimut"),
        (mixed, (), {"second": 1}, "missing a required", "first"),
        (mixed, (1, 2, 3), {}, "too many positional arguments", None),
        (mixed, (1,), {"first": 1}, "multiple values", None),
        (positional, (), {"first": 1}, "first", None),
        (named, (1,), {"*": 2}, "cannot be the name of an argument", None),
        # A handler with ``**more`` would accept an input ``context`` and fail at each attempt.
        (named, (1,), {"context": 5}, "'context' is the context", None),
    ):
        with pytest.raises(InvalidInputs, match="'t'") as caught:
            bind("t", signature_of(handler), args, kwargs)
        assert told in str(caught.value)
        assert caught.value.argument == argument


def test_json_inputs_are_split_into_positional_and_keyword_arguments():
    for value, wanted in (
        ({"a": 1}, ((), {"a": 1})),
        ([1, 2], ((1, 2), {})),
        ({"*": [1], "a": 2}, ((1,), {"a": 2})),
    ):
        assert split_arguments(value) == wanted
    for value in (7, "text", None, {"*": 1}):
        with pytest.raises(InvalidInputs):
            split_arguments(value)
    with pytest.raises(CorruptData):
        unbind([1, 2])


def test_handler_or_its_decorator_must_take_a_context():
    def of_no_context(*, path, scale=1): ...

    @wraps(of_no_context)
    def handler(context, **inputs): ...

    @wraps(keywords)
    def handing_on(context, **inputs): ...

    assert str(signature_of(handler)) == "(*, path, scale=1)"
    assert str(signature_of(handing_on)) == str(signature_of(keywords))
    odd = of_no_context, lambda: None, lambda **options: None
    for function in odd:
        with pytest.raises(InvalidInputs, match="needs the context as its first parameter"):
            signature_of(function)
