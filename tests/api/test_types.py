"""``types``."""

from atp.models import Type

from .client import problem


def test_types(api, elsewhere):
    listed = api.get("types").json()
    assert (listed["next"], listed["previous"]) == (None, None)
    names = [each["identifier"] for each in listed["results"]]
    assert "tests.echo" in names
    assert names == sorted(names)
    found = api.get("types/tests.add").json()
    assert found == {
        "identifier": "tests.add",
        "handler": "tests.app.tasks.add",
        "timeout": 60.0,
        "max_restarts": 1,
        "max_retries": 2,
        "backoff": 0.1,
        "backoff_max": 1.0,
        "retention": 86400.0,
        "max_memory": None,
        "serializer": "json",
        "downstream": "",
        "owner": "",
        "runbook": "",
        "on_finished": [],
        "on_failed": [],
        "sensitive": [],
        "late_writes": 0,
        "registered": found["registered"],
        "declared": True,
        "inputs_schema": found["inputs_schema"],
        "outputs_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema"},
    }
    Type.objects.filter(identifier="tests.add").delete()
    found = api.get("types/tests.add").json()
    assert (found["registered"], found["declared"]) == (None, True)
    assert api.get("types/tests.elsewhere").json()["declared"] is False


def test_an_unknown_type(api):
    """G13: and it leads to a known one."""
    for identifier in ("tests.ecko", "tests.echo%00", "%F0%9F%8E%81", "a" * 5000):
        answer = api.get(f"types/{identifier}")
        assert (answer.status_code, problem(answer)) == (404, "unknown-type"), identifier[:20]
    assert "Did you mean 'tests.echo'?" in api.get("types/tests.ecko").json()["detail"]
