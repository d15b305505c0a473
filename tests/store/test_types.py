"""The store contract: Types."""

from dataclasses import replace
from functools import partial

import pytest

from atp import messages
from atp.exceptions import DuplicateIdentifier, TypeInUse, UniqueTaken, UnknownType
from atp.models import Downstream, Instance, Kind, LogRecord, Type, group_renamed_types
from atp.payload.codec import Payload
from atp.store.values import Submission

from ..helpers import at_once
from ..nonsense import tells
from .schedules import spec
from .world import DAY, ONE, TWO, registration


def log_of(identifier):
    return [record.kind for record in LogRecord.objects.about(f"type:{identifier}")]


def test_registering_again_is_an_update_that_is_logged(world, caplog):
    """RFC 14."""
    world.store.types.register([registration(ONE, timeout=None), registration(TWO)], who="deployer")
    row = Type.objects.get(identifier=ONE)
    assert (row.timeout, row.max_restarts, row.handler) == (None, 3, "somewhere.handler")
    assert log_of(ONE) == log_of(TWO) == [Kind.REGISTERED]
    assert LogRecord.objects.about(f"type:{ONE}").get().who == "deployer"
    again = registration(timeout=None, max_restarts=7, retention=DAY)
    world.store.types.register([again], who="me")
    row = Type.objects.get(identifier=ONE)
    assert (row.max_restarts, row.retention) == (7, DAY)
    assert log_of(ONE) == [Kind.REGISTERED, Kind.PARAMETERS]
    changes = {"max_restarts": (3, 7), "retention": (None, DAY)}
    last = LogRecord.objects.about(f"type:{ONE}").last()
    assert tells(last.message, messages.parameters_changed(changes))
    before = world.snapshot()
    world.store.types.register([again], who="me")
    assert world.snapshot() == before
    assert not caplog.records
    # Two projects in one database may have given the same identifier to different functions.
    world.store.types.register([replace(again, handler="elsewhere.handler")])
    (told,) = caplog.records
    assert (told.name, told.levelname) == ("atp.store", "WARNING")
    assert "somewhere.handler and is now elsewhere.handler" in told.getMessage()


def test_the_rows_of_former_names_name_the_downstream_too(world):
    """Tasks wait under them, and a claim goes by the row."""
    world.store.types.register([registration(ONE), registration(TWO)])
    given = {ONE: "relay", TWO: "", "store.unknown": "relay"}
    assert world.store.types.name_downstreams(given, who="me") == set()
    assert [Type.objects.get(identifier=name).downstream for name in (ONE, TWO)] == ["relay", ""]
    assert Downstream.objects.get().name == "relay"
    assert log_of(ONE) == [Kind.REGISTERED, Kind.PARAMETERS]
    assert log_of(TWO) == [Kind.REGISTERED]


def test_an_enqueue_or_a_registration_without_update_writes_only_what_is_missing(world):
    world.enqueue(type=registration(max_restarts=7))
    world.enqueue(type=registration(max_restarts=1))
    world.store.types.register([registration(), registration(TWO)], update=False)
    assert Type.objects.get(identifier=ONE).max_restarts == 7
    assert Type.objects.filter(identifier=TWO).exists()


def test_unregister_is_refused_while_instances_or_schedules_exist(world):
    """RFC 14."""
    world.store.types.register([registration(TWO)])
    world.store.types.unregister(TWO, who="me")
    assert log_of(TWO) == [Kind.REGISTERED, Kind.UNREGISTERED]
    world.enqueue()
    world.store.types.register([registration(TWO)])
    world.store.schedules.set(spec(type=TWO, every=DAY))
    before = world.snapshot()
    for name, why in ((ONE, ONE), (TWO, "nightly enqueues it")):
        with pytest.raises(TypeInUse, match=why):
            world.store.types.unregister(name)
    with pytest.raises(UnknownType, match=f"Did you mean '{ONE}'"):
        world.store.types.unregister("store.onne")
    assert world.snapshot() == before


# A Type that is renamed keeps its unique keys and identifiers, whichever name enqueues


OLD, NEW, OTHER = "dep.old", "dep.new", "dep.other"


@pytest.fixture
def names(world):
    world.store.types.register([registration(OLD), registration(OTHER)])
    return world.store


def rename(names):
    names.types.register([registration(NEW, formerly=(OLD,))])


def enqueue(names, type, existing="raise", **given):
    submission = Submission(inputs=Payload("json", "{}"), existing=existing, **given)
    [instance] = names.enqueueing.enqueue(registration(type), [submission])
    return instance


@pytest.mark.parametrize(
    ("given", "error"),
    [({"unique": "customer-7"}, UniqueTaken), ({"identifier": "order-7"}, DuplicateIdentifier)],
)
@pytest.mark.parametrize(("first", "second"), [(OLD, NEW), (NEW, OLD)])
def test_old_and_new_releases_share_keys(names, first, second, given, error):
    """Also what was enqueued before the rename has its key."""
    if first == NEW:
        rename(names)
    made = enqueue(names, first, **given)
    rename(names)
    with pytest.raises(error):
        enqueue(names, second, **given)
    assert enqueue(names, second, "return", **given).pk == made.pk
    assert enqueue(names, second).is_new
    assert enqueue(names, OTHER, **given).is_new


def test_names_of_several_releases_are_one_type(names):
    rename(names)
    names.types.register([registration("dep.newest", formerly=(NEW,))])
    rename(names)  # a daemon of the release in between starts
    made = enqueue(names, OLD, identifier="order-7")
    assert enqueue(names, "dep.newest", "return", identifier="order-7").pk == made.pk
    types = Type.objects.filter(identifier__in=[OLD, NEW, "dep.newest"])
    keys = set(types.values_list("pk", flat=True))
    assert set(group_renamed_types(Type.objects.all()).values()) == {frozenset(keys)}


@pytest.mark.django_db(transaction=True)
def test_both_names_at_once(names):
    """One of them waits for the other's commit."""
    rename(names)
    at_once(*[partial(enqueue, names, name, "return", identifier="order-7") for name in (OLD, NEW)])
    assert Instance.objects.filter(identifier="order-7").count() == 1
