"""Declaring tailers: their Types and schedule, and what is refused (G13)."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db.models import Q

from atp import on_failed, on_finished, queue, task_type
from atp.authoring.schedule import declared as schedules
from atp.checks import check_hooks, check_tailers
from atp.exceptions import Fatal, InvalidSchedule, InvalidType
from atp.models import Type
from atp.sources import Directory, Record, Table
from atp.tailers.tailer import declared
from atp.verbs.hook_specs import declared_hooks
from atp.verbs.registry import registry

from .conftest import Numbers


def test_it_has_a_type_that_reads_and_one_for_rejected_records(declare):
    made = declare(Numbers(), owner="maps", priority=7)
    for name in ("tests.tailer", "tests.tailer.rejected"):
        assert (registry.get(name).owner, registry.get(name).options.priority) == ("maps", 7)
        assert registry.get(name).handler_path.endswith("of_data")
    assert made.type.registration().retention == timedelta(0)
    assert made.rejected.transactional
    assert made in list(declared)


def test_it_has_a_schedule_that_never_reads_twice_at_a_time(declare):
    declare(Numbers(), every=7)
    [spec] = [each for each in schedules if each.identifier == "tests.tailer"]
    assert (spec.type, spec.every, spec.overlap) == ("tests.tailer", timedelta(seconds=7), "skip")


def test_it_may_have_no_schedule(declare):
    declare(Numbers(), every=None)
    assert "tests.tailer" not in schedules


@pytest.fixture
def alert(monkeypatch):
    monkeypatch.setattr(declared_hooks, "_patterns", {})

    @task_type("hooked.alert")
    def alert(context, *, uuid, type, state, reason):
        """Never run here."""

    yield alert
    declared_hooks.forget()


@pytest.mark.parametrize("on", [on_finished, on_failed])
@pytest.mark.parametrize("pattern", ["*", "tests.*", "tests.tailer*", "tests.taile[r]"])
def test_a_pattern_of_hooks_leaves_it_out(declare, alert, on, pattern):
    """It looks into its source every few seconds, and each look ends."""
    made = declare(Numbers())
    on(pattern)(alert)
    assert made.type.registration().hooks is None


def test_a_pattern_of_hooks_is_for_its_rejected_records(declare, alert):
    """Each of them is a failure that somebody should know of."""
    made = declare(Numbers())
    on_failed("tests.*")(alert)
    [hook] = made.rejected.registration().hooks
    assert hook["type"] == "hooked.alert"


def test_a_hook_may_name_it(declare, alert):
    made = declare(Numbers())
    on_failed("tests.tailer")(alert)
    [hook] = made.type.registration().hooks
    assert hook["type"] == "hooked.alert"
    assert check_hooks(None) == []


def test_a_check_tells_of_a_pattern_that_matches_only_what_it_leaves_out(declare, alert):
    declare(Numbers())
    on_failed("*.tailer")(alert)
    [problem] = check_hooks(None)
    assert problem.msg == (
        "on_failed of 'hooked.alert': no Type matches '*.tailer'. A pattern leaves out hooks, "
        "tailers and the Types of ATP, as 'tests.tailer'; to be told of a tailer, write its whole "
        "identifier."
    )


@pytest.mark.django_db
def test_its_types_can_be_registered(declare):
    declare(Numbers())
    queue.register_all()
    found = Type.objects.filter(identifier__startswith="tests.tailer")
    assert sorted(found.values_list("identifier", flat=True)) == [
        "tests.tailer",
        "tests.tailer.rejected",
    ]


def test_calling_it_calls_its_function(declare, work):
    [call] = declare(Numbers())(Record(data=b"a"))
    assert (call.task_type, call.kwargs) == (work, {"data": "a"})


@pytest.mark.parametrize(("made", "count"), [(None, 0), ([], 0), ("one", 1), ("two", 2)])
def test_its_function_may_return_no_call_or_many(declare, work, made, count):
    call = work.call(data="a")
    given = {"one": call, "two": (each for each in (call, call))}
    found = given[made] if isinstance(made, str) else made
    assert declare(Numbers(), lambda record: found)(Record()) == [call] * count


@pytest.mark.parametrize(("found", "told"), [("abc", "'a'"), (5, "5"), ([None], "None")])
def test_its_function_must_return_calls(declare, found, told):
    made = declare(Numbers(), lambda record: found)
    with pytest.raises(TypeError, match=f"Tailer 'tests.tailer' returned {told}: it must return"):
        made(Record())


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"batch": 0}, "batch=0"),
        ({"batch": True}, "batch=True"),
        ({"timout": 5}, "no parameter 'timout'"),
        ({"max_retries": 5}, "no parameter 'max_retries'"),
        ({"timeout": -1}, "timeout"),
        ({"owner": 5}, "owner"),
    ],
)
def test_bad_parameters_are_refused(declare, parameters, told):
    """G13."""
    with pytest.raises(InvalidType, match=told):
        declare(Numbers(), **parameters)
    assert "tests.tailer" not in registry


def test_a_bad_interval_declares_nothing(declare):
    """G13."""
    with pytest.raises(InvalidSchedule):
        declare(Numbers(), every=0.1)
    assert "tests.tailer" not in registry
    assert "tests.tailer.rejected" not in registry


def test_two_tailers_of_one_name_are_refused(declare, work):
    declare(Numbers())

    def other(record):
        return None

    with pytest.raises(InvalidType, match="declared twice"):
        declare(Numbers(), other)


def test_what_is_no_source_is_refused(declare):
    with pytest.raises(InvalidType, match="is no source"):
        declare("/srv/scenes")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Directory("scenes"),
        lambda: Directory(""),
        lambda: Directory("/srv", pattern="a/*"),
        lambda: Directory("/srv", pattern=""),
        lambda: Directory("/srv", quiet=-1),
        lambda: Table("auth.Group"),
        lambda: Table(Type, where={"identifier": "a"}),
        lambda: Table(Type, order_by="identifier"),
    ],
)
def test_bad_sources_are_refused(make):
    """G13."""
    with pytest.raises(InvalidType, match=r"(Directory|Table)\("):
        make()


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


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (Q(kind="order"), "auth.Group where kind='order'"),
        (Q(kind="order", done=False), "auth.Group where done=False and kind='order'"),
        (Q(kind="a") | ~Q(n__gt=3), "auth.Group where kind='a' or not n__gt=3"),
        (Q(a=1) & (Q(b=2) | Q(c=3)), "auth.Group where a=1 and (b=2 or c=3)"),
        (~Q(a=1, b=2), "auth.Group where not (a=1 and b=2)"),
        (None, "auth.Group"),
    ],
)
def test_the_rows_of_a_table_are_described_in_words(where, told):
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
