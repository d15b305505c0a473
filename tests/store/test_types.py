"""The store contract: Types."""

from datetime import timedelta

import pytest

from atp.exceptions import TypeInUse, UnknownType
from atp.models import Downstream, LogRecord, Type
from atp.rows.log import Kind
from atp.words import log_messages

from ..nonsense import tells
from .world import ONE, TWO, registration


def log_of(identifier):
    return [record.kind for record in LogRecord.objects.about(f"type:{identifier}")]


def test_register_writes_and_logs_it(world):
    world.store.register([registration(ONE, timeout=None), registration(TWO)], who="deployer")
    row = Type.objects.get(identifier=ONE)
    assert (row.timeout, row.max_restarts, row.handler) == (None, 3, "somewhere.handler")
    assert log_of(ONE) == log_of(TWO) == [Kind.REGISTERED]
    assert LogRecord.objects.about(f"type:{ONE}").get().who == "deployer"


def test_registering_again_is_an_update_that_is_logged(world):
    """RFC 14."""
    world.store.register([registration()])
    world.store.register([registration(max_restarts=7, retention=timedelta(days=1))], who="me")
    row = Type.objects.get(identifier=ONE)
    assert (row.max_restarts, row.retention) == (7, timedelta(days=1))
    assert log_of(ONE) == [Kind.REGISTERED, Kind.PARAMETERS]
    changes = {"max_restarts": (3, 7), "retention": (None, timedelta(days=1))}
    last = LogRecord.objects.about(f"type:{ONE}").last()
    assert tells(last.message, log_messages.parameters(changes))


def test_the_rows_of_former_names_name_the_downstream_too(world):
    """Tasks wait under them, and a claim goes by the row."""
    world.store.register([registration(ONE), registration(TWO)])
    given = {ONE: "relay", TWO: "", "store.unknown": "relay"}
    assert world.store.name_downstreams(given, who="me") == set()
    assert [Type.objects.get(identifier=name).downstream for name in (ONE, TWO)] == ["relay", ""]
    assert Downstream.objects.get().name == "relay"
    assert log_of(ONE) == [Kind.REGISTERED, Kind.PARAMETERS]
    assert log_of(TWO) == [Kind.REGISTERED]


def test_another_handler_of_a_type_is_told(world, caplog):
    """Two projects in one database may have given the same identifier to different functions."""
    world.store.register([registration()])
    world.store.register([registration(max_restarts=7)])
    assert not caplog.records
    world.store.register([registration(max_restarts=7, handler="elsewhere.handler")])
    (told,) = caplog.records
    assert (told.name, told.levelname) == ("atp.store", "WARNING")
    assert "somewhere.handler and is now elsewhere.handler" in told.getMessage()


def test_registering_the_same_again_writes_nothing(world):
    world.store.register([registration()])
    before = world.snapshot()
    world.store.register([registration()])
    assert world.snapshot() == before


def test_without_update_only_what_is_missing_is_written(world):
    world.store.register([registration(max_restarts=7)])
    world.store.register([registration(), registration(TWO)], update=False)
    assert Type.objects.get(identifier=ONE).max_restarts == 7
    assert Type.objects.filter(identifier=TWO).exists()


def test_an_enqueue_inserts_the_type_and_never_updates_it(world):
    world.enqueue(type=registration(max_restarts=7))
    world.enqueue(type=registration(max_restarts=1))
    assert Type.objects.get(identifier=ONE).max_restarts == 7


def test_unregister(world):
    world.store.register([registration()])
    world.store.unregister(ONE, who="me")
    assert not Type.objects.filter(identifier=ONE).exists()
    assert log_of(ONE) == [Kind.REGISTERED, Kind.UNREGISTERED]


def test_unregister_is_refused_while_instances_exist(world):
    """RFC 14."""
    world.enqueue()
    before = world.snapshot()
    with pytest.raises(TypeInUse, match=ONE):
        world.store.unregister(ONE)
    assert world.snapshot() == before


def test_an_unknown_type_cannot_be_unregistered(world):
    world.store.register([registration()])
    with pytest.raises(UnknownType, match=f"Did you mean '{ONE}'"):
        world.store.unregister("store.onne")
