"""Checkpoints of steps, transactions of handlers, additions to graphs: a worker writes them itself.

The worker uses the handler's connection, so a step in a transaction is committed together with
the handler's writes (G17). Normally only a daemon's dispatcher writes to the queue. These
writes are one exception; the ends of transactional Types are the other.
"""

import logging
import os
import time
from contextlib import ExitStack, contextmanager
from functools import partial

from django.db import InterfaceError, OperationalError, connections

from ... import messages
from ...conf import settings
from ...exceptions import Interrupted, InvalidGraph, StepInTransaction, TaskGone
from ...operations.registry import registry
from ...store import get_store
from ..system.processes import uptime

# If another session has locked the Task, the worker tries again after LOOK_AGAIN seconds, then
# after ever longer pauses, up to LOOK_SELDOM. If the database is down, it pauses LOOK_SELDOM.
LOOK_AGAIN, LOOK_SELDOM = 0.01, 0.5
# An attempt that waits for longer than this, in seconds, writes that into its log.
TELL_AFTER = 1.0


@contextmanager
def end_in_forks():
    """End a fork that the handler makes in this block, so that it ends no transaction.

    A fork has the same connection: its commit or rollback would be that of its parent.
    """
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(0)


class Checkpoints:
    """The checkpoints of one worker's attempts. ``who`` is the worker's name in log records."""

    def __init__(self, who, interruption, page, slot):
        self._who = who
        self._interruption = interruption
        self._page = page
        self._slot = slot
        # The previous worker of this slot may have died while it wrote a checkpoint.
        page.write(slot, False)

    def format(self, context):
        return registry.get(context.type).serializer

    def find(self, context, name):
        self._refuse_in_transaction(name)
        if context.attempt == 1:
            return None
        steps, instance = get_store().steps, context.key[0]
        return self._repeat_step(context, name, lambda: (steps.find(instance, name),))[0]

    def begin(self, context, name, delay=None):
        self._refuse_in_transaction(name)
        steps, key = get_store().steps, context.key
        return self._repeat_step(
            context, name, lambda: steps.begin(*key, name, who=self._who, delay=delay)
        )

    def keep(self, context, name, payload, took=None):
        steps, key = get_store().steps, context.key
        self._repeat_step(context, name, lambda: steps.keep(*key, name, payload, took=took))

    @contextmanager
    def transaction(self, context, name):
        """Run the block in the transaction of a step; nobody stops the worker during it.

        If the Task is locked or the database is down, wait before the transaction begins.
        """
        with self._block(context, f"the checkpoint of step {name}"):
            yield

    @contextmanager
    def fenced(self, context):
        """Run the block in a transaction whose last statement locks the Task of the attempt."""
        if self.is_in_transaction():
            raise StepInTransaction(
                "context.transaction() is inside another transaction, with which it would be "
                "rolled back. Call it outside; a transactional Type has one for its whole handler."
            )
        what = "a transaction of the handler"
        with self._block(context, what):
            yield
            steps, key = get_store().steps, context.key
            self._repeat_write(context, what, lambda: steps.hold(*key))

    @contextmanager
    def _block(self, context, what):
        store = get_store()
        try:
            with ExitStack() as stack:
                # Each try needs a context manager of its own.
                self._repeat_write(
                    context, what, lambda: stack.enter_context(store.atomic()) or True
                )
                with end_in_forks():
                    yield
                with self._interruption.put_off():
                    stack.close()
        finally:
            self._page.write(self._slot, False)

    def extend(self, context, addition):
        """Write an attempt's addition to its graph. Raises InvalidGraph inside a transaction."""
        if self.is_in_transaction():
            raise InvalidGraph(
                "context.graph() is inside a transaction, which would keep what is locked for "
                "it. Call it outside; of a transactional Type it is written with the end."
            )
        graphs = get_store().graphs
        self._repeat(
            context,
            lambda: graphs.extend(addition, who=self._who),
            messages.addition_waits,
            messages.addition_refused,
        )

    def _repeat_step(self, context, name, call):
        return self._repeat_write(context, f"the checkpoint of step {name}", call)

    def _repeat_write(self, context, what, call):
        waits = partial(messages.write_waits, what)
        refused = partial(messages.write_refused, what)
        return self._repeat(context, call, waits, refused)

    def _repeat(self, context, call, waits, refused):
        """Repeat ``call()`` until its answer is true, and return that. Raises Interrupted.

        A locked Task, or a database that is down, does not end the attempt: the result of a
        step may be at hand, and is written as soon as that is possible.
        """
        connection = connections[settings.DATABASE]
        began, pause, is_told = uptime(), LOOK_AGAIN, False
        while True:
            try:
                with self._interruption.put_off(), self._unstopped(connection):
                    answer = call()
                if answer:
                    return answer
                why = ""
            except TaskGone:
                raise Interrupted(refused()) from None
            except (OperationalError, InterfaceError) as error:
                waited = uptime() - began
                if connection.in_atomic_block or waited > settings.LEASE:
                    raise
                connection.close_if_unusable_or_obsolete()
                why, pause = " ".join(str(error).split()), LOOK_SELDOM
            if uptime() - began > TELL_AFTER and not is_told:
                is_told = True
                context.log(waits(why), logging.WARNING)
            context.end_if_asked()
            time.sleep(pause)
            pause = min(2 * pause, LOOK_SELDOM)

    @contextmanager
    def _unstopped(self, connection):
        """Forbid the supervisor to stop the worker in the block, or until its transaction ends."""
        self._page.write(self._slot, True)
        is_written = False
        try:
            yield
            is_written = True
        finally:
            if not (is_written and connection.in_atomic_block):
                self._page.write(self._slot, False)

    def _refuse_in_transaction(self, name):
        if self.is_in_transaction():
            raise StepInTransaction(
                f"Step {name!r} is inside a transaction: its checkpoint would be rolled back with "
                "that. Call it outside, or make the step the transaction: step_in_transaction()."
            )

    def is_in_transaction(self):
        """Tell whether the handler has a transaction open."""
        connection = connections[settings.DATABASE]
        is_manual = connection.connection is not None and not connection.get_autocommit()
        return connection.in_atomic_block or is_manual
