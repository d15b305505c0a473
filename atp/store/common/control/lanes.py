"""The limit on each lane of a Type, which its code declares as ``max_running_per_collection``.

The limit is a column of the Type's row of Limit: lanes need no rows of their own. A claim of
such a Type counts the Tasks that daemons hold in each lane, and looks for lanes with room. A
limit that an operator has set on one lane takes precedence.
"""

from django.db.models import Count

from ....models import Daemon, Task, Type
from ...buckets import Rooms, per_collection
from ..base import ORMBase

# A further look behind locked Tasks finds so many times as many lanes as the one before.
MORE = 8


class LaneLimited(ORMBase):
    def _take_open(self, by, type, buckets, rooms, wanted):
        """Claim up to ``wanted`` Tasks from lanes that have room."""
        most = wanted
        while True:
            open_rooms = self._in_lanes(by, type, buckets, rooms, most)
            tasks = self._take_limited(by, type, open_rooms, wanted)
            if tasks or open_rooms is rooms or len(open_rooms.lanes) < most:
                return tasks
            most *= MORE

    def _in_lanes(self, by, type, buckets, rooms, most_lanes):
        """Return the :class:`Rooms` of lanes that have room and due Tasks; ``rooms`` if unlimited.

        The result has at most ``most_lanes`` lanes.
        """
        most = per_collection(buckets)
        if most is None:
            return rooms
        held, own = self._held_by_lane(type), _own_limits(buckets, type)
        limited = {c: most - held[c] for c in held if c not in own}
        for (_, collection), room in rooms.lanes.items():
            default = room if collection in own else most
            limited[collection] = min(room, limited.get(collection, default))
        full = [collection for collection, room in limited.items() if room <= 0]
        rotation = by.memory.rotation
        after = rotation.after(type, apart=True)
        found, cut = self._open_lanes(type, full, after, most_lanes)
        rotation.skip([(type, collection) for collection in cut], apart=True)
        lanes = {(type, c): min(limited.get(c, most), rooms.total) for c in found}
        return Rooms(rooms.total, lanes, whole=False)

    def _are_full(self, type, collection, seconds, buckets):
        """Return whether the limit on each lane keeps a lane, or all lanes, from starting Tasks.

        ``collection`` None means the lanes without own limit; their Tasks are due in ``seconds``.
        """
        buckets = [bucket for bucket in buckets if bucket.type == type]
        most = per_collection(buckets)
        if most is None:
            return False
        held, own = self._held_by_lane(type), _own_limits(buckets, type)
        if collection is not None:
            return collection not in own and held[collection] >= most
        full = [c for c in held if held[c] >= most or c in own]
        return seconds <= 0 and self._open_lanes(type, full, "", 1) == ([], [])

    def _held_by_lane(self, type):
        """Return how many Tasks of a Type daemons hold, by collection."""
        # The filter by daemon, of which there are few, lets the index on held Tasks serve.
        tasks = self.rows(Task).filter(
            daemon__in=self.rows(Daemon).values("pk"), type__identifier=type
        )
        counts = tasks.order_by().values_list("collection").annotate(Count("pk"))
        return _Counts(counts)

    def _open_lanes(self, type, full, after, most):
        """Return up to ``most`` lanes with due Tasks, except those that are ``full`` or shut.

        Lanes are given by collection, those behind ``after`` first. Returns also where the look
        was broken off, as a list of at most one collection.
        """
        now = self.now()
        row = self.rows(Type).filter(identifier=type).first()
        closed = self._closed(now)
        if row is None or closed.shuts(row.pk):
            return [], []
        due = self._sound(now).filter(type=row).exclude(collection__in=full)
        names = due.order_by("collection").values_list("collection", flat=True).distinct()
        found = [*names.filter(collection__gt=after), *names.filter(collection__lte=after)]
        return [name for name in found if not closed.shuts(row.pk, name)][:most], []


class _Counts(dict):
    def __missing__(self, key):
        return 0


def _own_limits(buckets, type):
    """Return the collections for which an operator has set ``max_running``."""
    return {
        bucket.collection
        for bucket in buckets
        if bucket.type == type and bucket.collection is not None and bucket.max_running is not None
    }
