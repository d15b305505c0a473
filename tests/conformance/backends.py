"""ATPBackend in the forms that Django's tests need."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from django.db import connection

from atp.backend import ATPBackend

from .running import use_backport

if os.environ.get("CONFORMANCE_BACKPORT"):
    # Of a daemon, before it imports the tasks.
    use_backport()


class Kept(ATPBackend):
    """ATPBackend with the two names of DummyBackend that tests use: ``results`` and ``clear``."""

    @property
    def results(self):
        from atp.models import Instance

        return [self.get_result(each.uuid) for each in Instance.objects.order_by("pk")]

    def clear(self):
        from atp.models import Instance

        Instance.objects.all()._raw_delete("default")


class Drained(ATPBackend):
    """ATPBackend whose ``enqueue()`` runs ``atpd --drain`` before it returns.

    Inside a transaction the task only waits, because the daemon sees only committed rows. Log
    records of the daemon are logged again here.
    """

    def enqueue(self, task, args, kwargs):
        result = super().enqueue(task, args, kwargs)
        if not connection.in_atomic_block:
            _drain()
            result.refresh()
        return result

    async def aenqueue(self, task, args, kwargs):
        return await asyncio.to_thread(self.enqueue, task, args, kwargs)


def _drain():
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        own = {"CONFORMANCE_DATABASE": str(connection.settings_dict["NAME"])}
        environment = os.environ | own | {"CONFORMANCE_LOG": str(log)}
        command = [sys.executable, "-m", "django", "atpd", "--drain", "--processes", "1"]
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise AssertionError(f"atpd --drain exits {ended.returncode}:\n{ended.stderr}")
        for line in log.read_text().splitlines():
            record = logging.makeLogRecord(json.loads(line))
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
