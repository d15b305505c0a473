"""Declaring tailers: their Types, their schedule, and errors in a declaration (G13)."""

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


def test_a_tailer_declares_two_types_and_a_schedule_that_never_overlaps(declare):
    """One Type reads, the other is for rejected records."""
    declare(Numbers(), every=None)
    assert "tests.tailer" not in schedules
    made = declare(Numbers(), owner="maps", priority=7, every=7)
    for name in ("tests.tailer", "tests.tailer.rejected"):
        assert (registry.get(name).owner, registry.get(name).options.priority) == ("maps", 7)
        assert registry.get(name).handler_path.endswith("of_data")
    assert made.type.registration().retention == timedelta(0)
    assert made.rejected.transactional
    assert made in list(declared)
    [spec] = [each for each in schedules if each.identifier == "tests.tailer"]
    assert (spec.type, spec.every, spec.overlap) == ("tests.tailer", timedelta(seconds=7), "skip")


@pytest.fixture
def alert(monkeypatch):
    monkeypatch.setattr(declared_hooks, "_patterns", {})

    @task_type("hooked.alert")
    def alert(context, *, uuid, type, state, reason):
        """A hook that these tests never run."""

    yield alert
    declared_hooks.forget()


def test_hook_patterns_apply_only_to_rejected_records(declare, alert):
    """Scans end every few seconds, so only a hook that names the reading Type applies to them."""
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
        "hooks, tailers and ATP's own Types, such as 'tests.tailer'. To match a tailer, give its "
        "whole identifier."
    )


def test_the_function_returns_no_call_one_call_or_many(declare, work):
    call, returned = work.call(data="a"), []
    made = declare(Numbers(), lambda record: returned.pop())
    for found, count in ((None, 0), ([], 0), (call, 1), ((each for each in (call, call)), 2)):
        returned.append(found)
        assert made(Record()) == [call] * count
    for found, told in (("abc", "'a'"), (5, "5"), ([None], "None")):
        returned.append(found)
        with pytest.raises(TypeError, match=f"'tests.tailer' returned {told}. It must return"):
            made(Record())


def test_invalid_parameters_declare_no_tailer(declare):
    """No Type of the tailer is declared (G13)."""
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


def test_invalid_sources_are_rejected():
    """The error names the class of the source (G13)."""
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


def test_a_system_check_reports_problems_of_a_source(declare, monkeypatch):
    source = Numbers()
    declare(source)
    assert check_tailers(None) == []
    # A disk that hangs, such as a dead NFS mount, must not keep a daemon from starting (G9).
    assert list(Directory("/gone/away").problems()) == []
    monkeypatch.setattr(source, "problems", lambda: ["the package numbers is missing"])
    [found] = check_tailers(None)
    assert (found.id, found.msg) == (
        "atp.W019",
        "Tailer 'tests.tailer': the package numbers is missing.",
    )


def test_the_filter_of_a_table_is_described_in_words():
    assert str(Table(Group)) == "auth.Group"
    for where, told in (
        (Q(a=1) & (Q(b="x") | ~Q(c__gt=3)), "a=1 and (b='x' or not c__gt=3)"),
        (~Q(a=1, b=2), "not (a=1 and b=2)"),
    ):
        assert str(Table(Group, where=where)) == f"auth.Group where {told}"


class Elsewhere:
    """A database router of a project that keeps its other tables outside the queue's database."""

    def db_for_write(self, model, **hints):
        return "default" if model._meta.app_label == "atp" else "other"


def test_a_table_in_another_database_is_rejected(declare, read, settings):
    """One transaction cannot span both databases (G18)."""
    made = declare(Table(Group))
    assert check_tailers(None) == []
    settings.DATABASE_ROUTERS = [f"{__name__}.Elsewhere"]
    [found] = [each for each in check_tailers(None) if "'tests.tailer'" in each.msg]
    assert found.id == "atp.E022"
    assert "auth.Group are in database 'other', and the queue is in 'default'" in found.msg
    with pytest.raises(Fatal, match="one transaction cannot span both"):
        read(made)
