"""The task of the arena: it works for some milliseconds, and says so to its adapter."""

import socket
import struct
import time

from django.conf import settings

from atp import Context, task_type

REPORT = struct.Struct("d")
_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
_socket.setblocking(False)


@task_type("arena.job")
def job(context: Context, number: int, created: float, padding: str = "") -> None:
    """Wait as long as JOB_WORK_MS says. ``created`` is the time of the enqueue, since the epoch."""
    waited = time.time() - created
    time.sleep(settings.ARENA_WORK)
    try:
        _socket.sendto(REPORT.pack(waited), settings.ARENA_SOCKET)
    except OSError:
        pass  # the adapter was killed, and this worker dies with it
