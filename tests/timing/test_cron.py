"""Cron expressions: how they are parsed and described, and their slots.

Around clock changes the slots are compared with Debian's rules, which :mod:`tests.timing.oracle`
applies minute by minute without code from :mod:`atp.schedules`.
"""

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta, timezone
from itertools import takewhile

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from atp.exceptions import InvalidSchedule
from atp.schedules.timing import NICKNAMES, Cron, parse_cron

from .oracle import MINUTE, ZONES, Watched, a_field, transitions

NOW = datetime(2026, 3, 27, 12, tzinfo=UTC)
DRAWN = st.tuples(
    a_field(0, 59),
    a_field(0, 23),
    a_field(1, 31, "L", "LW"),
    a_field(1, 12, "JAN", "MAR-OCT"),
    a_field(0, 7, "MON-FRI", "SUN", "1#2", "5L"),
).map(" ".join)
DATES = st.datetimes(datetime(2026, 1, 1), datetime(2030, 12, 31), timezones=st.just(UTC))
EXPRESSIONS = (
    *("30 2 * * *", "0 0 * * *", "15,45 0-3 * * *", "30 23 * * *", "5 0 L * SAT"),
    # Those that follow the clock.
    *("*/15 * * * *", "30 * * * *", "*/20 0 * * FRI,SUN", "10 */2 * * *", "*/7 1-2 1-7 * SAT,SUN"),
)
HOUR = timedelta(hours=1)
AROUND = 27 * HOUR
# Minutes from a change at which is asked what comes next and what was last.
ASKED = (-90, -60, -30, -1, 0, 1, 30, 59, 61, 120)


@st.composite
def crons_and_times(draw):
    """Generate a Cron and a time, which in half of the cases is near a clock change."""
    try:
        cron = Cron(draw(DRAWN), draw(st.sampled_from(ZONES)))
    except InvalidSchedule:  # the fields are possible, the dates may not be
        cron = Cron("30 2 * * *", "Europe/Vienna")
    near = st.sampled_from(transitions(cron.timezone, 2026, 2026) or [NOW]).flatmap(
        lambda change: st.integers(-300, 300).map(lambda number: change + number * MINUTE)
    )
    return cron, draw(near | DATES)


@given(crons_and_times(), st.integers(1, 20))
def test_searching_backward_finds_the_same_slots_as_searching_forward(given, count):
    cron, time = given
    later, earlier = cron.after(time), cron.before(time)
    assert earlier < time < later
    assert cron.after(earlier) in (time, later)
    assert cron.before(later) in (time, earlier)
    assert cron.after(cron.before(later)) == later
    assert cron.before(cron.after(earlier)) == earlier
    assert later.tzinfo is earlier.tzinfo is UTC
    slots = cron.slots(time, datetime(2200, 1, 1, tzinfo=UTC), count)
    assert len(slots) == count
    assert slots[0] == later
    assert cron.newest(time, slots[-1], count + 1) == slots[::-1]
    assert cron.newest(time, slots[-1], 3) == slots[::-1][:3]
    assert [cron.after(slot) for slot in slots[:-1]] == slots[1:]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "years", [(2026, 2026), pytest.param((2027, 2030), marks=pytest.mark.long)]
)
def test_slots_around_each_clock_change_match_the_oracle(zone, years):
    for change in transitions(zone, *years):
        watched = Watched(zone, change - AROUND, change + AROUND)
        between = (watched.since - MINUTE, watched.until - MINUTE, 10_000)
        for expression in EXPRESSIONS:
            cron, slots = Cron(expression, zone), watched.slots(expression)
            assert cron.slots(*between) == slots, expression
            assert cron.newest(*between) == slots[::-1], expression
            for time in (change + minutes * MINUTE for minutes in ASKED):
                later = bisect_right(slots, time)
                assert later == len(slots) or cron.after(time) == slots[later], (expression, time)
                earlier = bisect_left(slots, time) - 1
                assert earlier < 0 or cron.before(time) == slots[earlier], (expression, time)


def test_the_zones_of_the_test_change_their_clocks_often_enough():
    """If countries stop changing their clocks, this test shows that others must be chosen."""
    assert sum(len(transitions(zone, 2026, 2026)) for zone in ZONES) >= 20


def test_slots_follow_a_clock_change_of_half_an_hour():
    """On Lord Howe Island the clock goes back from 02:00 to 01:30, forward from 02:00 to 02:30."""
    for expression, *texts in (
        ("30 * * * *", "2026-04-05 01:30+11:00", "2026-04-05 01:30+10:30"),
        ("*/15 * * * *", "2026-04-05 01:45+11:00", "2026-04-05 01:30+10:30"),
        ("*/20 2 * * *", "2026-10-04 01:00+10:30", "2026-10-04 02:40+11:00"),
        ("10 */2 * * *", "2026-10-04 00:10+10:30", "2026-10-04 04:10+11:00"),
    ):
        time, slot = map(datetime.fromisoformat, texts)
        assert Cron(expression, "Australia/Lord_Howe").after(time) == slot, expression


def test_a_slot_on_a_skipped_day_runs_at_the_end_of_that_day():
    """When Samoa crossed the date line, 30 December 2011 did not exist there."""
    texts = "2011-12-29 12:30-10:00", "2011-12-31 00:00+14:00", "2011-12-31 12:30+14:00"
    slots = [datetime.fromisoformat(text) for text in texts]
    day = timedelta(days=1)
    assert Cron("30 12 * * *", "Pacific/Apia").slots(slots[1] - day, slots[1] + day, 10) == slots


def test_the_description_names_the_times_the_days_and_the_time_zone():
    for expression, words in (
        (" @daily ", "at 00:00 every day"),
        ("0 9 * * mon-fri", "at 09:00 on Monday through Friday"),
        ("0 9 21 * *", "at 09:00 on the 21st day of every month"),
        ("0 9 11 * *", "at 09:00 on the 11th day of every month"),
    ):
        assert Cron(expression, "Europe/Vienna").words() == f"{words}, Europe/Vienna"


def test_slots_stop_at_the_end_time_or_the_maximum_count():
    cron = Cron("0 * * * *")
    assert cron.slots(NOW, NOW + 2 * HOUR, 10) == [NOW + HOUR, NOW + 2 * HOUR]
    assert cron.slots(NOW, NOW, 3) == cron.newest(NOW, NOW, 3) == []
    # Microseconds count, and the next slot can be 40 years away.
    little, slot = timedelta(microseconds=1), NOW + HOUR
    assert cron.after(slot - little) == cron.before(slot + little) == slot
    assert cron.newest(slot - little, slot, 5) == [slot]
    assert cron.newest(slot - little, slot - little, 5) == []
    rare = Cron("0 0 29 2 */7")
    assert rare.after(datetime(2088, 3, 1, tzinfo=UTC)).year == 2128
    assert rare.before(datetime(2128, 1, 1, tzinfo=UTC)).year == 2088
    for ask in (cron.after, cron.before):
        with pytest.raises(ValueError, match="has no time zone"):
            ask(datetime(2026, 1, 1))


def test_upcoming_runs_have_a_remark_at_a_skipped_or_repeated_time():
    gap = "the clock goes forward: 02:30 does not exist, runs at 03:00"
    back = "the clock goes back: 02:30 comes twice, this is the"
    for expression, time, runs in (
        ("30 2 * * *", "03-27T12:00Z", [("28 02:30", ""), ("29 03:00", gap), ("30 02:30", "")]),
        ("0 3 * * *", "03-28T12:00Z", [("29 03:00", "")]),
        ("*/15 * * * *", "03-29T00:45Z", [("29 03:00", "")]),
        ("30 2 * * *", "10-24T12:00Z", [("25 02:30", f"{back} first time"), ("26 02:30", "")]),
        ("30 */1 * * *", "10-25T00:15Z", [("25 02:30", f"{back} first time")]),
        ("30 */1 * * *", "10-25T01:15Z", [("25 02:30", f"{back} second time")]),
    ):
        after = datetime.fromisoformat(f"2026-{time}")
        found = Cron(expression, "Europe/Vienna").upcoming(len(runs), after)
        assert [(f"{run.local:%d %H:%M}", run.remark) for run in found] == runs
    # The slot is in UTC.
    [run] = Cron("30 2 * * *", "Asia/Kolkata").upcoming(1, NOW.astimezone(timezone(HOUR)))
    assert run.slot == run.local == datetime(2026, 3, 27, 21, tzinfo=UTC)
    assert (run.slot.tzinfo, str(run.local.tzinfo)) == (UTC, "Asia/Kolkata")


def test_an_unknown_time_zone_is_rejected(monkeypatch):
    hint = "Did you mean 'Europe/Vienna'?"
    others = ("localtime", "../passwd", "", "x" * 10_000, "Europe/\0", None, ["UTC"])
    for zone, words in (("Europe/Viena", hint), ("vienna", hint), *((each, "") for each in others)):
        with pytest.raises(InvalidSchedule, match="no time zone has this name") as caught:
            Cron("30 2 * * *", zone)
        assert words in str(caught.value)
        assert caught.value.parameter == "timezone"
        assert len(str(caught.value)) < 200
    # A host without time zones.
    monkeypatch.setattr("atp.schedules.timing.zone_names", frozenset)
    with pytest.raises(InvalidSchedule, match="install the package tzdata"):
        Cron("30 2 * * *", "Europe/Vienna")


def test_an_expression_that_the_clock_always_skips_is_rejected():
    with pytest.raises(InvalidSchedule, match="never comes in Europe/Vienna"):
        Cron("*/20 2 * 3 0L", "Europe/Vienna")
    assert Cron("20 2 * 3 0L", "Europe/Vienna").after(NOW) == datetime(2026, 3, 29, 1, tzinfo=UTC)


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
        *((days, "every day") for days in ("1-31 * 1", "1-15,16-31 * 1", "5,* * 1", "13 * 0-6")),
        *((days, "every day") for days in ("L * 0-7", "* * 0-6", "* 1-1/1 *")),
        ("1-31 2 1", "every day in February"),
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
