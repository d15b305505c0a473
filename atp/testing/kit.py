"""The testing kit, which tests use as the pytest fixture ``atp`` or through QueueMixin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from ..conf import settings
from ..exceptions import ATPError, InvalidInputs, InvalidOption
from ..graphs.placeholders import comparable_inputs
from ..models import BLOCKED, Inputs, Instance, Task
from ..operations import admission, enqueueing
from ..operations.registry import Declaration, registry
from ..options import Options, resolve_time
from ..payload import binding, codec
from ..payload.binding import mask_inputs
from ..schedules.operations import get_schedule
from ..store import get_store
from ..text import as_timedelta, did_you_mean
from .attempt import Fault, InProcessDaemon, Loss, check_loss, outbox
from .draining import Drain, DrainOptions, Inline, Run, drains
from .memory import MemoryContext, MemoryLoopContext

if TYPE_CHECKING:
    from ..webhooks import Message
    from .daemon import DaemonProcess


# The options that control the enqueue, and that the queue does not store.
_NOT_COMPARED = ("existing", "on_full", "delay_tolerance", "exact", "on_finished", "on_failed")
# The options that a test can compare.
OPTIONS = tuple(field.name for field in fields(Options) if field.name not in _NOT_COMPARED)
_TIMES = ("run_after", "start_before")
# A delay counts from the check of the options, slightly before the Instance is created.
_TOLERANCE = timedelta(seconds=10)
# The options of work(), in addition to the handler's arguments.
_WORK_OPTIONS = ("attempt", "raises", "inputs")
# A failed assertion shows this many of the nearest Instances.
NEAREST = 3


# What a test expects of an Instance, and how an Instance differs from that.


def find_declaration(type: Any) -> Declaration:
    """Return the declared Type for a Type, an identifier, or a task of ``django.tasks``.

    The returned Type has the options that the caller set with ``using()``. Raises UnknownType.
    """
    declaration = registry.get(str(getattr(type, "module_path", type)))
    return registry.read(type) or declaration


def _options_set_by_using(given: Any, type: Declaration) -> dict[str, Any]:
    """Return the options that a test set with ``using()``, if the test can compare them."""
    declared_as = registry.get(type.identifier)
    if not isinstance(given, (Declaration, str)):
        from ..backend import task

        own = task.find(type.identifier)
        if own is not None:
            declared_as = registry.read(own.task) or declared_as
    options = {name: getattr(type.options, name) for name in OPTIONS}
    return {n: v for n, v in options.items() if v != getattr(declared_as.options, n)}


def split_arguments(
    type: Declaration, args: Sequence[Any], given: Mapping[str, Any], known: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the keyword arguments of a test into handler arguments and options, both by name.

    ``known`` lists the names of the options. The option ``inputs`` contains more handler arguments.
    If it is present, every name in ``known`` is an option. Raises InvalidInputs for a name that is
    neither, and for a name that could be both if ``inputs`` is absent.
    """
    signature = type.signature
    parameters = signature.parameters
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    own, others = {}, {}
    for name, value in given.items():
        if name in parameters and name in known and "inputs" not in given:
            raise InvalidInputs(
                f"{name!r} is both an argument of {type} and an option of this method. Pass the "
                "handler's arguments as inputs={…}.",
                argument=name,
            )
        if name in known:
            others[name] = value
        elif name in parameters or is_open:
            own[name] = value
        else:
            raise InvalidInputs(
                f"{type} has no argument {name!r}, and this method has no such option."
                f"{did_you_mean(name, [*parameters, *known])}",
                argument=name,
            )
    inputs = others.pop("inputs", None) or {}
    if not isinstance(inputs, Mapping):
        raise InvalidInputs(f"inputs={inputs!r}: must be a mapping with the arguments by name.")
    own |= inputs
    try:
        bound = signature.bind_partial(*args, **own)
    except TypeError as error:
        raise InvalidInputs(f"The arguments do not match {type}{signature}: {error}.") from None
    return arguments_by_name(bound.arguments, signature), others


def arguments_by_name(arguments: Mapping[str, Any], signature: Any) -> dict[str, Any]:
    """Return bound arguments by name, including those that ``**values`` collects."""
    by_name = dict(arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            by_name |= by_name.pop(name, {})
    return by_name


@dataclass(frozen=True)
class Expected:
    """The Type, arguments and options that a test expects an Instance to have.

    ``arguments`` and ``options`` map names to values.
    """

    type: Declaration
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> Expected:
        """Return the expectation for the arguments that a test passed to an assertion.

        Raises UnknownType, InvalidInputs or InvalidOption.
        """
        declaration = find_declaration(type)
        inputs, options = split_arguments(declaration, args, given, (*OPTIONS, "inputs"))
        options = _options_set_by_using(type, declaration) | options
        _check_options(options)
        return cls(declaration, inputs, options)

    def __str__(self) -> str:
        values = mask_inputs(dict(self.arguments), self.type.sensitive) | self.options
        return f"{self.type}({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def differences(self, instance: Instance, inputs: Inputs, task: Task | None) -> list[str]:
        """Return a line of text for each argument or option that is not as expected."""
        try:
            actual = read_arguments(self.type, inputs)
        except ATPError as error:
            return [f"inputs cannot be read: {error}"]
        lines = []
        masked_values = mask_inputs(dict(self.arguments), self.type.sensitive)
        for name, wanted in self.arguments.items():
            if name not in actual:
                lines.append(f"{name} is missing, expected {masked_values[name]!r}")
            elif _is_value_equal(actual[name], wanted):
                continue
            elif name in self.type.sensitive:
                lines.append(f"{name} differs, but is hidden because it is sensitive")
            else:
                lines.append(f"{name}={actual[name]!r}, expected {wanted!r}")
        for name, wanted in self.options.items():
            value = _read_option(instance, task, name)
            if not _is_option_equal(instance, name, value, wanted):
                lines.append(f"{name}={_describe_value(value)}, expected {_describe_value(wanted)}")
        return lines


def read_arguments(type: Declaration, inputs: Inputs) -> dict[str, Any]:
    """Return the arguments that a handler receives, by name, including its defaults."""
    args, kwargs = binding.unbind(inputs.value)
    bound = type.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return arguments_by_name(bound.arguments, type.signature)


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidOption if an option has an invalid value."""
    plain = {name: value for name, value in options.items() if name not in _TIMES}
    Options(**plain)
    for name in _TIMES:
        resolve_time(name, options.get(name), _now)


def _now() -> datetime:
    return datetime.now(UTC)


def _is_value_equal(actual: Any, wanted: Any) -> bool:
    """Return True if a stored value equals the expected value, before or after encoding."""
    wanted, actual = comparable_inputs(wanted), comparable_inputs(actual)
    if bool(wanted == actual):
        return True
    # The values for ``*args`` are a tuple here, but a list in the queue.
    actual = list(actual) if isinstance(actual, tuple) else actual
    try:
        return bool(codec.decode(codec.encode(wanted, what="It")) == actual)
    except (ATPError, TypeError):
        return False


def _read_option(instance: Instance, task: Task | None, name: str) -> Any:
    if name == "run_after":
        return task.due_at if task and task.due_at != BLOCKED else None
    if name == "timeout":
        return instance.timeout
    return getattr(instance, name)


def _is_option_equal(instance: Instance, name: str, actual: Any, wanted: Any) -> bool:
    if name == "timeout":
        return bool(actual == (None if wanted is None else as_timedelta(wanted)))
    if name not in _TIMES:
        return bool(actual == wanted)
    if name == "run_after" and wanted is None:
        return actual is None or actual <= instance.created
    if actual is None or wanted is None:
        return actual is wanted
    if isinstance(wanted, (int, float)):
        wanted = timedelta(seconds=wanted)
    if isinstance(wanted, timedelta):
        return -_TOLERANCE <= actual - instance.created - wanted <= timedelta(0)
    return bool(actual == resolve_time(name, wanted))


def _describe_value(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def rows_of(type: Declaration) -> list[tuple[Instance, Inputs, Task | None]]:
    """Return all Instances of a Type, oldest first.

    Each item is a tuple of the Instance, its Inputs, and its Task, or None if it has no Task.
    """
    alias = settings.DATABASE
    own = Instance.objects.using(alias).filter(type__identifier__in=type.names)
    instances = list(own.select_related("type").order_by("pk"))
    keys = {"instance__type__identifier__in": type.names}
    inputs = {row.pk: row for row in Inputs.objects.using(alias).filter(**keys)}
    tasks = {row.pk: row for row in Task.objects.using(alias).filter(**keys)}
    return [(each, inputs[each.pk], tasks.get(each.pk)) for each in instances]


# Assertions about enqueued Instances. When one fails, its message shows the nearest Instances.


def find(type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> list[Instance]:
    """Return the Instances that match the Type, arguments and options, oldest first."""
    expected = Expected.of(type, args, given)
    rows = rows_of(expected.type)
    return [row[0] for row in rows if not expected.differences(*row)]


def assert_enqueued(type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> Instance:
    """Return the oldest matching Instance. Raises AssertionError if no Instance matches."""
    expected = Expected.of(type, args, given)
    rows = rows_of(expected.type)
    near = []
    for row in rows:
        differences = expected.differences(*row)
        if not differences:
            return row[0]
        near.append((differences, row[0]))
    raise AssertionError("\n".join(_describe_missing(expected, near)))


def refute_enqueued(type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> None:
    """Raise AssertionError if an Instance matches the Type, arguments and options."""
    expected = Expected.of(type, args, given)
    matching = [row for row in rows_of(expected.type) if not expected.differences(*row)]
    if matching:
        lines = [f"{expected} is enqueued. Matching Instances: {len(matching)}."]
        for instance, inputs, _ in matching[:NEAREST]:
            values = mask_inputs(read_arguments(expected.type, inputs), expected.type.sensitive)
            lines.append(f"  {instance.uuid} {instance.state}: {values!r}")
        raise AssertionError("\n".join(lines))


def _describe_missing(expected: Expected, near: list[tuple[list[str], Instance]]) -> list[str]:
    lines = [f"{expected} is not enqueued."]
    if not near:
        of_type = Instance.objects.using(settings.DATABASE).values_list("type__identifier")
        others = Counter(name for (name,) in of_type)
        text = ", ".join(f"{count} × {name}" for name, count in sorted(others.items()))
        return [*lines, f"No Instance of this Type is enqueued. Enqueued: {text or 'nothing'}."]
    near.sort(key=lambda each: len(each[0]))
    lines.append(f"The nearest of {len(near)}:")
    for differences, instance in near[:NEAREST]:
        lines.append(f"  {instance.uuid} {instance.state}")
        lines += [f"    {line}" for line in differences]
    return lines


# Kit: the testing kit as one object, which is the fixture ``atp``, or ``self.atp`` in a TestCase.


class Kit:
    """The testing kit. Its methods check what the queue contains, and run enqueued Tasks.

    Each method that takes a Type accepts the Type, its identifier, or a task of ``django.tasks``,
    and raises UnknownType for an undeclared Type. The kit is a context manager. At the end of the
    block it stops the daemons that it started, and closes the contexts that it created.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        # Forget the counts of waiting Tasks from the previous test's queue.
        admission.forget_counts()
        # The total time that later() has let pass, for planning slots of schedules.
        self._passed = timedelta(0)

    def __enter__(self) -> Self:
        outbox.clear()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    # Looking at the queue

    def enqueued(self, type: Any, /, *args: Any, **given: Any) -> list[Instance]:
        """Return the Instances of a Type with these arguments and options, oldest first.

        The Instances can be in any state, even FINISHED or FAILED. Raises UnknownType,
        InvalidInputs or InvalidOption.
        """
        return find(type, args, given)

    def assert_enqueued(self, type: Any, /, *args: Any, **given: Any) -> Instance:
        """Return the oldest Instance of a Type with these arguments and options.

        ``given`` contains arguments of the handler, and any of the options ``priority``,
        ``collection``, ``identifier``, ``unique``, ``created_by``, ``timeout``, ``max_retries``,
        ``run_after`` and ``start_before``. Arguments are compared as the queue stores them,
        including the handler's defaults. An argument or option that the test does not pass can have
        any value. If a handler's argument has the same name as an option, pass the arguments as
        ``inputs={…}``. Raises AssertionError if no Instance matches, with the most similar
        Instances in its message. Raises UnknownType, InvalidInputs or InvalidOption for values that
        no Instance can have.
        """
        return assert_enqueued(type, args, given)

    def refute_enqueued(self, type: Any, /, *args: Any, **given: Any) -> None:
        """Raise AssertionError if an Instance matches. Takes the arguments of assert_enqueued()."""
        refute_enqueued(type, args, given)

    # Running Tasks

    def drain(
        self,
        *types: Any,
        most: int = 1000,
        raises: bool = True,
        retries: bool = False,
        twice: bool = False,
        lose: Loss | Fault | None = None,
    ) -> list[Run]:
        """Run all due Tasks and the Tasks that they enqueue. Return a :class:`Run` per attempt.

        ``types`` are the Types to run, by default all declared Types. Tasks are claimed, run and
        recorded as by a daemon, but one after another, in this process, and in the test's
        transaction if the test has one.

        With ``raises`` an exception from a handler is recorded and then raised. With ``retries``
        retries run at once, and only the last exception is raised. With ``twice`` the first attempt
        of each Instance is lost when its handler has ended, and another attempt follows, as
        at-least-once delivery allows. With ``lose`` attempts are lost "before" or "after" their
        handler, or at a :class:`Fault`, and their Tasks remain for the next drain.

        Raises EndlessDrain if more than ``most`` attempts are due.
        """
        check_loss(lose)
        if twice and lose is not None:
            raise InvalidOption("drain(): twice= already loses attempts, so leave out lose=.")
        options = DrainOptions(most=most, raises=raises, retries=retries, twice=twice, lose=lose)
        with _draining():
            return self._drain(types, options).run()

    def _run_all(self, options: DrainOptions) -> list[Run]:
        with _draining():
            return self._drain((), options).run()

    def _drain(self, types: Any, options: DrainOptions) -> Drain:
        served = [find_declaration(type) for type in types] or list(registry)
        names = sorted({name for each in served for name in each.names})
        return Drain(InProcessDaemon(names), options)

    def work(self, type: Any, /, *args: Any, **given: Any) -> Run:
        """Enqueue one Instance, run one attempt of it, and return its :class:`Run`.

        ``given`` contains the handler's arguments, or ``inputs={…}``. The option ``attempt`` is the
        number of the attempt to run, and earlier attempts count as retries. The option ``raises``
        works as in :meth:`drain`. No other Task runs. Gates and limits do not apply, but a full
        queue rejects the enqueue.
        """
        task_type = find_declaration(type)
        inputs, options = split_arguments(task_type, (), given, _WORK_OPTIONS)
        attempt, raises = options.get("attempt", 1), options.get("raises", True)
        if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 1:
            raise InvalidOption(f"work(attempt={attempt!r}): must be a whole number of at least 1.")
        with _draining():
            instance = enqueueing.enqueue(task_type, *args, **inputs)
            return self._drain([task_type], DrainOptions(raises=raises)).work(instance.pk, attempt)

    @contextmanager
    def inline(self, *, raises: bool = True) -> Iterator[None]:
        """Run all due Tasks at each outermost commit inside the block, as :meth:`drain` does.

        Without an open transaction, each enqueue is its own commit. In a TestCase, whose
        transaction is never committed, the end of the outermost ``atomic()`` in the tested code
        counts as the commit. With ``raises`` the end of the block raises the exception of a
        handler, because the code that enqueues never sees that exception.
        """
        with Inline(lambda: self._run_all(DrainOptions(raises=raises, runs_all=True))):
            yield

    @property
    def webhooks(self) -> list[Message]:
        """The webhooks from handlers in this test, which are collected here and not sent."""
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
        """Let time pass for the queue, without changing any clock.

        All times for which the queue waits are moved earlier: ``run_after``, retries,
        ``start_before``, sleeps, gates with an end, and rates. ``schedules`` lists identifiers of
        schedules. Their slots within the passed time are planned, each for its own time. Other
        schedules plan no slots. ``now()`` returns the same as before. Raises UnknownSchedule.
        """
        time = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if time <= timedelta(0):
            raise InvalidOption(f"later({time}): the time must be greater than 0.")
        schedules = [schedules] if isinstance(schedules, str) else schedules
        names = [get_schedule(schedule).identifier for schedule in schedules]
        store = get_store()
        admission.forget_counts()
        store.rehearsals.let_pass(time)
        since = store.now() + self._passed
        self._passed += time
        for name in names:
            store.rehearsals.plan_slots(name, since, since + time, who="a test")

    # Contexts for handlers without a queue, and daemons

    def context(self, type: Any = None, /, **given: Any) -> MemoryContext:
        """Return a :class:`MemoryContext`, with which a test can call a handler directly.

        For a Type with a concurrency, its methods that wait are coroutines.

        ``given`` can contain ``attempt``, ``identifier``, ``collection``, ``priority``,
        ``results``, ``kept``, and ``undoes``, which is the output of the graph node that the
        handler undoes.
        """
        declared = None if type is None else find_declaration(type)
        in_loop = declared is not None and declared.concurrency
        context = (MemoryLoopContext if in_loop else MemoryContext)(declared, **given)
        self._stack.callback(context.close)
        return context

    def daemon(
        self, *args: str, processes: int = 2, modules: tuple[str, ...] = ()
    ) -> DaemonProcess:
        """Start a real atpd on the test's database, wait until it has joined, and return it.

        ``args`` are options for ``manage.py atpd``, and ``processes`` is the number of workers. The
        daemon first imports ``modules``, which can declare Types that only tests use. The daemon is
        killed at the end of the test. Raises NotPossible inside a transaction, and on a database in
        memory.
        """
        from .daemon import DaemonProcess

        daemon = DaemonProcess(*args, processes=processes, modules=modules)
        self._stack.callback(daemon.destroy)
        daemon.start()
        return daemon


@contextmanager
def _draining() -> Iterator[None]:
    """Mark the block as a drain, so other drains wait. Then forget the counts of waiting Tasks."""
    with drains.running():
        try:
            yield
        finally:
            admission.forget_counts()


# QueueMixin: the testing kit for Django's TestCase and TransactionTestCase.


class QueueMixin:
    """Adds the testing kit to a TestCase or TransactionTestCase, as ``self.atp``."""

    atp: Kit

    def setUp(self) -> None:
        super().setUp()  # type: ignore[misc]
        case: Any = self
        self.atp = case.enterContext(Kit())
