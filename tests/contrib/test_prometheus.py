"""Metrics for Prometheus: the values, the access to them, and the errors."""

import math
import os
import re
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError
from django.db import OperationalError, connection, transaction
from django.urls import path
from prometheus_client.parser import text_string_to_metric_families

from atp import queue
from atp.commands import Mode
from atp.contrib import prometheus
from atp.contrib.prometheus import metrics
from atp.models import (
    ALL_TYPES,
    BUCKETS,
    Daemon,
    Downstream,
    Gate,
    Instance,
    Schedule,
    Statistic,
    Type,
)
from atp.sources import CursorMove, Note
from atp.states import State
from atp.store import get_store
from atp.store.values import Settled

from ..app.tasks import add, echo
from ..helpers import shell
from ..populated import populate

ALERTS = Path(prometheus.__file__).with_name("alerts") / "alerts.yaml"
HOUR = timedelta(hours=1)
ECHO = "tests.echo"

urlpatterns = [path("metrics", metrics)]
pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


@pytest.fixture(autouse=True)
def alone_and_with_time_enough(monkeypatch):
    """Clear cached counts, and allow enough time on a busy machine."""
    monkeypatch.setattr(prometheus, "_past", prometheus._Past())
    monkeypatch.setattr(prometheus, "LONGEST", 600.0)
    monkeypatch.setattr(prometheus, "ALL", 600.0)


class Scrape(dict):
    """The samples of one scrape: values by name and labels, in any order."""

    def __init__(self):
        super().__init__()
        text = prometheus.exposition().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self, f"{key} twice"
                self[key] = sample.value

    def of(self, name, **labels):
        return self[f"atp_{name}", frozenset(labels.items())]

    def names(self):
        return {name for name, _ in self}


@pytest.mark.slow
def test_metrics_count_waiting_and_claimed_tasks(world):
    """The metrics of tailers and gates exist, too, as far as alerts use them."""
    made = populate(world)
    echo.enqueue_many({"n": n} for n in range(3))
    found = Scrape()
    assert found.of("tasks_waiting", type=ECHO, due="yes") == 3
    waiting = [labels for name, labels in found if name == "atp_tasks_waiting"]
    later = sum(found["atp_tasks_waiting", each] for each in waiting if ("due", "no") in each)
    assert later == Instance.objects.filter(state=State.ACCEPTED).count() - 3
    for state in (State.SCHEDULED, State.RUNNING, State.PAUSED):
        assert found.of("tasks_claimed", type=ECHO, state=state) == 1
    assert found.of("dead_letters", type=ECHO, reason="ERROR") == 1
    assert found.of("scrape_complete") == 1
    made.tailer()
    count(world.store.now(), started=1)
    queue.hold(ECHO)
    used_in_alerts = set(re.findall(r"\batp_\w+", ALERTS.read_text()))
    assert len(used_in_alerts) > 8
    assert used_in_alerts - Scrape().names() == set()


@pytest.mark.slow
def test_the_metric_oldest_due_age_seconds_ignores_held_tasks(world):
    """An operator who holds a Type or a lane knows why its Tasks wait."""
    for collection in ("a", "a", "b"):
        echo.using(collection=collection).enqueue()
    world.store.rehearsals.let_pass(2 * HOUR)
    echo.using(collection="b").enqueue()
    assert Scrape().of("oldest_due_age_seconds", type=ECHO) >= 7200
    queue.hold(ECHO, "a")
    found = Scrape()
    assert found.of("tasks_held", type=ECHO) == 2
    assert found.of("oldest_due_age_seconds", type=ECHO) >= 7200
    queue.hold(ECHO, "b")
    found = Scrape()
    assert found.of("tasks_held", type=ECHO) == 4
    assert found.of("oldest_due_age_seconds", type=ECHO) == 0
    queue.open_gate(ECHO, "a")
    assert Scrape().of("tasks_held", type=ECHO) == 2
    queue.hold()
    assert Scrape().of("tasks_held", type=ECHO) == 4


@pytest.mark.long
def test_metrics_cope_with_over_a_thousand_held_lanes(world):
    """SQLite accepts at most a thousand conditions in a statement."""
    echo.using(collection="lane 7").enqueue()
    queue.hold(ECHO, "lane 0")
    row = Gate.objects.get()
    for number in range(1, 1200):
        row.pk, row.collection, row.subject = None, f"lane {number}", f"lane:{ECHO}/{number}"
        row.save(force_insert=True)
    assert Scrape().of("tasks_held", type=ECHO) == 1


@pytest.mark.slow
def test_metrics_show_limits_gates_and_the_owner_of_a_type(world):
    queue.register(echo, add)
    of = {"owner": "terrain", "runbook": "https://wiki/relief"}
    Type.objects.filter(identifier=ECHO).update(**of)
    queue.limit(ECHO, max_running=7, rate="2/s")
    queue.limit(ECHO, "a", max_running=1)
    for gate in ((), (ECHO,), (ECHO, ""), (ECHO, "b")):
        queue.hold(*gate)
    found = Scrape()
    assert found.of("limit", type=ECHO, of="running") == 7
    assert found.of("limit", type=ECHO, of="rate") == 2
    # The default lane is told from the whole Type.
    for scope, type, lane in (
        *(("everything", "", ""), ("type", ECHO, "")),
        *(("lane", ECHO, ""), ("lane", ECHO, "b")),
    ):
        gate = {"scope": scope, "type": type, "collection": lane, "mode": "hold", "ends": "no"}
        assert found.of("gate_shut_seconds", **gate) >= 0
    assert found.of("type_info", type=ECHO, **of) == 1
    assert found.of("type_info", type="tests.add", owner="", runbook="") == 1


@pytest.mark.slow
def test_the_metric_due_work_seconds_counts_only_work_that_can_start(world):
    """The estimate uses the run times of the last day; it helps to decide on more daemons."""
    queue.register(add)
    count(world.store.now() - HOUR, finished=3, retried=1, wall_us=8_000_000)
    echo.using(collection="a").enqueue_many([{}] * 3)
    echo.using(collection="b").enqueue_many([{}] * 2)
    echo.using(run_after=HOUR).enqueue()
    found = Scrape()
    assert found.of("due_work_seconds", type=ECHO) == 10
    assert ("atp_due_work_seconds", frozenset({("type", "tests.add")})) not in found
    queue.hold(ECHO, "b")
    assert Scrape().of("due_work_seconds", type=ECHO) == 6
    queue.hold(ECHO)
    assert Scrape().of("due_work_seconds", type=ECHO) == 0
    queue.open_gate(ECHO)
    queue.open_gate(ECHO, "b")
    # A daemon claims many short Tasks for each of its workers. They count as work, too.
    world.host(ECHO).claim(limit=4)
    found = Scrape()
    assert found.of("tasks_claimed", type=ECHO, state="SCHEDULED") == 4
    assert found.of("due_work_seconds", type=ECHO) == 10


@pytest.mark.slow
def test_the_metric_workers_needed_counts_no_worker_for_claimed_tasks_that_wait(world):
    """A daemon claims many short Tasks for each of its workers."""
    host = world.host(ECHO)
    count(world.store.now(), finished=1000, wall_us=1_000_000)
    echo.enqueue_many([{}] * 50)
    host.claim(limit=40)
    found = Scrape()
    assert found.of("tasks_claimed", type=ECHO, state="SCHEDULED") == 40
    assert found.of("workers_needed", type=ECHO) == 1


@pytest.mark.slow
def test_the_metric_workers_needed_respects_limits_and_open_breakers(world):
    """The number never exceeds what limits, due Tasks and an open breaker allow."""
    queue.register(echo)
    count(world.store.now(), finished=1, wall_us=6_000_000)
    echo.enqueue_many([{}] * 1000)
    assert Scrape().of("workers_needed", type=ECHO) == 100
    queue.limit(ECHO, rate="1/s")
    assert Scrape().of("workers_needed", type=ECHO) == 6
    queue.limit(ECHO, max_running=4, rate=None)
    assert Scrape().of("workers_needed", type=ECHO) == 4
    for startable, run, working, most, needed in (
        (0, 3600.0, 0, None, 0),
        (10, 3600.0, 0, None, 10),  # more workers than Tasks would not help
        (0, 3600.0, 10, None, 10),  # they work
        (5, None, 1, None, 2),  # nobody knows how long it takes
        (600, 6.0, 3, 4, 4),
    ):
        assert prometheus._needed(startable, run, working, most) == needed
    for state, calls in (("closed", math.inf), ("throttled", 30), ("open", 0), ("half-open", 1)):
        assert prometheus._allowed(Downstream(state=state, per_second=0.5)) == calls


def test_the_statement_timeout_is_reset_after_a_scrape(world):
    """A scrape can run inside a transaction of its caller."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no statement_timeout")

    def timeout():
        with connection.cursor() as cursor:
            cursor.execute("SHOW statement_timeout")
            return cursor.fetchone()

    with transaction.atomic():
        before = timeout()
        Scrape()
        assert timeout() == before


@pytest.mark.slow
def test_metrics_count_daemons_workers_and_late_schedules(world):
    assert Scrape().of("daemons", condition="alive", mode="running") == 0
    host, quiet = world.host(ECHO), world.host(ECHO, name="quiet")
    workers = [
        {"worker": 0, "pid": 1, "instance": "x", "type": ECHO, "since": None},
        {"worker": 1, "pid": 2, "instance": None, "type": "", "since": None},
    ]
    Daemon.objects.filter(uuid=host.uuid).update(workers=workers)
    Daemon.objects.filter(uuid=quiet.uuid).update(mode=Mode.QUIET)
    queue.register(add)
    queue.create_schedule("nightly", "tests.add", every=3600, inputs={"first": 1, "second": 2})
    # Its slots come at each hour, which may turn just now.
    Schedule.objects.update(due_at=get_store().now() + HOUR)
    found = Scrape()
    assert found.of("daemons", condition="alive", mode="running") == 1
    assert found.of("daemons", condition="alive", mode="quiet") == 1
    assert (found.of("workers", state="busy"), found.of("workers", state="idle")) == (1, 1)
    assert found.of("schedule_late_seconds", schedule="nightly") == 0
    Schedule.objects.update(due_at=get_store().now() - HOUR)
    assert Scrape().of("schedule_late_seconds", schedule="nightly") >= 3600


@pytest.mark.slow
def test_metrics_count_the_records_of_each_tailer(world):
    tailers = world.store.tailers
    for name in ("dem.scenes", "dem.other"):
        tailers.begin(name, source="")
    lost, odd = (Note(kind=kind, count=4, message=kind) for kind in ("lost", "skipped"))
    move = CursorMove(shard="a", before=None, after="9", notes=[lost, odd, lost])
    tailers.advance("dem.scenes", [move], Settled(records=5, enqueued=3, rejected=1))
    tailers.look("dem.scenes", source="/srv", behind=7, notes=[odd])
    tailers.look("dem.other", source="a stream", behind=None)
    found = Scrape()
    for name, value in (
        *(("behind", 7), ("records_total", 5), ("instances_total", 3), ("rejected_total", 1)),
        *(("gaps_total", 2), ("lost_total", 8), ("passed_over_total", 4), ("skipped", 4)),
    ):
        assert found.of(f"tailer_{name}", tailer="dem.scenes") == value, name
    assert 0 <= found.of("tailer_read_age_seconds", tailer="dem.other") < 60
    with pytest.raises(KeyError):
        found.of("tailer_behind", tailer="dem.other")


@pytest.mark.slow
def test_counters_never_decrease_when_rows_are_folded_or_removed(world):
    """Histograms are cumulative. Events of a killed daemon can be counted late."""
    now = world.store.now()
    count(now - 5 * HOUR)
    found, of = Scrape(), {"type": ECHO}
    for le, value in (("0.001", 1), ("0.002", 3), ("4194.304", 3), ("+Inf", 7)):
        assert found.of("wait_seconds_bucket", **of, le=le) == value
    assert found.of("run_seconds_count", **of) == 7
    count(now - 5 * HOUR)
    assert Scrape().of("run_seconds_count", **of) == 14
    Statistic.objects.all().delete()
    for ago in (timedelta(minutes=1), 5 * HOUR, timedelta(days=3), timedelta(days=100)):
        count(now - ago, started=7, lost=2, finished=4, failed_error=1, wall_us=3_000_000)
    before = Scrape()
    assert before.of("attempts_total", type=ECHO, event="started") == 28
    assert before.of("attempts_total", type=ECHO, event="lost") == 8
    ended = {"type": ECHO, "state": "FAILED"}
    assert before.of("instances_ended_total", **ended, reason="ERROR") == 4
    assert before.of("instances_ended_total", **ended, reason="STALE") == 0
    assert before.of("instances_ended_total", type=ECHO, state="FINISHED", reason="") == 16
    assert before.of("run_seconds_sum", type=ECHO) == 12
    while world.store.statistics.fold(now + timedelta(minutes=3)):
        pass
    assert Statistic.objects.filter(span=0).exists()
    after = Scrape()
    names = ("attempts", "instances_ended", "wait_seconds", "run_seconds")
    counted = [key for key in before if key[0].startswith(tuple(f"atp_{each}" for each in names))]
    assert counted
    assert all(after[key] == before[key] for key in counted)
    # The rows of all Types together are not those of a Type.
    count(now, started=7)
    Statistic.objects.update(type=ALL_TYPES)
    with pytest.raises(KeyError):
        Scrape().of("attempts_total", type=ALL_TYPES, event="started")


def count(start, **counts):
    numbers = [1, 2, *[0] * (BUCKETS - 3), 4]
    start = start.replace(second=0, microsecond=0)
    Statistic.objects.create(span=60, start=start, type=ECHO, wait=numbers, run=numbers, **counts)


def test_metrics_that_cannot_be_read_in_time_are_omitted(world, monkeypatch, caplog):
    """No statement starts after the time limit, because the scraper would have given up."""

    def fail(scrape):
        raise OperationalError("canceling statement due to statement timeout")
        yield

    parts = prometheus.PARTS
    monkeypatch.setattr(prometheus, "PARTS", (parts[0], fail, *parts[2:]))
    echo.enqueue()
    found = Scrape()
    assert found.of("scrape_complete") == 0
    assert not {name for name in found.names() if name.startswith("atp_tasks")}
    assert found.of("daemons", condition="alive", mode="running") == 0
    assert "fail was not collected: canceling statement" in caplog.text
    monkeypatch.setattr(prometheus, "ALL", -1.0)
    found = Scrape()
    # SQLite is asked for no transactions.
    own = {"atp_scrape_complete", "atp_scrape_duration_seconds", "atp_oldest_transaction_seconds"}
    assert found.names() <= own
    assert found.of("scrape_complete") == 0
    assert "there is no time left" in caplog.text


@pytest.mark.slow
def test_metrics_require_the_token_or_the_permission(client, settings, django_user_model):
    # LoginRequiredMiddleware would send a scraper to a login page.
    settings.ATP = settings.ATP | {"METRICS_TOKEN": "of-the-tests"}
    middleware = "django.contrib.auth.middleware.LoginRequiredMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, middleware]
    answer = client.get("/metrics", headers={"authorization": "Bearer of-the-tests"})
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain")
    assert b"atp_scrape_complete 1.0" in answer.content
    odd = "", "Bearer", "Bearer wrong", "Basic of-the-tests", "Bearer öf", "of-the-tests"
    for given in odd:
        answer = client.get("/metrics", headers={"authorization": given})
        assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
        assert b"atp_" not in answer.content
    settings.ATP = settings.ATP | {"METRICS_TOKEN": ""}
    assert client.get("/metrics", headers={"authorization": "Bearer "}).status_code == 401
    # Who may view Types may read them, too, and not write.
    user = django_user_model.objects.create_user("ann")
    client.force_login(user)
    assert client.get("/metrics").status_code == 401
    user.user_permissions.add(Permission.objects.get(codename="view_type"))
    assert client.get("/metrics").status_code == 200
    assert client.post("/metrics").status_code == 405


class TestTheCommand:
    @pytest.mark.slow
    def test_command_prints_metrics_or_writes_a_file(self, tmp_path):
        """Other users might be able to write links into the folder; it follows none (G14)."""
        assert "atp_scrape_complete 1.0\n" in shell("metrics")
        (tmp_path / "precious").write_text("precious")
        file, guessed = tmp_path / "atp.prom", tmp_path / f".atp.prom.{os.getpid()}"
        for link in (file, guessed):
            link.symlink_to(tmp_path / "precious")
        assert shell("metrics", "--textfile", str(file)).startswith(f"{file}: ")
        assert "atp_scrape_complete 1.0\n" in file.read_text()
        assert not file.is_symlink()
        assert file.stat().st_mode & 0o777 == 0o644
        assert (tmp_path / "precious").read_text() == "precious"

    @pytest.mark.slow
    def test_command_fails_for_an_unusable_file_name(self, tmp_path):
        for name, told in (
            ("atp.txt", r"must end with \.prom"),
            ("missing/atp.prom", "cannot be written: No such file or directory"),
        ):
            with pytest.raises(CommandError, match=told):
                shell("metrics", "--textfile", str(tmp_path / name))
        assert list(tmp_path.iterdir()) == []

    def test_command_fails_without_the_prometheus_package(self, monkeypatch):
        for name in [name for name in sys.modules if name.startswith("atp.contrib.prometheus")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr("atp.contrib.prometheus")
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        with pytest.raises(CommandError, match=r"package prometheus_client.*its extra \[prom"):
            shell("metrics")


@pytest.mark.skipif(not shutil.which("promtool"), reason="Debian's package prometheus has promtool")
@pytest.mark.parametrize(
    "command",
    [
        ["check", "rules", str(ALERTS)],
        ["test", "rules", str(Path(__file__).with_name("alerts_test.yaml"))],
    ],
    ids=["check", "test"],
)
def test_the_alert_rules_pass_their_promtool_tests(command):
    done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
