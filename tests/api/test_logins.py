"""The project decides how people and programs log in (G14)."""

import base64

from rest_framework.authentication import SessionAuthentication

from atp.api import urls

from .client import Api, refusal


def basic(login):
    return "Basic " + base64.b64encode(login).decode()


def test_basic_authentication_accepts_valid_passwords_only(user_with):
    user = user_with("view_type")
    login = basic(b"operator:of the tests only")
    assert Api().get("types", authorization=login).status_code == 200
    for wrong in (b"operator:wrong", b"operator", b"a\0b:c", b"\xff\xfe:x"):
        answer = Api().get("types", authorization=basic(wrong))
        assert refusal(answer) == (401, "authentication-failed"), wrong
        assert "WWW-Authenticate" in answer.headers
    user.is_active = False
    user.save()
    assert Api().get("types", authorization=login).status_code == 401


def test_requests_without_a_login_get_403_if_basic_authentication_is_off(db, monkeypatch):
    for ways in ((), (SessionAuthentication,)):
        for route in urls.urlpatterns:
            monkeypatch.setattr(route.callback.cls, "authentication_classes", ways)
        answer = Api().get("types")
        assert refusal(answer) == (403, "not-authenticated")
        assert "WWW-Authenticate" not in answer.headers


def test_session_requests_require_a_csrf_token(world, user_with):
    api = Api(user_with("view_instance", "operate"), enforce_csrf_checks=True)
    answer = api.post("instances", {"type": "tests.echo"})
    assert refusal(answer) == (403, "permission-denied")
    assert "CSRF" in answer.json()["detail"]
    # A form that cannot be read is no fault of ours.
    answer = api.call("POST", "instances", b"x", "multipart/form-data")
    assert answer.status_code in (400, 403)
