"""Tests of InstantField, and of CheckByDomain, a constraint that PostgreSQL stores as a domain."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError, connection, connections, models, transaction
from django.test.utils import isolate_apps, override_settings
from django.utils import timezone as django_timezone

from atp.fields import CheckByDomain
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
    """Give the connection its own TIME_ZONE, as the setting DATABASES can; none for None."""
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
    """Run the test with each of four combinations of time settings."""
    use_tz, zone, of_connection = request.param
    with override_settings(USE_TZ=use_tz, TIME_ZONE=zone), zone_of_connection(of_connection):
        yield


def write(*times):
    return [
        LogRecord.objects.create(time=time, level=20, subject="test", message=str(time)).pk
        for time in times
    ]


@pytest.mark.each_database
def test_stored_time_is_read_back_unchanged_and_aware(project):
    """The tested times have an hour that occurs twice, several offsets, and microseconds."""
    fine = [FOLD.replace(microsecond=n) for n in (1, 100_000, 999_999)]
    offsets = [timezone(timedelta(hours=h)) for h in (-8, 5)] + [ZoneInfo(VIENNA)]
    elsewhere = [FOLD.astimezone(offset) for offset in offsets]
    for instant in (*INSTANTS, GAP, GAP + timedelta(hours=1), *fine, *elsewhere):
        [key] = write(instant)
        found = LogRecord.objects.get(pk=key).time
        assert django_timezone.is_aware(found)
        # In an hour that occurs twice, Python never takes times of two zones for equal.
        assert found == instant.astimezone(UTC)
        assert LogRecord.objects.filter(pk=key, time=instant).exists()
    [key] = write(datetime(2026, 7, 1, 12))  # a naive time is local
    zone = django_timezone.get_current_timezone()
    assert LogRecord.objects.get(pk=key).time == datetime(2026, 7, 1, 12, tzinfo=zone)
    assert abs(get_store().now() - datetime.now(UTC)) < timedelta(seconds=5)


def test_stored_times_keep_their_value_and_order_across_a_clock_change(project):
    """G8: the hour that occurs twice does not change an order or the length of a lease."""
    keys = write(*INSTANTS)
    rows = LogRecord.objects.filter(pk__in=keys).order_by("pk")
    assert list(rows.order_by("time").values_list("pk", flat=True)) == keys
    for number, instant in enumerate(INSTANTS):
        assert rows.filter(time__lt=instant).count() == number
        assert rows.filter(time__lte=instant).count() == number + 1
    assert list(rows.values_list("time", flat=True)) == INSTANTS
    assert [row["time"] for row in rows.values("time")] == INSTANTS
    rows.update(time=FOLD)
    assert set(rows.values_list("time", flat=True)) == {FOLD}
    LogRecord.objects.bulk_update(
        [LogRecord(pk=key, time=i) for key, i in zip(keys, INSTANTS, strict=True)], ["time"]
    )
    assert list(rows.values_list("time", flat=True)) == INSTANTS


NAME = "tests_only_small"


def check(most):
    return CheckByDomain(condition=models.Q(number__lte=most, word__in=["a", "50%"]), name=NAME)


@pytest.fixture
def model(transactional_db):
    """Yield a model whose table was created without migrations."""
    with isolate_apps("tests.app"):

        class Checked(models.Model):
            number = models.IntegerField()
            word = models.TextField()

            class Meta:
                app_label = "app"
                constraints = [check(5)]

            def __str__(self):
                return self.word

        with connection.schema_editor() as editor:
            editor.create_model(Checked)
        try:
            yield Checked
        finally:
            with connection.schema_editor() as editor:
                editor.delete_model(Checked)
            assert not domains()


def domains():
    if connection.vendor != "postgresql":
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT typname FROM pg_type WHERE typname = %s", [NAME])
        return [name for (name,) in cursor.fetchall()]


def add(model, new):
    """Add a constraint to the model, as a migration does."""
    model._meta.constraints = [new]
    with connection.schema_editor() as editor:
        editor.add_constraint(model, new)


def refuses(model, **values):
    with pytest.raises(IntegrityError, match=NAME), transaction.atomic():
        model.objects.create(**values)


@pytest.mark.each_database
def test_domain_constraint_is_created_removed_and_added_again(model):
    refuses(model, number=6, word="a")
    refuses(model, number=5, word="b")
    model.objects.create(number=5, word="50%")
    [old], model._meta.constraints = model._meta.constraints, []
    with connection.schema_editor() as editor:
        editor.remove_constraint(model, old)
    assert not domains()
    made = model.objects.create(number=9, word="a")
    with pytest.raises(IntegrityError, match=NAME):
        add(model, check(7))  # existing rows must satisfy the constraint
    assert not domains()
    made.delete()
    add(model, check(7))
    refuses(model, number=8, word="a")
    model.objects.create(number=7, word="a")


def test_domain_constraint_survives_added_changed_and_removed_columns(model):
    model.objects.create(number=1, word="a")
    more = models.IntegerField(default=3)
    more.set_attributes_from_name("more")
    wider = models.CharField(max_length=7)
    wider.set_attributes_from_name("word")
    with connection.schema_editor() as editor:
        editor.alter_field(model, model._meta.get_field("word"), wider)
        editor.add_field(model, more)
        editor.remove_field(model, more)
    refuses(model, number=5, word="b")
    model.objects.update(number=2)
    with pytest.raises(IntegrityError, match=NAME), transaction.atomic():
        model.objects.update(number=6)
