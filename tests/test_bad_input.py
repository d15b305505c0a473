"""Bad input is an error, never a loss (G13): a named exception, and nothing written."""

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

from .app.tasks import add, echo, keyword

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


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"priority": 101}, "-100 to 100"),
        ({"priority": -101}, "-100 to 100"),
        ({"priority": 2**70}, "-100 to 100"),
        ({"priority": 1.0}, "whole number"),
        ({"priority": "1"}, "whole number"),
        ({"priority": True}, "whole number"),
        ({"priority": None}, "whole number"),
        ({"collection": None}, "must be text"),
        ({"collection": 5}, "must be text"),
        ({"collection": "x" * 201}, "200 are allowed"),
        ({"collection": "a\x00b"}, "printable"),
        ({"collection": "a\nb"}, "printable"),
        ({"collection": "\ud800"}, "printable"),
        ({"identifier": ""}, "empty"),
        ({"identifier": 5}, "must be text"),
        ({"identifier": "x" * 201}, "200 are allowed"),
        ({"identifier": "a\x00"}, "printable"),
        ({"created_by": None}, "must be text"),
        ({"created_by": "x" * 201}, "200 are allowed"),
        ({"existing": "ignore"}, "must be one of raise, return, redrive"),
        ({"existing": "retrun"}, "Did you mean 'return'"),
        ({"existing": None}, "must be one of"),
        ({"run_after": datetime(2100, 1, 1)}, "no time zone, and USE_TZ is on"),
        ({"start_before": datetime(2100, 1, 1)}, "no time zone, and USE_TZ is on"),
        ({"run_after": True}, "must be a datetime"),
        ({"run_after": -1}, "must be from 0 to 315360000 seconds from now"),
        ({"run_after": 1_795_826_796.7}, "must be from 0 to"),
        ({"run_after": float("nan")}, "must be from 0 to"),
        ({"run_after": date(2100, 1, 1)}, "must be a datetime"),
        ({"run_after": "2100-01-01"}, "must be a datetime"),
        ({"start_before": datetime(2020, 1, 1, tzinfo=UTC)}, "has passed"),
        ({"start_before": timedelta(0)}, "has passed"),
        ({"start_before": 0}, "has passed"),
        ({"run_after": timedelta.max}, "run_after"),
        ({"run_after": timedelta.min}, "run_after"),
        ({"run_after": datetime.max.replace(tzinfo=timezone(-timedelta(hours=5)))}, "run_after"),
        ({"start_before": datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))}, "start"),
        ({"start_before": datetime.max.replace(tzinfo=UTC)}, "beyond"),
        ({"run_after": LATER, "start_before": LATER}, "must be later than run_after"),
    ],
    ids=str,
)
def test_options(options, told):
    with pytest.raises(InvalidOption, match=told):
        echo.using(**options).enqueue()
    with pytest.raises(InvalidOption, match=told):
        echo.using(**options).enqueue_many([{}])


@pytest.mark.parametrize(
    "options",
    [{"priority": 101}, {"existing": "reject"}, {"collection": "a\nb"}, {"identifier": ""}],
    ids=str,
)
def test_what_is_wrong_at_any_time_is_refused_before_anything_is_enqueued(options):
    with pytest.raises(InvalidOption):
        echo.using(**options)


@pytest.mark.parametrize(
    ("enqueue", "error"),
    [
        (lambda: keyword.enqueue(), InvalidInputs),
        (lambda: keyword.enqueue("x"), InvalidInputs),
        (lambda: keyword.enqueue(path="x", scal=2), InvalidInputs),
        (lambda: add.enqueue(), InvalidInputs),
        (lambda: echo.enqueue(**{"*": 1}), InvalidInputs),
        (lambda: echo.enqueue_many([{1: 2}]), InvalidInputs),
        (lambda: echo.enqueue_many([5]), InvalidInputs),
        (lambda: echo.enqueue_many(["text"]), InvalidInputs),
        (lambda: echo.enqueue_many([None]), InvalidInputs),
        (lambda: echo.enqueue(a=object()), NotSerializable),
        (lambda: echo.enqueue(a={1, 2}), NotSerializable),
        (lambda: echo.enqueue(a={1: 2}), NotSerializable),
        (lambda: echo.enqueue(a="\ud800"), NotSerializable),
        (lambda: echo.enqueue(a="x" * 2**20), TooLarge),
        (lambda: echo.enqueue(a="ä" * 2**19), TooLarge),
        (lambda: echo.enqueue_many([{}], identifiers=[]), InvalidOption),
        (lambda: echo.enqueue_many([{}], identifiers=["a", "b"]), InvalidOption),
        (lambda: echo.enqueue_many([{}], identifiers=[5]), InvalidOption),
        (lambda: echo.using(identifier="a").enqueue_many([{}, {}]), InvalidOption),
        (lambda: echo.using(priorty=1), InvalidOption),
    ],
)
def test_inputs(enqueue, error):
    with pytest.raises(error):
        enqueue()


def test_one_bad_item_refuses_the_whole_batch():
    with pytest.raises(NotSerializable):
        echo.enqueue_many([{"a": 1}, {"a": object()}, {"a": 2}])
    with pytest.raises(InvalidInputs):
        keyword.enqueue_many([{"path": "x"}, {}])


def test_an_iterator_that_fails_refuses_the_whole_batch():
    def inputs():
        yield {"a": 1}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        echo.enqueue_many(inputs())


def test_the_limit_is_a_setting(settings):
    settings.ATP = {"MAX_INPUTS_SIZE": 10}
    with pytest.raises(TooLarge, match="limit is 10 bytes"):
        echo.enqueue(a="123456")


def test_pickle_without_the_setting():
    """G14."""
    pickled = TaskType(handler=echo.handler, identifier="tests.echo", serializer=codec.PICKLE)
    with pytest.raises(InvalidType, match="ALLOW_PICKLE"):
        pickled.enqueue(a=1)


def test_errors_tell_what_kind_they_are():
    """So that code which does not know ATP can still treat them sensibly."""
    for name in ("InvalidInputs", "InvalidOption", "NotSerializable", "TooLarge"):
        assert issubclass(getattr(exceptions, name), (ATPError, ValueError))
    for name in ("UnknownType", "UnknownInstance"):
        assert issubclass(getattr(exceptions, name), LookupError)


@pytest.mark.parametrize("after", [-1, float("inf"), float("nan"), timedelta(seconds=-1)])
def test_a_retry_of_no_sense(after):
    with pytest.raises(ValueError, match="after"):
        exceptions.Retry(after=after)


@pytest.mark.parametrize(("after", "seconds"), [(None, None), (0, 0), (timedelta(minutes=1), 60)])
def test_a_retry(after, seconds):
    assert exceptions.Retry("later", after=after).after == seconds


@pytest.mark.parametrize("after", [0, 0.0, -1, timedelta(0), timedelta(-1), 4e8])
def test_a_deferral_of_no_sense(after):
    """Its bounds are told the same, whichever of them it is beyond."""
    with pytest.raises(ValueError, match="must be more than 0 and at most 315360000 s"):
        exceptions.Defer(after=after)
