"""Reads the dates of a schedule's words: what a person takes "on Monday or Friday" to mean.

It knows the sentences alone, nothing of cron expressions; see :mod:`.oracle` for those.
"""

import calendar
import re
from datetime import timedelta

WEEKDAYS = ["Sunday", *calendar.day_name]
MONTHS = list(calendar.month_name)
ORDINALS = ["", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
ORDINALS.append("ninth")
NUMBER = rf"(?:{'|'.join(ORDINALS[1:])}|\d+(?:st|nd|rd|th))"
WEEKDAY, MONTH = "|".join(WEEKDAYS), "|".join(MONTHS[1:])


def is_on(words, date):
    """Return whether the words, without the times of the day, name this date."""
    if words == "every day":
        return True
    if found := re.fullmatch(rf"on ({MONTH}) (\d+)", words):
        return (date.month, date.day) == (MONTHS.index(found[1]), int(found[2]))
    if found := re.fullmatch(r"on the last (day|weekday) of (?!the month)(.+)", words):
        return _is_day(f"the last {found[1]} of the month", date) and _is_month(found[2], date)
    if found := re.fullmatch(rf"on the ({NUMBER}) day of (?!month)(.+)", words):
        return date.day == _number(found[1]) and _is_month(found[2], date)
    days, months = re.fullmatch(r"(.*?)(?:(?:^|,? )in (.+))?", words).groups("")
    if months and not _is_month(months, date):
        return False
    parts = [part.removeprefix("on ") for part in re.split(" if it's | or ", days)]
    met = [part in ("", "every day") or _is_day(part, date) for part in parts]
    return any(met) if " or " in days else all(met)


def _is_month(words, date):
    return _is_in(
        words,
        [
            (
                rf"every (?:({NUMBER}) )?month(?: from ({MONTH}) through ({MONTH}))?",
                _is_step_of_months,
                date,
            ),
            (rf"({MONTH})", lambda name, date: MONTHS.index(name) == date.month, date),
        ],
    )


def _is_day(words, date):
    last = calendar.monthrange(date.year, date.month)[1]
    return _is_in(
        words,
        [
            (r"the last day of the month", lambda date: date.day == last, date),
            (r"the last weekday of the month", _is_last_weekday, date),
            (rf"the last ({WEEKDAY}) of the month", _is_last, date),
            (rf"the ({NUMBER}) ({WEEKDAY}) of the month", _is_nth, date),
            (rf"({WEEKDAY}) through ({WEEKDAY})", _is_between, date),
            (rf"({WEEKDAY})", lambda name, date: WEEKDAYS.index(name) % 7 == _weekday(date), date),
            (
                rf"every (?:({NUMBER}) )?day of month(?: from (\d+) through (\d+))?",
                _is_step_of_days,
                date,
            ),
            (r"the last(?: day of month)?", lambda date: date.day == last, date),
            (rf"the ({NUMBER})(?: day of month)?", lambda n, date: _number(n) == date.day, date),
        ],
    )


def _is_in(words, patterns):
    """Return whether one of the things in a list, "a, b, and c", is met; each is of a pattern."""
    found, rest = False, words
    while rest:
        for pattern, is_met, date in patterns:
            if match := re.match(rf"{pattern}(?=$|, | and )", rest):
                found = is_met(*match.groups(), date) or found
                rest = re.sub(r"^(, and |, | and )", "", rest[match.end() :])
                break
        else:
            raise AssertionError(f"{rest!r} of {words!r} cannot be read")
    return found


def _number(word):
    return ORDINALS.index(word) if word in ORDINALS else int(word[:-2])


def _is_step_of_days(step, first, last, date):
    return date.day in range(int(first or 1), int(last or 31) + 1, _number(step) if step else 1)


def _is_step_of_months(step, first, last, date):
    first, last = MONTHS.index(first or "January"), MONTHS.index(last or "December")
    return date.month in range(first, last + 1, _number(step) if step else 1)


def _weekday(date):
    return date.isoweekday() % 7


def _is_between(first, last, date):
    start = WEEKDAYS.index(first)
    length = (WEEKDAYS.index(last) - start) % 7
    return (_weekday(date) - start) % 7 <= length


def _is_nth(number, name, date):
    return _weekday(date) == WEEKDAYS.index(name) % 7 and (date.day + 6) // 7 == _number(number)


def _is_last(name, date):
    is_last = (date + timedelta(days=7)).month != date.month
    return _weekday(date) == WEEKDAYS.index(name) % 7 and is_last


def _is_last_weekday(date):
    """Return whether a date is the last working day of its month."""
    ahead = (date + timedelta(days=number) for number in range(1, 4))
    return date.isoweekday() < 6 and not any(
        day.month == date.month and day.isoweekday() < 6 for day in ahead
    )
