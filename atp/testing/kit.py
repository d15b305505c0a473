"""The fixture `atp` and QueueMixin: assertions, drain, what a test expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from ..conf import settings
from ..exceptions import ATPError, InvalidInputs, InvalidOption
from ..graphs.placeholders import comparable
from ..models import BLOCKED, Inputs, Instance, Task
from ..operations import admission, enqueueing
from ..operations.registry import Declaration, registry
from ..options import Options, instant
from ..payload import binding, codec
from ..payload.binding import masked
from ..schedules.operations import get_schedule
from ..store import get_store
from ..text import did_you_mean, seconds
from .attempt import Fault, Loss, Member, check_loss, outbox
from .draining import Drain, Inline, Run, Wishes, drains
from .memory import MemoryContext

if TYPE_CHECKING:
    from ..webhooks import Message
    from .daemon import DaemonProcess


# The Instance that a test expects: a Type, arguments and options; and how others differ.

# The options that steer the enqueue, and are not stored.
_OF_ENQUEUE = ("existing", "on_full", "delay_tolerance", "exact", "on_finished", "on_failed")
# The options that a test can compare.
OPTIONS = tuple(field.name for field in fields(Options) if field.name not in _OF_ENQUEUE)
_TIMES = ("run_after", "start_before")
# A delay counts from the check of the options, which is a moment before the Instance's creation.
_MOMENT = timedelta(seconds=10)


def declared(type: Any) -> Declaration:
    """Return the declared Type for a Type, an identifier, or a task of ``django.tasks``.

    It has the options of ``using()``. Raises UnknownType.
    """
    found = registry.get(str(getattr(type, "module_path", type)))
    return registry.read(type) or found


def _set_by_using(given: Any, type: Declaration) -> dict[str, Any]:
    """Return the comparable options of a Type that differ from those it was declared with."""
    declared_as = registry.get(type.identifier)
    if not isinstance(given, (Declaration, str)):
        from ..backend import task

        own = task.find(type.identifier)
        if own is not None:
            declared_as = registry.read(own.task) or declared_as
    found = {name: getattr(type.options, name) for name in OPTIONS}
    return {n: v for n, v in found.items() if v != getattr(declared_as.options, n)}


def arguments(
    type: Declaration, args: Sequence[Any], given: Mapping[str, Any], known: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide given values into arguments of the handler, by name, and values in ``known``.

    ``inputs`` has arguments, too. With it, a name that could be both is one in ``known``.
    Raises InvalidInputs for a name that is neither, and without ``inputs`` for one that is both.
    """
    signature = type.signature
    parameters = signature.parameters
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    own, others = {}, {}
    for name, value in given.items():
        if name in parameters and name in known and "inputs" not in given:
            raise InvalidInputs(
                f"{name!r} is an argument of {type} and means something here too: give the "
                "arguments as inputs={…}.",
                argument=name,
            )
        if name in known:
            others[name] = value
        elif name in parameters or is_open:
            own[name] = value
        else:
            raise InvalidInputs(
                f"{type} has no argument {name!r}, and there is no option of this name."
                f"{did_you_mean(name, [*parameters, *known])}",
                argument=name,
            )
    inputs = others.pop("inputs", None) or {}
    if not isinstance(inputs, Mapping):
        raise InvalidInputs(f"inputs={inputs!r}: must be a mapping of arguments by name.")
    own |= inputs
    try:
        bound = signature.bind_partial(*args, **own)
    except TypeError as error:
        raise InvalidInputs(f"{type}{signature}: {error}.") from None
    return named(bound.arguments, signature), others


def named(arguments: Mapping[str, Any], signature: Any) -> dict[str, Any]:
    """Return bound arguments by name, including those that ``**values`` takes."""
    found = dict(arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= found.pop(name, {})
    return found


@dataclass(frozen=True)
class Expected:
    """A Type, with the arguments and options that a test expects of an Instance, by name."""

    type: Declaration
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> Expected:
        """Return the expectation in a test's values.

        Raises UnknownType, InvalidInputs or InvalidOption.
        """
        found = declared(type)
        own, options = arguments(found, args, given, (*OPTIONS, "inputs"))
        options = _set_by_using(type, found) | options
        _check_options(options)
        return cls(found, own, options)

    def __str__(self) -> str:
        own = masked(dict(self.arguments), self.type.sensitive)
        told = [f"{name}={value!r}" for name, value in (own | self.options).items()]
        return f"{self.type}({', '.join(told)})"

    def differences(self, instance: Instance, inputs: Inputs, task: Task | None) -> list[str]:
        """Return a line for each argument or option of an Instance that differs."""
        try:
            there = given_to(self.type, inputs)
        except ATPError as error:
            return [f"its inputs cannot be read: {error}"]
        lines = []
        shown = masked(dict(self.arguments), self.type.sensitive)
        for name, wanted in self.arguments.items():
            if name not in there:
                lines.append(f"{name} is not given, expected {shown[name]!r}")
            elif _is_same(there[name], wanted):
                continue
            elif name in self.type.sensitive:
                lines.append(f"{name} is another, and sensitive")
            else:
                lines.append(f"{name}={there[name]!r}, expected {wanted!r}")
        for name, wanted in self.options.items():
            value = _option(instance, task, name)
            if not _is_option(instance, name, value, wanted):
                lines.append(f"{name}={_shown(value)}, expected {_shown(wanted)}")
        return lines


def given_to(type: Declaration, inputs: Inputs) -> dict[str, Any]:
    """Return the arguments that a handler will get, by name, including its defaults."""
    args, kwargs = binding.unbind(inputs.value)
    bound = type.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return named(bound.arguments, type.signature)


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidOption for a value that no option could have."""
    plain = {name: value for name, value in options.items() if name not in _TIMES}
    Options(**plain)
    for name in _TIMES:
        instant(name, options.get(name), _now)


def _now() -> datetime:
    return datetime.now(UTC)


def _is_same(there: Any, wanted: Any) -> bool:
    """Whether a stored value equals the wanted one, as that is or as the queue would carry it."""
    wanted, there = comparable(wanted), comparable(there)
    if bool(wanted == there):
        return True
    # The values of ``*args`` are a tuple here; the queue carries a list.
    there = list(there) if isinstance(there, tuple) else there
    try:
        return bool(codec.decode(codec.encode(wanted, what="It")) == there)
    except (ATPError, TypeError):
        return False


def _option(instance: Instance, task: Task | None, name: str) -> Any:
    if name == "run_after":
        return task.due_at if task and task.due_at != BLOCKED else None
    if name == "timeout":
        return instance.timeout
    return getattr(instance, name)


def _is_option(instance: Instance, name: str, there: Any, wanted: Any) -> bool:
    if name == "timeout":
        return bool(there == (None if wanted is None else seconds(wanted)))
    if name not in _TIMES:
        return bool(there == wanted)
    if name == "run_after" and wanted is None:
        return there is None or there <= instance.created
    if there is None or wanted is None:
        return there is wanted
    if isinstance(wanted, (int, float)):
        wanted = timedelta(seconds=wanted)
    if isinstance(wanted, timedelta):
        return -_MOMENT <= there - instance.created - wanted <= timedelta(0)
    return bool(there == instant(name, wanted))


def _shown(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def rows_of(type: Declaration) -> list[tuple[Instance, Inputs, Task | None]]:
    """Return all Instances of a Type, oldest first, each with its Inputs and its Task or None."""
    alias = settings.DATABASE
    own = Instance.objects.using(alias).filter(type__identifier__in=type.names)
    instances = list(own.select_related("type").order_by("pk"))
    keys = {"instance__type__identifier__in": type.names}
    inputs = {row.pk: row for row in Inputs.objects.using(alias).filter(**keys)}
    tasks = {row.pk: row for row in Task.objects.using(alias).filter(**keys)}
    return [(each, inputs[each.pk], tasks.get(each.pk)) for each in instances]


# Assertions about enqueued Instances. The message of a failure shows the nearest ones.

# A message shows this many of the nearest Instances.
NEAREST = 3


def find(type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> list[Instance]:
    """Return the Instances that match, oldest first."""
    expected = Expected.of(type, args, given)
    rows = rows_of(expected.type)
    return [row[0] for row in rows if not expected.differences(*row)]


def assert_enqueued(type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> Instance:
    """Return the oldest Instance that matches. Raises AssertionError if none does."""
    expected = Expected.of(type, args, given)
    rows = rows_of(expected.type)
    near = []
    for row in rows:
        differences = expected.differences(*row)
        if not differences:
            return row[0]
        near.append((differences, row[0]))
    raise AssertionError("\n".join(_told(expected, near)))


def refute_enqueued(type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> None:
    """Raise AssertionError if an Instance matches."""
    expected = Expected.of(type, args, given)
    found = [row for row in rows_of(expected.type) if not expected.differences(*row)]
    if found:
        lines = [f"{expected} is enqueued, {len(found)} times:"]
        for instance, inputs, _ in found[:NEAREST]:
            shown = masked(given_to(expected.type, inputs), expected.type.sensitive)
            lines.append(f"  {instance.uuid} {instance.state}: {shown!r}")
        raise AssertionError("\n".join(lines))


def _told(expected: Expected, near: list[tuple[list[str], Instance]]) -> list[str]:
    lines = [f"{expected} is not enqueued."]
    if not near:
        of_type = Instance.objects.using(settings.DATABASE).values_list("type__identifier")
        others = Counter(name for (name,) in of_type)
        told = ", ".join(f"{count} × {name}" for name, count in sorted(others.items()))
        return [*lines, f"Nothing of this Type is. There is: {told or 'nothing at all'}."]
    near.sort(key=lambda each: len(each[0]))
    lines.append(f"The nearest of {len(near)}:")
    for differences, instance in near[:NEAREST]:
        lines.append(f"  {instance.uuid} {instance.state}")
        lines += [f"    {line}" for line in differences]
    return lines


# Kit: the testing kit as one object, the fixture ``atp`` and ``self.atp`` of a TestCase.

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
        admission.forget()
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
        return find(type, args, given)

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
        return assert_enqueued(type, args, given)

    def refute_enqueued(self, type: Any, /, *args: Any, **given: Any) -> None:
        """Raise AssertionError if an Instance matches; the arguments are as in assert_enqueued."""
        refute_enqueued(type, args, given)

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
        admission.forget()
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
            admission.forget()


# QueueMixin: the testing kit for Django's TestCase and TransactionTestCase.


class QueueMixin:
    """Gives each test of a TestCase, or a TransactionTestCase, a testing kit: ``self.atp``."""

    atp: Kit

    def setUp(self) -> None:
        super().setUp()  # type: ignore[misc]
        case: Any = self
        self.atp = case.enterContext(Kit())
