"""Tests of :mod:`tests.emptying`: a test that commits leaves nothing to the next."""

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from atp.models import Instance, LogRecord, Task, Type

from . import emptying
from .app.tasks import echo

pytestmark = pytest.mark.each_database


def rows():
    """Return the rows of the tables that have some when the database is made."""
    models = (ContentType, LogRecord, Permission, Type)
    return {model: list(model.objects.order_by("pk").values()) for model in models}


def test_all_is_as_in_the_beginning(transactional_db):
    before = rows()
    assert all(before[model] for model in (ContentType, Permission, Type))
    first = echo.enqueue(value=1).pk
    User.objects.create(username="somebody").user_permissions.add(Permission.objects.first())
    Type.objects.filter(identifier="tests.echo").update(max_restarts=77)
    Permission.objects.last().delete()
    emptying.put_back()
    assert rows() == before
    assert not any(model.objects.exists() for model in (Instance, Task, User))
    # What refers to one another is whole.
    connection.check_constraints()
    assert echo.enqueue(value=1).pk > first
