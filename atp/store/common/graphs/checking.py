"""Checks of an addition to a graph: no circle, no result too early, not too large."""

from collections import Counter, defaultdict

from django.db.models import Count

from ....exceptions import InvalidGraph
from ....graphs.plan import (
    MOST_EDGES,
    MOST_NODES,
    all_upstream,
    check_order,
    early_result,
    given_results,
    size_of,
)
from ....models import Edge, Instance, Node, Undo
from ....states import State

CHUNK = 1000


class Checking:
    def _check_before(self, adder, found, edges, before, upstreams):
        """Raise InvalidGraph unless each node in ``before`` is downstream of the adder.

        Also raise it if such a node would wait for itself, through a new node that comes after it.
        """
        wanted = {found[name] for _, name in before}
        if not wanted:
            return
        direct = self.rows(Edge).filter(upstream=adder, downstream__in=wanted)
        if not upstreams - {adder} and direct.count() == len(wanted):
            return
        behind = self._ways({adder}, "upstream", "downstream")
        reached = {key for keys in behind.values() for key in keys}
        for _, name in before:
            if found[name] not in reached:
                raise InvalidGraph(
                    f"before: {name!r} does not wait for the node that adds to the graph.",
                    parameter="before",
                )
        if upstreams & reached:
            self._check_circle(behind, reached | {adder}, edges, before)

    def _check_circle(self, behind, keys, edges, before):
        names = self._names(keys)
        upstreams = defaultdict(list)
        for key, others in behind.items():
            for other in others:
                upstreams[names[other]].append(names[key])
        for edge in edges:
            upstreams[edge.downstream].append(edge.upstream)
        for name, other in before:
            upstreams[other].append(name)
        check_order(upstreams)

    def _check_results(self, new, found, edges):
        """Raise InvalidGraph if a node takes a result that may be missing when the node starts."""
        needed = list(given_results(new))
        if not needed:
            return
        upstreams = defaultdict(list)
        for edge in edges:
            upstreams[edge.downstream].append(edge.upstream)
        given = {found[name] for _, names in needed for name in names if name in found}
        own = self.rows(Instance).filter(pk__in=given, state=State.FINISHED)
        finished = set(own.values_list("pk", flat=True))
        for own_name, names in needed:
            before = all_upstream(own_name, upstreams)
            missing = {
                name for name in names if name not in before and found.get(name) not in finished
            }
            if missing:
                there = {found[name] for name in before if name in found}
                ways = self._ways(there, "downstream", "upstream")
                above = {key for keys in ways.values() for key in keys}
                missing = {name for name in missing if found.get(name) not in above}
            if missing:
                there = [*found, *(node.name for node in new)]
                raise early_result(own_name, min(missing), there)

    def _check_size(self, graph, new, found, pairs):
        there = self.rows(Node).filter(graph=graph.pk).count()
        there += self.rows(Undo).filter(node__graph=graph.pk).count()
        if there + size_of(new) > MOST_NODES:
            raise InvalidGraph(f"The graph would have more than {MOST_NODES} nodes.")
        for place, end, words in (
            (0, "upstream", "{count} nodes would wait for {name!r}"),
            (1, "downstream", "{name!r} would wait for {count} nodes"),
        ):
            more = Counter(pair[place] for pair in pairs)
            keys = {found[name] for name in more if name in found}
            counted = self.rows(Edge).filter(**{f"{end}__in": keys}).order_by().values(end)
            there = dict(counted.annotate(count=Count("pk")).values_list(end, "count"))
            for name, new_ones in more.items():
                count = new_ones + there.get(found.get(name), 0)
                if count > MOST_EDGES:
                    told = words.format(name=name, count=count)
                    raise InvalidGraph(
                        f"{told}, {MOST_EDGES} at most can: put a layer between.",
                        parameter="after",
                    )

    def _ways(self, keys, near, far):
        """Follow the edges from these nodes to the end; returns the neighbours of each node."""
        ways, ahead = defaultdict(list), sorted(keys)
        seen = set(keys)
        while ahead:
            some, ahead = ahead[:CHUNK], ahead[CHUNK:]
            edges = self.rows(Edge).filter(**{f"{near}__in": some})
            for key, other in edges.values_list(f"{near}_id", f"{far}_id"):
                ways[key].append(other)
                if other not in seen:
                    seen.add(other)
                    ahead.append(other)
        return ways

    def _names(self, keys):
        ordered, names = sorted(keys), {}
        for start in range(0, len(ordered), CHUNK):
            some = self.rows(Node).filter(pk__in=ordered[start : start + CHUNK])
            names.update(some.values_list("pk", "name"))
        return names
