"""All pages as data: their addresses and the permissions that they require; a check of a page."""

from dataclasses import dataclass

from atp.models import Daemon
from atp.states import State

INSTANCE, TYPE, DAEMON, LOG = "view_instance", "view_type", "view_daemon", "view_logrecord"
INPUTS, RESPONSE, STEP = "view_inputs", "view_response", "view_step"
ENQUEUE, OPERATE, CONTROL, DELETE = "enqueue", "operate", "control", "delete_instance"
ACTING = (ENQUEUE, OPERATE, CONTROL, DELETE)
SCHEDULE, GRAPH, DOWNSTREAM = "view_schedule", "view_graph", "view_downstream"
TAILER, ERROR = "view_tailer", "view_errorgroup"
VIEW_ALL = (
    *(INSTANCE, TYPE, DAEMON, LOG, INPUTS, RESPONSE, STEP),
    *(SCHEDULE, GRAPH, DOWNSTREAM, TAILER, ERROR),
)


@dataclass(frozen=True)
class PageCase:
    """A page: its URL name, the parts of its address, and the permissions that it requires."""

    name: str
    path: str
    needs: tuple[str, ...]
    method: str = "get"
    shows: int = 200

    def address(self, full):
        named = {state.lower(): full[state].uuid for state in State}
        if "{graph}" in self.path:
            named["graph"] = full.graph().uuid
        if "/relay/" in self.path:
            full.downstream()
        if "/tests.tailer/" in self.path:
            full.tailer()
        if "{error}" in self.path:
            named["error"] = full.error().name
        return self.path.format(**named, daemon=Daemon.objects.first().uuid)


PAGES = (
    PageCase("overview", "/atp/", (INSTANCE,)),
    PageCase("activity", "/atp/activity/", (LOG,)),
    PageCase("gate", "/atp/gate/", (TYPE, CONTROL)),
    PageCase("instances", "/atp/instances/", (INSTANCE,)),
    PageCase("export", "/atp/instances/export", (INSTANCE,)),
    PageCase("matching", "/atp/instances/all/redrive/?state=FAILED", (INSTANCE, OPERATE)),
    PageCase("ticked", "/atp/instances/ticked/redrive/", (INSTANCE, OPERATE), "post", 302),
    PageCase("instance", "/atp/instances/{finished}/", (INSTANCE,)),
    PageCase("log", "/atp/instances/{finished}/log/", (INSTANCE, LOG)),
    PageCase("response", "/atp/instances/{finished}/response", (INSTANCE, RESPONSE)),
    PageCase("file", "/atp/instances/{finished}/files/0", (INSTANCE, RESPONSE), shows=404),
    PageCase("instance-verb", "/atp/instances/{accepted}/change/", (INSTANCE, OPERATE)),
    PageCase("instance-verb", "/atp/instances/{accepted}/delete/", (INSTANCE, DELETE, OPERATE)),
    PageCase("instance-verb", "/atp/instances/{failed}/redrive/", (INSTANCE, OPERATE), "post", 302),
    PageCase("failures", "/atp/failures/", (ERROR,)),
    PageCase("failure", "/atp/failures/{error}/", (ERROR,)),
    PageCase("failure-verb", "/atp/failures/{error}/redrive/", (ERROR, OPERATE)),
    PageCase("failure-verb", "/atp/failures/{error}/delete/", (ERROR, DELETE)),
    PageCase("types", "/atp/types/", (TYPE,)),
    PageCase("type", "/atp/types/tests.add/", (TYPE,)),
    PageCase("enqueue", "/atp/types/tests.add/enqueue/", (ENQUEUE,)),
    PageCase(
        *("new-schedule", "/atp/types/tests.add/schedule/"), (TYPE, SCHEDULE, CONTROL, ENQUEUE)
    ),
    PageCase("type-gate", "/atp/types/tests.add/gate/", (TYPE, CONTROL)),
    PageCase("type-limit", "/atp/types/tests.add/limit/", (TYPE, CONTROL)),
    PageCase("type-verb", "/atp/types/tests.add/hold/", (TYPE, CONTROL)),
    PageCase("type-verb", "/atp/types/tests.add/purge/", (TYPE, DELETE)),
    PageCase("schedules", "/atp/schedules/", (SCHEDULE,)),
    PageCase("schedule", "/atp/schedules/nightly/", (SCHEDULE,)),
    PageCase("schedule-verb", "/atp/schedules/nightly/change/", (SCHEDULE, CONTROL, ENQUEUE)),
    PageCase("schedule-verb", "/atp/schedules/nightly/backfill/", (SCHEDULE, OPERATE)),
    PageCase("schedule-verb", "/atp/schedules/nightly/delete/", (SCHEDULE, CONTROL)),
    PageCase("schedule-verb", "/atp/schedules/nightly/resume/", (SCHEDULE, CONTROL), "post", 302),
    PageCase("tailers", "/atp/tailers/", (TAILER,)),
    PageCase("tailer", "/atp/tailers/tests.tailer/", (TAILER,)),
    PageCase("tailer-verb", "/atp/tailers/tests.tailer/seek/", (TAILER, CONTROL)),
    PageCase("tailer-verb", "/atp/tailers/tests.tailer/forget/", (TAILER, CONTROL)),
    PageCase("graphs", "/atp/graphs/", (GRAPH,)),
    PageCase("graph", "/atp/graphs/{graph}/", (GRAPH,)),
    PageCase("nodes", "/atp/graphs/{graph}/nodes/", (GRAPH,)),
    PageCase("graph-mermaid", "/atp/graphs/{graph}/graph.mmd", (GRAPH,)),
    PageCase("graph-verb", "/atp/graphs/{graph}/redrive/", (GRAPH, OPERATE), "post", 302),
    PageCase("downstreams", "/atp/downstreams/", (DOWNSTREAM,)),
    PageCase("downstream", "/atp/downstreams/relay/", (DOWNSTREAM,)),
    PageCase("downstream-verb", "/atp/downstreams/relay/bound/", (DOWNSTREAM, CONTROL)),
    PageCase("daemons", "/atp/daemons/", (DAEMON,)),
    PageCase("daemon", "/atp/daemons/{daemon}/", (DAEMON,)),
    PageCase("host-verb", "/atp/daemons/hosts/quiet/?host=host", (DAEMON, CONTROL), "post", 302),
    PageCase("daemon-verb", "/atp/daemons/{daemon}/quiet/", (DAEMON, CONTROL), "post", 302),
    PageCase("end-session", "/atp/end-session/?pid=1", (TYPE, CONTROL)),
    PageCase("verb", "/atp/purge/", (TYPE, DELETE)),
)
# Those that a browser shows: neither what acts, nor what is sent as it is.
SHOWN = tuple(
    page
    for page in PAGES
    if (page.method, page.shows) == ("get", 200)
    and page.name not in ("response", "graph-mermaid", "export")
)


def check_page(answer, *parts, lacks=(), status=200):
    """Check the status of a page, which parts its HTML has and which it lacks; return the HTML."""
    shown = answer.content.decode()
    assert answer.status_code == status, shown
    assert [part for part in parts if part not in shown] == []
    assert [part for part in lacks if part in shown] == []
    return shown
