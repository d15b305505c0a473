"""Pilots: daemons that a batch system starts where there is work for them."""

import json
import os
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command

from atp import queue
from atp.models import Instance
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, child_environment, manage, shell, wait_for

from .slurm import MAY_RUN, PROGRAMS, slurm

TASKS = 10


@pytest.mark.long
@pytest.mark.skipif(not MAY_RUN, reason=f"needs root and the programs {', '.join(PROGRAMS)}")
def test_two_pilots_drain_a_queue_and_a_cancelled_one_charges_nothing(
    transactional_db, tmp_path, record, flag
):
    with slurm() as configuration:
        queue.register_all()
        inputs = {"path": str(record), "until": str(flag)}
        types.wait.enqueue_many(inputs | {"number": number} for number in range(TASKS))
        own = child_environment(SLURM_CONF=str(configuration))

        def call(*words):
            done = subprocess.run(words, env=own, capture_output=True, text=True, check=True)
            return done.stdout

        def submit():
            words = ["--max", "2", "--atpd", "--processes 1 --type daemon.wait --linger 1"]
            options = [f"--output={tmp_path}/%j.out"]
            return json.loads(
                call(*manage("atp", "pilots", "slurm", "--json", *words, "--", *options))
            )

        first = submit()
        assert (first["due"], first["missing"], len(first["submitted"])) == (TASKS, 2, 2)
        assert submit()["missing"] == 0
        record.wait_for("start", 2)
        call("scancel", first["submitted"][0])
        jobs = ["squeue", "--noheader", "--format=%i"]
        wait_for(lambda: len(call(*jobs).split()) == 1, what="the end of the first")
        flag.touch()
        wait_for(lambda: call(*jobs).split() == [], 2 * DEADLINE, what="the end of the second")
        assert submit()["due"] == 0
    ended = Instance.objects.values_list("state", "restarts", "retries")
    assert set(ended) == {(State.FINISHED, 0, 0)}
    assert sorted(line["number"] for line in record.lines("end")) == list(range(TASKS))


def test_closed_gates_and_types_of_executors_want_no_pilots(db, tmp_path, monkeypatch):
    """Without a job, ``squeue`` prints nothing."""
    queue.register_all()
    (tmp_path / "squeue").write_text("#!/bin/sh\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    types.noop.enqueue_many({} for _ in range(9))
    words = ["pilots", "slurm", "--dry-run", "--json", "--atpd", "--processes 4"]
    found = json.loads(shell(*words))
    assert (found["due"], found["missing"], found["submitted"]) == (9, 3, [])
    queue.hold(types.noop, by="me")
    assert json.loads(shell(*words))["due"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--atpd", "--processes none"], "'none' must be a whole number"),
        (["--atpd", "--linger 5 --label x"], "'x' is no label"),
        (["--max", "0"], "--max must be 1 or more"),
        ([], "There is no squeue on PATH"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_submitted(db, monkeypatch, words, said):
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    with pytest.raises(CommandError, match=said):
        shell("pilots", "slurm", *words)


def test_linger_without_drain_is_refused():
    with pytest.raises(CommandError, match="--linger is for --drain"):
        call_command("atpd", "--linger", "5")
