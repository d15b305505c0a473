"""How people and programs log in is the project's matter (G14)."""

import base64

from rest_framework.authentication import SessionAuthentication

from atp.api import urls

from .client import Api, problem


def basic(login):
    return "Basic " + base64.b64encode(login).decode()


def test_by_password(user_with):
    user = user_with("view_type")
    login = basic(b"operator:of the tests only")
    assert Api().get("types", authorization=login).status_code == 200
    for wrong in (b"operator:wrong", b"operator", b"a\0b:c", b"\xff\xfe:x"):
        answer = Api().get("types", authorization=basic(wrong))
        assert (answer.status_code, problem(answer)) == (401, "authentication-failed"), wrong
        assert "WWW-Authenticate" in answer.headers
    user.is_active = False
    user.save()
    assert Api().get("types", authorization=login).status_code == 401


def test_without_a_challenge_it_is_forbidden(db, monkeypatch):
    for ways in ((), (SessionAuthentication,)):
        for route in urls.urlpatterns:
            monkeypatch.setattr(route.callback.cls, "authentication_classes", ways)
        answer = Api().get("types")
        assert (answer.status_code, problem(answer)) == (403, "not-authenticated")
        assert "WWW-Authenticate" not in answer.headers


def test_a_session_needs_the_token_against_forgery(world, user_with):
    api = Api(user_with("view_instance", "operate"), enforce_csrf_checks=True)
    answer = api.post("instances", {"type": "tests.echo"})
    assert (answer.status_code, problem(answer)) == (403, "permission-denied")
    assert "CSRF" in answer.json()["detail"]
    # A form that cannot be read is no fault of ours.
    answer = api.call("POST", "instances", b"x", "multipart/form-data")
    assert answer.status_code in (400, 403)
