"""Run the incident drill: ``python -m tests.drill [options]``.

A queue with a history, daemons, a load and a web server is started on PostgreSQL. Then twelve
incidents begin, one after another. The operator finds out from the pages what is wrong, since when,
and whom it affects, and mends it. A line on standard input goes on: "next" (or an empty line) ends
the incident; "quit", or the end of standard input, ends the drill.
"""

import argparse
import contextlib
import json
import os
import queue as queues
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo_project.show import DemoError
from demo_project.show.children import Child, start_web
from tests import environment

from . import RELEASE

if TYPE_CHECKING:
    from .incidents import Incident

USER, PASSWORD = "operator", "secret"
NEXT, QUIT = "next", "quit"
LOOK_EVERY = 1.0
# Seconds for the web server to end.
PATIENCE = 10


def main(arguments: list[str] | None = None) -> int:
    """Run the drill and return the exit status."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = environment.folder()
    with contextlib.ExitStack() as stack:
        try:
            _set_up(folder)
            log = folder / "web.log"
            web, port = start_web(options.port, manage=environment.ROOT / "manage.py", log=log)
            stack.callback(web.stop, patience=PATIENCE)
            return _Drill(options, web, folder, stack).run(f"http://127.0.0.1:{port}/atp/")
        except DemoError as error:
            print(error, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.drill",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--port", type=int, default=8000, help="of the web server; 0: any free port (%(default)s)")
    add("--rows", type=int, default=20_000, help="Instances of the history (%(default)s)")
    add("--incident", type=int, choices=range(1, 13), metavar="N", help="only this one, of 12")
    add("--json", action="store_true", help="print JSON lines, for a program")
    return parser


def _set_up(folder: Path) -> None:
    """Start PostgreSQL, and set up Django with an empty database and an operator."""
    os.environ |= {
        "ATP_TEST_DATABASE": "postgres",
        "DATABASE_URL": environment.start_postgres(environment.KINDS["postgres"]).url(),
        "DEMO_DIR": str(folder),
        "DJANGO_SETTINGS_MODULE": "tests.drill.settings",
        "DRILL_RELEASE": RELEASE,
    }

    import django

    django.setup()

    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False)
    get_user_model().objects.create_superuser(USER, password=PASSWORD)


class _Drill:
    def __init__(
        self, options: argparse.Namespace, web: Child, folder: Path, stack: contextlib.ExitStack
    ) -> None:
        """Write the history, and start the daemons and the load."""
        from .history import write_history
        from .site import Site

        self._options, self._web = options, web
        self._lines: queues.SimpleQueue[str] = queues.SimpleQueue()
        write_history(options.rows)
        self._site = Site(folder)
        stack.callback(self._site.destroy)
        self._site.start()

    def run(self, address: str) -> int:
        """Go through the incidents; return the exit status."""
        from .incidents import INCIDENTS

        threading.Thread(target=self._read, daemon=True).start()
        self._welcome(address)
        only = self._options.incident
        for number, incident in enumerate(INCIDENTS, 1):
            if only in (None, number) and self._take(number, incident(self._options.rows)) == QUIT:
                break
        return 0

    def _take(self, number: int, incident: "Incident") -> str:
        """Let one incident happen and end; return the line that ended it, or ""."""
        try:
            incident.begin(self._site)
            since = incident.since.isoformat()
            self._tell(f"Incident {number} has begun.", incident=number, since=since)
            line = self._watch(incident)
        finally:
            self._site.load.extra = None
            incident.end(self._site)
        self._site.restore()
        self._tell(
            f"Incident {number} is {'over' if line else 'mended'}. {incident.name} "
            f"Since {incident.since:%H:%M:%S} UTC: {incident.whom}.",
            incident=number,
            mended=not line,
            name=incident.name,
            whom=incident.whom,
        )
        return line

    def _watch(self, incident: "Incident") -> str:
        """Wait until the incident is mended or a line is read; return the line, or ""."""
        while not incident.is_mended(self._site):
            self._web.check()
            if self._site.load.error is not None:
                raise self._site.load.error
            with contextlib.suppress(queues.Empty):
                return self._lines.get(timeout=LOOK_EVERY)
        return ""

    def _read(self) -> None:
        """Read the lines of standard input; an empty one means NEXT, and its end QUIT."""
        for text in sys.stdin:
            line = text.strip().lower() or NEXT
            if line in (NEXT, QUIT):
                self._lines.put(line)
            else:
                print(f"{line!r}: must be {NEXT} or {QUIT}", file=sys.stderr)
        self._lines.put(QUIT)

    def _welcome(self, address: str) -> None:
        names = ("DJANGO_SETTINGS_MODULE", "DATABASE_URL", "DEMO_DIR", "DRILL_RELEASE")
        values = {name: os.environ[name] for name in names}
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
        self._tell(
            f"The pages are at {address} (user {USER}, password {PASSWORD}).\n"
            f"The shell, in another terminal: {words} {sys.executable} manage.py atp status",
            address=address,
            user=USER,
            password=PASSWORD,
            environment=values,
        )

    def _tell(self, words: str, **facts: Any) -> None:
        """Print words for people, or facts for a program."""
        print(json.dumps(facts) if self._options.json else words, flush=True)


if __name__ == "__main__":
    sys.exit(main())
