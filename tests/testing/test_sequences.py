"""Tests that reset the sequences work although rows from ``migrate`` stay in the tables."""

import pytest
from django.apps import apps
from django.core.management.color import no_style
from django.db import connection
from django.test import TransactionTestCase

from atp import queue
from atp.models import LogRecord, Type

from ..app.tasks import echo

pytestmark = pytest.mark.each_database


@pytest.fixture(autouse=True)
def sequences(django_db_setup, django_db_blocker):
    """Move the sequences past the remaining rows, because a later test might add a permission."""
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), apps.get_models()):
            cursor.execute(statement)


class TestCases(TransactionTestCase):
    reset_sequences = True

    def test_registration_works_after_the_sequences_were_reset(self):
        """Write a row to each table that a registration writes to."""
        queue.register_all()
        assert Type.objects.exists()
        instance = echo.enqueue(a=1)
        queue.hold(echo)
        queue.limit(echo, max_running=5)
        assert LogRecord.objects.filter(instance=instance.pk).exists()
        assert connection.vendor != "postgresql" or instance.pk < 10

    test_registration_works_again = test_registration_works_after_the_sequences_were_reset
