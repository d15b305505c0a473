"""Whether the daemons themselves had faults."""

from collections import Counter
from signal import SIGKILL

from .causes import overlap, undelivered
from .evidence import Breach

# G11 says 2 s; the rest is for a machine that has many daemons on few processors.
BACK_WITHIN = 2.0 + 2.0


def weak_daemons(evidence):
    killed = Counter(hit.pid for hit in evidence.hits if hit.name.startswith("kill_"))
    crashed = {
        line.pid
        for attempts in evidence.executions.values()
        for execution in attempts.values()
        for line in execution.of("crash")
    }
    for daemon in evidence.daemons:
        name = f"daemon {daemon.pid}"
        if daemon.status is None:
            yield Breach(f"{name} did not end when it was told to")
        elif daemon.killed is not None and daemon.status != -SIGKILL:
            yield Breach(f"{name} had ended with status {daemon.status} when it was to be killed")
        elif daemon.killed is None and daemon.asked_to_leave is None:
            yield Breach(f"{name} ended by itself, with status {daemon.status}")
        elif daemon.killed is None and daemon.status != 0 and _was_left_alone(daemon, evidence):
            yield Breach(f"{name} was told to leave, and ended with status {daemon.status}")
        hung = {fact["pid"] for fact in daemon.told("dispatcher_hung")}
        for part, explained in (("dispatcher", hung), ("worker", crashed), ("loop", crashed)):
            for fact in daemon.told(f"{part}_died"):
                if fact["pid"] not in explained and fact["pid"] not in killed:
                    yield Breach(f"{name}: {fact['message']}{_before(daemon, fact)}")
        for fact in filter(_is_a_fault, daemon.facts):
            yield Breach(f"{name}: {fact['fact']}: {fact['message'][:200]}")


def _before(daemon, fact):
    """Return what a daemon has logged in the second before a fact, as the end of a message."""
    until = fact.get("time", 0.0)
    since = until - 1.0
    lines = [each for each in daemon.facts if since <= each.get("time", 0.0) <= until]
    told = [f"{each['time'] - since:.2f} {each['message'][:100]}" for each in lines[-8:-1]]
    return f" (the second before: {'; '.join(told) or 'nothing'})"


def _is_a_fault(fact):
    """Return True if a log line reports a fault of the daemon, not of a handler."""
    if fact["fact"] == "not a fact":
        # Where a handler crashes in C, its stack is dumped, which begins with other words.
        return fact["message"].startswith("Traceback")
    if fact["fact"] in ("", "unrecordable", "cannot_fork"):
        return True
    # Log handlers that raise are part of the schedule.
    return "traceback" in fact and fact["fact"] not in ("raised", "handlers_failed")


def _was_left_alone(daemon, evidence):
    """Return True if no fault hit a daemon or the database during its shutdown.

    A daemon is excluded if a locked row kept it from recording an end, or if it had not yet
    logged its start.
    """
    if not daemon.told("daemon_started") or undelivered(daemon, evidence):
        return False
    return not _was_hit(daemon, evidence, daemon.asked_to_leave, daemon.left, evidence.outages)


def _was_hit(daemon, evidence, since, until, outages):
    spans = [(hit.since, hit.until) for hit in evidence.hits if hit.daemon == daemon.pid]
    return overlap(spans + outages, since, until)


def returns(evidence):
    """Yield how long each undisturbed daemon took to come back after an outage.

    Each item is the daemon and the seconds, or None if the daemon did not come back.
    """
    for down, up in evidence.outages:
        for daemon in evidence.daemons:
            if not _is_witness(daemon, evidence, down, up + BACK_WITHIN):
                continue
            joined = [fact["time"] for fact in daemon.told("joined", "rejoined")]
            if not any(time < down for time in joined):
                continue
            back = [time for time in joined if time > down]
            yield daemon, max(0.0, min(back) - up) if back else None


def _is_witness(daemon, evidence, since, until):
    """Return True if only the outage hit a daemon during this time."""
    over = [daemon.asked_to_leave, daemon.killed]
    if any(time is not None and time < until for time in over):
        return False
    others = [span for span in evidence.outages if span[0] != since]
    return not _was_hit(daemon, evidence, since, until, others)


def slow_returns(evidence):
    for daemon, seconds in returns(evidence):
        if seconds is None or seconds > BACK_WITHIN:
            how = "never came back" if seconds is None else f"came back after {seconds:.1f} s"
            yield Breach(f"daemon {daemon.pid} {how}, when the database was there again")
