"""Declaring tailers: their Types and schedule, and what is refused (G13)."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db.models import Q

from atp import on_failed, on_finished, task_type
from atp.checks import check_hooks, check_tailers
from atp.exceptions import Fatal, InvalidSchedule, InvalidType
from atp.models import Type
from atp.operations.registry import declared_hooks, registry
from atp.schedules.declaring import declared_schedules as schedules
from atp.sources import Directory, Kafka, Record, RedisStream, Table
from atp.tailers.tailer import declared

from .conftest import Numbers


def test_it_has_a_type_that_reads_and_one_for_rejected_records(declare):
    made = declare(Numbers(), owner="maps", priority=7)
    for name in ("tests.tailer", "tests.tailer.rejected"):
        assert (registry.get(name).owner, registry.get(name).options.priority) == ("maps", 7)
        assert registry.get(name).handler_path.endswith("of_data")
    assert made.type.registration().retention == timedelta(0)
    assert made.rejected.transactional
    assert made in list(declared)


def test_it_has_a_schedule_that_never_reads_twice_at_a_time_or_none(declare):
    declare(Numbers(), every=None)
    assert "tests.tailer" not in schedules
    declare(Numbers(), every=7)
    [spec] = [each for each in schedules if each.identifier == "tests.tailer"]
    assert (spec.type, spec.every, spec.overlap) == ("tests.tailer", timedelta(seconds=7), "skip")


@pytest.fixture
def alert(monkeypatch):
    monkeypatch.setattr(declared_hooks, "_patterns", {})

    @task_type("hooked.alert")
    def alert(context, *, uuid, type, state, reason):
        """Never run here."""

    yield alert
    declared_hooks.forget()


def test_a_pattern_of_hooks_is_for_its_rejected_records_alone(declare, alert):
    """It looks into its source every few seconds, and each look ends. A hook may name it."""
    made = declare(Numbers())
    for pattern in ("*", "tests.*", "tests.tailer*"):
        on_finished(pattern)(alert)
        on_failed(pattern)(alert)
    assert made.type.registration().hooks is None
    assert {hook["type"] for hook in made.rejected.registration().hooks} == {"hooked.alert"}
    on_failed("tests.tailer")(alert)
    [hook] = made.type.registration().hooks
    assert hook["type"] == "hooked.alert"
    assert check_hooks(None) == []
    # This one matches only what it leaves out.
    on_failed("tests.taile[r]")(alert)
    assert len(made.type.registration().hooks) == 1
    [problem] = check_hooks(None)
    assert problem.msg == (
        "on_failed of 'hooked.alert': no Type matches 'tests.taile[r]'. A pattern leaves out "
        "hooks, tailers and the Types of ATP, as 'tests.tailer'; to be told of a tailer, write its "
        "whole identifier."
    )


def test_its_function_may_return_no_call_or_many_and_nothing_else(declare, work):
    call, returned = work.call(data="a"), []
    made = declare(Numbers(), lambda record: returned.pop())
    for found, count in ((None, 0), ([], 0), (call, 1), ((each for each in (call, call)), 2)):
        returned.append(found)
        assert made(Record()) == [call] * count
    for found, told in (("abc", "'a'"), (5, "5"), ([None], "None")):
        returned.append(found)
        with pytest.raises(TypeError, match=f"'tests.tailer' returned {told}: it must return"):
            made(Record())


def test_bad_parameters_are_refused(declare):
    """G13: nothing is declared then."""
    for parameters, told in (
        ({"batch": 0}, "batch=0"),
        ({"batch": True}, "batch=True"),
        ({"timout": 5}, "no parameter 'timout'"),
        ({"max_retries": 5}, "no parameter 'max_retries'"),
        ({"timeout": -1}, "timeout"),
        ({"owner": 5}, "owner"),
    ):
        with pytest.raises(InvalidType, match=told):
            declare(Numbers(), **parameters)
    with pytest.raises(InvalidType, match="is not a source"):
        declare("/srv/scenes")
    with pytest.raises(InvalidSchedule):
        declare(Numbers(), every=0.1)
    assert "tests.tailer" not in registry
    assert "tests.tailer.rejected" not in registry
    declare(Numbers())
    with pytest.raises(InvalidType, match="declared twice"):
        declare(Numbers(), lambda record: None)


def test_bad_sources_are_refused():
    """G13."""
    for make in (
        lambda: Directory("scenes"),
        lambda: Directory(""),
        lambda: Directory("/srv", pattern="a/*"),
        lambda: Directory("/srv", pattern=""),
        lambda: Directory("/srv", quiet=-1),
        lambda: Table("auth.Group"),
        lambda: Table(Type, where={"identifier": "a"}),
        lambda: Table(Type, order_by="identifier"),
    ):
        with pytest.raises(InvalidType, match=r"(Directory|Table)\("):
            make()
    streams = (
        (RedisStream, {"key": "a"}, ({"url": ""}, {"key": 5}, {"key": "a\nb"})),
        (
            Kafka,
            {"topic": "a", "servers": "a:9092"},
            (
                *({"servers": ""}, {"topic": None}, {"config": {"enable.auto.commit": True}}),
                {"config": {"bootstrap.servers": "a:1"}},
            ),
        ),
    )
    for make, good, bad in streams:
        for given in ({"start": "now"}, {"on_gap": "ask"}, *bad):
            with pytest.raises(InvalidType, match=rf"{make.__name__}\("):
                make(**{**good, **given})


def test_a_check_tells_what_a_source_lacks(declare, monkeypatch):
    source = Numbers()
    declare(source)
    assert check_tailers(None) == []
    monkeypatch.setattr(source, "problems", lambda: ["the package numbers is missing"])
    [found] = check_tailers(None)
    assert (found.id, found.msg) == (
        "atp.W019",
        "Tailer 'tests.tailer': the package numbers is missing.",
    )


def test_the_rows_of_a_table_are_described_in_words():
    for where, told in (
        (Q(kind="order", done=False), "auth.Group where done=False and kind='order'"),
        (Q(kind="a") | ~Q(n__gt=3), "auth.Group where kind='a' or not n__gt=3"),
        (Q(a=1) & (Q(b=2) | Q(c=3)), "auth.Group where a=1 and (b=2 or c=3)"),
        (~Q(a=1, b=2), "auth.Group where not (a=1 and b=2)"),
        (None, "auth.Group"),
    ):
        assert str(Table(Group, where=where)) == told


class Elsewhere:
    """A router of a project whose other tables are not in the queue's database."""

    def db_for_write(self, model, **hints):
        return "default" if model._meta.app_label == "atp" else "other"


def test_a_table_in_another_database_is_refused(declare, read, settings):
    """G18: one transaction cannot span both; the queue's own copy of the table stays empty."""
    made = declare(Table(Group))
    assert check_tailers(None) == []
    settings.DATABASE_ROUTERS = [f"{__name__}.Elsewhere"]
    [found] = [each for each in check_tailers(None) if "'tests.tailer'" in each.msg]
    assert found.id == "atp.E022"
    assert "auth.Group are in database 'other', and the queue is in 'default'" in found.msg
    with pytest.raises(Fatal, match="one transaction cannot span both"):
        read(made)


def test_a_check_looks_at_no_disk(tmp_path):
    """G9: one that hangs, as of a dead NFS, keeps no daemon from starting."""
    assert list(Directory(tmp_path / "gone").problems()) == []
