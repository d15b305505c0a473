"""The lines of schedules: live Instances of one schedule that wait for each other (G17).

Each waits for all that were in the line before it, by edges that any end satisfies. So one
that is cancelled in the middle lets nobody start too early. Nodes and edges go with the end
of their Instance (:meth:`.graphs.settling.Settling.satisfy`): a line is as long as what is live.

Whoever adds to a line has locked its Schedule, so a line grows by one at a time. What is in it
may end meanwhile, unless its node is locked.
"""

from dataclasses import dataclass, field

from django.db.models import Q

from ....models import Edge, Node, Task
from ....rows.graph import Condition
from ....rows.schedule import IN_LINE, Overlap
from ....rows.task import BLOCKED, HOOKED
from .slots import instance_identifier


@dataclass
class Line:
    """The keys of the live Instances of a schedule, and the number of those that wait."""

    live: list[int] = field(default_factory=list)
    waiting: int = 0


class Lines:
    def __init__(self, store):
        self._store = store
        self.rows = store.rows

    def lock(self, schedules, *, waits=True):
        """Lock the lines of these schedules, so that nothing in them ends.

        Returns each :class:`Line` by the schedule's key. If it does not wait, those are left
        out of which somebody else has locked something.
        """
        schedules = {row.pk: row for row in schedules if row.overlap in IN_LINE}
        if not schedules:
            return {}
        met = self._adopt(schedules.values(), waits)
        members = dict(
            self.rows(Node)
            .filter(schedule__in=schedules.keys() - met, graph__isnull=True)
            .order_by("pk")
            .values_list("pk", "schedule_id")
        )
        # What is to be cancelled is locked as cancel() does.
        ends = [k for k, of in members.items() if schedules[of].overlap == Overlap.CANCEL]
        locked = self._lock(Task, ends, waits) | (members.keys() - set(ends))
        locked &= self._lock(Node, members, waits)
        # What has ended meanwhile is gone.
        left = self.rows(Node).filter(pk__in=members.keys() - locked).values_list("pk", flat=True)
        met |= {members[key] for key in left}
        lines = {key: Line() for key in schedules if key not in met}
        tasks = self.rows(Task).filter(pk__in=locked).order_by("pk")
        for key, count in tasks.values_list("pk", "waits"):
            if members[key] in lines:
                line = lines[members[key]]
                line.live.append(key)
                line.waiting += bool(count)
        return lines

    def _lock(self, model, keys, waits):
        rows = self.rows(model).filter(pk__in=keys).order_by("pk")
        return set(rows.select_for_update(skip_locked=not waits).values_list("pk", flat=True))

    def _adopt(self, schedules, waits):
        """Take the last Instances into the lines, where these were enqueued without one.

        Returns the keys of the schedules where somebody else has locked it.
        """
        last = {row.last_id: row for row in schedules if row.last_id is not None}
        alone = Q(waits__isnull=True) | Q(waits=HOOKED)
        tasks = self.rows(Task).filter(alone, pk__in=last).order_by("pk")
        there = set(tasks.values_list("pk", flat=True))
        if not there:
            return set()
        free = set(tasks.select_for_update(skip_locked=not waits).values_list("pk", flat=True))
        self.rows(Task).filter(pk__in=free).update(waits=0)
        self._write_nodes((last[key], key, None) for key in sorted(free))
        still = there - free
        return {last[key].pk for key in tasks.filter(pk__in=still).values_list("pk", flat=True)}

    def enqueue(self, registration, runs, lines, *, who=""):
        """Enqueue Instances at the ends of their lines, in this order.

        Returns each, with the number of those that it waits for. ``runs`` are triples: the
        locked Schedule, the slot or None, the Submission. The lines are locked, and are longer
        afterwards.
        """
        lengths = {key: len(line.live) for key, line in lines.items()}
        submissions = []
        for row, _, submission in runs:
            waits = lengths[row.pk]
            lengths[row.pk] += 1
            due = BLOCKED if waits else submission.due
            submissions.append(submission._replace(waits=waits, due=due))
        instances = list(self._store.enqueue(registration, submissions, who=who))
        if not all(instance.is_new for instance in instances):
            raise RuntimeError("Somebody has just enqueued under the identifier of a slot.")
        self._write_nodes(
            (row, instance.pk, at) for (row, at, _), instance in zip(runs, instances, strict=True)
        )
        edges, made = [], []
        for (row, _, _), instance in zip(runs, instances, strict=True):
            line = lines[row.pk]
            edges += [(key, instance.pk) for key in line.live]
            made.append((instance, len(line.live)))
            line.waiting += bool(line.live)
            line.live.append(instance.pk)
        self._write_edges(edges)
        return made

    def _write_nodes(self, members):
        self.rows(Node).bulk_create(
            [
                Node(
                    instance_id=key,
                    schedule=row,
                    name=row.identifier if at is None else instance_identifier(row, at),
                )
                for row, key, at in members
            ]
        )

    def _write_edges(self, edges):
        self.rows(Edge).bulk_create(
            [Edge(upstream_id=up, downstream_id=down, on=Condition.ENDED) for up, down in edges],
            batch_size=2000,
        )
