"""The decorator `@task_type` declares a Type and returns a TaskType; ``register`` writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast

from asgiref.sync import sync_to_async

from ..conf import settings
from ..exceptions import UnknownType
from ..graphs.builder import Chain
from ..models import Type
from ..operations import admission, enqueueing, hooks
from ..operations.base import needs_tables
from ..operations.enqueueing import Call
from ..operations.gates import declared_limits
from ..operations.registry import Declaration, declared_hooks, is_identifier, is_internal, registry
from ..options import Options, OptionValues
from ..payload import binding
from ..placement import EXECUTOR, read_needs, read_resources
from ..schedules.declaring import declared_schedules
from ..store import get_store
from . import retrying
from .parameters import OPTIONS, TypeParameters, check_handler, check_parameters

if TYPE_CHECKING:
    from ..models import Instance
    from .context import Context


# The parameters of a handler after its context, and the type of its result.
P = ParamSpec("P")
R = TypeVar("R")
# A function that adapts inputs from an older release.
A = TypeVar("A", bound=binding.Adapter)


@dataclass(frozen=True, kw_only=True)
class TaskType(Declaration[P, R]):
    """A declared Type: a handler, its parameters, and the methods that enqueue it.

    Calling the object calls the handler, which is useful in tests and for handlers that share code.
    """

    do_not_call_in_templates = True

    if TYPE_CHECKING:
        # The context can be any object, because a test can make its own.
        def __call__(self, context: Any, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    else:

        def __call__(self, *args, **kwargs):
            return self.handler(*args, **kwargs)

    def adapt(self, function: A) -> A:
        """Declare a function that adapts stored inputs which no longer fit the handler (decorator).

        The function gets the inputs as a dict of arguments, and returns inputs for the current
        handler. If a Type has several adapters, ATP calls them in the order of their declaration,
        each with the result of the previous one, until the inputs fit. Raises InvalidType.
        """
        binding.check_adapter(self.identifier, function)
        self.adapters.append(function)
        return function

    def using(self, **changes: Unpack[OptionValues]) -> TaskType[P, R]:
        """Return a copy of this Type that enqueues with changed :class:`Options`."""
        options: OptionValues = hooks.read_hook_options(changes)  # type: ignore[assignment]
        return self.with_options(**options)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Instance:
        """Enqueue one Instance with these inputs; return the ACCEPTED Instance.

        The enqueue is part of the caller's transaction. Raises InvalidInputs, NotSerializable,
        TooLarge, InvalidOption, DuplicateIdentifier or QueueFull.
        """
        return enqueueing.enqueue(self, *args, **kwargs)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Return a call with these inputs, which queue.enqueue_calls() enqueues with others."""
        return Call(task_type=self, args=args, kwargs=kwargs)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Instance:
        """Enqueue one Instance as :meth:`enqueue` does, from a coroutine."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    async def aenqueue_many(
        self,
        inputs: Iterable[Mapping[str, Any] | Sequence[Any]],
        *,
        identifiers: Iterable[str | None] | None = None,
    ) -> Sequence[Instance]:
        """Enqueue many Instances as :meth:`enqueue_many` does, from a coroutine."""
        return await sync_to_async(self.enqueue_many)(inputs, identifiers=identifiers)

    def then(self, type: TaskType, /, **inputs: Any) -> Chain:
        """Return a chain that runs this Type first, and then another Type with these arguments."""
        return Chain(((self, {}),)).then(type, **inputs)

    def enqueue_many(
        self,
        inputs: Iterable[Mapping[str, Any] | Sequence[Any]],
        *,
        identifiers: Iterable[str | None] | None = None,
    ) -> Sequence[Instance]:
        """Enqueue one Instance for each of ``inputs``, either all of them or none.

        Each input is a mapping of keyword arguments or a tuple of positional ones. ``identifiers``
        has an identifier, or None, for each Instance. Returns the Instances in the same order.
        """
        return enqueueing.enqueue_many(self, inputs, identifiers=identifiers)


def task_type(
    identifier: str, **parameters: Unpack[TypeParameters]
) -> Callable[[Callable[Concatenate[Context, P], R]], TaskType[P, R]]:
    """Declare the decorated function as the handler of a Type.

    The parameters are those of RFC 14 and, for retries, of Dropbox ATF: ``timeout``,
    ``max_restarts``, ``max_retries``, ``backoff``, ``backoff_max``, ``retention`` and
    ``serializer``. Times are seconds or timedeltas. ``timeout=None`` means no time-out.
    ``retention=None`` keeps ended Instances forever, and ``retention=0`` keeps no FINISHED
    Instance. ``max_memory`` limits one attempt, as "512MiB" or in bytes; None means no limit. The
    defaults of these parameters are in ``settings.ATP``.

    ``backoff`` can be a list of delays, of which the last repeats. If ``retry_on`` is given, only
    the exceptions that it lists are worth a retry. Exceptions in ``fatal_on`` never lead to a
    retry. ``downstream`` names the service that the handler calls, and ``downstream_errors`` lists
    the exceptions which mean that this service has failed.

    ``needs`` are labels that a daemon must have to run the Type, as ``{"disk": "fast"}``.
    ``resources`` are the amounts that each attempt takes of the daemon's capacity, as
    ``{"gpu": 1, "memory": "8GiB"}``.

    With a ``concurrency``, a coroutine function runs in a loop beside other attempts, at most so
    many of the Type in one loop.

    A ``public`` Type is a process for the clients of OGC API – Processes (``atp.ogc``).

    Pages show ``owner`` and ``runbook``, a web address, to the operators of the Type. ``sensitive``
    lists arguments that are masked wherever ATP displays inputs. With ``keep_processes``, child
    processes of an attempt live until the worker ends. ``cancel_grace`` is how long a running
    attempt may go on after a cancel before it is killed. ``priority``, ``collection`` and ``exact``
    become the defaults of :class:`Options`.

    ``on_finished`` and ``on_failed`` are hooks: a Type or a list of Types. When an Instance has
    FINISHED or FAILED, ATP enqueues an Instance of each of these Types. A tuple of a Type and a
    mapping gives the Type inputs of its own.

    ``max_running``, ``rate``, ``burst`` and ``weight`` are limits for all daemons together, until
    an operator sets others: see :func:`atp.queue.limit`. ``max_running_per_collection`` limits each
    lane. An enqueue raises QueueFull if ``max_waiting`` Tasks wait already, or if the oldest due
    Task has waited longer than ``max_wait``. If both are given, both must be exceeded. With
    ``exact``, concurrent enqueues never exceed ``max_waiting``. ``formerly`` lists former
    identifiers of the Type, so that the handler also runs Tasks that wait under these.

    With ``transactional=True`` the handler runs in a transaction on the default database, where the
    queue must be too. The handler's writes are committed together with the Response and the state
    FINISHED, or not at all (G7). If the queue and the writes are on another database, give its
    alias: ``transactional="alias"``.

    Raises InvalidType.
    """
    check_parameters(identifier, parameters)

    def decorate(handler: Callable[Concatenate[Context, P], R]) -> TaskType[P, R]:
        sensitive, concurrency = parameters.get("sensitive", ()), parameters.get("concurrency")
        check_handler(identifier, handler, sensitive, concurrency)
        values = hooks.read_hook_parameters(
            f"task_type({identifier!r})", retrying.normalize_parameters(parameters)
        )
        values["options"] = Options(**{n: values.pop(n) for n in OPTIONS if n in values})
        if concurrency:
            # Nobody can tell whose memory of a shared process it is: MAX_MEMORY is for the others.
            values["max_memory"] = None
        values["sensitive"] = tuple(values.get("sensitive", ()))
        needs = dict(values.get("needs", {}))
        if executor := values.get("executor"):
            # Only a daemon of this executor serves the Type.
            needs[EXECUTOR] = executor
        values["needs"] = tuple(read_needs(needs).items())
        values["resources"] = tuple(read_resources(values.get("resources", {})).items())
        declared = TaskType(handler=handler, identifier=identifier, **values)
        registry.add(declared)
        declared_hooks.forget()
        for name in ("__doc__", "__name__", "__qualname__", "__module__"):
            object.__setattr__(declared, name, getattr(handler, name))
        return declared

    return decorate


def declared(identifier: str) -> TaskType:
    """Return the Type that this process declares under an identifier, ready for an enqueue.

    Raises UnregisteredHandler if only the database has the Type. Raises UnknownType if there is no
    such Type, or if the Type belongs to ATP, because only ATP itself enqueues its own Types.
    """
    if is_internal(identifier):
        raise UnknownType(
            f"Type {identifier!r} belongs to ATP, so only ATP itself enqueues its Instances."
        )
    if identifier in registry or not is_identifier(identifier):
        return _as_task_type(registry.get(identifier))
    types = Type.objects.using(settings.DATABASE)
    is_known = types.filter(identifier=identifier).exists()
    found = registry.handler_of(identifier) if is_known else registry.get(identifier)
    return _as_task_type(found)


def _as_task_type(declaration: Declaration) -> TaskType:
    # Every declaration is made by task_type().
    return cast(TaskType, declaration)


# Register declared Types in the database (RFC 14).


@needs_tables
def register(*task_types: TaskType, by: str = "") -> set[str]:
    """Write declared Types, and the Types that their hooks enqueue, to the database (RFC 14).

    This updates rows that exist already. It recomputes the next slots of schedules if the rules of
    their time zones have changed. Returns the identifiers of the Types that were skipped because
    another process has locked their rows. Only a process that does not wait for locks, such as a
    daemon, skips Types.
    """
    store = get_store()
    hooked = {spec.type.identifier: spec.type for t in task_types for spec in declared_hooks.of(t)}
    task_types = (*task_types, *(hooked[n] for n in hooked.keys() - {str(t) for t in task_types}))
    locked = store.types.register([task_type.registration() for task_type in task_types], who=by)
    written = [task_type for task_type in task_types if str(task_type) not in locked]
    # Tasks can also wait under former names.
    former = {name: task_type for task_type in written for name in task_type.formerly}
    unnamed = store.types.name_downstreams({n: t.downstream for n, t in former.items()}, who=by)
    locked |= {str(former[name]) for name in unnamed}
    admission.forget_counts()
    locked |= store.control.declare({str(type): declared_limits(type) for type in written}, who=by)
    names = {str(type) for type in written}
    locked |= store.schedules.declare([s for s in declared_schedules if s.type in names], who=by)
    store.schedules.follow_rules(who=by)
    return locked


@needs_tables
def register_all(by: str = "") -> None:
    """Write all the Types that this process declares to the database."""
    register(*registry, by=by)


@needs_tables
def unregister(identifier: str, by: str = "") -> None:
    """Remove a Type from the database (RFC 14).

    Raises UnknownType, or TypeInUse if Instances of the Type exist.
    """
    get_store().types.unregister(identifier, who=by)
