"""The pages of gates and limits."""

import html
import re
from datetime import timedelta

import pytest

from atp import queue
from atp.models import Limit, LogRecord

from ..app.tasks import echo
from .pages import check_page
from .test_acting import errors

ADD = "/atp/types/tests.add"


@pytest.mark.slow
def test_the_whole_queue_can_be_held_with_the_gate_form(full, operator):
    answer = operator.post("/atp/gate/", {"mode": "hold", "reason": "maintenance"}, follow=True)
    assert answer.redirect_chain == [("/atp/", 302)]
    check_page(answer, "Everything is held")
    check_page(operator.post("/atp/gate/", {"mode": "drop"}), "Drop everything")
    assert [gate.mode for gate in queue.gates()] == ["hold"]


def test_invalid_gates_and_limits_are_rejected_and_nothing_is_written(full, operator):
    """The form is shown again with the reason (G13)."""
    for path, given, told in (
        ("/atp/gate/", {}, ""),
        (f"{ADD}/gate/", {"of": "lan", "mode": "hold"}, ""),
        (f"{ADD}/gate/", {"mode": "hold", "expected": "soon"}, None),
        # A collection beside the whole Type is not ignored.
        (f"{ADD}/gate/", {"of": "type", "collection": "a", "mode": "hold"}, "Choose one of them."),
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
    """Return the fields of the form on a page as a browser would send them."""
    page = answer.content.decode()
    form = re.search(r'<form[^>]*method="post".*?</form>', page[page.index("<h1>") :], re.S).group()
    given = {}
    for tag in re.findall(r"<input[^>]*>", form):
        if 'type="checkbox"' not in tag and "csrf" not in tag:
            name, value = (re.search(rf' {key}="([^"]*)"', tag) for key in ("name", "value"))
            given[name[1]] = html.unescape(value[1] if value else "")
    for name, options in re.findall(r'<select name="([^"]*)".*?>(.*?)</select>', form, re.S):
        given[name] = re.search(r'value="([^"]*)" selected', options)[1]
    return given


def test_the_limit_form_sets_limits_of_a_type_or_a_lane_and_resets_them(full, operator):
    """Resetting restores the limits that the code declares."""
    given = {"of": "type", "max_running": "3", "rate": "100/m", "burst": "", "weight": "2"}
    check_page(operator.post(f"{ADD}/limit/", given, follow=True), "100/m")
    [limit] = queue.limits()
    assert (limit.max_running, limit.rate, limit.burst, limit.weight) == (3, "100/m", 1, 2.0)
    operator.post(f"{ADD}/limit/", {"of": "lane", "collection": "a", "max_running": "2"})
    given = form_of(operator.get(f"{ADD}/limit/", {"collection": "a"}))
    assert (given["max_running"], given["rate"], given["burst"]) == ("2", "", "")
    assert "weight" not in given
    address = f"{ADD}/limit/?collection=a"
    check_page(operator.post(address, given | {"rate": "5/min"}, follow=True))
    lane = next(limit for limit in queue.limits() if limit.collection == "a")
    assert (lane.max_running, lane.rate, lane.burst) == (2, "5/min", 1)
    check_page(operator.get(f"{ADD}/"), "?collection=a")
    given = form_of(operator.get(f"{ADD}/limit/")) | {"default": "on"}
    answer = operator.post(f"{ADD}/limit/", given | {"rate": "5/s"})
    assert answer.status_code == 422
    assert "Give either the default or limits" in errors(answer)
    assert operator.post(f"{ADD}/limit/", given).status_code == 302
    assert [limit.subject for limit in queue.limits()] == ["lane:tests.add/a"]


def test_the_limit_form_sets_only_changed_limits(full, operator):
    """A changed rate keeps its burst."""
    queue.limit("tests.add", max_running=9, rate="100/s", burst=7, weight=3, by="ann")
    given = form_of(operator.get(f"{ADD}/limit/"))
    check_page(operator.post(f"{ADD}/limit/", given, follow=True), "Nothing was changed")
    assert queue.limits()[0].who == "ann"
    queue.limit("tests.add", weight=5, by="ann")
    operator.post(f"{ADD}/limit/", given | {"max_running": "8", "rate": "200/s"})
    [limit] = queue.limits()
    assert (limit.max_running, limit.weight, limit.burst) == (8, 5.0, 7)
    given = form_of(operator.get(f"{ADD}/limit/"))
    operator.post(f"{ADD}/limit/", given | {"rate": ""})
    assert not queue.limits()[0].rate


def test_the_gate_form_returns_409_if_somebody_has_changed_the_gate_meanwhile(full, operator):
    queue.drop("tests.add", "a", reason="spam", until=timedelta(hours=1), by="ann")
    answer = operator.get(f"{ADD}/gate/", {"of": "lane", "collection": "a"})
    check_page(answer, "Now: dropped by ann, since")
    given = form_of(answer)
    assert (given["mode"], given["reason"], given["collection"]) == ("open", "spam", "a")
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
    shown = operator.post(f"{ADD}/gate/", given, follow=True)
    check_page(shown, "Before, it was dropped by ann")
    assert queue.gates()[0].reason == "mine"


def test_opening_a_gate_ignores_the_prefilled_reason_and_end(full, operator):
    queue.hold("tests.add", reason="disk full", until=timedelta(hours=1), by="ann")
    given = form_of(operator.get(f"{ADD}/gate/")) | {"mode": "open"}
    answer = operator.post(f"{ADD}/gate/", given | {"until": "5h"})
    assert "only for a gate that is shut" in errors(answer)
    operator.post(f"{ADD}/gate/", given)
    assert not queue.gates()
    [*_, record] = LogRecord.objects.about("type:tests.add")
    assert record.message.startswith("gate: open (was: held by ann")


def test_a_gate_that_drops_instances_is_set_only_after_a_confirmation(full, operator):
    """If somebody else sets the gate in the meantime, the confirmation returns 409."""
    address = "/atp/types/tests.echo/gate/"
    echo.using(collection="a").enqueue_many([{}, {}])
    given = {"of": "lane", "collection": "a", "mode": "drop", "reason": "“spam” & such"}
    answer = operator.post(address, given)
    check_page(answer, "2 Instances wait there now")
    assert not queue.gates()
    assert operator.post(address, form_of(answer)).status_code == 302
    [gate] = queue.gates()
    assert (gate.mode, gate.collection, gate.reason) == ("drop", "a", "“spam” & such")
    asked = operator.post(f"{ADD}/gate/", form_of(operator.get(f"{ADD}/gate/")) | {"mode": "drop"})
    queue.hold("tests.add", by="ann")
    assert operator.post(f"{ADD}/gate/", form_of(asked)).status_code == 409
    assert {gate.subject: gate.mode for gate in queue.gates()}["type:tests.add"] == "hold"


def test_the_log_of_gates_is_shown_only_to_users_who_may_see_logs(full, operator, user, allow):
    queue.hold("tests.add", "a", reason="disk full", by="ann")
    queue.open_gate("tests.add", "a", by="bob")
    queue.hold(reason="maintenance", by="ann")
    queue.open_gate(by="bob")
    for path in ("/atp/", "/atp/gate/"):
        shown = operator.get(path)
        check_page(shown, "gate: hold: maintenance", '<span class="who">bob</span>')
    log = "gate: hold: disk full", "gate: open (was: held by ann"
    check_page(operator.get(f"{ADD}/"), "collection “a”", *log)
    check_page(operator.get("/atp/types/tests.echo/"), lacks=["disk full"])
    allow("view_type", "view_instance", "control")
    operator.force_login(user)
    for path in ("/atp/", "/atp/gate/"):
        check_page(operator.get(path), lacks=["maintenance"])


def test_the_form_to_end_a_session_is_filled_in_and_refuses_one_that_blocks_nobody(full, operator):
    address = "/atp/end-session/?pid=77"
    shown = 'value="77"', ">process 77</a></h1>", "No session keeps others waiting now."
    check_page(operator.get(address), *shown)
    answer = operator.post(address, {"pid": "77", "initial-pid": "77"})
    assert answer.status_code == 422
    assert "no session with this process keeps others waiting now" in errors(answer)
