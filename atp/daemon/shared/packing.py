"""The message that gives tasks to a worker, and the record of an end: every task needs both."""

import pickle
import struct
from functools import lru_cache

from ...store.values import Claimed

# The parameters of a Type are the same for all its Tasks. To pickle them as one takes less
# time than to pickle their parts.
_pickled = lru_cache(pickle.dumps)
_unpickled = lru_cache(pickle.loads)
# The record of an end: Instance, attempt, and when it started and ended on the uptime clock.
# Behind these stands its outcome, pickled, if it is any other than that nothing was returned.
_END = struct.Struct("=qqdd")
_PARAMETERS, _TIME = map(Claimed._fields.index, ("parameters", "time"))


def packed(holdings):
    """Return the message that gives these tasks to a worker: serial numbers and plain values.

    The time of the claim is left out: of all values it takes longest to read.
    """
    tasks, last, pickled = [], None, b""
    for holding in holdings:
        values = list(holding.claimed)
        if values[_PARAMETERS] is not last:
            last = values[_PARAMETERS]
            pickled = _pickled(last)
        values[_PARAMETERS] = pickled
        values[_TIME] = None
        tasks.append((holding.serial, values))
    return tasks


def unpacked(tasks):
    """Yield the serial number and the :class:`Claimed` of each task of a message.

    Its ``time`` is None.
    """
    for serial, values in tasks:
        values[_PARAMETERS] = _unpickled(values[_PARAMETERS])
        yield serial, Claimed._make(values)


def packed_end(instance, attempt, started, ended, outcome):
    """Return the record of an end; no outcome means that it finished and returned nothing."""
    head = _END.pack(instance, attempt, started, ended)
    if outcome is None:
        return head
    return head + pickle.dumps(outcome, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked_end(record):
    """Return the values from which :func:`packed_end` has made a record."""
    outcome = pickle.loads(record[_END.size :]) if len(record) > _END.size else None  # noqa: S301
    return *_END.unpack_from(record), outcome
