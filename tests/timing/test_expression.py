"""Parsing cron expressions and describing them in words."""

from datetime import datetime
from itertools import takewhile

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from atp.exceptions import InvalidSchedule
from atp.schedules.timing import NICKNAMES, parse_cron

from .oracle import a_field


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("61 2 * * *", "'61' is not a valid minute. Valid are 0 to 59;"),
        ("-1 2 * * *", "'-1' is not a valid minute"),
        ("5-1 2 * * *", "'5-1' is not a valid minute. .* ranges that go up"),
        ("1,,5 2 * * *", "'' is not a valid minute"),
        ("*/0 2 * * *", r"'\*/0' is not a valid minute"),
        ("0 24 * * *", "'24' is not a valid hour. Valid are 0 to 23;"),
        ("0 1,2,25 * * *", "'25' is not a valid hour"),
        ("0 2 0 * *", "'0' is not a valid day of month. Valid are 1 to 31, L"),
        ("0 2 15W * *", "'15W' is not a valid day of month"),
        ("0 2 ? * *", "'\\?' is not a valid day of month"),
        ("0 2 * FOO *", "'FOO' is not a valid month. Valid are 1 to 12 or JAN to DEC;"),
        ("0 2 * * MONDAY", "'MONDAY' is not a valid day of week. Valid are 0 to 7 or SUN to SAT"),
        ("0 2 * * 1#6", "'1#6' is not a valid day of week"),
        ("0 2 * * 8", "'8' is not a valid day of week"),
        ("H 2 * * *", "'H' is not a valid minute"),
        ("\u0665 2 * * *", "'\u0665' is not a valid minute"),
        (
            "*/90 * * * *",
            r"'\*/90' is not a valid minute, because a step can be at most 60. .* every=timedelta",
        ),
        ("0 0 31 2 *", "no date has the day of month '31', the month '2'"),
        ("* * */20 * 1L", "no date has .* the day of week '1L'"),
        ("* * * *", "has 4 fields and must have five: minute, hour, day of month, month, day"),
        ("daily", "has one field"),
        ("* * * * * * *", "has 7 fields"),
        ("*/10 * * * * *", "has six fields, .* use every=timedelta"),
        ("@reboot", "is not a time, because daemons start"),
        ("@dayly", r"nicknames are @hourly, .*\. Did you mean '@daily'\?$"),
        ("@daily *", "nicknames are"),
        ("", "must be a text with five fields"),
        (None, "must be a text"),
        ("1," * 200, "at most 200 characters"),
        ("9" * 5000, "at most 200 characters"),
    ],
)
def test_invalid_cron_expressions_are_rejected(expression, told):
    with pytest.raises(InvalidSchedule, match=told) as caught:
        parse_cron(expression)
    assert str(caught.value).startswith("cron=")
    assert caught.value.parameter == "cron"


@pytest.mark.parametrize(
    ("expression", "fields"),
    [
        *NICKNAMES.items(),
        (" @Daily\n", "0 0 * * *"),
        ("30  2\t* * *", "30 2 * * *"),
        ("0 0 l jan-mar mon,fri#2,5l", "0 0 L JAN-MAR MON,FRI#2,5L"),
    ],
)
def test_valid_cron_expressions_are_parsed(expression, fields):
    assert parse_cron(expression).fields == fields


def test_an_expression_is_fixed_unless_minute_or_hour_starts_with_a_wildcard():
    for expression in ("30 2 * * *", "0-59 2 * * *", "5,*/15 2 * * *", "@daily"):
        assert parse_cron(expression).is_fixed
    for expression in ("*/15,5 2 * * *", "30 */2 * * *", "@hourly"):
        assert not parse_cron(expression).is_fixed


@given(st.lists(st.text("0123456789*/-,#LWSUNMOJA@ ", min_size=1, max_size=6), max_size=6))
def test_any_text_is_parsed_or_rejected_with_a_named_error(parts):
    try:
        expression = parse_cron(" ".join(parts))
    except InvalidSchedule:
        return
    assert expression.words()


@pytest.mark.parametrize(
    ("days", "words"),
    [
        ("1-31 * 1", "every day"),
        ("1-15,16-31 * 1", "every day"),
        ("5,* * 1", "every day"),
        ("13 * 0-6", "every day"),
        ("L * 0-7", "every day"),
        ("1-31 2 1", "every day in February"),
        ("* * 0-6", "every day"),
        ("*,5 * 1", "on Monday"),
        ("1-7 * 1", "on every day of month from 1 through 7 or on Monday"),
        ("13 * 5", "on the 13th day of month or on Friday"),
        ("13 1 5", "on the 13th day of month or on Friday, in January"),
        ("L * 5L", "on the last day of the month or on the last Friday of the month"),
        ("*/2 * 1", "on every second day of month if it's on Monday"),
        ("13 * */2", "on the 13th day of month if it's on Sunday, Tuesday, Thursday, and Saturday"),
        ("13 * */1", "on the 13th day of every month"),
        ("* * */7", "on Sunday"),
        ("* * 1#1", "on the first Monday of the month"),
        ("5-5/1 * *", "on every day of month from 5 through 31"),
        ("* 1-1/1 *", "every day"),
    ],
)
def test_the_description_summarizes_the_days(days, words):
    assert parse_cron(f"0 0 {days}").words() == f"at 00:00 {words}"


DAYS = st.tuples(
    a_field(1, 31, "L", "LW"), a_field(1, 12, "JAN"), a_field(0, 7, "MON-FRI", "1#2", "5L", "0#5")
).map(" ".join)


def slots(expression):
    """Return the slots of an expression in 2028."""
    until = datetime(2028, 12, 31)
    return list(takewhile(lambda slot: slot <= until, expression.walls(datetime(2027, 12, 31))))


@pytest.mark.slow
@given(DAYS)
def test_the_method_on_both_returns_an_expression_that_requires_both_day_fields(days):
    try:
        both = parse_cron(f"0 0 {days}").on_both()
        wanted = parse_cron("0 0 {} {} *".format(*days.split()))
        other = parse_cron("0 0 * {} {}".format(*days.split()[1:]))
        found = both and parse_cron(both)
    except InvalidSchedule:  # no date has them
        assume(False)
    assume(both is not None)
    assert slots(found) == sorted({*slots(wanted)} & {*slots(other)})
