"""What keeps waiting Instances from being started, in words, and who has said so."""

from collections import defaultdict
from datetime import timedelta

from . import health, overview, wording
from . import told as words
from .conf import settings
from .controls import gates, limits
from .models import Daemon, Task
from .store.limits import Bucket

ITS_TURN = "Nothing holds it back: it waits for its turn, and for a worker that is free."
# So many Tasks are counted at most, and so many gates and limits told of.
MOST, SHOWN = 1000, 20


def why(instance, task):
    """Return sentences about why an Instance does not start; there are none if it does not wait.

    ``task`` is its Task, or None. Its gates, its due time, its limits and who serves its Type
    are looked at, in five queries or so.
    """
    if task is None or task.daemon_id is not None:
        return ()
    now = overview.now()
    told = [f"{_shut(gate)}." for gate in gates(now=now) if _covers(gate, task)]
    if task.due_at > now:
        told.append(f"It is not due before {_time(task.due_at)}.")
    told += [f"{full}." for limit in _limits_of(instance.type) if (full := _full(limit, task, now))]
    unserved = health.unserved(instance.type.identifier, overview.daemons(), now)
    if unserved:
        told.append(f"{unserved[0].upper()}{unserved[1:]}.")
    return tuple(told) or (ITS_TURN,)


def notes(now, shut=None):
    """Return sentences about what is due and waits because somebody wants that: gates and limits.

    ``shut`` are the gates that are, if they are known already. It takes as long with a million
    waiting Tasks as with some thousand.
    """
    shut = gates(now=now) if shut is None else shut
    told = [f"{_shut(gate)}: {_due(gate, now)}." for gate in shut[:SHOWN]]
    if len(shut) > SHOWN:
        told.append(f"{len(shut) - SHOWN} more gates are shut.")
    return (*told, *limited(now, shut))


def limited(now, shut):
    """Return sentences about what is due and waits for a limit alone, as :func:`notes` do."""
    told = []
    binding = [row for row in limits() if _is_limiting(row) and not _is_shut(row, shut)]
    for limit in binding[:SHOWN]:
        full = _full(limit, None, now)
        if full and not (due := _due(limit, now)).startswith("nothing"):
            told.append(f"{full}: {due}.")
    if len(binding) > SHOWN:
        told.append(f"There are {len(binding) - SHOWN} more limits, which are not looked at here.")
    return tuple(told)


def controls():
    """Return what operators and code have set, in a few words each, by the identifier of the Type.

    Gates that are shut come first, what is of the whole Type before its lanes. What is set of
    everything is in none.
    """
    told = defaultdict(list)
    for gate in sorted(gates(), key=_whole_first):
        if gate.type is not None:
            told[gate.type.identifier].append(_of_lane(gate, words.MODES[gate.mode]))
    for limit in sorted(limits(), key=_whole_first):
        told[limit.type.identifier].append(_of_lane(limit, words.of_limits(limit)))
    return told


def _whole_first(row):
    return row.subject if row.collection is not None else ""


def _of_lane(row, words):
    return words if row.collection is None else f"{row.collection!r} {words}"


def place(row):
    """Return what a Gate or a Limit is of, in words that begin a sentence."""
    if row.type is None:
        return "Everything"
    if row.collection is None:
        return row.type.identifier
    if not row.collection:
        return f"{row.type.identifier} without a collection"
    return f"{row.type.identifier}, collection {row.collection!r},"


def _covers(row, task):
    """Whether a Gate or a Limit is of the Task's lane, too."""
    if row.type_id is None:
        return True
    return row.type_id == task.type_id and row.collection in (None, task.collection)


def _is_shut(limit, shut):
    """Whether a gate keeps all that a Limit is of."""
    return any(
        gate.type_id in (None, limit.type_id) and gate.collection in (None, limit.collection)
        for gate in shut
    )


def _is_limiting(limit):
    return limit.max_running is not None or limit.per_second is not None


def _limits_of(type):
    return [limit for limit in limits(type.identifier) if _is_limiting(limit)]


def _shut(gate):
    done = "to be dropped" if gate.mode == "drop" else words.MODES[gate.mode]
    by = f" by {gate.who}" if gate.who else ""
    until = f" until {_time(gate.until)}" if gate.until else ""
    reason = f" ({gate.reason})" if gate.reason else ""
    return f"{place(gate)} is {done}{by}{until}{reason}"


def _full(limit, task, now):
    """What is in the way of another start, by a Limit; empty if there is room, or not its Task."""
    if task is not None and not _covers(limit, task):
        return ""
    held = 0 if limit.max_running is None else _held(limit)
    bucket = Bucket.of(limit, limit.type.identifier, held, now)
    if bucket.is_full:
        return f"{place(limit)} is limited to {limit.max_running} at once, and {held} are claimed"
    if not bucket.room:
        at = _time(now + timedelta(seconds=bucket.seconds))
        return f"{place(limit)} is limited to {limit.rate}, and the next may start at {at}"
    return ""


def _held(limit):
    # By daemon, of which there are few: so the index on what is held serves.
    daemons = Daemon.objects.using(settings.DATABASE).values("pk")
    return _of(limit).filter(daemon__in=daemons).count()


def _due(row, now):
    count = _of(row).due(now).order_by()[: MOST + 1].count()
    if not count:
        return "nothing of that is due"
    number = f"more than {MOST}" if count > MOST else count
    return f"{number} that {'waits' if count == 1 else 'wait'} there {_are(count)} due"


def _are(count):
    return "is" if count == 1 else "are"


def _of(row):
    """The Tasks that a Gate or a Limit is of."""
    tasks = Task.objects.using(settings.DATABASE)
    if row.type_id is None:
        return tasks
    tasks = tasks.filter(type=row.type_id)
    return tasks if row.collection is None else tasks.filter(collection=row.collection)


def _time(time):
    return f"{wording.moment(time)} {wording.zone()}"
