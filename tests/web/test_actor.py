"""Tests of :mod:`atp.web.permissions`."""

from types import SimpleNamespace

from atp.options import MAX_IDENTIFIER, check_text
from atp.web.permissions import ADMIN, API, PAGE, actor


def request(name):
    return SimpleNamespace(user=SimpleNamespace(get_username=lambda: name))


def test_who_and_through_what():
    for channel in (PAGE, API, ADMIN):
        assert actor(request("olga"), channel) == f"user olga via {channel}"


def test_any_name_can_be_logged():
    for name in ("x" * 500, "a\nb\x1b", "é\u202e", "", 7):
        told = actor(request(name), PAGE)
        check_text("created_by", told)
        assert len(told) <= MAX_IDENTIFIER
        assert told.endswith(" via page")
