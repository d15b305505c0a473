"""``formerly``: one declaration serves a Type under its old name, too (docs/deploying.md)."""

import pytest

from atp import queue, task_type
from atp.daemon.shared.outcome import Kind
from atp.daemon.worker import execution
from atp.exceptions import InvalidType
from atp.models import Type
from atp.reports import documents
from atp.verbs.registry import registry
from tests.samples import claimed

from .conftest import SHADE

NEW = "deploys.renamed"


def handler(context, *, path="a"):
    return path


@pytest.fixture
def renamed(release):
    release(handler)
    release()
    return release(handler, identifier=NEW, formerly=[SHADE])


def test_it_is_found_under_both_names(renamed):
    assert registry.get(SHADE) is registry.get(NEW) is renamed
    assert SHADE in registry
    assert [str(each) for each in registry if each is renamed] == [NEW]
    assert (registry.is_former(SHADE), registry.is_former(NEW)) == (True, False)


@pytest.mark.django_db
def test_enqueueing_goes_to_the_new_one(renamed):
    assert queue.declared(SHADE).enqueue().type.identifier == NEW


def test_what_waits_under_the_old_name_is_run(renamed, context):
    outcome = execution.run(claimed(1, SHADE)._replace(data='{"path":"b"}'), context)
    assert (outcome.kind, outcome.response.data) == (Kind.FINISHED, b'"b"')


@pytest.mark.django_db
def test_facts_of_the_new_one_hold_for_the_old(release):
    release(handler, identifier=NEW, formerly=[SHADE], transactional=True, backoff=[1, 2])
    assert registry.is_transactional(SHADE)
    assert registry.backoff_steps(SHADE) == registry.backoff_steps(NEW) != ()


@pytest.mark.django_db
def test_what_is_set_of_the_old_one_goes_on(release):
    """Its row stays as it was registered: with its gates, its limits, its page."""
    queue.register(release(handler, timeout=7))
    queue.hold(SHADE)
    queue.limit(SHADE, max_running=1)
    release()
    queue.register(release(handler, identifier=NEW, formerly=[SHADE]))
    assert Type.objects.get(identifier=SHADE).timeout.total_seconds() == 7
    assert [str(gate.type) for gate in queue.gates()] == [SHADE]
    assert [limit.max_running for limit in queue.limits(SHADE)] == [1]
    told = {each["identifier"]: each for each in documents.types()}
    assert told[SHADE]["declared"]
    assert told[NEW]["declared"]


def test_a_release_that_forgets_the_old_name(renamed, release):
    release(handler, identifier=NEW)
    assert SHADE not in registry


@pytest.mark.parametrize(
    ("formerly", "told"),
    [
        ("deploys.old", "must be a list"),
        ([7], "is no identifier"),
        (["no good"], "is no identifier"),
        ([NEW], "is its name already"),
        (["deploys.old", "deploys.old"], "is its name already"),
        (["tests.echo"], "a Type 'tests.echo' is declared, too"),
    ],
)
def test_names_that_are_refused(release, formerly, told):
    with pytest.raises(InvalidType, match=told):
        release(handler, identifier=NEW, formerly=formerly)
    assert NEW not in registry


def test_two_types_with_the_same_former_name(renamed):
    with pytest.raises(InvalidType, match=f"{SHADE!r} is what {NEW!r} was called formerly, too"):
        task_type("deploys.third", formerly=[SHADE])(handler)


def test_a_type_with_the_former_name_of_another(renamed):
    """Whichever of the two is declared first."""
    with pytest.raises(InvalidType, match=f"is what {NEW!r} was called formerly, too"):
        task_type(SHADE)(handler)
