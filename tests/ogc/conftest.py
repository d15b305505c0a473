"""Fixtures of these tests: clients, and a queue that is worked by hand."""

import json

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from atp import queue

BOX = {"bbox": [7.0, 46.0, 8.0, 47.5], "day": "2030-02-01"}


class Ogc:
    """A client of the service, logged in as a user, or as nobody."""

    def __init__(self, user=None):
        # As a server that has threads.
        self.client = Client(**{"wsgi.multithread": True})
        if user is not None:
            self.client.force_login(user)

    def get(self, path, **headers):
        return self._call("GET", path, **headers)

    def pages(self, path):
        """Return a page and all that follow it, as documents."""
        found = []
        while path:
            found.append(self.get(path).json())
            following = [each["href"] for each in found[-1]["links"] if each["rel"] == "next"]
            path = following[0] if following else None
        return found

    def delete(self, path):
        return self._call("DELETE", path)

    def execute(self, process, body, **headers):
        return self._call("POST", f"processes/{process}/execution", body, **headers)

    def _call(self, method, path, body=None, **headers):
        address = path if path.startswith(("/", "http")) else f"/ogc/{path}"
        data = b"" if body is None else json.dumps(body).encode()
        answer = self.client.generic(method, address, data, "application/json", headers=headers)
        if answer.status_code >= 400 and "Accept" not in headers:
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.json()["status"] == answer.status_code
        return answer


@pytest.fixture
def user(db):
    return User.objects.create_user("ann", password="of the tests only")


@pytest.fixture
def ogc(user):
    return Ogc(user)


@pytest.fixture
def other(db):
    return Ogc(User.objects.create_user("bob", password="of the tests only"))


@pytest.fixture
def operator(db):
    user = User.objects.create_user("operator", password="of the tests only")
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="atp"))
    return Ogc(user)


@pytest.fixture
def types(db):
    queue.register_all()


@pytest.fixture
def job(ogc, types):
    """The path of a job that waits."""
    answer = ogc.execute("ogc.relief", {"inputs": BOX})
    assert answer.status_code == 201, answer.json()
    return answer.headers["Location"]
