"""The pages of gates and limits."""

import re

import pytest

from atp import queue
from atp.models import Limit

ADD = "/atp/types/tests.add"


def errors(answer):
    found = re.findall(r'class="errors"[^>]*>(.*?)</(?:p|span)>', answer.content.decode())
    return " ".join(found)


def test_hold_and_open_a_type(full, operator):
    answer = operator.post(
        f"{ADD}/gate/", {"of": "type", "mode": "hold", "reason": "why"}, follow=True
    )
    assert answer.redirect_chain == [(f"{ADD}/", 302)]
    shown = answer.content.decode()
    assert "tests.add is held by user root via page" in shown
    assert "why" in shown
    assert "tests.add is held" in operator.get("/atp/").content.decode()
    operator.post(f"{ADD}/gate/", {"of": "type", "mode": "open"})
    assert not queue.gates()


def test_drop_a_lane(full, operator):
    operator.post(f"{ADD}/gate/", {"of": "lane", "collection": "", "mode": "drop", "until": "1h"})
    [gate] = queue.gates()
    assert (gate.subject, gate.mode) == ("lane:tests.add/", "drop")
    assert gate.until is not None


def test_hold_everything(full, operator):
    answer = operator.post("/atp/gate/", {"mode": "hold"}, follow=True)
    assert answer.redirect_chain == [("/atp/", 302)]
    assert "Everything is held" in answer.content.decode()


def test_limits(full, operator):
    given = {"of": "type", "max_running": "3", "rate": "100/m", "burst": "", "weight": "2"}
    shown = operator.post(f"{ADD}/limit/", given, follow=True).content.decode()
    assert "100/m" in shown
    [limit] = queue.limits()
    assert (limit.max_running, limit.rate, limit.burst, limit.weight) == (3, "100/m", 1, 2.0)
    assert 'value="100/m"' in operator.get(f"{ADD}/limit/").content.decode()
    operator.post(f"{ADD}/limit/", {"of": "lane", "collection": "a", "max_running": "1"})
    assert {limit.subject for limit in queue.limits()} == {"type:tests.add", "lane:tests.add/a"}
    operator.post(f"{ADD}/limit/", {"of": "type", "default": "on"})
    assert [limit.subject for limit in queue.limits()] == ["lane:tests.add/a"]


@pytest.mark.parametrize(
    ("path", "given"),
    [
        (f"{ADD}/gate/", {"of": "type", "mode": "shut"}),
        (f"{ADD}/gate/", {"of": "lan", "mode": "hold"}),
        (f"{ADD}/gate/", {"of": "type", "mode": "hold", "until": "soon"}),
        (f"{ADD}/gate/", {"of": "type", "mode": "hold", "until": "2000-01-31T18:00"}),
        ("/atp/gate/", {}),
        (f"{ADD}/limit/", {"of": "type", "rate": "fast"}),
        (f"{ADD}/limit/", {"of": "type", "burst": "3"}),
        (f"{ADD}/limit/", {"of": "type", "weight": "-1"}),
        (f"{ADD}/limit/", {"of": "lane", "collection": "a", "weight": "2"}),
    ],
)
def test_what_makes_no_sense(full, operator, path, given):
    """G13: the form comes back and says why, and nothing is written."""
    answer = operator.post(path, given)
    assert answer.status_code == 422
    assert errors(answer)
    assert not queue.gates()
    assert not Limit.objects.exists()


def test_an_unknown_type(full, operator):
    assert operator.get("/atp/types/tests.ecko/gate/").status_code == 404
    assert operator.post("/atp/types/tests.ecko/limit/", {"of": "type"}).status_code == 404


def test_who_may_not_operate_sees_no_buttons(full, visitor, allow):
    allow("view_type", "view_instance")
    assert "/gate/" not in visitor.get(f"{ADD}/").content.decode()
    assert "/gate/" not in visitor.get("/atp/").content.decode()
