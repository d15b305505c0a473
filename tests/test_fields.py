"""Tests of :mod:`atp.fields`: points in time, whatever the project's settings say."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from django.db import connections
from django.test.utils import override_settings
from django.utils import timezone as django_timezone

from atp.fields import InstantField
from atp.models import LogRecord
from atp.store import get_store

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
    """Also in the hour that comes twice, of any offset, with their microseconds, or naive."""
    fine = [FOLD.replace(microsecond=n) for n in (1, 100_000, 999_999)]
    offsets = [timezone(timedelta(hours=h)) for h in (-8, 5)] + [ZoneInfo(VIENNA)]
    elsewhere = [FOLD.astimezone(offset) for offset in offsets]
    for instant in (*INSTANTS, GAP, GAP + timedelta(hours=1), *fine, *elsewhere):
        [key] = write(instant)
        found = LogRecord.objects.get(pk=key).time
        assert django_timezone.is_aware(found)
        # Within an hour that comes twice, Python takes times of two zones for different ones.
        assert found == instant.astimezone(UTC)
        assert LogRecord.objects.filter(pk=key, time=instant).exists()
    [key] = write(datetime(2026, 7, 1, 12))  # it is local
    zone = django_timezone.get_current_timezone()
    assert LogRecord.objects.get(pk=key).time == datetime(2026, 7, 1, 12, tzinfo=zone)
    assert abs(get_store().now() - datetime.now(UTC)) < timedelta(seconds=5)


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


def test_they_are_ordered_and_compared_by_when_they_were(project):
    """G8: the hour that comes twice neither ends nor prolongs a lease, nor changes an order."""
    keys = write(*INSTANTS)
    rows = LogRecord.objects.filter(pk__in=keys)
    assert list(rows.order_by("time").values_list("pk", flat=True)) == keys
    for number, instant in enumerate(INSTANTS):
        assert rows.filter(time__lt=instant).count() == number
        assert rows.filter(time__lte=instant).count() == number + 1
        assert rows.filter(time=instant).count() == 1


def test_it_deconstructs_under_a_name_that_migrations_keep():
    assert InstantField(null=True).deconstruct()[1:] == (
        "atp.fields.InstantField",
        [],
        {"null": True},
    )
