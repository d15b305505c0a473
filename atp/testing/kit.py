"""Kit: the testing kit as one object, the fixture ``atp`` and ``self.atp`` of a TestCase."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from ..exceptions import InvalidOption
from ..models import Instance
from ..store import get_store
from ..verbs import enqueueing
from ..verbs.overload import known
from ..verbs.registry import registry
from . import asserting
from .draining.drain import Drain, Wishes
from .draining.faults import Fault, Loss, check_loss
from .draining.member import Member
from .draining.runs import Run
from .expected import arguments, declared
from .inline import Inline
from .memory import MemoryContext

if TYPE_CHECKING:
    from .daemon import DaemonProcess

# What work() takes beside the arguments of the handler.
_OF_WORK = ("attempt", "raises", "inputs")


class Kit:
    """What a test asks of the queue, and how it runs what is enqueued.

    A Type is given as itself, by its identifier, or as a task of ``django.tasks``; one that no
    code declares raises UnknownType. Entered as a context it ends what it has begun.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        # The queue of the test before is not that of this one.
        known.forget()
        # The time that was let pass, for schedules.
        self._passed = timedelta(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    # What is enqueued

    def enqueued(self, type: Any, /, *args: Any, **given: Any) -> list[Instance]:
        """Return the Instances of a Type with these arguments and options, oldest first.

        In any state: what has ended too. Raises as :meth:`assert_enqueued` for what is unknown.
        """
        return asserting.find(type, args, given)

    def assert_enqueued(self, type: Any, /, *args: Any, **given: Any) -> Instance:
        """Return the oldest Instance of a Type with these arguments and options.

        ``given`` are arguments of the handler, compared as the queue carries them, its defaults
        among them; and options: ``priority``, ``collection``, ``identifier``, ``unique``,
        ``created_by``, ``timeout``, ``max_retries``, ``run_after`` and ``start_before``. What
        is not named may be anything. Where an argument is called as an option, ``inputs={…}``
        has the arguments. Raises AssertionError, which shows the nearest that there are, and
        UnknownType, InvalidInputs or InvalidOption for what cannot be.
        """
        return asserting.assert_enqueued(type, args, given)

    def refute_enqueued(self, type: Any, /, *args: Any, **given: Any) -> None:
        """Raise AssertionError if there is such an Instance, and as :meth:`assert_enqueued`."""
        asserting.refute_enqueued(type, args, given)

    # Running it

    def drain(
        self,
        *types: Any,
        most: int = 1000,
        raises: bool = True,
        retries: bool = False,
        twice: bool = False,
        lose: Loss | Fault | None = None,
    ) -> list[Run]:
        """Run all that is due, and what it enqueues; returns a :class:`Run` for each attempt.

        Of these Types, or else of all that are declared. It is claimed, run and recorded as by
        a daemon, one after another, in this process and in the transaction of the test, if it
        has one.

        With ``raises`` an error of a handler is raised as it was, when it is recorded. With
        ``retries`` retries are not waited for, and only the last error is raised. With
        ``twice`` each attempt is lost when its handler has ended, and there is another: what
        at-least-once means. With ``lose`` what is due is lost before or after its handler, or
        at a :class:`Fault`, and is left for the next drain.

        Raises EndlessDrain if more than ``most`` attempts are due.
        """
        check_loss(lose)
        if twice and lose is not None:
            raise InvalidOption("drain(): twice= loses each attempt already: leave out lose=.")
        wishes = Wishes(most=most, raises=raises, retries=retries, twice=twice, lose=lose)
        return self._drain(types, wishes).run()

    def _drain(self, types: Any, wishes: Wishes) -> Drain:
        served = [declared(type) for type in types] or list(registry)
        names = sorted(each.identifier for each in served)
        return Drain(Member(names), wishes)

    def work(self, type: Any, /, *args: Any, **given: Any) -> Run:
        """Enqueue one Instance, run one attempt of it, and return what came of that.

        ``given`` are arguments of the handler, or ``inputs={…}``; and ``attempt``, the number
        of the attempt (those before it count as retries), and ``raises`` as for :meth:`drain`.
        Nothing else is run, and no gate or limit is asked.
        """
        task_type = declared(type)
        own, said = arguments(task_type, (), given, _OF_WORK)
        attempt, raises = said.get("attempt", 1), said.get("raises", True)
        if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 1:
            raise InvalidOption(f"work(attempt={attempt!r}): must be a whole number from 1.")
        instance = enqueueing.enqueue(task_type, *args, **own)
        return self._drain([task_type], Wishes(raises=raises)).work(instance.pk, attempt)

    @contextmanager
    def inline(self, *, raises: bool = True) -> Iterator[None]:
        """Run what is enqueued in the block at the outermost commit, as :meth:`drain` does.

        Where no transaction is open, that is at once; in a TestCase, whose transaction is never
        committed, at the end of the outermost ``atomic()`` of the code that is tested. An error
        of a handler reaches the end of the block, if it ``raises``, and not the code that
        enqueues.
        """
        with Inline(lambda: self.drain(raises=raises)):
            yield

    # Time

    def later(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        schedules: Iterable[str] = (),
    ) -> None:
        """Let time pass for the queue: what waits for a time is due earlier by that.

        That is ``run_after``, retries, ``start_before``, sleeps, gates with an end, and rates.
        The slots of these ``schedules``, by their identifiers, that come meanwhile are planned,
        each in its time; all others stand still. No clock is moved: ``now()`` is as before.
        Raises UnknownSchedule.
        """
        time = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if time <= timedelta(0):
            raise InvalidOption(f"later({time}): must be more than nothing.")
        store = get_store()
        store.let_pass(time)
        since = store.now() + self._passed
        self._passed += time
        for schedule in [schedules] if isinstance(schedules, str) else schedules:
            store.plan_slots(schedule, since, since + time, who="a test")

    # Handlers by themselves, and daemons

    def context(self, type: Any = None, /, **given: Any) -> MemoryContext:
        """Return a context for a call of a handler by itself: see :class:`MemoryContext`.

        ``given`` are ``attempt``, ``identifier``, ``collection``, ``priority``, ``results`` and
        ``kept``.
        """
        made = MemoryContext(None if type is None else declared(type), **given)
        self._stack.callback(made.close)
        return made

    def daemon(
        self, *args: str, processes: int = 2, modules: tuple[str, ...] = ()
    ) -> DaemonProcess:
        """Start a real atpd on the test's database, and return it when it has joined the queue.

        ``args`` are options of ``manage.py atpd``; ``modules`` are imported first, for Types
        that only tests declare. It ends with the test. Raises NotPossible inside a
        transaction, and on a database in memory.
        """
        from .daemon import DaemonProcess

        made = DaemonProcess(*args, processes=processes, modules=modules)
        self._stack.callback(made.destroy)
        made.start()
        return made
