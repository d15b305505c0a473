"""The actor that the log names: the user and the channel."""

from types import SimpleNamespace

from atp.options import MAX_IDENTIFIER, check_text
from atp.web.permissions import ADMIN, API, PAGE, actor


def request(name):
    return SimpleNamespace(user=SimpleNamespace(get_username=lambda: name))


def test_any_user_name_becomes_a_valid_actor_with_its_channel():
    for channel in (PAGE, API, ADMIN):
        assert actor(request("olga"), channel) == f"user olga via {channel}"
    for name in ("x" * 500, "a\nb\x1b", "é\u202e", "", 7):
        told = actor(request(name), PAGE)
        check_text("created_by", told)
        assert len(told) <= MAX_IDENTIFIER
        assert told.endswith(" via page")
