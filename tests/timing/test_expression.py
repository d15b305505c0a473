"""Tests of :mod:`atp.timing.expression`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atp.exceptions import InvalidSchedule
from atp.timing.expression import NICKNAMES, parse


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("61 2 * * *", "'61' is no minute. Possible are 0 to 59;"),
        ("-1 2 * * *", "'-1' is no minute"),
        ("5-1 2 * * *", "'5-1' is no minute. .* ranges that go up"),
        ("1,,5 2 * * *", "'' is no minute"),
        ("*/0 2 * * *", r"'\*/0' is no minute"),
        ("0 24 * * *", "'24' is no hour. Possible are 0 to 23;"),
        ("0 1,2,25 * * *", "'25' is no hour"),
        ("0 2 0 * *", "'0' is no day of month. Possible are 1 to 31, L"),
        ("0 2 32 * *", "'32' is no day of month"),
        ("0 2 15W * *", "'15W' is no day of month"),
        ("0 2 ? * *", "'\\?' is no day of month"),
        ("0 2 * FOO *", "'FOO' is no month. Possible are 1 to 12 or JAN to DEC;"),
        ("0 2 * 13 *", "'13' is no month"),
        ("0 2 * * MONDAY", "'MONDAY' is no day of week. Possible are 0 to 7 or SUN to SAT"),
        ("0 2 * * 1#6", "'1#6' is no day of week"),
        ("0 2 * * 8", "'8' is no day of week"),
        ("H 2 * * *", "'H' is no minute"),
        ("\u0665 2 * * *", "'\u0665' is no minute"),
        ("*/90 * * * *", r"'\*/90' is no minute: a step is at most 60. .* every=timedelta"),
        ("0 0 31 2 *", "no date has the day of month '31', the month '2'"),
        ("0 0 30,31 FEB *", "no date has"),
        ("* * */20 * 1L", "no date has .* the day of week '1L'"),
        ("* * * *", "has 4 fields and must have five: minute, hour, day of month, month, day"),
        ("daily", "has one field"),
        ("* * * * * * *", "has 7 fields"),
        ("*/10 * * * * *", "has six fields, .* say every=timedelta"),
        ("@reboot", "is no time: daemons start"),
        ("@dayly", r"nicknames are @hourly, .*\. Did you mean '@daily'\?$"),
        ("@daily *", "nicknames are"),
        ("", "must be text of five fields"),
        ("  ", "must be text of five fields"),
        (None, "must be text"),
        (["30", "2"], "must be text"),
        ("1," * 200, "at most 200 characters"),
        ("9" * 5000, "at most 200 characters"),
    ],
)
def test_what_is_no_cron_expression(expression, told):
    with pytest.raises(InvalidSchedule, match=told) as caught:
        parse(expression)
    assert str(caught.value).startswith("cron=")
    assert caught.value.parameter == "cron"


@pytest.mark.parametrize(
    ("expression", "fields"),
    [
        *NICKNAMES.items(),
        (" @Daily\n", "0 0 * * *"),
        ("30  2\t* * *", "30 2 * * *"),
        ("0 0 l jan-mar mon,fri#2,5l", "0 0 L JAN-MAR MON,FRI#2,5L"),
        ("0 0 29 2 *", "0 0 29 2 *"),
    ],
)
def test_what_is_one(expression, fields):
    assert parse(expression).fields == fields


@pytest.mark.parametrize(
    ("expression", "is_fixed"),
    [
        ("30 2 * * *", True),
        ("0-59 2 * * *", True),
        ("5,*/15 2 * * *", True),
        ("*/15,5 2 * * *", False),
        ("30 */2 * * *", False),
        ("@hourly", False),
        ("@daily", True),
    ],
)
def test_fixed_times(expression, is_fixed):
    assert parse(expression).is_fixed is is_fixed


@given(st.lists(st.text("0123456789*/-,#LWSUNMOJA@ ", min_size=1, max_size=6), max_size=6))
def test_any_text_is_an_expression_with_words_or_a_named_error(parts):
    try:
        expression = parse(" ".join(parts))
    except InvalidSchedule:
        return
    assert expression.words()
