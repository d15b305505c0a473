"""A graph is written as a whole or not at all, whatever dies when (G1, G7)."""

import signal
import subprocess
import sys

from atp.models import Edge, Graph, Instance, LogRecord, Node, Task

from ..helpers import DEADLINE, child_environment

# More than are written by one statement.
NODES = [f"node-{number}" for number in range(2500)]
EDGES = [("node-0", node, "finished") for node in NODES[1:]]
# What is written last.
LAST = "INSERT INTO atp_edge"

_PROCESS = """
import os, signal

import django

django.setup()
from django.db import connection
from atp.store import get_store
from tests.store.test_graphs_killed import EDGES, LAST, NODES
from tests.store.graphs import plan

def die(execute, sql, params, many, context):
    done = execute(sql, params, many, context)
    if LAST in sql:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

with connection.execute_wrapper(die):
    get_store().graphs.submit(plan(NODES, EDGES))
"""


def test_a_process_that_is_killed_halfway_leaves_nothing(transactional_db):
    process = subprocess.run(
        [sys.executable, "-c", _PROCESS], env=child_environment(), timeout=2 * DEADLINE, check=False
    )
    assert process.returncode == -signal.SIGKILL
    for model in (Graph, Node, Edge, Instance, Task):
        assert not model.objects.exists(), model
    assert not LogRecord.objects.filter(instance__isnull=False).exists()
