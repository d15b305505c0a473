"""Tests of :mod:`atp.web.actor`."""

from types import SimpleNamespace

import pytest

from atp.web.actor import ADMIN, API, PAGE, actor
from atp.words.options import MAX_IDENTIFIER, check_text


def request(name):
    return SimpleNamespace(user=SimpleNamespace(get_username=lambda: name))


@pytest.mark.parametrize("channel", [PAGE, API, ADMIN])
def test_who_and_through_what(channel):
    assert actor(request("olga"), channel) == f"user olga via {channel}"


@pytest.mark.parametrize("name", ["x" * 500, "a\nb\x1b", "é\u202e", ""])
def test_any_name_can_be_logged(name):
    told = actor(request(name), PAGE)
    check_text("created_by", told)
    assert len(told) <= MAX_IDENTIFIER
    assert told.endswith(" via page")
