"""``daemons``."""

import pytest

from atp.states import State

from .client import problem


def test_all_daemons(full, api):
    [found] = api.get("daemons").json()["results"]
    assert (found["uuid"], found["condition"]) == (str(full.host.uuid), "alive")
    busy, idle = found["workers"]
    assert (busy["instance"], idle["instance"]) == (str(full[State.RUNNING].uuid), None)


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
