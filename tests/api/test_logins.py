"""How people and programs log in is the project's matter (G14)."""

import base64

import pytest

from atp.api import urls

from .client import Api, problem


def basic(login):
    return "Basic " + base64.b64encode(login).decode()


def test_by_password(user_with):
    user_with("view_type")
    login = basic(b"operator:of the tests only")
    assert Api().get("types", authorization=login).status_code == 200


@pytest.mark.parametrize("login", [b"operator:wrong", b"operator", b"a\0b:c", b"\xff\xfe:x"])
def test_a_wrong_one(user_with, login):
    user_with("view_type")
    answer = Api().get("types", authorization=basic(login))
    assert (answer.status_code, problem(answer)) == (401, "authentication-failed")
    assert "WWW-Authenticate" in answer.headers


def test_an_inactive_user(user_with):
    user = user_with("view_type")
    user.is_active = False
    user.save()
    login = basic(b"operator:of the tests only")
    assert Api().get("types", authorization=login).status_code == 401


def test_without_a_challenge_it_is_forbidden(db, monkeypatch):
    from rest_framework.authentication import SessionAuthentication

    for route in urls.urlpatterns:
        monkeypatch.setattr(route.callback.cls, "authentication_classes", (SessionAuthentication,))
    answer = Api().get("types")
    assert (answer.status_code, problem(answer)) == (403, "not-authenticated")
    assert "WWW-Authenticate" not in answer.headers


def test_without_any_way_to_log_in(db, monkeypatch):
    for route in urls.urlpatterns:
        monkeypatch.setattr(route.callback.cls, "authentication_classes", ())
    assert Api().get("types").status_code == 403


def test_a_session_needs_the_token_against_forgery(world, user_with):
    api = Api(user_with("view_instance", "operate"), enforce_csrf_checks=True)
    answer = api.post("instances", {"type": "tests.echo"})
    assert (answer.status_code, problem(answer)) == (403, "permission-denied")
    assert "CSRF" in answer.json()["detail"]


def test_a_session_and_a_form_that_cannot_be_read(world, user_with):
    api = Api(user_with("view_instance", "operate"), enforce_csrf_checks=True)
    answer = api.call("POST", "instances", b"x", "multipart/form-data")
    assert answer.status_code in (400, 403)
