"""``daemons``."""

import pytest

from atp.states import State

from .client import Api, problem


def test_all_daemons(full, api):
    [found] = api.get("daemons").json()["results"]
    assert (found["uuid"], found["condition"]) == (str(full.host.uuid), "alive")
    busy, idle = found["workers"]
    assert (busy["instance"], idle["instance"]) == (str(full[State.RUNNING].uuid), None)


def test_what_its_workers_run_takes_a_permission_of_its_own(full, user_with):
    """G14."""
    api = Api(user_with("view_daemon"))
    [found] = api.get("daemons").json()["results"]
    alone = api.get(f"daemons/{full.host.uuid}").json()
    for document in (found, alone):
        assert {worker["instance"] for worker in document["workers"]} == {None}
        assert document["workers"][0]["type"]


def test_one_daemon(full, api):
    uuid = str(full.host.uuid)
    assert api.get(f"daemons/{uuid}").json()["types"] == ["tests.echo", "tests.add"]
    assert api.get(f"daemons/{uuid.upper()}").json()["uuid"] == uuid


def test_a_daemon_that_is_lost(full, api):
    full.host.lose_lease()
    assert api.get(f"daemons/{full.host.uuid}").json()["condition"] == "lost"


@pytest.mark.parametrize("uuid", ["x", "00000000-0000-7000-8000-000000000000", "%00"])
def test_a_daemon_that_there_is_not(full, api, uuid):
    """G13."""
    answer = api.get(f"daemons/{uuid}")
    assert (answer.status_code, problem(answer)) == (404, "not-found")
