"""The pages of daemons: how busy they are, their charts, and commands to all of a host."""

import html
import re
from datetime import timedelta

import pytest

from atp.models import LogRecord, Usage
from atp.reports import overview

MINUTE = timedelta(minutes=1)


def shown(answer):
    return html.unescape(answer.content.decode())


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
        assert "0 of 2 workers busy, up for" in shown(operator.get(address))
    worked(host, 0.981)
    words = "98% busy in the last minute (0 of 2 workers busy when last seen), up for"
    for address in ("/atp/", "/atp/daemons/"):
        assert words in shown(operator.get(address))
    assert "98% in the last minute" in shown(operator.get(f"/atp/daemons/{host.uuid}/"))


def test_daemon_page_has_charts_of_its_workers(full, operator):
    """They are there even after the daemon has left."""
    host = full.world.host("tests.add", name="other")
    address = f"/atp/daemons/{host.uuid}/"
    assert shown(operator.get(address)).count("no data") >= 3
    worked(host, 0.75)
    worked(full.host, 0.25)

    def check():
        page = shown(operator.get(address, {"span": "6h"}))
        for words in ("75% busy", "9,876 ended", "3.0 MiB", 'href="?span=6h" aria-current="true"'):
            assert words in page
        assert "25% busy" not in page

    check()
    full.world.store.daemons.leave(host.uuid)
    check()
    assert operator.get(address, {"span": "2h"}).status_code == 400


@pytest.fixture
def hosts(full):
    """A host with two daemons, and another with one."""
    return [full.world.host("tests.add", name=name) for name in ("alpha", "alpha", "beta")]


def requests(hosts):
    return [host.row.request for host in hosts]


def test_all_daemons_of_a_host_can_be_told_to_go_quiet_and_resume(hosts, operator):
    """Those that obey already are left alone, and the page says so."""
    page = "/atp/daemons/hosts/"
    address = f"{page}quiet/?host=alpha"
    assert f'action="{address}"' in shown(operator.get("/atp/daemons/"))
    answer = operator.post(address, follow=True)
    assert answer.redirect_chain == [("/atp/daemons/", 302)]
    assert "alpha:1, alpha:1 have been told to go quiet." in shown(answer)
    assert requests(hosts) == ["quiet", "quiet", ""]
    assert LogRecord.objects.about("daemon:alpha:1").last().who == "user root via page"
    assert f'action="{address}"' not in shown(operator.get("/atp/daemons/"))
    again = shown(operator.post(address, follow=True))
    assert "No daemon has been told to go quiet. Daemon alpha:1 cannot be told to go quiet" in again
    operator.post(f"{page}resume/?host=alpha")
    assert requests(hosts) == ["", "", ""]


def test_stopping_all_daemons_of_a_host_asks_for_confirmation(hosts, operator):
    address = "/atp/daemons/hosts/stop/?host=alpha"
    asked = shown(operator.post(address))
    assert "all daemons on host alpha (alpha:1, alpha:1)" in re.sub("<[^>]*>", "", asked)
    assert requests(hosts) == ["", "", ""]
    operator.post(address, {"sure": "yes"})
    assert requests(hosts) == ["stop", "stop", ""]


def test_command_to_a_host_without_daemons_is_refused(hosts, operator):
    for address, words in (
        (
            "/atp/daemons/hosts/quiet/?host=alfa",
            "There is no daemon on host 'alfa'. Did you mean 'alpha'?",
        ),
        ("/atp/daemons/hosts/quiet/", "There is no daemon on host ''."),
        ("/atp/daemons/hosts/sleep/?host=alpha", "There is no operation 'sleep'."),
    ):
        answer = operator.post(address)
        assert answer.status_code == 404
        assert words in shown(answer)
    assert requests(hosts) == ["", "", ""]


def test_buttons_of_hosts_need_the_permission_to_control(hosts, visitor, allow):
    allow("view_daemon")
    assert "/daemons/hosts/" not in shown(visitor.get("/atp/daemons/"))
    allow("control")
    assert "/daemons/hosts/" in shown(visitor.get("/atp/daemons/"))


def test_refresh_of_the_daemon_page_leaves_out_the_charts(full, operator):
    """They change once a minute only."""
    address = f"/atp/daemons/{full.host.uuid}/"

    def refresh(part):
        return shown(operator.get(address, headers={"HX-Request": "true", "HX-Target": part}))

    assert ("Workers" in refresh("live"), "Over time" in refresh("live")) == (True, False)
    assert "Over time" in refresh("history")
