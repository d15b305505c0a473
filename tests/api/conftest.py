"""Fixtures for the tests of the API."""

import pytest
from django.contrib.auth.models import Permission, User

from atp.models import Type

from ..populated import populate
from .client import Api


@pytest.fixture
def full(world):
    """A queue with Instances in every state, and a daemon."""
    return populate(world)


@pytest.fixture
def user_with(db):
    """A function that creates users: ``user_with("view_type")`` has only that permission of ATP."""

    def make(*codenames, name="operator"):
        user = User.objects.create_user(name, password="of the tests only")
        own = Permission.objects.filter(content_type__app_label="atp", codename__in=codenames)
        assert own.count() == len(codenames)
        user.user_permissions.set(own)
        return user

    return make


@pytest.fixture
def api(user_with):
    """A client whose user has every permission of ATP."""
    own = Permission.objects.filter(content_type__app_label="atp")
    return Api(user_with(*own.values_list("codename", flat=True)))


@pytest.fixture
def elsewhere(db):
    """A Type that is in the database but not declared in this process."""
    row = Type.objects.get(identifier="tests.echo")
    row.pk, row.identifier = None, "tests.elsewhere"
    row.save()
    return row
