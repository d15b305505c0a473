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
from ..verbs.schedules import get_schedule
from . import asserting
from .draining.drain import Drain, Wishes
from .draining.faults import Fault, Loss, check_loss
from .draining.member import Member
from .draining.nesting import drains
from .draining.process import outbox
from .draining.runs import Run
from .expected import arguments, declared
from .inline import Inline
from .memory import MemoryContext

if TYPE_CHECKING:
    from ..webhooks.sending import Message
    from .daemon import DaemonProcess

# What work() takes beside the arguments of the handler.
_OF_WORK = ("attempt", "raises", "inputs")


class Kit:
    """The testing kit: its methods look at the queue, and run what is enqueued.

    A Type is given as itself, by its identifier, or as a task of ``django.tasks``. A Type that
    no code declares raises UnknownType. The kit is a context manager: its end ends the daemons
    and closes the contexts that it has made.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        # What is known of the queue of the previous test does not hold for this one.
        known.forget()
        # The time that later() has let pass, for schedules.
        self._passed = timedelta(0)

    def __enter__(self) -> Self:
        outbox.clear()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    # What is enqueued

    def enqueued(self, type: Any, /, *args: Any, **given: Any) -> list[Instance]:
        """Return the Instances of a Type with these arguments and options, oldest first.

        They may be in any state, even ended. Raises UnknownType, InvalidInputs or InvalidOption.
        """
        return asserting.find(type, args, given)

    def assert_enqueued(self, type: Any, /, *args: Any, **given: Any) -> Instance:
        """Return the oldest Instance of a Type with these arguments and options.

        ``given`` are arguments of the handler, and the options ``priority``, ``collection``,
        ``identifier``, ``unique``, ``created_by``, ``timeout``, ``max_retries``, ``run_after``
        and ``start_before``. Arguments are compared as the queue carries them, and the defaults
        of the handler count. An argument or option that is not given may have any value. If an
        argument has the name of an option, give the arguments as ``inputs={…}``. Raises
        AssertionError with the nearest Instances if none matches, and UnknownType, InvalidInputs
        or InvalidOption for values that no Instance can have.
        """
        return asserting.assert_enqueued(type, args, given)

    def refute_enqueued(self, type: Any, /, *args: Any, **given: Any) -> None:
        """Raise AssertionError if an Instance matches; the arguments are as in assert_enqueued."""
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
        """Run all due Tasks and those that they enqueue; return a :class:`Run` for each attempt.

        ``types`` are the Types to run, by default all that are declared. Tasks are claimed, run
        and recorded as by a daemon, but one after another, in this process, and in the
        transaction of the test if it has one.

        With ``raises`` the error of a handler is recorded, and then raised as it was. With
        ``retries`` retries run at once, and only the last error is raised. With ``twice`` the
        first attempt of each Instance is lost when its handler has ended, and another follows:
        that is what at-least-once means. With ``lose`` attempts are lost "before" or "after"
        their handler, or at a :class:`Fault`, and their Tasks are left for the next drain.

        Raises EndlessDrain if more than ``most`` attempts are due.
        """
        check_loss(lose)
        if twice and lose is not None:
            raise InvalidOption("drain(): twice= loses each attempt already: leave out lose=.")
        wishes = Wishes(most=most, raises=raises, retries=retries, twice=twice, lose=lose)
        with _draining():
            return self._drain(types, wishes).run()

    def _run_all(self, wishes: Wishes) -> list[Run]:
        with _draining():
            return self._drain((), wishes).run()

    def _drain(self, types: Any, wishes: Wishes) -> Drain:
        served = [declared(type) for type in types] or list(registry)
        names = sorted({name for each in served for name in each.names})
        return Drain(Member(names), wishes)

    def work(self, type: Any, /, *args: Any, **given: Any) -> Run:
        """Enqueue one Instance, run one attempt of it, and return its :class:`Run`.

        ``given`` are arguments of the handler, or ``inputs={…}``; and ``attempt``, the number
        of the attempt (those before it count as retries), and ``raises`` as for :meth:`drain`.
        Nothing else is run, and gates and limits do not apply. But a full queue refuses it, too.
        """
        task_type = declared(type)
        own, said = arguments(task_type, (), given, _OF_WORK)
        attempt, raises = said.get("attempt", 1), said.get("raises", True)
        if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 1:
            raise InvalidOption(f"work(attempt={attempt!r}): must be a whole number from 1.")
        with _draining():
            instance = enqueueing.enqueue(task_type, *args, **own)
            return self._drain([task_type], Wishes(raises=raises)).work(instance.pk, attempt)

    @contextmanager
    def inline(self, *, raises: bool = True) -> Iterator[None]:
        """Drain at each outermost commit inside the block: see :meth:`drain`. All that is due runs.

        Without an open transaction, each enqueue is its own commit. In a TestCase, whose
        transaction is never committed, the end of the outermost ``atomic()`` of the tested code
        counts as the commit. With ``raises`` the end of the block raises an error of a handler;
        the code that enqueues does not see it.
        """
        with Inline(lambda: self._run_all(Wishes(raises=raises, runs_all=True))):
            yield

    @property
    def webhooks(self) -> list[Message]:
        """The webhooks of this test: what runs in its process sends none, but adds them here."""
        return outbox

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
        """Let time pass for the queue: all times that it waits for come that much earlier.

        These are ``run_after``, retries, ``start_before``, sleeps, gates with an end, and rates.
        ``schedules`` are identifiers of schedules: their slots within that time are planned, each
        at its time. Other schedules stand still. No clock is moved: ``now()`` is as before.
        Raises UnknownSchedule.
        """
        time = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if time <= timedelta(0):
            raise InvalidOption(f"later({time}): must be more than nothing.")
        given = [schedules] if isinstance(schedules, str) else schedules
        names = [get_schedule(schedule).identifier for schedule in given]
        store = get_store()
        known.forget()
        store.let_pass(time)
        since = store.now() + self._passed
        self._passed += time
        for name in names:
            store.plan_slots(name, since, since + time, who="a test")

    # Handlers by themselves, and daemons

    def context(self, type: Any = None, /, **given: Any) -> MemoryContext:
        """Return a context for calling a handler directly: see :class:`MemoryContext`.

        ``given`` are ``attempt``, ``identifier``, ``collection``, ``priority``, ``results``,
        ``undoes`` (the output of the node that it undoes) and ``kept``.
        """
        made = MemoryContext(None if type is None else declared(type), **given)
        self._stack.callback(made.close)
        return made

    def daemon(
        self, *args: str, processes: int = 2, modules: tuple[str, ...] = ()
    ) -> DaemonProcess:
        """Start a real atpd on the test's database, and return it when it has joined the queue.

        ``args`` are options of ``manage.py atpd``. The daemon first imports ``modules``, for Types
        that only tests declare. It ends with the test. Raises NotPossible inside a
        transaction, and on a database in memory.
        """
        from .daemon import DaemonProcess

        made = DaemonProcess(*args, processes=processes, modules=modules)
        self._stack.callback(made.destroy)
        made.start()
        return made


@contextmanager
def _draining() -> Iterator[None]:
    """A drain: others wait for its end, and then the number of Tasks that wait is another."""
    with drains.running():
        try:
            yield
        finally:
            known.forget()
