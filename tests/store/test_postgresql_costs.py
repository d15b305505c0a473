"""The statements of PostgreSQL: what each costs, as its file says, and what its variants share."""

import re
from collections import Counter
from contextlib import closing
from datetime import timedelta
from difflib import ndiff
from operator import itemgetter
from pathlib import Path

import pytest
from django.db import connection, transaction

from atp import options
from atp.models import Daemon, Type
from atp.payload.codec import JSON, Payload
from atp.states import Event, Reason
from atp.store import postgresql
from atp.store.values import Failed, ResponseData

from ..helpers import open_transaction
from .graphs import submit
from .hooks import HOOKED, hooked
from .internals import enqueueing, postgresql_records, postgresql_removal, statements
from .world import (
    DAY,
    LEASE,
    ONE,
    SECOND,
    THREE,
    TWO,
    finish_of,
    move_of,
    only_postgresql,
    registration,
    scope,
)

pytestmark = [only_postgresql, pytest.mark.django_db(transaction=True)]

FOLDER = Path(postgresql.__file__).parent / "sql"
MANY = 40
# Half of the nodes that end have another behind them.
COUNTS = {"settle": MANY // 2}
# Tables that grow with the queue: nothing may read one from end to end.
GROWING = {"atp_edge", "atp_inputs", "atp_instance", "atp_logrecord", "atp_node", "atp_response"}
GROWING |= {"atp_step", "atp_task"}


COST = re.compile(
    r"-- Cost of a (Task|Instance|call): (\d+) rows? written, (\d+) locked"
    r"(?:, (\d+) looks? at indexes)?"
)


class Plans:
    """What the server does for each statement: rows written, rows locked, and looks at indexes."""

    def __init__(self, monkeypatch):
        self._names, self.found = {}, {}
        original = statements.statement

        def statement(name, *args):
            made = original(name, *args)
            self._names[made.text] = name
            return made

        for module in (statements, postgresql_records, postgresql_removal):
            monkeypatch.setattr(module, "statement", statement)
        monkeypatch.setattr(statements, "THRESHOLD", float("inf"))

    def __call__(self, execute, sql, params, many, context):
        if name := self._names.get(sql):
            with transaction.atomic():
                execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params, many, context)
                [([plan],)] = context["cursor"].fetchall()
                runs = [*self.found.get(name, ()), _counts(plan["Plan"])]
                self.found[name] = [max(runs, key=itemgetter("written"))]
                transaction.set_rollback(True)
        return execute(sql, params, many, context)


def _counts(node):
    """Return the counts of a node of a plan and all below it, and what was read end to end."""
    counts, below = Counter(), node.get("Plans", ())
    loops = node["Actual Loops"]
    if node["Node Type"] == "ModifyTable":
        [source] = [each for each in below if each["Parent Relationship"] == "Outer"]
        counts["written"] += source["Actual Rows"] * source["Actual Loops"]
    elif node["Node Type"] == "LockRows":
        counts["locked"] += node["Actual Rows"] * loops
    elif "Index" in node["Node Type"]:
        counts["looks"] += loops
    elif node["Node Type"] == "Seq Scan" and loops:
        counts[node["Relation Name"]] += loops
    for each in below:
        counts += _counts(each)
    return counts


def costs_of(path):
    """Return for what a file says the costs, "Task" or "call", and the counts."""
    [line] = [each for each in path.read_text().splitlines() if each.startswith("-- Cost of a ")]
    found = COST.match(line)
    counts = zip(("written", "locked", "looks"), found.groups()[1:], strict=True)
    return found[1], {name: int(count) for name, count in counts if count is not None}


def test_each_statement_costs_what_its_file_says(handing_world, monkeypatch):
    """Nor does it read a table from end to end that grows with the queue."""
    world, plans = handing_world, Plans(monkeypatch)
    monkeypatch.setattr(enqueueing, "APART", float("inf"))
    world.enqueue(3000, type=THREE, due=world.store.now() + DAY)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    host = world.host(ONE, TWO, HOOKED)
    with connection.execute_wrapper(plans):
        _enqueue(world)
        _work_off(world, host)
        _settle_graph(world, host)
        _keep_steps(world, host)
        _hand_over(world, host, monkeypatch)
        _obey_limits(world, host)
        _look_around(world, host)
    files = {path.stem: path for path in FOLDER.glob("*.sql")}
    assert set(plans.found) == set(files)
    for name, [found] in plans.found.items():
        per, said = costs_of(files[name])
        many = 1 if per == "call" else COUNTS.get(name, MANY)
        assert {each: found[each] // many for each in said} == said, name
        assert not GROWING & set(found), name


# What a variant, by its name, says in other words than the statement that it is a variant of.
VARIANTS = {
    ("claim", "claim_careful"): {
        "AND (lock <> '' OR lease_until > clock_timestamp())",
        "FOR KEY SHARE",
    },
    ("enqueue_plain", "enqueue"): (
        columns := {
            "%(uuids)s::uuid[], %(collections)s::text[],",
            "uuid, collection, priority, due, start_before,",
            "id, type_id, uuid, NULL, 'ACCEPTED', '', collection, priority, 0, 0,",
        }
    ),
    ("enqueue_hooks", "enqueue"): columns,
    ("enqueue_one_plain", "enqueue_one"): {
        "id, %(uuid)s::uuid, NULL, 'ACCEPTED', '', %(collection)s::text,"
    },
    ("enqueue_handing_plain", "enqueue_handing"): {
        "type.id, %(uuid)s::uuid, NULL,",
        "%(format)s::text, %(inputs)s::text, NULL, %(collection)s::text,",
        "%(priority)s::int, 0, 0, 0, NULL, json_build_array(",
    },
    ("record_plain", "record"): set(),
    ("finish_plain", "finish"): set(),
}


def lines_of(name):
    lines = [line.strip() for line in (FOLDER / f"{name}.sql").read_text().splitlines()]
    return [line for line in lines if not line.startswith("--")]


@pytest.mark.parametrize(("plain", "full"), VARIANTS)
def test_variants_of_a_statement_differ_only_in_what_they_are_for(plain, full):
    """Each line of the plain one is in the full one too, in this order."""
    found = ndiff(lines_of(plain), lines_of(full))
    assert {line[2:] for line in found if line.startswith("- ")} == VARIANTS[plain, full]


def test_both_statements_that_remove_instances_remove_the_same_rows():
    purge, unkept = ("\n".join(lines_of(name)) for name in ("purge", "finish_unkept"))
    belongings = purge[purge.index("inputs AS (") : purge.rindex("SELECT")]
    assert belongings.count("DELETE FROM") == 4
    assert belongings.partition("SELECT")[0] in unkept


# A dead letter.
FAILED = Failed(1, ONE, b"fingerprint", 1, "ValueError", "wrong")
OWN = options.own_options(timeout=SECOND)


def _enqueue(world):
    for _ in range(2):
        world.enqueue(MANY)
    world.enqueue(MANY, own=OWN)
    world.enqueue()
    world.enqueue(own=OWN)


def _work_off(world, host):
    """Claim and record MANY at once: what finishes, with and without a Response, and what fails."""
    now = world.store.now()
    plain, answering, failing = (host.claim(MANY, types=[ONE]) for _ in range(3))
    host.claim(1, types=[ONE])
    host.record(*[finish_of(world, case) for case in plain])
    response = ResponseData(content_type="text/plain", data=b"5", size=1)
    host.record(*[finish_of(world, case, response=response) for case in answering])
    host.record(*[move_of(case, Event.START, time=now) for case in failing])
    failed = {"reason": Reason.ERROR, "detail": "ValueError", "failed": FAILED}
    host.record(*[move_of(case, Event.FAIL, time=now, **failed) for case in failing])
    world.enqueue(MANY)
    unkept = host.claim(MANY, types=[ONE], careful=True)
    host.record(*[finish_of(world, case, kept=False) for case in unkept])
    world.enqueue(MANY, type=hooked())
    host.record(*[finish_of(world, case) for case in host.claim(MANY, types=[HOOKED])])
    world.store.types.register([registration(ONE, retention=timedelta())])
    world.store.removal.purge(limit=MANY)


def _settle_graph(world, host):
    """A graph of MANY pairs, half of which end at once."""
    pairs = [(f"a{n}", f"b{n}", "finished") for n in range(MANY // 2)]
    nodes = [node for up, down, _ in pairs for node in (up, down)]
    submit(world, nodes, pairs, types=dict.fromkeys(nodes, TWO))
    host.record(*[finish_of(world, case) for case in host.claim(MANY, types=[TWO])])


def _keep_steps(world, host):
    world.enqueue()
    [case] = host.claim(1, types=[ONE])
    world.store.steps.begin(case.instance, case.number, "a")
    world.store.steps.keep(case.instance, case.number, "a", Payload(JSON, "5"))


def _hand_over(world, host, monkeypatch):
    """What has been handed over is no more due, and the next one can be handed over."""
    monkeypatch.setattr(enqueueing, "APART", 0.0)
    for own in (None, OWN):
        with closing(world.store.listener()) as ear:
            ear.wait(0)
            world.store.daemons.renew(host.uuid, lease=LEASE, idle=True, channel=ear.channel)
            world.enqueue(type=HOOKED, own=own)
            assert host.row.idle is False


def _obey_limits(world, host):
    world.enqueue(MANY, type=TWO)
    world.store.control.limit(scope(TWO), max_running=5)
    world.store.control.limit(scope(TWO), max_running_per_collection=2)
    host.claim(MANY, types=[TWO])
    now = world.store.now()
    types = [Type.objects.get(identifier=TWO).pk]
    world.store.gates.due_lanes(types, world.store.gates.closed(now), now, MANY)


def _look_around(world, host):
    world.store.daemons.outlook([ONE, TWO], daemon=host.uuid)
    world.store.inputs.shapes()
    world.store.tell()
    world.store.limit_waiting(0.1)
    with open_transaction(lambda: Daemon.objects.select_for_update().get(uuid=host.uuid)):
        world.store.daemons.renew(host.uuid, lease=LEASE)
