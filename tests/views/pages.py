"""All pages, as data: their addresses, and what it takes to see them."""

from dataclasses import dataclass

from atp.models import Daemon
from atp.states import State

INSTANCE, TYPE, DAEMON, LOG = "view_instance", "view_type", "view_daemon", "view_logrecord"
INPUTS, RESPONSE = "view_inputs", "view_response"
OPERATE, DELETE = "operate", "delete_instance"
VIEW_ALL = (INSTANCE, TYPE, DAEMON, LOG, INPUTS, RESPONSE)


@dataclass(frozen=True)
class PageCase:
    """A page: its name in the URLs, what its address is made of, and the permissions it takes."""

    name: str
    path: str
    needs: tuple[str, ...]
    method: str = "get"
    shows: int = 200

    def address(self, full):
        named = {state.lower(): full[state].uuid for state in State}
        return self.path.format(**named, daemon=Daemon.objects.get().uuid)


PAGES = (
    PageCase("overview", "/atp/", (INSTANCE,)),
    PageCase("gate", "/atp/gate/", (TYPE, OPERATE)),
    PageCase("instances", "/atp/instances/", (INSTANCE,)),
    PageCase("instance", "/atp/instances/{finished}/", (INSTANCE,)),
    PageCase("log", "/atp/instances/{finished}/log/", (INSTANCE, LOG)),
    PageCase("response", "/atp/instances/{finished}/response", (INSTANCE, RESPONSE)),
    PageCase("file", "/atp/instances/{finished}/files/0", (INSTANCE, RESPONSE), shows=404),
    PageCase("change", "/atp/instances/{accepted}/change/", (INSTANCE, OPERATE)),
    PageCase("delete", "/atp/instances/{accepted}/delete/", (INSTANCE, DELETE)),
    PageCase(
        "action", "/atp/instances/{failed}/redrive/", (INSTANCE, OPERATE), method="post", shows=302
    ),
    PageCase("types", "/atp/types/", (TYPE,)),
    PageCase("type", "/atp/types/tests.add/", (TYPE,)),
    PageCase("enqueue", "/atp/types/tests.add/enqueue/", (TYPE, OPERATE)),
    PageCase("type-gate", "/atp/types/tests.add/gate/", (TYPE, OPERATE)),
    PageCase("type-limit", "/atp/types/tests.add/limit/", (TYPE, OPERATE)),
    PageCase("daemons", "/atp/daemons/", (DAEMON,)),
    PageCase("daemon", "/atp/daemons/{daemon}/", (DAEMON,)),
    PageCase("order", "/atp/daemons/{daemon}/quiet/", (DAEMON, OPERATE), method="post", shows=302),
)
