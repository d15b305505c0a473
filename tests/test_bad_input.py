"""Tests that bad input raises a named exception and writes nothing (G13)."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from atp import exceptions
from atp.authoring.task_type import TaskType
from atp.exceptions import (
    ATPError,
    InvalidInputs,
    InvalidOption,
    InvalidType,
    NotSerializable,
    TooLarge,
)
from atp.models import Inputs, Instance, LogRecord, Task, Type
from atp.payload import codec

from .app.tasks import echo, keyword

pytestmark = pytest.mark.django_db
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def nothing_is_written():
    def rows():
        models = (Type, Instance, Inputs, Task, LogRecord)
        return [list(model.objects.order_by("pk").values()) for model in models]

    before = rows()
    yield
    assert rows() == before


def test_enqueue_rejects_invalid_options():
    long_ago = datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))
    far = datetime.max.replace(tzinfo=timezone(-timedelta(hours=5)))
    for told, name, *values in (
        ("-100 to 100", "priority", 101, -101, 2**70),
        ("whole number", "priority", 1.0, "1", True, None),
        ("must be text", "collection", None, 5),
        ("200 are allowed", "collection", "x" * 201),
        ("printable", "collection", "a\x00b", "a\nb", "\ud800"),
        ("empty", "identifier", ""),
        ("must be text", "identifier", 5),
        ("200 are allowed", "identifier", "x" * 201),
        ("printable", "identifier", "a\x00"),
        ("must be text", "created_by", None),
        ("200 are allowed", "created_by", "x" * 201),
        ("must be one of raise, return, redrive", "existing", "ignore", None),
        ("Did you mean 'return'", "existing", "retrun"),
        ("must be a datetime", "run_after", True, date(2100, 1, 1), "2100-01-01"),
        ("must be from 0 to 315360000 s", "run_after", -1, 1_795_826_796.7, float("nan")),
        ("has passed", "start_before", datetime(2020, 1, 1, tzinfo=UTC), timedelta(0), 0),
        ("run_after", "run_after", timedelta.max, timedelta.min, far),
        ("start", "start_before", long_ago),
        ("outside the calendar", "start_before", datetime.max.replace(tzinfo=UTC)),
    ):
        for value in values:
            refused({name: value}, told)
    refused({"run_after": LATER, "start_before": LATER}, "must be later than run_after")
    # ``using()`` already refuses a value that can never be valid.
    for options in ({"priority": 101}, {"existing": "reject"}, {"collection": "a\nb"}):
        with pytest.raises(InvalidOption):
            echo.using(**options)


def refused(options, told):
    with pytest.raises(InvalidOption, match=told):
        echo.using(**options).enqueue()
    with pytest.raises(InvalidOption, match=told):
        echo.using(**options).enqueue_many([{}])


def failing():
    yield {"a": 1}
    raise ZeroDivisionError


def test_enqueue_rejects_invalid_inputs(settings):
    """If one entry of a batch is invalid, the whole batch is refused.

    G14: a pickle could execute code when it is loaded, so the settings have to allow it.
    """
    pickled = TaskType(handler=echo.handler, identifier="tests.echo", serializer=codec.PICKLE)
    with pytest.raises(InvalidType, match="ALLOW_PICKLE"):
        pickled.enqueue(a=1)
    for enqueue, error in (
        (lambda: keyword.enqueue(), InvalidInputs),
        (lambda: keyword.enqueue("x"), InvalidInputs),
        (lambda: keyword.enqueue(path="x", scal=2), InvalidInputs),
        (lambda: echo.enqueue(**{"*": 1}), InvalidInputs),
        (lambda: echo.enqueue_many([{1: 2}]), InvalidInputs),
        (lambda: echo.enqueue_many([5]), InvalidInputs),
        (lambda: echo.enqueue_many([None]), InvalidInputs),
        (lambda: echo.enqueue(a=object()), NotSerializable),
        (lambda: echo.enqueue(a="x" * 2**20), TooLarge),
        (lambda: echo.enqueue(a="ä" * 2**19), TooLarge),
        (lambda: echo.enqueue_many([{"a": 1}, {"a": object()}, {"a": 2}]), NotSerializable),
        (lambda: keyword.enqueue_many([{"path": "x"}, {}]), InvalidInputs),
        (lambda: echo.enqueue_many(failing()), ZeroDivisionError),
        (lambda: echo.enqueue_many([{}], identifiers=[]), InvalidOption),
        (lambda: echo.enqueue_many([{}], identifiers=["a", "b"]), InvalidOption),
        (lambda: echo.enqueue_many([{}], identifiers=[5]), InvalidOption),
        (lambda: echo.using(identifier="a").enqueue_many([{}, {}]), InvalidOption),
        (lambda: echo.using(priorty=1), InvalidOption),
    ):
        with pytest.raises(error):
            enqueue()
    settings.ATP = {"MAX_INPUTS_SIZE": 10}
    with pytest.raises(TooLarge, match="limit is 10 bytes"):
        echo.enqueue(a="123456")


def test_exceptions_are_subclasses_of_builtin_exceptions():
    """Code that does not know ATP can catch ``ValueError`` or ``LookupError``."""
    for error in (InvalidInputs, InvalidOption, NotSerializable, TooLarge):
        assert {ATPError, ValueError} <= {*error.__mro__}
    assert issubclass(exceptions.UnknownInstance, LookupError)


def test_retry_and_defer_reject_delays_out_of_range():
    """The message of ``Defer`` names both bounds, whichever of them is exceeded."""
    for after in (-1, float("inf"), float("nan"), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="after"):
            exceptions.Retry(after=after)
    for after, seconds in ((None, None), (0, 0), (timedelta(minutes=1), 60)):
        assert exceptions.Retry("later", after=after).after == seconds
    for after in (0, 0.0, -1, timedelta(0), timedelta(-1), 4e8):
        with pytest.raises(ValueError, match="must be more than 0 and at most 315360000 s"):
            exceptions.Defer(after=after)
