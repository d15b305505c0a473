"""`@task_type`, and TaskType: a Declaration with the methods that enqueue it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from inspect import Signature
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS

from ..conf import settings
from ..exceptions import UnknownType
from ..graphs.builder import Chain
from ..models import Type
from ..operations import enqueueing, hooks
from ..operations.enqueueing import Call
from ..operations.registry import (
    PARAMETERS,
    HookSpec,
    Named,
    Setting,
    declared_hooks,
    hook_types,
    is_identifier,
    is_internal,
    registration_of,
    registry,
)
from ..options import Options, OptionValues
from ..payload import binding, codec
from ..store.values.types import Registration
from . import retrying
from .parameters import OPTIONS, TypeParameters, check_handler, check_parameters

if TYPE_CHECKING:
    from ..models import Instance
    from .context import Context


# Declaring Types: ``@task_type``, and the Type that it makes of a handler.

# The parameters of a handler after its context, and what it returns.
P = ParamSpec("P")
R = TypeVar("R")
# A function that adapts inputs of an older release.
A = TypeVar("A", bound=binding.Adapter)


@dataclass(frozen=True, kw_only=True)
class TaskType(Generic[P, R]):
    """A declared Type: a handler, its parameters, and the methods that enqueue it.

    Calling it calls the handler, for tests and for handlers that share code.
    """

    handler: Callable[Concatenate[Any, P], R] = field(compare=False)
    identifier: str
    timeout: timedelta | float | Setting | None = Setting("TIMEOUT")
    max_restarts: int | Setting = Setting("MAX_RESTARTS")
    max_retries: int | Setting = Setting("MAX_RETRIES")
    retry_on: tuple[Named, ...] = ()
    fatal_on: tuple[Named, ...] = ()
    downstream: str = ""
    downstream_errors: tuple[Named, ...] = ()
    owner: str = ""
    runbook: str = ""
    sensitive: tuple[str, ...] = ()
    backoff: timedelta | float | tuple[timedelta, ...] | Setting = Setting("BACKOFF")
    backoff_max: timedelta | float | Setting = Setting("BACKOFF_MAX")
    retention: timedelta | float | Setting | None = Setting("RETENTION")
    max_memory: int | str | Setting | None = Setting("MAX_MEMORY")
    serializer: str = codec.JSON
    transactional: bool | str = False
    keep_processes: bool = False
    stoppable: bool = False
    cancel_grace: timedelta | float | None = None
    max_running: int | None = None
    max_running_per_collection: int | None = None
    rate: str | None = None
    burst: int | None = None
    weight: float | None = None
    max_waiting: int | None = None
    max_wait: timedelta | float | None = None
    on_finished: tuple[HookSpec, ...] = ()
    on_failed: tuple[HookSpec, ...] = ()
    options: Options = field(default_factory=Options)
    formerly: tuple[str, ...] = ()
    adapters: list[binding.Adapter] = field(default_factory=list, compare=False, repr=False)

    do_not_call_in_templates = True

    if TYPE_CHECKING:
        # Any context will do: a test may make its own.
        def __call__(self, context: Any, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    else:

        def __call__(self, *args, **kwargs):
            return self.handler(*args, **kwargs)

    def __str__(self) -> str:
        return self.identifier

    @property
    def signature(self) -> Signature:
        """The handler's signature without the context."""
        return self.signatures[0]

    @property
    def signatures(self) -> binding.Signatures:
        """The same signature, and the result of :func:`.binding.plain_of` for it."""
        return binding.signatures_of(self.handler)

    @property
    def fingerprint(self) -> str:
        """A short hash of the signature: see :func:`.adapting.fingerprint`."""
        return binding.fingerprint(self.signature, self.serializer, self.adapters)

    @property
    def names(self) -> tuple[str, ...]:
        """The identifier of this Type, and its former identifiers."""
        return self.identifier, *self.formerly

    def adapt(self, function: A) -> A:
        """Declare a function that adapts inputs which no longer fit the handler: a decorator.

        The function gets the stored inputs, a dict of arguments, and returns inputs for the
        current handler. Several functions are called in the order of their declaration, each
        with the result of the one before, until the inputs fit. Raises InvalidType.
        """
        binding.check_adapter(self.identifier, function)
        self.adapters.append(function)
        return function

    @property
    def as_called(self) -> bool:
        """Whether stored inputs keep which arguments came by position; the handler decides."""
        return getattr(self.handler, "as_called", False)

    @property
    def is_tailer(self) -> bool:
        """Whether its attempts read the source of a tailer; the handler decides."""
        return getattr(self.handler, "is_tailer", False)

    @property
    def database(self) -> str | None:
        """The alias of the database that a transactional handler writes to; None for others."""
        return DEFAULT_DB_ALIAS if self.transactional is True else self.transactional or None

    @property
    def handler_path(self) -> str:
        """The dotted name of the handler, for display."""
        return f"{self.handler.__module__}.{self.handler.__qualname__}"

    @property
    def backoff_steps(self) -> tuple[timedelta, ...]:
        """The delays before retries, where the last repeats; empty if the delay doubles instead."""
        return self.backoff if isinstance(self.backoff, tuple) else ()

    def using(self, **changes: Unpack[OptionValues]) -> TaskType[P, R]:
        """Return this Type with other :class:`Options`, for Instances enqueued through it."""
        given: OptionValues = hooks.of_options(changes)  # type: ignore[assignment]
        return replace(self, options=self.options.using(**given))

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Instance:
        """Enqueue one Instance with these inputs and return it, ACCEPTED.

        The enqueue is part of the caller's transaction. Raises InvalidInputs, NotSerializable,
        TooLarge, InvalidOption, DuplicateIdentifier or QueueFull.
        """
        return enqueueing.enqueue(self, *args, **kwargs)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Return a call with these inputs, to be enqueued with others: queue.enqueue_calls()."""
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
        """Return a chain: this Type, and then another with these arguments."""
        return Chain(((self, {}),)).then(type, **inputs)

    def enqueue_many(
        self,
        inputs: Iterable[Mapping[str, Any] | Sequence[Any]],
        *,
        identifiers: Iterable[str | None] | None = None,
    ) -> Sequence[Instance]:
        """Enqueue one Instance for each of ``inputs``, all or none; return them in order.

        Each input is a mapping or a tuple of arguments. ``identifiers`` has one for each Instance.
        """
        return enqueueing.enqueue_many(self, inputs, identifiers=identifiers)

    def registration(self) -> Registration:
        """Return the parameters to register, with the values of the settings filled in."""
        found = registration_of(*self._said, declared_hooks.of(self))
        if self.formerly:
            found = replace(found, formerly=self.formerly)
        own = self.options.hooks
        if not own:
            return found
        return replace(found, hook_types=(*found.hook_types, *hook_types(own)))

    @cached_property
    def _said(self) -> tuple[Any, ...]:
        values = (getattr(self, name) for name in PARAMETERS)
        return self.identifier, self.handler_path, self.serializer, *values


def task_type(
    identifier: str, **parameters: Unpack[TypeParameters]
) -> Callable[[Callable[Concatenate[Context, P], R]], TaskType[P, R]]:
    """Declare the decorated function as the handler of a Type.

    Parameters (RFC 14's, and the retries of Dropbox ATF): ``timeout``, ``max_restarts``,
    ``max_retries``, ``backoff``, ``backoff_max``, ``retention`` and ``serializer``. Times are
    seconds or timedeltas; ``timeout`` and ``retention`` may be None, for never and for ever.
    With ``retention=0`` no FINISHED Instance is kept. ``max_memory`` limits one attempt, as
    "512MiB" or in bytes; None is no limit. The default of each is in ``settings.ATP``.
    ``backoff`` may be a list of delays; the last repeats. ``retry_on`` lists the only exceptions
    worth a retry, ``fatal_on`` those that are not. ``downstream`` names the service that the
    handler calls; ``downstream_errors`` are the exceptions by which it fails. ``owner`` and
    ``runbook``, an address, are shown to whoever looks after the Type. ``sensitive`` lists the
    arguments that are masked wherever inputs are shown. With ``keep_processes``
    processes that an attempt leaves behind live until its worker ends.
    ``cancel_grace`` is the time between asking to cancel a running attempt and killing it.
    ``priority``, ``collection`` and ``exact`` become the defaults of :class:`Options`.
    ``on_finished`` and ``on_failed`` are hooks: a Type, or a list of Types. Each such end enqueues
    an Instance of each. A tuple of a Type and a mapping gives that Type inputs of its own.

    ``max_running``, ``rate``, ``burst`` and ``weight`` are limits over all daemons, until an
    operator sets others: see :func:`atp.queue.limit`; ``max_running_per_collection`` limits each
    lane. An enqueue raises QueueFull if ``max_waiting`` Tasks wait and the oldest due one has
    waited longer than ``max_wait``; with ``exact`` it never lets in one more. ``formerly`` lists
    former identifiers of the Type: the handler also runs Tasks that wait under those.

    With ``transactional=True`` the handler runs in a transaction on the default database. Its
    writes there are committed together with its Response and FINISHED, or not at all (G7), so
    the queue has to be there. If both are on another database: ``transactional="alias"``.

    Raises InvalidType.
    """
    check_parameters(identifier, parameters)

    def decorate(handler: Callable[Concatenate[Context, P], R]) -> TaskType[P, R]:
        check_handler(identifier, handler, parameters.get("sensitive", ()))
        given = hooks.plain(f"task_type({identifier!r})", retrying.plain(parameters))
        given["options"] = Options(**{n: given.pop(n) for n in OPTIONS if n in given})
        given["sensitive"] = tuple(given.get("sensitive", ()))
        declared = TaskType(handler=handler, identifier=identifier, **given)
        registry.add(declared)
        declared_hooks.forget()
        for name in ("__doc__", "__name__", "__qualname__", "__module__"):
            object.__setattr__(declared, name, getattr(handler, name))
        return declared

    return decorate


def declared(identifier: str) -> TaskType:
    """Return the Type as this process declares it, with its handler, to enqueue Instances of it.

    Raises UnregisteredHandler if only the database has the Type, UnknownType if nothing has it, or
    if it belongs to ATP, which alone enqueues Instances of it.
    """
    if is_internal(identifier):
        raise UnknownType(f"Type {identifier!r} belongs to ATP, which alone enqueues Instances.")
    if identifier in registry or not is_identifier(identifier):
        return registry.get(identifier)
    types = Type.objects.using(settings.DATABASE)
    is_known = types.filter(identifier=identifier).exists()
    return registry.handler_of(identifier) if is_known else registry.get(identifier)
