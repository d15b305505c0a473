"""The pages of gates and limits."""

import html
import re
from datetime import timedelta

import pytest

from atp import queue
from atp.models import Limit, LogRecord

from ..app.tasks import echo

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
    operator.post(
        f"{ADD}/gate/",
        {"of": "lane", "collection": "", "mode": "drop", "until": "1h", "sure": "yes"},
    )
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


def form_of(answer):
    """The fields of the form that sets something, as a browser would send them."""
    page = answer.content.decode()
    form = re.search(r'<form[^>]*method="post".*?</form>', page[page.index("<h1>") :], re.S).group()
    given = {}
    for tag in re.findall(r"<input[^>]*>", form):
        if 'type="checkbox"' not in tag and "csrf" not in tag:
            value = re.search(r' value="([^"]*)"', tag)
            given[re.search(r'name="([^"]*)"', tag).group(1)] = html.unescape(
                value.group(1) if value else ""
            )
    for name, options in re.findall(r'<select name="([^"]*)".*?>(.*?)</select>', form, re.S):
        given[name] = re.search(r'value="([^"]*)" selected', options).group(1)
    return given


@pytest.mark.parametrize("page", ["gate", "limit"])
def test_a_collection_beside_the_whole_type(full, operator, page):
    """G13: it is not ignored."""
    given = {"gate": {"mode": "hold"}, "limit": {"max_running": "3"}}[page]
    answer = operator.post(f"{ADD}/{page}/", {"of": "type", "collection": "a", **given})
    assert answer.status_code == 422
    assert "which is it?" in errors(answer)
    assert not queue.gates()
    assert not queue.limits()
    answer = operator.get(f"{ADD}/{page}/", {"of": "type", "collection": "a"})
    assert answer.status_code == 422
    assert operator.get("/atp/gate/", {"collection": "a"}).status_code == 400


class TestLimitsOfALane:
    def test_the_form_shows_those_of_the_lane(self, full, operator):
        queue.limit("tests.add", max_running=9, rate="100/s", burst=7, weight=3)
        queue.limit("tests.add", "a", max_running=2)
        answer = operator.get(f"{ADD}/limit/", {"collection": "a"})
        given = form_of(answer)
        assert (given["max_running"], given["rate"], given["burst"]) == ("2", "", "")
        assert "weight" not in given
        shown = operator.post(f"{ADD}/limit/?collection=a", given | {"rate": "5/min"}, follow=True)
        assert shown.status_code == 200
        [lane] = [limit for limit in queue.limits() if limit.collection == "a"]
        assert (lane.max_running, lane.rate, lane.burst) == (2, "5/min", 1)
        assert "?collection=a" in operator.get(f"{ADD}/").content.decode()

    def test_only_what_was_changed_is_set(self, full, operator):
        queue.limit("tests.add", max_running=9, weight=3)
        given = form_of(operator.get(f"{ADD}/limit/"))
        queue.limit("tests.add", weight=5, by="ann")
        operator.post(f"{ADD}/limit/", given | {"max_running": "8"})
        [limit] = queue.limits()
        assert (limit.max_running, limit.weight) == (8, 5.0)

    def test_nothing_was_changed(self, full, operator):
        queue.limit("tests.add", max_running=9, rate="100/s", by="ann")
        given = form_of(operator.get(f"{ADD}/limit/"))
        shown = operator.post(f"{ADD}/limit/", given, follow=True).content.decode()
        assert "Nothing was changed" in shown
        assert queue.limits()[0].who == "ann"

    def test_a_rate_is_changed_with_its_burst_as_shown(self, full, operator):
        queue.limit("tests.add", rate="100/s", burst=7)
        given = form_of(operator.get(f"{ADD}/limit/"))
        operator.post(f"{ADD}/limit/", given | {"rate": "200/s"})
        assert queue.limits()[0].burst == 7
        given = form_of(operator.get(f"{ADD}/limit/"))
        operator.post(f"{ADD}/limit/", given | {"rate": ""})
        assert not queue.limits()[0].rate

    def test_default_takes_nothing_beside_it(self, full, operator):
        queue.limit("tests.add", max_running=9)
        given = form_of(operator.get(f"{ADD}/limit/")) | {"default": "on"}
        answer = operator.post(f"{ADD}/limit/", given | {"rate": "5/s"})
        assert answer.status_code == 422
        assert "no limits beside it" in errors(answer)
        assert queue.limits()[0].max_running == 9
        assert operator.post(f"{ADD}/limit/", given).status_code == 302
        assert not queue.limits()

    def test_left_to_the_code(self, full, operator, limited):
        queue.limit("tests.echo", max_running=9)
        path = "/atp/types/tests.echo/limit/"
        shown = operator.post(path, {"default": "on"}, follow=True).content.decode()
        assert "left to the code: 3 at a time; 100/m" in shown
        assert not queue.limits()[0].is_set

    def test_nothing_at_all_is_no_limit(self, full, operator):
        for given in ({"max_running": "0"}, {"rate": "0/s"}):
            assert "a gate" in errors(operator.post(f"{ADD}/limit/", given))


class TestTwoOperators:
    def test_the_form_shows_how_it_is(self, full, operator):
        queue.drop("tests.add", "a", reason="spam", until=timedelta(hours=1), by="ann")
        answer = operator.get(f"{ADD}/gate/", {"of": "lane", "collection": "a"})
        assert "Now: dropped by ann, since" in answer.content.decode()
        given = form_of(answer)
        assert (given["mode"], given["reason"], given["collection"]) == ("drop", "spam", "a")
        assert given["until"]
        assert "Now: open" in operator.get(f"{ADD}/gate/").content.decode()

    def test_the_second_is_told(self, full, operator):
        given = form_of(operator.get(f"{ADD}/gate/"))
        queue.drop("tests.add", reason="spam", by="ann")
        answer = operator.post(f"{ADD}/gate/", given | {"reason": "mine"})
        assert answer.status_code == 409
        assert "dropped by ann, since" in errors(answer)
        assert queue.gates()[0].who == "ann"
        # Who has read it may do it.
        given = form_of(answer)
        assert given["reason"] == "mine"
        shown = operator.post(f"{ADD}/gate/", given, follow=True).content.decode()
        assert "Before, it was dropped by ann" in shown
        assert queue.gates()[0].reason == "mine"

    def test_what_is_shown_is_not_said_of_its_opening(self, full, operator):
        queue.hold("tests.add", reason="disk full", until=timedelta(hours=1), by="ann")
        given = form_of(operator.get(f"{ADD}/gate/")) | {"mode": "open"}
        answer = operator.post(f"{ADD}/gate/", given | {"until": "5h"})
        assert "does not open by itself" in errors(answer)
        operator.post(f"{ADD}/gate/", given)
        assert not queue.gates()
        assert (
            LogRecord.objects.about("type:tests.add")
            .last()
            .message.startswith("gate: open (was: held by ann")
        )

    def test_an_open_gate_is_open(self, full, operator):
        shown = operator.post(f"{ADD}/gate/", {"mode": "open"}, follow=True).content.decode()
        assert "It is open already." in shown

    def test_a_lane_below_what_is_held(self, full, operator):
        queue.hold(reason="maintenance", by="ann")
        queue.hold("tests.add", "a")
        given = {"of": "lane", "collection": "a", "mode": "open"}
        shown = operator.post(f"{ADD}/gate/", given, follow=True).content.decode()
        assert "Nothing moves there yet: everything is held by ann" in shown

    def test_a_form_that_was_changed_on_its_way(self, full, operator):
        answer = operator.post(f"{ADD}/gate/", {"mode": "hold", "expected": "soon"})
        assert answer.status_code == 422
        assert not queue.gates()


class TestDropping:
    def test_it_asks_once_more(self, full, operator):
        echo.using(collection="a").enqueue_many([{}, {}])
        given = {"of": "lane", "collection": "a", "mode": "drop", "reason": "“spam” & such"}
        answer = operator.post("/atp/types/tests.echo/gate/", given)
        assert answer.status_code == 200
        assert "2 Instances wait there now" in answer.content.decode()
        assert not queue.gates()
        assert operator.post("/atp/types/tests.echo/gate/", form_of(answer)).status_code == 302
        [gate] = queue.gates()
        assert (gate.mode, gate.collection, gate.reason) == ("drop", "a", "“spam” & such")

    def test_everything(self, full, operator):
        answer = operator.post("/atp/gate/", {"mode": "drop"})
        assert "Drop everything" in answer.content.decode()
        assert not queue.gates()
        operator.post("/atp/gate/", form_of(answer))
        assert queue.gates()[0].mode == "drop"

    def test_the_second_is_told(self, full, operator):
        given = form_of(operator.get(f"{ADD}/gate/")) | {"mode": "drop"}
        asked = operator.post(f"{ADD}/gate/", given)
        queue.hold("tests.add", by="ann")
        answer = operator.post(f"{ADD}/gate/", form_of(asked))
        assert answer.status_code == 409
        assert queue.gates()[0].mode == "hold"


class TestLog:
    def test_of_lanes_with_their_type(self, full, operator):
        queue.hold("tests.add", "a", reason="disk full", by="ann")
        queue.open_gate("tests.add", "a", by="bob")
        shown = operator.get(f"{ADD}/").content.decode()
        assert "collection “a”" in shown
        assert "gate: hold: disk full" in shown
        assert "gate: open (was: held by ann" in shown
        assert "disk full" not in operator.get("/atp/types/tests.echo/").content.decode()

    def test_of_everything(self, full, operator):
        assert "Gate over everything" not in operator.get("/atp/").content.decode()
        queue.hold(reason="maintenance", by="ann")
        queue.open_gate(by="bob")
        for path in ("/atp/", "/atp/gate/"):
            shown = operator.get(path).content.decode()
            assert "gate: hold: maintenance" in shown
            assert '<span class="who">bob</span>' in shown

    def test_who_may_not_see_it(self, full, visitor, allow):
        """G14."""
        allow("view_type", "view_instance", "control")
        queue.hold(reason="maintenance", by="ann")
        queue.open_gate(by="bob")
        assert "maintenance" not in visitor.get("/atp/").content.decode()
        assert "maintenance" not in visitor.get("/atp/gate/").content.decode()
