"""Tests of ``retry_on`` and ``fatal_on``, which limit retries, and of the delays of retries."""

import random
from datetime import timedelta

import hypothesis
import pytest
from django.core import checks
from hypothesis import strategies as st

from atp import Fatal, Retry, queue, task_type
from atp.authoring.retrying import retry_delay, step_delay, why_not_retried
from atp.exceptions import InvalidType


class Wrapped(ConnectionError):
    """An exception of another library."""


HERE = f"{__name__}.Wrapped"


pytestmark = pytest.mark.usefixtures("own_types")


def declare(error=RuntimeError, **given):
    @task_type("tests.raises", **given)
    def handler(context):
        raise error("broken")

    return handler


def test_retry_on_and_fatal_on_decide_which_exceptions_are_retried():
    for given, error, is_worth_it in (
        ({}, TypeError, True),
        ({"retry_on": ConnectionError}, ConnectionResetError, True),
        ({"retry_on": (ConnectionError,)}, TypeError, False),
        ({"retry_on": ["ConnectionError"]}, Wrapped, True),
        ({"retry_on": HERE}, Wrapped, True),
        ({"retry_on": HERE}, ConnectionError, False),
        ({"fatal_on": (TypeError, HERE)}, Wrapped, False),
        ({"fatal_on": TypeError}, ValueError, True),
        # fatal_on takes precedence if both include the exception.
        ({"retry_on": ConnectionError, "fatal_on": Wrapped}, Wrapped, False),
        ({"retry_on": ConnectionError, "fatal_on": Wrapped}, ConnectionError, True),
    ):
        assert (why_not_retried(declare(**given), error("broken")) == "") is is_worth_it, given


def test_exception_listed_in_fatal_on_fails_the_instance_without_a_retry(atp):
    """The message says why there is no retry, although some budget is left."""
    made = declare(error=KeyError, fatal_on=LookupError, max_retries=5)
    run = atp.work(made, raises=False)
    assert (run.state, run.reason) == ("FAILED", "ERROR")
    message = run.instance.log.last().message
    assert "KeyError: 'broken'" in message
    assert message.endswith("(no retry: LookupError is in fatal_on of its Type)")


def test_retried_instance_is_due_after_the_delay_of_its_backoff(atp):
    """The exception ``Retry`` is retried even if ``retry_on`` does not include it."""
    steps = {"backoff": [10, timedelta(minutes=1), 600], "max_retries": 9}
    for error, given in ((Retry, {"retry_on": ConnectionError}), (OSError, {})):
        run = atp.work(declare(error=error, **given, **steps), attempt=2, raises=False)
        assert run.state == "ACCEPTED"
        delay = queue.task(run.instance).due_at - run.instance.log.last().time
        assert timedelta(seconds=29) <= delay <= timedelta(seconds=61)


def test_invalid_retry_parameters_are_rejected():
    for given, message in (
        ({"retry_on": ()}, "names no exception"),
        ({"retry_on": 5}, "takes exception classes"),
        ({"retry_on": (int,)}, "takes exception classes"),
        ({"retry_on": (ValueError("x"),)}, "takes exception classes"),
        ({"fatal_on": "Nonsense"}, "'Nonsense' is not the dotted name"),
        ({"fatal_on": "a..b"}, "is not the dotted name"),
        ({"fatal_on": "a b.c"}, "is not the dotted name"),
        ({"retry_on": Fatal}, "itself decides how the attempt ends"),
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


def test_check_reports_exception_names_that_cannot_be_imported():
    declare(retry_on=("no.such.Error", "os.path", "ValueError"))
    found = [message for message in checks.run_checks() if message.id == "atp.E008"]
    assert [message.msg for message in found] == [
        "Type 'tests.raises': retry_on: 'no.such.Error' cannot be imported, or is not "
        "an exception.",
        "Type 'tests.raises': retry_on: 'os.path' cannot be imported, or is not an exception.",
    ]


def test_retry_delay_doubles_up_to_the_maximum():
    """Delays of simultaneous failures differ."""
    rng, second = random.Random(1), timedelta(seconds=1)
    for retry, seconds in ((1, 5), (2, 10), (3, 20), (5, 60), (9, 60)):
        delays = {
            retry_delay(retry, first=5 * second, maximum=60 * second, rng=rng) for _ in range(100)
        }
        assert len(delays) == 100
        assert seconds / 2 * second <= min(delays) < seconds * 0.6 * second
        assert seconds * 0.9 * second < max(delays) <= seconds * second
    assert retry_delay(5, first=timedelta(0), maximum=60 * second) == timedelta(0)


@hypothesis.given(
    retry=st.integers(1, 10**6),
    first=st.timedeltas(timedelta(0), timedelta(days=3650)),
    maximum=st.timedeltas(timedelta(0), timedelta(days=3650)),
)
def test_retry_delay_is_never_negative_and_never_above_the_maximum(retry, first, maximum):
    found = retry_delay(retry, first=first, maximum=maximum)
    assert timedelta(0) <= found <= maximum


def test_each_retry_takes_the_next_backoff_step_and_the_last_step_repeats():
    steps = (timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=10))
    for retry, seconds in ((1, 10), (2, 60), (3, 600), (4, 600)):
        found = [step_delay(retry, steps, rng=random.Random(n)) for n in range(100)]
        assert timedelta(seconds=seconds / 2) <= min(found) < max(found)
        assert max(found) <= timedelta(seconds=seconds)
    # The registered Type has the first and the longest step.
    found = declare(backoff=[10, 600, 60]).registration()
    assert (found.backoff, found.backoff_max) == (steps[0], steps[2])
