"""The pages of gates and limits."""

import html
import re
from datetime import timedelta

from django.contrib.auth.models import User

from atp import queue
from atp.models import Limit, LogRecord

from ..app.tasks import echo
from .test_acting import errors

ADD = "/atp/types/tests.add"


def test_hold_everything(full, operator):
    answer = operator.post("/atp/gate/", {"mode": "hold", "reason": "maintenance"}, follow=True)
    assert answer.redirect_chain == [("/atp/", 302)]
    assert "Everything is held" in answer.content.decode()
    answer = operator.post("/atp/gate/", {"mode": "drop"})
    assert "Drop everything" in answer.content.decode()
    assert [gate.mode for gate in queue.gates()] == ["hold"]
    queue.open_gate(by="bob")
    for path in ("/atp/", "/atp/gate/"):
        shown = operator.get(path).content.decode()
        assert "gate: hold: maintenance" in shown
        assert '<span class="who">bob</span>' in shown


def test_limits(full, operator):
    """Of a Type and of a lane, until they are left to the code."""
    given = {"of": "type", "max_running": "3", "rate": "100/m", "burst": "", "weight": "2"}
    shown = operator.post(f"{ADD}/limit/", given, follow=True).content.decode()
    assert "100/m" in shown
    [limit] = queue.limits()
    assert (limit.max_running, limit.rate, limit.burst, limit.weight) == (3, "100/m", 1, 2.0)
    operator.post(f"{ADD}/limit/", {"of": "lane", "collection": "a", "max_running": "1"})
    assert {limit.subject for limit in queue.limits()} == {"type:tests.add", "lane:tests.add/a"}
    given = form_of(operator.get(f"{ADD}/limit/")) | {"default": "on"}
    answer = operator.post(f"{ADD}/limit/", given | {"rate": "5/s"})
    assert answer.status_code == 422
    assert "no limits beside it" in errors(answer)
    assert operator.post(f"{ADD}/limit/", given).status_code == 302
    assert [limit.subject for limit in queue.limits()] == ["lane:tests.add/a"]


def test_what_makes_no_sense(full, operator):
    """G13: the form comes back and says why, and nothing is written."""
    for path, given, told in (
        ("/atp/gate/", {}, ""),
        (f"{ADD}/gate/", {"of": "lan", "mode": "hold"}, ""),
        (f"{ADD}/gate/", {"mode": "hold", "expected": "soon"}, None),
        # A collection beside the whole Type is not ignored.
        (f"{ADD}/gate/", {"of": "type", "collection": "a", "mode": "hold"}, "which is it?"),
        (f"{ADD}/limit/", {"of": "type", "collection": "a", "max_running": "3"}, "which is it?"),
        (f"{ADD}/limit/", {"of": "lane", "collection": "a", "weight": "2"}, ""),
        (f"{ADD}/limit/", {"rate": "0/s"}, "a gate"),
    ):
        answer = operator.post(path, given)
        assert answer.status_code == 422, (path, given)
        assert told is None or (errors(answer) and told in errors(answer)), (path, given)
    assert operator.get(f"{ADD}/gate/", {"of": "type", "collection": "a"}).status_code == 422
    assert operator.get("/atp/gate/", {"collection": "a"}).status_code == 400
    assert operator.get("/atp/types/tests.ecko/gate/").status_code == 404
    assert not queue.gates()
    assert not Limit.objects.exists()


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


class TestFormOfLimits:
    def test_it_shows_those_of_the_lane(self, full, operator):
        queue.limit("tests.add", max_running=9, rate="100/s", burst=7, weight=3)
        queue.limit("tests.add", "a", max_running=2)
        answer = operator.get(f"{ADD}/limit/", {"collection": "a"})
        given = form_of(answer)
        assert (given["max_running"], given["rate"], given["burst"]) == ("2", "", "")
        assert "weight" not in given
        shown = operator.post(f"{ADD}/limit/?collection=a", given | {"rate": "5/min"}, follow=True)
        assert shown.status_code == 200
        lane = next(limit for limit in queue.limits() if limit.collection == "a")
        assert (lane.max_running, lane.rate, lane.burst) == (2, "5/min", 1)
        assert "?collection=a" in operator.get(f"{ADD}/").content.decode()

    def test_only_what_was_changed_is_set(self, full, operator):
        queue.limit("tests.add", max_running=9, weight=3, by="ann")
        given = form_of(operator.get(f"{ADD}/limit/"))
        shown = operator.post(f"{ADD}/limit/", given, follow=True).content.decode()
        assert "Nothing was changed" in shown
        assert queue.limits()[0].who == "ann"
        queue.limit("tests.add", weight=5, by="ann")
        operator.post(f"{ADD}/limit/", given | {"max_running": "8"})
        [limit] = queue.limits()
        assert (limit.max_running, limit.weight) == (8, 5.0)

    def test_a_rate_is_changed_with_its_burst_as_shown(self, full, operator):
        queue.limit("tests.add", rate="100/s", burst=7)
        given = form_of(operator.get(f"{ADD}/limit/"))
        operator.post(f"{ADD}/limit/", given | {"rate": "200/s"})
        assert queue.limits()[0].burst == 7
        given = form_of(operator.get(f"{ADD}/limit/"))
        operator.post(f"{ADD}/limit/", given | {"rate": ""})
        assert not queue.limits()[0].rate


class TestTwoOperators:
    def test_the_form_shows_how_it_is_and_the_second_is_told(self, full, operator):
        queue.drop("tests.add", "a", reason="spam", until=timedelta(hours=1), by="ann")
        answer = operator.get(f"{ADD}/gate/", {"of": "lane", "collection": "a"})
        assert "Now: dropped by ann, since" in answer.content.decode()
        given = form_of(answer)
        assert (given["mode"], given["reason"], given["collection"]) == ("drop", "spam", "a")
        assert given["until"]
        queue.open_gate("tests.add", "a")
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


def test_dropping_asks_once_more(full, operator):
    """And then whoever has not seen what somebody else has set is told."""
    address = "/atp/types/tests.echo/gate/"
    echo.using(collection="a").enqueue_many([{}, {}])
    given = {"of": "lane", "collection": "a", "mode": "drop", "reason": "“spam” & such"}
    answer = operator.post(address, given)
    assert answer.status_code == 200
    assert "2 Instances wait there now" in answer.content.decode()
    assert not queue.gates()
    asked = form_of(answer)
    assert operator.post(address, asked).status_code == 302
    [gate] = queue.gates()
    assert (gate.mode, gate.collection, gate.reason) == ("drop", "a", "“spam” & such")
    asked = operator.post(f"{ADD}/gate/", form_of(operator.get(f"{ADD}/gate/")) | {"mode": "drop"})
    queue.hold("tests.add", by="ann")
    answer = operator.post(f"{ADD}/gate/", form_of(asked))
    assert answer.status_code == 409
    assert {gate.subject: gate.mode for gate in queue.gates()}["type:tests.add"] == "hold"


def test_the_log_of_gates(full, operator, visitor, allow):
    """G14: it takes the permission to see the log."""
    queue.hold("tests.add", "a", reason="disk full", by="ann")
    queue.open_gate("tests.add", "a", by="bob")
    queue.hold(reason="maintenance", by="ann")
    queue.open_gate(by="bob")
    operator.force_login(User.objects.get(username="root"))
    shown = operator.get(f"{ADD}/").content.decode()
    assert "collection “a”" in shown
    assert "gate: hold: disk full" in shown
    assert "gate: open (was: held by ann" in shown
    assert "disk full" not in operator.get("/atp/types/tests.echo/").content.decode()
    allow("view_type", "view_instance", "control")
    visitor.force_login(User.objects.get(username="olga"))
    for path in ("/atp/", "/atp/gate/"):
        assert "maintenance" not in visitor.get(path).content.decode()
