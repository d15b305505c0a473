"""Whether the schedule of faults explains the loss of an attempt."""

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
    """The faults that hit each daemon, and what the daemons logged."""

    def __init__(self, evidence):
        self._hits = defaultdict(list)
        for hit in evidence.hits:
            self._hits[hit.daemon].append(hit)
        self._undelivered = {each.pid: undelivered(each, evidence) for each in evidence.daemons}
        self._outages = evidence.outages
        self._told = {daemon.pid: daemon.told(*_LEASE, *_CONNECTION) for daemon in evidence.daemons}

    def explains(self, story, claim, start, expiry, execution):
        """Return True if the schedule, or the kind of task, explains the loss of an attempt.

        ``start`` is None if the log has no start, ``execution`` if the record has none.
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
        """Return True if the schedule explains why a daemon could not renew its lease."""
        names = {*_OF_DAEMON, "cut_off"}
        hits = [(h.since, h.until) for h in self._hits[daemon] if h.name in names]
        return overlap(hits + self._outages, fact["time"] - LATEST, fact["time"])


def overlap(spans, since, until):
    """Return True if one of the time spans overlaps with the time from ``since`` to ``until``."""
    return any(begun <= until and end >= since for begun, end in spans)


def undelivered(daemon, evidence):
    """Return the uuids of Instances whose end a stopping daemon might not have recorded.

    Their rows were locked until the daemon gave up and said so. G10 limits how long a daemon
    tries.
    """
    if daemon.left is None or not daemon.told("undelivered"):
        return set()
    hits = (hit for hit in evidence.hits if hit.instance)
    return {hit.instance for hit in hits if hit.since <= daemon.left <= hit.until + SLACK}


def daemon_of(entry):
    """Return the pid of the supervisor from ``who``, which looks like "host:pid worker 3"."""
    signed = entry.who.partition(" ")[0].rpartition(":")[2]
    return int(signed) if signed.isdigit() else 0
