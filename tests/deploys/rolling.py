"""A rolling deploy of a small project, forward and back, with real processes.

The two releases are in ``releases/``. A *web process* enqueues tasks of its release, and a daemon
is ``manage.py atpd`` of its release. No Task may be FAILED while a compatible daemon lives, and
the check before the switch must name each case.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from atp.models import Instance, LogRecord, read_signature
from atp.states import Event, State
from tests import environment
from tests.daemon.harness import Atpd
from tests.helpers import child_environment, manage, wait_for

RELEASES = Path(__file__).parent / "releases"
OLD, NEW = "old", "new"

# What the look says under the new release of what the old one has enqueued; and back.
FORWARD = {
    ("shop.books", "misfit"): "there is no argument 'colour'",
    ("shop.loses", "misfit"): "there is no argument 'colour'",
    ("shop.renames", "misfit"): "argument 'email' is required; there is no argument 'mail'",
    ("shop.requires", "misfit"): "argument 'zoom' is required",
    ("shop.goes", "undeclared"): "no daemon that is alive serves it",
    ("shop.adapts", "adapted"): "argument 'email' is required",
}
BACKWARD = {
    ("shop.books", "misfit"): "argument 'colour' is required",
    ("shop.gains", "misfit"): "there is no argument 'note'",
    ("shop.renames", "misfit"): "argument 'mail' is required; there is no argument 'email'",
    ("shop.adapts", "misfit"): "argument 'mail' is required; there is no argument 'email'",
    ("shop.shade", "undeclared"): "no daemon that is alive serves it",
    ("shop.comes", "undeclared"): "no daemon that is alive serves it",
}
# The Types of which only the release that has enqueued an Instance takes it.
ONLY_OLD = {"shop.books", "shop.loses", "shop.renames", "shop.requires", "shop.goes"}
ONLY_NEW = {"shop.books", "shop.gains", "shop.renames", "shop.adapts", "shop.shade", "shop.comes"}


class Rolling:
    """The steps of the deploy; ``count`` Instances of each Type are enqueued at a time.

    ``tell(line)`` reports each step.
    """

    def __init__(self, folder, *, count=2, patience=600.0, tell=lambda line: None):
        self._folder = folder
        self._count = count
        self._patience = patience
        self._tell = tell
        self._daemons = {}
        # By release and Type, the uuids of what it has enqueued.
        self._enqueued = {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for daemon in self._daemons.values():
            daemon.destroy()

    # What is done

    def environment(self, release):
        """Return the environment of a process of a release."""
        return child_environment(
            DJANGO_SETTINGS_MODULE="tests.deploys.settings",
            ATP_DEPLOYS_RELEASE=release,
            PYTHONPATH=os.pathsep.join([str(RELEASES / release), str(environment.ROOT)]),
        )

    def run(self, release, *command):
        """Run a command of a release; return the completed process."""
        given = {"capture_output": True, "text": True, "check": False}
        done = subprocess.run(command, env=self.environment(release), **given)
        assert done.returncode in (0, 1), done.stderr
        return done

    def enqueue(self, release):
        """Enqueue from a web process of a release; return the uuids by Type."""
        self._tell(f"{release} web process: {self._count} of each Type")
        command = sys.executable, "-m", "tests.deploys.web", str(self._count)
        done = self.run(release, *command)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        for type, uuids in found.items():
            self._enqueued.setdefault((release, type), []).extend(uuids)
        return found

    def start(self, release):
        """Start a daemon of a release, and wait until it has joined."""
        self._tell(f"{release} daemon starts")
        daemon = Atpd(self._folder, environment=self.environment(release))
        self._daemons[release] = daemon
        return daemon.ready()

    def stop(self, release):
        """Shut the daemon of a release down gracefully."""
        self._tell(f"{release} daemon stops")
        assert self._daemons.pop(release).stop() == 0

    # What must be so

    def check_look(self, release, wanted):
        """Assert that the check of a release finds exactly these cases, each for all Instances."""
        done = self.run(release, *manage("atp", "check", "--pending", "--json"))
        assert done.stdout, done.stderr
        document = json.loads(done.stdout)
        self._tell(f"{release} code looks: {len(document['findings'])} findings")
        found = {(each["type"], each["kind"]): each for each in document["findings"]}
        assert set(found) == set(wanted), (sorted(found), sorted(wanted))
        for key, why in wanted.items():
            assert why in found[key]["why"], found[key]
            assert found[key]["count"] == self._count, found[key]
        assert done.returncode == any(each["fails"] for each in found.values())
        return document

    def wait_for_all(self, release, but=()):
        """Wait until all Instances that a release has enqueued have ended, except these Types."""
        uuids = [
            uuid
            for (by, type), uuids in self._enqueued.items()
            if by == release and type not in but
            for uuid in uuids
        ]
        live = Instance.objects.filter(uuid__in=uuids, finished=None)
        what = f"the end of what the {release} release enqueued"
        wait_for(lambda: not live.exists(), self._patience, what=what)
        self.check()

    def wait_until_refused(self, enqueued, types):
        """Wait until each enqueued Instance of these Types was deferred for another daemon."""
        uuids = {uuid for type in types for uuid in enqueued[type]}

        def refused():
            records = LogRecord.objects.filter(kind=Event.DEFER, instance__uuid__in=uuids)
            found = records.values_list("instance__uuid", "detail")
            return {str(uuid) for uuid, detail in found if read_signature(detail)} == uuids

        wait_for(refused, self._patience, what="a misfit of each")
        self.check()
        assert not Instance.objects.filter(uuid__in=uuids).exclude(finished=None).exists()

    def check(self):
        """Assert that no Instance is FAILED and that no budget was charged."""
        failed = Instance.objects.filter(state=State.FAILED)
        assert not failed.exists(), [(each.type_id, each.log.last().message) for each in failed]
        spent = Instance.objects.exclude(retries=0, restarts=0, lost=0)
        assert not spent.exists(), list(spent.values())

    def check_releases(self):
        """Assert that each Instance has run in a release that accepts its inputs."""
        for (release, type), uuids in self._enqueued.items():
            only = {OLD: ONLY_OLD, NEW: ONLY_NEW}[release]
            ran = {Instance.objects.get(uuid=uuid).response.value for uuid in uuids}
            assert ran <= {release} if type in only else ran <= {OLD, NEW}, (release, type, ran)

    # The deploy

    def roll(self, *, is_back_too=True):
        """Roll forward, back, and forward again."""
        self.enqueue(OLD)
        document = self.check_look(NEW, FORWARD)
        assert document["differences"] == []
        self.start(OLD)
        self.wait_for_all(OLD)
        self.check_look(NEW, {})
        self._roll_on()
        self._only_new()
        if is_back_too:
            self._roll_back()
            self.check_releases()

    def _roll_on(self):
        """Run daemons and web processes of both releases at once."""
        self.start(NEW)
        self.enqueue(OLD)
        self.enqueue(NEW)
        self.wait_for_all(OLD)
        self.wait_for_all(NEW)
        differences = self.check_look(NEW, {})["differences"]
        differing = sorted(each["type"] for each in differences)
        names = "adapts", "books", "gains", "loses", "renames", "requires"
        assert differing == [f"shop.{name}" for name in names]

    def _only_new(self):
        """Keep an old web process with only the new daemon, so that incompatible inputs wait."""
        self.stop(OLD)
        enqueued = self.enqueue(OLD)
        self.wait_until_refused(
            enqueued, {"shop.books", "shop.loses", "shop.renames", "shop.requires"}
        )
        self.wait_for_all(OLD, but=ONLY_OLD)

        def told():
            document = json.loads(self.run(NEW, *manage("atp", "status", "--json")).stdout)
            begins = f"{self._count} Instances of shop.renames have inputs that no living daemon"
            return any(each["sentence"].startswith(begins) for each in document["problems"])

        wait_for(told, self._patience, what="a problem, with the next renewal")

    def _roll_back(self):
        """Run the old daemon again while web processes of the new release still enqueue."""
        self.enqueue(NEW)
        self.wait_for_all(NEW)
        self.stop(NEW)
        enqueued = self.enqueue(NEW)
        self.check_look(OLD, BACKWARD)
        self.start(OLD)
        self.wait_for_all(OLD)
        self.wait_until_refused(
            enqueued, {"shop.books", "shop.gains", "shop.renames", "shop.adapts"}
        )
        self.wait_for_all(NEW, but=ONLY_NEW)
        self.start(NEW)
        self.wait_for_all(NEW)
        self.stop(OLD)
        self.stop(NEW)
