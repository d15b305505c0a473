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
def codes(db):
    """The keys of ATP's permissions, by their code names."""
    own = Permission.objects.filter(content_type__app_label="atp")
    return dict(own.values_list("codename", "pk"))


@pytest.fixture
def allow(user, codes):
    """A function that gives the user permissions of ATP: ``allow("view_instance", "operate")``."""
    return lambda *names: user.user_permissions.add(*(codes[name] for name in names))


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
