"""The pages of daemons: how busy they are, their charts, and commands to all of a host."""

import re
from datetime import timedelta

import pytest

from atp.models import LogRecord, Usage
from atp.reports import overview

from .pages import check_page

MINUTE = timedelta(minutes=1)


def worked(host, part, *, ago=1):
    """Write that so much of the capacity of the daemon was busy some minutes ago."""
    start = overview.now().replace(second=0, microsecond=0) - ago * MINUTE
    Usage.objects.create(
        span=60, start=start, daemon=host.uuid, name="host:1", capacity_us=120_000_000,
        busy_us=round(part * 120_000_000), ended=9_876, memory=3 * 2**20,
    )  # fmt: skip


def test_daemon_with_short_tasks_is_not_shown_as_idle(full, operator):
    """When it renewed its lease last, its workers were between two tasks."""
    host = full.host
    full.world.store.daemons.renew(host.uuid, lease=60, workers=[{"worker": 0, "pid": 7}] * 2)
    for address in ("/atp/", "/atp/daemons/"):
        check_page(operator.get(address), "0 of 2 workers busy, up for")
    worked(host, 0.981)
    words = "98% busy in the last minute (0 of 2 workers busy when last seen), up for"
    for address in ("/atp/", "/atp/daemons/"):
        check_page(operator.get(address), words)
    check_page(operator.get(f"/atp/daemons/{host.uuid}/"), "98% in the last minute")


def test_daemon_page_has_charts_of_its_workers(full, operator):
    """They are there even after the daemon has left."""
    host = full.world.host("tests.add", name="other")
    address = f"/atp/daemons/{host.uuid}/"
    assert check_page(operator.get(address)).count("no data") >= 3
    worked(host, 0.75)
    worked(full.host, 0.25)
    words = "75% busy", "9,876 ended", "3.0 MiB", 'href="?span=6h" aria-current="true"'
    check_page(operator.get(address, {"span": "6h"}), *words, lacks=["25% busy"])
    full.world.store.daemons.leave(host.uuid)
    check_page(operator.get(address, {"span": "6h"}), *words, lacks=["25% busy"])
    assert operator.get(address, {"span": "2h"}).status_code == 400


@pytest.fixture
def hosts(full):
    """A host with two daemons, and another with one."""
    return [full.world.host("tests.add", name=name) for name in ("alpha", "alpha", "beta")]


def requests(hosts):
    return [host.row.request for host in hosts]


def test_all_daemons_of_a_host_can_be_told_to_go_quiet_resume_or_stop(hosts, operator):
    """Those that obey already are left alone, and the page says so. To stop is confirmed first."""
    page = "/atp/daemons/hosts/"
    address = f"{page}quiet/?host=alpha"
    check_page(operator.get("/atp/daemons/"), f'action="{address}"')
    answer = operator.post(address, follow=True)
    assert answer.redirect_chain == [("/atp/daemons/", 302)]
    told = "alpha:1, alpha:1 have been told to go quiet."
    check_page(answer, told, lacks=[f'action="{address}"'])
    assert requests(hosts) == ["quiet", "quiet", ""]
    assert LogRecord.objects.about("daemon:alpha:1").last().who == "user root via page"
    told = "No daemon has been told to go quiet. Daemon alpha:1 cannot be told to go quiet"
    check_page(operator.post(address, follow=True), told)
    operator.post(f"{page}resume/?host=alpha")
    for below, *words in (
        ("quiet/?host=alfa", "There is no daemon on host", "Did you mean &#x27;alpha&#x27;?"),
        ("quiet/", "There is no daemon on host &#x27;&#x27;."),
        ("sleep/?host=alpha", "There is no operation &#x27;sleep&#x27;."),
    ):
        check_page(operator.post(page + below), *words, status=404)
    asked = check_page(operator.post(f"{page}stop/?host=alpha"))
    assert "all daemons on host alpha (alpha:1, alpha:1)" in re.sub("<[^>]*>", "", asked)
    assert requests(hosts) == ["", "", ""]
    operator.post(f"{page}stop/?host=alpha", {"sure": "yes"})
    assert requests(hosts) == ["stop", "stop", ""]


def test_buttons_of_hosts_need_the_permission_to_control(hosts, visitor, allow):
    allow("view_daemon")
    check_page(visitor.get("/atp/daemons/"), lacks=["/daemons/hosts/"])
    allow("control")
    check_page(visitor.get("/atp/daemons/"), "/daemons/hosts/")


def test_refresh_of_the_daemon_page_leaves_out_the_charts(full, operator):
    """They change once a minute only."""
    address = f"/atp/daemons/{full.host.uuid}/"
    refresh = {"HX-Request": "true", "HX-Target": "live"}
    check_page(operator.get(address, headers=refresh), "Workers", lacks=["Over time"])
    check_page(operator.get(address, headers=refresh | {"HX-Target": "history"}), "Over time")
