"""Which exceptions are worth a retry: ``retry_on``, ``fatal_on``, and backoff in steps."""

import random
from datetime import timedelta

import pytest
from django.core import checks

from atp import Fatal, Retry, queue, task_type
from atp.authoring.retrying import step_delay, why_not_retried
from atp.exceptions import InvalidType
from atp.operations.registry import registry


class Wrapped(ConnectionError):
    """Another's exception."""


HERE = f"{__name__}.Wrapped"


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test declares is forgotten afterwards."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))


def declare(error=RuntimeError, **given):
    @task_type("tests.raises", **given)
    def handler(context):
        raise error("broken")

    return handler


def test_which_exceptions_are_worth_a_retry():
    for given, error, is_worth_it in (
        ({}, TypeError, True),
        ({"retry_on": ConnectionError}, ConnectionResetError, True),
        ({"retry_on": (ConnectionError,)}, TypeError, False),
        ({"retry_on": ["ConnectionError"]}, Wrapped, True),
        ({"retry_on": HERE}, Wrapped, True),
        ({"retry_on": HERE}, ConnectionError, False),
        ({"fatal_on": (TypeError, HERE)}, Wrapped, False),
        ({"fatal_on": TypeError}, ValueError, True),
        # What is in both by a class of it: fatal_on says the last word.
        ({"retry_on": ConnectionError, "fatal_on": Wrapped}, Wrapped, False),
        ({"retry_on": ConnectionError, "fatal_on": Wrapped}, ConnectionError, True),
    ):
        assert (why_not_retried(declare(**given), error("broken")) == "") is is_worth_it, given


def test_an_error_of_fatal_on_fails_at_once_for_the_reason_error(atp):
    """Its message says why there is no retry, whatever is left of the budget."""
    made = declare(error=KeyError, fatal_on=LookupError, max_retries=5)
    run = atp.work(made, raises=False)
    assert (run.state, run.reason) == ("FAILED", "ERROR")
    message = run.instance.log.last().message
    assert "KeyError: 'broken'" in message
    assert message.endswith("(no retry: LookupError is in fatal_on of its Type)")


def test_what_is_retried_is_due_after_its_step_of_the_backoff(atp):
    """Also what asks for a retry, whatever retry_on says."""
    steps = {"backoff": [10, timedelta(minutes=1), 600], "max_retries": 9}
    for error, given in ((Retry, {"retry_on": ConnectionError}), (OSError, {})):
        run = atp.work(declare(error=error, **given, **steps), attempt=2, raises=False)
        assert run.state == "ACCEPTED"
        delay = queue.task(run.instance).due_at - run.instance.log.last().time
        assert timedelta(seconds=29) <= delay <= timedelta(seconds=61)


def test_a_bad_value_is_an_invalid_type():
    """G13: told when it is declared, by name."""
    for given, message in (
        ({"retry_on": ()}, "names no exception"),
        ({"retry_on": 5}, "takes classes of exceptions"),
        ({"retry_on": (int,)}, "takes classes of exceptions"),
        ({"retry_on": (ValueError("x"),)}, "takes classes of exceptions"),
        ({"fatal_on": "Nonsense"}, "'Nonsense' is not the dotted name"),
        ({"fatal_on": "a..b"}, "is not the dotted name"),
        ({"fatal_on": "a b.c"}, "is not the dotted name"),
        ({"retry_on": Fatal}, "says itself what becomes"),
        ({"retry_on": KeyError, "fatal_on": [ValueError, KeyError]}, "KeyError is in retry_on and"),
        ({"retry_on": KeyError, "max_retries": 0}, "max_retries is 0"),
        ({"backoff": []}, "has no steps"),
        ({"backoff": [1] * 101}, "101 steps"),
        ({"backoff": [10, -1]}, r"backoff\[1\]=-1 is out of range"),
        ({"backoff": [10, None]}, r"backoff\[1\] must be seconds"),
        ({"backoff": [10], "backoff_max": 60}, "backoff_max has no effect"),
    ):
        with pytest.raises(InvalidType, match=message):
            declare(**given)


def test_a_name_that_names_nothing_is_told_by_the_system_check():
    declare(retry_on=("no.such.Error", "os.path", "ValueError"))
    found = [message for message in checks.run_checks() if message.id == "atp.E008"]
    assert [message.msg for message in found] == [
        "Type 'tests.raises': retry_on: 'no.such.Error' cannot be imported, or is not "
        "an exception.",
        "Type 'tests.raises': retry_on: 'os.path' cannot be imported, or is not an exception.",
    ]


def test_a_step_for_each_retry_and_the_last_repeats():
    steps = (timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=10))
    for retry, seconds in ((1, 10), (2, 60), (3, 600), (4, 600)):
        found = [step_delay(retry, steps, rng=random.Random(n)) for n in range(100)]
        assert timedelta(seconds=seconds / 2) <= min(found) < max(found)
        assert max(found) <= timedelta(seconds=seconds)
    # The Type tells the first and the longest.
    found = declare(backoff=[10, 600, 60]).registration()
    assert (found.backoff, found.backoff_max) == (steps[0], steps[2])
