"""Tests of :mod:`tests.emptying`, which removes all that a test has committed."""

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from atp.models import Instance, LogRecord, Task, Type

from . import emptying
from .app.tasks import echo

pytestmark = pytest.mark.each_database


def rows():
    """Return the rows of those tables that are not empty in a new database."""
    models = (ContentType, LogRecord, Permission, Type)
    return {model: list(model.objects.order_by("pk").values()) for model in models}


def test_put_back_restores_the_rows_that_migrate_created(transactional_db):
    before = rows()
    assert all(before[model] for model in (ContentType, Permission, Type))
    first = echo.enqueue(value=1).pk
    User.objects.create(username="somebody").user_permissions.add(Permission.objects.first())
    Type.objects.filter(identifier="tests.echo").update(max_restarts=77)
    Permission.objects.last().delete()
    emptying.put_back()
    assert rows() == before
    assert not any(model.objects.exists() for model in (Instance, Task, User))
    # All foreign keys are valid.
    connection.check_constraints()
    assert echo.enqueue(value=1).pk > first
