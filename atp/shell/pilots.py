"""The subcommand ``pilots``, which starts daemons as jobs of a batch system."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Count

from ..conf import settings
from ..management.commands import atpd
from ..models import Task
from ..operations.gates import gates
from ..operations.registry import registry
from ..reports import overview
from ..reports.documents import Document
from ..text import is_gate_for, wider_gates
from .base import Subcommand

# How the names of jobs begin, by which the next call finds those that it need not submit again.
NAME = "atp-pilot"
# What a pilot does: it ends when it has found nothing to do for LINGER seconds. Slurm kills a job
# 30 s after its SIGTERM, unless told otherwise, so running tasks get GRACE seconds.
LINGER, GRACE = 120, 15


class Pilots(Subcommand):
    name = "pilots"
    help = (
        "Submit daemons to a batch system, as many as there is work for. Each ends when the queue "
        "is empty. What follows -- goes to sbatch."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("system", choices=["slurm"])
        parser.add_argument(
            "--max", type=int, default=10, metavar="N", help="the most pilots at a time (10)"
        )
        parser.add_argument(
            "--atpd",
            default="",
            metavar="OPTIONS",
            help="options of each atpd, as in \"--processes 4 --type 'dem.*'\"",
        )
        parser.add_argument("--dry-run", action="store_true", help="submit nothing")
        # argparse would take the words after -- for positional arguments that come too late.
        parse = parser.parse_known_args
        parser.parse_known_args = partial(_parse, parse)  # type: ignore[method-assign]

    def run(self, options: dict[str, Any]) -> Document:
        if options["max"] < 1:
            raise CommandError("--max must be 1 or more.")
        words = ["--drain", f"--linger={LINGER}", f"--grace={GRACE}"]
        words += shlex.split(options["atpd"])
        served = atpd.parse(words)
        due = _count_due(served.served(registry))
        name = _name(options["sbatch"], words)
        living = _living_pilots(name)
        # Those that run are busy, or the work would not be due.
        waiting = sum(state == "PENDING" for _, state in living)
        room = options["max"] - len(living)
        missing = max(0, min(room, math.ceil(due / served.processes) - waiting))
        submitted: list[str] = []
        try:
            for _ in range(0 if options["dry_run"] else missing):
                submitted.append(_submit(name, options["sbatch"], words))
        except CommandError as error:
            raise CommandError(f"{error} Submitted before: {len(submitted)}.") from None
        jobs = [job for job, _ in living]
        return {"due": due, "living": jobs, "missing": missing, "submitted": submitted}

    def text(self, document: Document) -> str:
        return (
            f"Due: {document['due']}. Pilots that wait or run: {len(document['living'])}. "
            f"Missing: {document['missing']}. "
            f"Submitted: {', '.join(document['submitted']) or 'none'}."
        )


def _parse(parse: Any, words: Sequence[str], namespace: Any = None) -> Any:
    """Parse the words before --, and keep the others as the options of sbatch."""
    own = list(words)
    end = own.index("--") if "--" in own else len(own)
    namespace, unknown = parse(own[:end], namespace)
    namespace.sbatch = own[end + 1 :]
    return namespace, unknown


def _count_due(types: tuple[str, ...]) -> int:
    """Return the number of Tasks of these Types that a daemon would claim now."""
    now = overview.now()
    due = Task.objects.using(settings.DATABASE).waiting().filter(due_at__lte=now)
    lanes = due.filter(type__identifier__in=types).values_list("type__identifier", "collection")
    shut = gates(now=now)
    return sum(
        count
        for type, collection, count in lanes.annotate(count=Count("pk"))
        if not wider_gates(type, collection, shut)
        and not any(is_gate_for(gate, type, collection) for gate in shut)
    )


def _name(options: list[str], words: list[str]) -> str:
    """Return a name for pilots of this project that are alike."""
    facts = repr((settings.DATABASE, os.getcwd(), options, words))
    return f"{NAME}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


def _living_pilots(name: str) -> list[list[str]]:
    """Return the jobs that wait or run, each with its number and its state."""
    listed = _call("squeue", "--me", "--noheader", f"--name={name}", "--format=%i %T")
    return [line.split() for line in listed.splitlines()]


def _submit(name: str, options: list[str], words: list[str]) -> str:
    """Submit a pilot; return the number of its job."""
    daemon = [sys.executable, os.path.abspath(sys.argv[0]), "atpd", *words]
    # The job's shell becomes the daemon, which so gets the signals of the batch system.
    wrapped = f"--wrap=exec {shlex.join(daemon)}"
    said = _call("sbatch", "--parsable", f"--job-name={name}", *options, wrapped)
    return said.strip().partition(";")[0]


def _call(*command: str) -> str:
    """Return what a program prints. Raises CommandError with what it says if it fails."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CommandError(f"There is no {command[0]} on PATH; Slurm has it.") from None
    if ended.returncode:
        said = re.sub(r"\s+", " ", ended.stderr).strip()
        raise CommandError(f"{command[0]} failed: {said or f'status {ended.returncode}'}.")
    return ended.stdout
