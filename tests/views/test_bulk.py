"""The list of Instances and many of them at once: tabs, all that match, what is ticked, exports."""

import csv
import io
import json
import re
from html import unescape

from asgiref.sync import async_to_sync
from django.contrib.messages import get_messages

from atp.models import Inputs, Instance
from atp.pages import bulk, instances
from atp.reports import listing, paging
from atp.states import Reason, State
from tests.app.tasks import add, echo

from ..populated import MARKUP
from .pages import check_page

LIST = "/atp/instances/"


def tabs(answer):
    tab = r'<a href="\?[^"]*"(?: aria-current="page")?>(\w+) <span[^>]*>(.*?)<'
    return dict(re.findall(tab, check_page(answer)))


def told(answer):
    """Follow a redirect's message: what the page says that was done."""
    assert answer.status_code == 302, answer.content.decode()
    return " ".join(map(str, get_messages(answer.wsgi_request)))


def exported(answer):
    assert answer.status_code == 200
    assert "attachment" in answer["Content-Disposition"]
    return b"".join(answer.streaming_content).decode()


def test_each_state_has_a_tab_with_the_number_of_its_instances(full, operator, monkeypatch):
    answer = operator.get(LIST)
    assert tabs(answer) == {"All": "6", **{str(state): "1" for state in State}}
    check_page(answer, "6 match.")
    answer = operator.get(f"{LIST}?type=tests.echo&state=FAILED")
    assert tabs(answer) | {"All": "5", "ACCEPTED": "0", "FAILED": "1"} == tabs(answer)
    current = '<a href="?type=tests.echo&amp;state=FAILED" aria-current="page">'
    check_page(answer, "1 matches.", current)
    # Counting stops at a limit.
    monkeypatch.setattr(listing, "MOST_COUNTED", 2)
    answer = operator.get(LIST)
    assert tabs(answer)["All"] == "2+"
    check_page(answer, "More than 2 match.")


def test_the_list_takes_at_most_twelve_queries(full, operator, django_assert_max_num_queries):
    operator.get(LIST)
    for query in ("", "?type=tests.echo&state=FAILED&created_after=2020-01-01"):
        with django_assert_max_num_queries(12):
            operator.get(f"{LIST}{query}")


def test_a_search_says_how_far_it_came(full, operator, monkeypatch):
    monkeypatch.setattr(paging, "_FIRST_PORTION", 2)
    monkeypatch.setattr(paging, "_LONGEST", 0.0)
    told = "There are no such Instances so far.", "Searched back to"
    shown = check_page(operator.get(f"{LIST}?created_by=nobody"), *told)
    link = re.search(r'rel="next" href="(\?[^"]*)"', shown)[1]
    assert "created_by=nobody" in link
    check_page(operator.get(f"{LIST}{unescape(link)}"), "Searched back to")


def planned(answer, *parts):
    """Check the plan that a page shows, and return up to which Instance it was made."""
    return re.search(r'name="shown" value="([^"]*)"', check_page(answer, *parts))[1]


def test_all_that_match_are_redriven_after_a_plan(full, operator):
    failed = full[State.FAILED]
    full.failed(collection="films")
    query = "?state=FAILED&collection=books&tried_again=&created_after=2020-01-01"
    links = [f"/atp/instances/all/{name}/?" for name in ("redrive", "cancel")]
    check_page(operator.get(f"{LIST}{query}"), links[0], lacks=links[1:])
    address = f"/atp/instances/all/redrive/{query}"
    plan = "1 FAILED would be tried again: tests.echo 1"
    until = planned(operator.get(address), plan, str(failed.uuid))
    # What has failed since the page was shown is not in the plan.
    full.failed(collection="books")
    answer = operator.post(address, {"shown": until, "rate": "5/s"})
    assert "atp.redrive" in told(answer)
    assert answer["Location"] == f"{LIST}{query}"
    inputs = Inputs.objects.get(instance__type__identifier="atp.redrive").value
    assert list(bulk.matching.Selection(**inputs["selection"]).rows()) == [failed]
    assert inputs["rate"] == "5/s"


def test_all_that_match_are_cancelled_only_in_the_state_of_the_tab(full, operator):
    address = "/atp/instances/all/cancel/?state=ACCEPTED"
    until = planned(operator.get(address), "1 would be cancelled: tests.add 1")
    assert "atp.cancel" in told(operator.post(address, {"shown": until}))
    inputs = Inputs.objects.get(instance__type__identifier="atp.cancel").value
    assert inputs["selection"]["state"] == "ACCEPTED"


def test_an_operation_on_all_refuses_a_filter_that_it_lacks(full, operator):
    for path, said in (
        ("redrive/", "Filter the list first"),
        ("delete/?identifier=a", "All that match cannot be chosen by identifier"),
        ("redrive/?state=RUNNING", "not possible for Instances that are RUNNING"),
    ):
        answer = operator.get(f"/atp/instances/all/{path}")
        assert answer.status_code in (400, 422)
        assert said in answer.content.decode()
        name, _, query = path.partition("/")
        shown = operator.get(f"{LIST}{query}")
        check_page(shown, lacks=[f"/atp/instances/all/{name}/"])


def test_operations_on_many_are_hidden_without_the_permission(full, visitor, allow):
    """tests/views/test_access.py shows that they are refused, too."""
    allow("view_instance")
    check_page(visitor.get(f"{LIST}?state=FAILED"), lacks=["/all/", 'name="ticked"'])


def test_ticked_instances_are_redriven_and_refusals_are_reported(full, operator):
    failed, running = full[State.FAILED], full[State.RUNNING]
    uuids = [str(failed.uuid), str(running.uuid), "01a1f91a-b88b-777b-9eec-f82e434b47a3"]
    given = {"ticked": uuids, "back": "state=FAILED"}
    answer = operator.post("/atp/instances/ticked/redrive/", given)
    assert answer["Location"] == f"{LIST}?state=FAILED"
    words = told(answer)
    assert words.startswith("1 redriven, 2 refused: ")
    assert "It is RUNNING." in words
    assert full[State.FAILED].state == State.ACCEPTED


def test_a_whole_page_can_be_ticked_without_a_script(operator, world):
    made = echo.enqueue_many({} for _ in range(3))
    shown = check_page(operator.get(LIST))
    page = re.search(r'name="page" value="([^"]*)"', shown)[1]
    assert page.split() == [str(each.uuid) for each in reversed(made)]
    answer = operator.post("/atp/instances/ticked/cancel/", {"every": "yes", "page": page})
    check_page(answer, *(str(each.uuid) for each in made))
    assert Instance.objects.failed().count() == 0
    data = {"ticked": page.split(), "sure": "yes"}
    assert told(operator.post("/atp/instances/ticked/cancel/", data)) == "3 cancelled."
    assert Instance.objects.failed(Reason.CANCELLED).count() == 3
    assert told(operator.post("/atp/instances/ticked/delete/", data)).endswith(" 3 removed.")


def test_an_operation_on_what_is_ticked_checks_the_permission_for_each(full, visitor, allow):
    """To delete a live Instance takes the permission to cancel it."""
    allow("view_instance", "delete_instance")
    uuids = [str(full[state].uuid) for state in (State.FINISHED, State.ACCEPTED)]
    answer = visitor.post("/atp/instances/ticked/delete/", {"ticked": uuids, "sure": "yes"})
    assert told(answer) == "1 removed, 1 refused: You lack the permission atp.operate. (1)"


def test_only_a_page_of_instances_can_be_ticked(operator):
    uuids = [str(number) for number in range(instances.PAGE_SIZE + 1)]
    answer = operator.post("/atp/instances/ticked/redrive/", {"ticked": uuids})
    check_page(answer, "at most 50", status=400)
    assert told(operator.post("/atp/instances/ticked/redrive/")) == "Nothing is ticked."
    assert operator.post("/atp/instances/ticked/pause/").status_code == 404


def test_csv_has_all_that_match_newest_first(full, operator, monkeypatch):
    """Formulas are made harmless."""
    monkeypatch.setattr(listing, "PORTION", 2)
    for value in ("=1+1", "+1", "-1", "@a", "fine"):
        echo.using(identifier=value).enqueue()
    lines = list(csv.DictReader(io.StringIO(exported(operator.get(f"{LIST}export")))))
    newest_first = Instance.objects.newest_first()
    assert [line["uuid"] for line in lines] == [str(each.uuid) for each in newest_first]
    named = [line["identifier"] for line in lines[:5]]
    assert named == ["fine", "'@a", "'-1", "'+1", "'=1+1"]
    [failed] = [line for line in lines if line["state"] == "FAILED"]
    assert failed["error"].startswith("ValueError: <script>")
    assert failed["identifier"] == MARKUP
    assert json.loads(failed["inputs"])["number"] == 7
    found = exported(operator.get(f"{LIST}export?format=csv&state=PAUSED"))
    assert len(found.splitlines()) == 2
    check_page(operator.get(f"{LIST}export?format=xls"), "csv, jsonl", status=400)


def test_json_lines_have_the_same_values(full, operator):
    answer = operator.get(f"{LIST}export?format=jsonl&type=tests.add")
    [line] = map(json.loads, exported(answer).splitlines())
    made = full[State.ACCEPTED]
    assert line["uuid"] == str(made.uuid)
    assert line["created"] == made.created.isoformat()
    assert line["inputs"] == {"first": 1, "second": 2}
    assert line["created_by"] == "somebody"


def test_an_export_has_only_what_the_user_may_see(full, visitor, allow):
    allow("view_instance")
    found = exported(visitor.get(f"{LIST}export?state=FAILED"))
    assert "inputs" not in found
    assert "ValueError" not in found
    allow("view_inputs")
    assert "inputs" in exported(visitor.get(f"{LIST}export")).splitlines()[0]


def test_an_export_says_that_it_stopped_at_its_limit(db):
    add.enqueue(1)
    add.enqueue(2)
    rows = Instance.objects.select_related("type")

    def export(most):
        return listing.Export(rows, errors=list, inputs=None, most=most)

    assert [line.strip() for line in export(1).csv()][-1] == "# 1 rows: stopped at the limit"
    assert "limit" not in "".join(export(2).csv())
    *_, last = export(1).json_lines()
    assert json.loads(last) == {"stopped": "1 rows: stopped at the limit"}
    assert len(list(export(2).json_lines())) == 2


def test_an_export_is_streamed_under_asgi_too(full, operator):
    """Django would otherwise read all rows before it sends the first."""
    answer = operator.get(f"{LIST}export")

    async def parts():
        return [part async for part in answer]

    assert b"".join(async_to_sync(parts)()).startswith(b"uuid,type")
