"""``daemons`` (G13)."""

from atp.models import LogRecord
from atp.states import State

from .client import Api, problem


def test_what_its_workers_run_takes_a_permission_of_its_own(full, api, user_with):
    """G14."""
    uuid = full.host.uuid
    [found] = api.get("daemons").json()["results"]
    assert (found["uuid"], found["condition"]) == (str(uuid), "alive")
    busy, idle = found["workers"]
    assert (busy["instance"], idle["instance"]) == (str(full[State.RUNNING].uuid), None)
    blind = Api(user_with("view_daemon", name="blind"))
    [found] = blind.get("daemons").json()["results"]
    for document in (found, blind.get(f"daemons/{uuid}").json()):
        assert {worker["instance"] for worker in document["workers"]} == {None}
        assert document["workers"][0]["type"]


def test_one_daemon(full, api):
    uuid = str(full.host.uuid)
    assert api.get(f"daemons/{uuid}").json()["types"] == ["tests.echo", "tests.add"]
    assert api.get(f"daemons/{uuid.upper()}").json()["uuid"] == uuid
    for unknown in ("x", "00000000-0000-7000-8000-000000000000", "%00"):
        answer = api.get(f"daemons/{unknown}")
        assert (answer.status_code, problem(answer)) == (404, "not-found"), unknown


def test_an_order_is_possible_where_it_makes_a_difference(full, api):
    """All modes are tried in tests/store/test_command.py."""
    path = f"daemons/{full.host.uuid}"
    found = api.post(f"{path}/quiet").json()
    assert (found["request"], found["mode"]) == ("quiet", "running")
    assert found["seen"] == api.get(path).json()["seen"]
    assert LogRecord.objects.about("daemon:host:1").last().who == "user operator via API"
    refused = [api.post(f"{path}/quiet")]
    full.host.lose_lease()
    assert api.get(path).json()["condition"] == "lost"
    refused.append(api.post(f"{path}/stop"))
    for answer, told in zip(refused, ("has been told to go quiet", "it is lost"), strict=True):
        assert (answer.status_code, problem(answer)) == (409, "illegal-order")
        assert told in answer.json()["detail"]
