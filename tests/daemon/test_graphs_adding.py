"""Handlers that add nodes to their own graph, run by real daemons (G17)."""

import os
import signal

import pytest
from django.db import connection, transaction

from atp import Graph
from atp.models import Graph as GraphRow
from atp.models import Node, Task
from atp.states import Reason, State
from atp.words import graph_messages
from tests.app.tasks_graphs import (
    grow_in_transaction,
    grow_wrongly,
    merge,
    noop,
    split,
    split_at_once,
)
from tests.helpers import DEADLINE, wait_for
from tests.nonsense import tells

from .harness import Lines

pytestmark = pytest.mark.django_db(transaction=True)

PARTS = 5


def splitting(type, **inputs):
    """A graph of one that adds nodes, and one that waits for it."""
    with Graph() as g:
        first = g.add(type, inputs=inputs, name="split")
        g.add(merge, after=first, name="merge")
    return g


def ran(path):
    return sorted(line["number"] for line in Lines(path).all() if "number" in line)


def splits(path):
    """The attempts that have added their first parts."""
    return [line["split"] for line in Lines(path).all() if "split" in line]


def parts():
    return Node.objects.exclude(name__in=["split", "merge"])


def last_part():
    return parts().order_by("-instance__finished").first().instance.finished


def test_parts_are_added_and_waited_for(atpd, tmp_path):
    """G17: merge waits for all that its upstream has added."""
    atpd(processes=2)
    path = tmp_path / "ran"
    g = splitting(split, path=str(path), parts=PARTS).wait(DEADLINE)
    assert ran(path) == list(range(2 * PARTS))
    assert g.instance("merge").state == State.FINISHED
    assert g.instance("merge").started >= last_part()
    assert set(parts().values_list("name", flat=True)) == {
        f"split/noop-{number}" for number in range(1, 2 * PARTS + 1)
    }


def test_one_that_is_killed_adds_no_part_twice(atpd, tmp_path):
    """G17: a second attempt finds what the first has added."""
    path, until = tmp_path / "ran", tmp_path / "until"
    g = splitting(split, path=str(path), parts=PARTS, until=str(until))
    daemon = atpd(processes=2)
    wait_for(lambda: splits(path) and len(ran(path)) == PARTS)
    wait_for(lambda: Task.objects.get(instance__node__name="merge").waits == 1)
    for pid in daemon.workers():
        os.kill(pid, signal.SIGKILL)
    # Not of attempt 2 in any case: a claim may be given back before it is started.
    wait_for(lambda: len(splits(path)) > 1, what="a second attempt that adds its first parts")
    until.touch()
    g.wait(DEADLINE)
    assert ran(path) == list(range(2 * PARTS))
    assert parts().count() == 2 * PARTS
    assert g.instance("merge").started >= last_part()


def test_a_transactional_type_adds_with_its_end(atpd, tmp_path):
    """G7, G17."""
    atpd(processes=2)
    path = tmp_path / "ran"
    g = splitting(split_at_once, path=str(path), parts=PARTS).wait(DEADLINE)
    assert ran(path) == list(range(PARTS))
    assert g.instance("merge").started >= last_part()


def test_a_transactional_type_that_fails_adds_nothing(atpd, tmp_path):
    """G7."""
    atpd(processes=1)
    g = splitting(split_at_once, path=str(tmp_path / "ran"), parts=PARTS, broken=True)
    g.wait(DEADLINE)
    assert g.instance("merge").reason == Reason.UPSTREAM
    assert not parts().exists()


@pytest.mark.parametrize(
    ("type", "inputs", "told"),
    [
        (grow_wrongly, {"before": "split"}, "InvalidGraph: before: 'split' does not wait"),
        (grow_wrongly, {"before": "nobody"}, "InvalidGraph: There is no node 'nobody'"),
        (grow_in_transaction, {}, "InvalidGraph: context.graph() is inside a transaction"),
    ],
)
def test_what_cannot_be_added_is_named(atpd, type, inputs, told):
    """G13."""
    atpd(processes=1)
    g = splitting(type, **inputs).wait(DEADLINE)
    assert any(told in record.message for record in g.instance("split").log)
    assert not parts().exists()


def test_what_is_in_no_graph_adds_nothing(atpd):
    """G13."""
    atpd(processes=1)
    instance = grow_wrongly.enqueue(before="merge")
    wait_for(lambda: instance.log.filter(message__contains="in no graph"))


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no locks of rows")
@pytest.mark.parametrize(("type", "added"), [(split, [0, 1]), (split_at_once, [0])])
def test_who_keeps_the_graph_locked_is_told_of(atpd, tmp_path, type, added):
    """G9: the worker waits, and says so in the log."""
    path = tmp_path / "ran"
    g = splitting(type, path=str(path), parts=1)
    with transaction.atomic():
        assert GraphRow.objects.select_for_update().get()
        atpd(processes=1)
        told = graph_messages.addition_waits()
        wait_for(lambda: any(tells(each.message, told) for each in g.instance("split").log))
        assert not parts().exists()
    g.wait(DEADLINE)
    assert ran(path) == added
    assert noop.identifier == parts().first().instance.type.identifier
