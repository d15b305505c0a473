"""Tests of :mod:`atp.rows.fields`: points in time, whatever the project's settings say."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from django.db import connection, connections
from django.test.utils import override_settings
from django.utils import timezone as django_timezone

from atp.models import LogRecord
from atp.rows.fields import InstantField

VIENNA = "Europe/Vienna"
# The clocks go back at 01:00 UTC: 02:30 local time comes twice.
FOLD = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
INSTANTS = [FOLD + timedelta(minutes=20 * step) for step in range(9)]
# The clocks go forward at 01:00 UTC: 02:30 local time never comes.
GAP = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)


@contextmanager
def zone_of_connection(name):
    """Give the connection a TIME_ZONE of its own, as DATABASES may."""

    wrapper = connections["default"]

    def forget():
        for cached in ("timezone", "timezone_name"):
            wrapper.__dict__.pop(cached, None)
        wrapper.ensure_timezone()

    before = wrapper.settings_dict["TIME_ZONE"]
    wrapper.settings_dict["TIME_ZONE"] = name
    forget()
    try:
        yield
    finally:
        wrapper.settings_dict["TIME_ZONE"] = before
        forget()


@pytest.fixture(
    params=[
        pytest.param((True, "UTC", None), id="USE_TZ in UTC"),
        pytest.param((True, VIENNA, None), id="USE_TZ in Vienna"),
        pytest.param((True, "UTC", VIENNA), id="USE_TZ with a connection in Vienna"),
        pytest.param((False, "UTC", None), id="no USE_TZ in UTC"),
        pytest.param((False, VIENNA, None), id="no USE_TZ in Vienna"),
    ]
)
def project(request, db):
    """A project with these time settings."""
    use_tz, zone, of_connection = request.param
    with override_settings(USE_TZ=use_tz, TIME_ZONE=zone):
        if of_connection:
            with zone_of_connection(of_connection):
                yield
        else:
            yield


def write(*times):
    return [
        LogRecord.objects.create(time=time, level=20, subject="test", message=str(time)).pk
        for time in times
    ]


def test_instants_come_back_aware_and_the_same(project):
    """Also in the hour that comes twice."""
    for instant in (*INSTANTS, GAP, GAP + timedelta(hours=1)):
        [key] = write(instant)
        found = LogRecord.objects.get(pk=key).time
        assert django_timezone.is_aware(found)
        assert found == instant


def test_they_come_back_the_same_from_other_queries(project):
    keys = write(*INSTANTS)
    rows = LogRecord.objects.filter(pk__in=keys).order_by("pk")
    assert list(rows.values_list("time", flat=True)) == INSTANTS
    assert [row["time"] for row in rows.values("time")] == INSTANTS
    rows.update(time=FOLD)
    assert set(rows.values_list("time", flat=True)) == {FOLD}
    LogRecord.objects.bulk_update(
        [LogRecord(pk=key, time=i) for key, i in zip(keys, INSTANTS, strict=True)], ["time"]
    )
    assert list(rows.values_list("time", flat=True)) == INSTANTS


def test_they_are_ordered_by_when_they_were(project):
    """G8: also where local time goes back."""
    keys = write(*INSTANTS)
    rows = LogRecord.objects.filter(pk__in=keys)
    assert list(rows.order_by("time").values_list("pk", flat=True)) == keys


def test_they_are_compared_by_when_they_were(project):
    """Leases and due times: the hour that comes twice neither ends nor prolongs one."""
    keys = write(*INSTANTS)
    rows = LogRecord.objects.filter(pk__in=keys)
    for number, instant in enumerate(INSTANTS):
        assert rows.filter(time__lt=instant).count() == number
        assert rows.filter(time__lte=instant).count() == number + 1
        assert rows.filter(time=instant).count() == 1


def test_the_offset_of_what_is_written_does_not_matter(project):
    offsets = [timezone(timedelta(hours=h)) for h in (-8, 0, 5)] + [ZoneInfo(VIENNA)]
    keys = write(*[FOLD.astimezone(offset) for offset in offsets])
    rows = LogRecord.objects.filter(pk__in=keys)
    assert set(rows.values_list("time", flat=True)) == {FOLD}
    for offset in offsets:
        assert rows.filter(time=FOLD.astimezone(offset)).count() == len(offsets)


def test_microseconds_are_kept(project):
    instants = [FOLD.replace(microsecond=n) for n in (0, 1, 100_000, 999_999)]
    keys = write(*reversed(instants))
    found = LogRecord.objects.filter(pk__in=keys).order_by("time").values_list("time", flat=True)
    assert list(found) == instants


def test_naive_times_are_local(project):
    [key] = write(datetime(2026, 7, 1, 12))
    zone = django_timezone.get_current_timezone()
    assert LogRecord.objects.get(pk=key).time == datetime(2026, 7, 1, 12, tzinfo=zone)


def test_null_stays_null():
    field = InstantField(null=True)
    assert field.to_python(None) is None
    assert field.get_db_prep_value(None, connection) is None
    assert field.from_db_value(None, None, connection) is None


def test_it_deconstructs_under_a_name_that_migrations_keep():
    assert InstantField(null=True).deconstruct()[1:] == (
        "atp.rows.fields.InstantField",
        [],
        {"null": True},
    )


@pytest.mark.parametrize("use_tz", [True, False])
def test_the_clock_of_the_store_is_aware(db, use_tz):
    from atp.store import get_store

    with override_settings(USE_TZ=use_tz, TIME_ZONE=VIENNA):
        assert abs(get_store().now() - datetime.now(UTC)) < timedelta(seconds=5)
