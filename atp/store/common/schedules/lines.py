"""The lines of schedules: live Instances of one schedule that wait for each other (G17).

Each Instance has an edge from every Instance that was in the line before it; any end satisfies
the edge. So no Instance starts too early if one in the middle is cancelled. An Instance's node
and edges are deleted when it ends (:meth:`.graphs.settling.Settling.satisfy`): a line holds
live Instances only.

Code that adds to a line has locked its Schedule, so one session at a time adds to a line.
Instances in the line may end meanwhile, unless their nodes are locked.
"""

from dataclasses import dataclass, field

from django.db.models import Q

from ....graphs.models import Condition
from ....models import BLOCKED, HOOKED, Edge, Node, Task
from ....schedules.models import IN_LINE, Overlap
from .slots import instance_identifier


@dataclass
class Line:
    """The keys of the live Instances in a schedule's line, and how many of them wait."""

    live: list[int] = field(default_factory=list)
    waiting: int = 0


class Lines:
    def __init__(self, store):
        self._store = store
        self.rows = store.rows

    def lock(self, schedules, *, waits=True):
        """Lock the lines of these schedules, so that none of their Instances ends.

        Returns each :class:`Line` by the schedule's key. With ``waits=False``, a line is left out
        if another session has locked a part of it.
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
        # cancel() locks Tasks, so Instances that are to be cancelled are locked in the same way.
        ends = [k for k, of in members.items() if schedules[of].overlap == Overlap.CANCEL]
        locked = self._lock(Task, ends, waits) | (members.keys() - set(ends))
        locked &= self._lock(Node, members, waits)
        # Members that have ended meanwhile have no node any more.
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
        """Put each schedule's last Instance into its line, if it was enqueued without one.

        Returns the keys of the schedules whose last Instance another session has locked.
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

        ``runs`` are triples: the locked Schedule, the slot or None, the Submission. The lines are
        locked; the new Instances are added to them. Returns pairs: the Instance, and the number of
        Instances that it waits for.
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
