"""The reasons why a worker runs nothing more and another one takes its place."""

import sys

from ..system import processes


def reason_to_retire(options, done):
    """Return the reason why a worker that has run ``done`` tasks is to retire, or None."""
    limit = options.max_tasks_per_worker
    if limit is not None and done >= limit:
        return f"it has run {done} tasks"
    limit = options.max_memory_per_worker
    if limit is not None and done:
        resident = processes.resident_bytes()
        if resident > limit:
            return f"it has {resident >> 20} MiB resident, {limit >> 20} MiB are allowed"
    for file in (sys.stdout, sys.stderr):
        if file is not None and file.closed:
            return "a handler closed its standard output or error"
    return None
