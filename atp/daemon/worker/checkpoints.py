"""The checkpoints of steps, and additions to graphs: a worker writes them itself.

It has the handler's own connection, so a step in a transaction is committed with what the
handler has written (G17). They are the second exception, beside the ends of transactional
Types, to the rule that a daemon's dispatcher alone writes to the queue.
"""

import logging
import time
from contextlib import ExitStack, contextmanager
from functools import partial

from django.db import InterfaceError, OperationalError, connections

from ...conf import settings
from ...exceptions import Interrupted, InvalidGraph, StepInTransaction, TaskGone
from ...store import get_store
from ...verbs.registry import registry
from ...words import attempt_messages, graph_messages
from ..system.processes import uptime

# A Task that somebody else has locked is looked at again so soon, and later ever less
# often, in seconds; a database that is away as often as the last.
LOOK_AGAIN, LOOK_SELDOM = 0.01, 0.5
# What waits for longer than this, in seconds, tells so in its log.
TELL_AFTER = 1.0


class Checkpoints:
    """The checkpoints of one worker's attempts. ``who`` signs what is repeated."""

    def __init__(self, who, interruption, page, slot):
        self._who = who
        self._interruption = interruption
        self._page = page
        self._slot = slot
        # Its predecessor in this slot may have died while it wrote one.
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
        """The transaction of a step. It is waited for, and nobody stops the worker in it."""
        store = get_store()
        try:
            with ExitStack() as stack:
                begin = partial(stack.enter_context, store.atomic())
                self._repeat_step(context, name, lambda: begin() or True)
                yield
                with self._interruption.put_off():
                    stack.close()
        finally:
            self._page.write(self._slot, False)

    def extend(self, context, addition):
        """Write what an attempt adds to its graph, and then wait for nobody's transaction."""
        if self.is_in_transaction():
            raise InvalidGraph(
                "context.graph() is inside a transaction, which would keep what is locked for "
                "it. Call it outside; of a transactional Type it is written with the end."
            )
        graphs = get_store().graphs
        self._repeat(
            context,
            lambda: graphs.extend(addition, who=self._who),
            graph_messages.addition_waits,
            graph_messages.addition_refused,
        )

    def _repeat_step(self, context, name, call):
        waits = partial(attempt_messages.step_waits, name)
        refused = partial(attempt_messages.step_refused, name)
        return self._repeat(context, call, waits, refused)

    def _repeat(self, context, call, waits, refused):
        """Return the first answer of ``call()`` that is not false; raises Interrupted.

        A Task that is locked, or a database that is away, does not end the attempt: a function
        may have been called whose result is at hand, and is written when that is possible.
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
        """Be stopped by nobody in the block, or, in a transaction, until that ends."""
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
        """Whether the handler has a transaction open."""
        connection = connections[settings.DATABASE]
        is_manual = connection.connection is not None and not connection.get_autocommit()
        return connection.in_atomic_block or is_manual
