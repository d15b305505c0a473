"""Causes: whether the schedule has hit an attempt that was lost."""

from collections import defaultdict

from . import kinds

# Times are compared across processes and clocks, in seconds.
SLACK = 0.5
# What may cost a running attempt, whoever its worker is.
_OF_DAEMON = frozenset(
    f"{verb}_{target}"
    for verb in ("kill", "stop")
    for target in ("dispatcher", "supervisor", "daemon")
)
# What a daemon says when it had to kill its own workers: it could not renew its lease,
# as while the database is away for long. Its word alone is no cause: whoever locks a row, or
# writes log handlers that stand, is not to bring it there.
_LEASE = ("lease_over", "dispatcher_hung")
# So long before that what made it so may have begun, in seconds: KILL_AFTER, and some more.
LATEST = 8.0
# What an unstarted attempt may be lost by: the answer to its claim did not arrive.
_CONNECTION = ("database_failed", "database_slow", "lease_lost", "rejoined")


class Causes:
    """What was done to each daemon, and what befell it."""

    def __init__(self, evidence):
        self._hits = defaultdict(list)
        for hit in evidence.hits:
            self._hits[hit.daemon].append(hit)
        self._undelivered = {each.pid: undelivered(each, evidence) for each in evidence.daemons}
        self._outages = evidence.outages
        self._told = {daemon.pid: daemon.told(*_LEASE, *_CONNECTION) for daemon in evidence.daemons}

    def explains(self, story, claim, start, expiry, execution):
        """Whether the loss of an attempt follows from the schedule, or from its own kind.

        ``start`` and ``execution`` are None where the log, or the record, has none.
        """
        kind = kinds.BY_TYPE[story.type]
        if kind.crashes(claim.attempt) or kind.overruns:
            return True
        daemon = daemon_of(claim)
        since, until = claim.time - SLACK, expiry.time + SLACK
        pids = execution.pids if execution else set()
        for hit in self._hits[daemon]:
            is_enough = hit.name in _OF_DAEMON or (
                hit.name == "kill_worker" and (not pids or hit.pid in pids)
            )
            if is_enough and overlap([(hit.since, hit.until)], since, until):
                return True
        if story.uuid in self._undelivered.get(daemon, ()):
            return True
        told = [fact for fact in self._told.get(daemon, ()) if since <= fact["time"] <= until]
        if start is None and any(fact["fact"] in _CONNECTION for fact in told):
            return True
        return any(self._is_brought_about(f, daemon) for f in told if f["fact"] in _LEASE)

    def _is_brought_about(self, fact, daemon):
        """Whether the schedule explains why a daemon could not renew its lease."""
        names = {*_OF_DAEMON, "cut_off"}
        hits = [(h.since, h.until) for h in self._hits[daemon] if h.name in names]
        return overlap(hits + self._outages, fact["time"] - LATEST, fact["time"])


def overlap(spans, since, until):
    """Whether one of the spans of time overlaps with this one."""
    return any(begun <= until and end >= since for begun, end in spans)


def undelivered(daemon, evidence):
    """Return the uuids of the Instances of which a daemon may have left without delivering an end.

    They were behind a lock until it gave up, and it said so: G10 bounds how long it tries.
    """
    if daemon.left is None or not daemon.told("undelivered"):
        return set()
    hits = (hit for hit in evidence.hits if hit.instance)
    return {hit.instance for hit in hits if hit.since <= daemon.left <= hit.until + SLACK}


def daemon_of(entry):
    """Return the pid of the supervisor that has signed: who is "host:pid worker 3"."""
    signed = entry.who.partition(" ")[0].rpartition(":")[2]
    return int(signed) if signed.isdigit() else 0
