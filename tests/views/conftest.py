"""Fixtures for the tests of the pages."""

import pytest
from django.contrib.auth.models import Permission, User

from ..populated import populate


@pytest.fixture
def full(world, media):
    """A queue with Instances in every state, and a daemon."""
    return populate(world)


@pytest.fixture
def user(db):
    """A user without any permission."""
    return User.objects.create_user("olga", password="secret")


@pytest.fixture
def allow(user):
    """A function that gives the user permissions of ATP: ``allow("view_instance", "operate")``."""

    def give(*codenames):
        found = Permission.objects.filter(content_type__app_label="atp", codename__in=codenames)
        assert found.count() == len(codenames)
        user.user_permissions.add(*found)

    return give


@pytest.fixture
def visitor(client, user):
    """A client that is logged in as the user without any permission."""
    client.force_login(user)
    return client


@pytest.fixture
def operator(client, db):
    """A client that is logged in as a superuser."""
    client.force_login(User.objects.create_superuser("root", password="secret"))
    return client
