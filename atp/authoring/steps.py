"""Steps: parts of a handler whose results ATP stores, so that later attempts can skip the parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from django.db import transaction

from .. import messages
from ..conf import settings
from ..exceptions import (
    LONGEST_DELAY,
    CorruptData,
    DoubledStep,
    Interrupted,
    InvalidOption,
    InvalidStep,
    NotSerializable,
    TooLarge,
    UncheckedStep,
    UnusableResult,
)
from ..options import check_text
from ..payload import codec

if TYPE_CHECKING:
    from ..store.values import Checkpoint


R = TypeVar("R")


class StepContext(Protocol):
    """The attributes of a Context that a :class:`Keeper` uses."""

    @property
    def key(self) -> tuple[int, int]: ...
    @property
    def attempt(self) -> int: ...
    @property
    def type(self) -> str: ...
    def end_if_asked(self) -> None: ...


class Keeper(Protocol):
    """Stores the results of an attempt's steps, as Checkpoints.

    Its methods raise Interrupted if the attempt is over.
    """

    def find(self, context: StepContext, name: str) -> Checkpoint | None: ...

    def begin(
        self, context: StepContext, name: str, delay: timedelta | None = None
    ) -> Checkpoint | None: ...

    def keep(
        self, context: StepContext, name: str, payload: codec.Payload, took: timedelta | None = None
    ) -> None: ...

    def transaction(self, context: StepContext, name: str) -> AbstractContextManager[Any]: ...

    def fenced(self, context: StepContext) -> AbstractContextManager[Any]: ...

    def format(self, context: StepContext) -> str: ...


class Asleep(Interrupted):
    """Raised by ``context.sleep()`` to end the attempt; the next attempt continues after the sleep.

    ``after`` is the rest of the sleep, in seconds.
    """

    def __init__(self, message: str, *, after: float) -> None:
        super().__init__(message)
        self.after = after


class TransactionalStep:
    """The object ``step`` in ``with context.step_in_transaction(name) as step``.

    The block reads ``is_done`` and can set ``result``.
    """

    def __init__(self, found: Checkpoint | None) -> None:
        self._is_done = found is not None and found.is_done
        self.result: Any = found.value if found is not None and found.is_done else None
        self.is_checked = False

    @property
    def is_done(self) -> bool:
        """True if an earlier attempt has committed this step, with its writes and ``result``."""
        self.is_checked = True
        return self._is_done


class Stepping:
    """The methods of Context that run steps. They cost nothing until the handler calls one."""

    _keeper: Keeper | None = None
    _steps: set[str] | None = None

    def step(
        self, name: str, function: Callable[..., R], *args: Any, key: object = None, **kwargs: Any
    ) -> R:
        """Call ``function(*args, **kwargs)``, store the result under ``name``, and return it.

        A later attempt gets the stored result instead of calling the function. ATP finds a step by
        its name, not by its position; in a loop, give each round a different ``key``. If the
        attempt crashes after the function has ended and before the result is committed, a later
        attempt calls the function again, and the log says so. Raises DoubledStep,
        StepInTransaction, and UnusableResult if the result cannot be serialized or is larger than
        ``ATP["MAX_STEP_SIZE"]`` (bytes).
        """
        name, keeper, context = self._begin_step(name, key)
        found = keeper.begin(context, name)
        if found is not None and found.is_done:
            return found.value
        return store_result(keeper, context, name, function(*args, **kwargs))

    @overload
    def step_in_transaction(
        self, name: str, *, key: object = None
    ) -> AbstractContextManager[TransactionalStep]: ...

    @overload
    def step_in_transaction(
        self, name: str, function: Callable[..., R], *args: Any, key: object = None, **kwargs: Any
    ) -> R: ...

    def step_in_transaction(
        self,
        name: str,
        function: Callable[..., Any] | None = None,
        *args: Any,
        key: object = None,
        **kwargs: Any,
    ) -> Any:
        """Run a step whose writes to the queue's database happen exactly once or not at all (G17).

        This calls ``function(*args, **kwargs)`` and commits the function's writes together with the
        stored result. Without a function, this returns a context manager. The block of the context
        manager must test ``if not step.is_done:`` and can set ``step.result``. Raises the
        exceptions of :meth:`step`. Raises UncheckedStep, and writes nothing, if the block did not
        make that test.
        """
        name, keeper, context = self._begin_step(name, key)
        block = _transactional_block(keeper, context, name)
        if function is None:
            return block
        with block as step:
            if not step.is_done:
                step.result = function(*args, **kwargs)
        return step.result

    def sleep(
        self, duration: timedelta | float, *, name: str = "sleep", key: object = None
    ) -> None:
        """End this attempt, and start the next one after ``duration``, in seconds or a timedelta.

        A sleep occupies no worker and spends no retry. The next attempt runs the handler from its
        beginning, gets the stored results of steps, and reaches this call again, which then
        returns at once. The time counts from the first call, even after a crash or a redrive. A
        second sleep needs another ``name``, or a ``key``.
        """
        if isinstance(duration, str):
            raise TypeError(f"sleep({duration!r}): must be seconds or a timedelta")
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
        if not 0 < seconds <= LONGEST_DELAY:
            most = f"{LONGEST_DELAY:.0f} s"
            raise ValueError(f"sleep({seconds:g}): must be more than 0 and at most {most}")
        name, keeper, context = self._begin_step(name, key)
        found = keeper.begin(context, name, timedelta(seconds=seconds))
        if found is not None and not found.is_done:
            raise Asleep(messages.asleep(name), after=found.left)

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context manager that runs its block in a transaction on the queue's database.

        At the end of the block, this commits the writes if the attempt still holds its Task.
        Otherwise it rolls the writes back and raises Interrupted (G4). Raises StepInTransaction.
        """
        return (self._keeper or _NoKeeper()).fenced(self)  # type: ignore[arg-type]

    def _begin_step(self, name: str, key: object) -> tuple[str, Keeper, StepContext]:
        """Check the name of a new step, and return the name with its key, the Keeper and self."""
        if key is not None:
            name = f"{name}[{key}]"
        try:
            check_text("The name of a step", name, empty=False)
        except InvalidOption as error:
            raise InvalidStep(str(error)) from None
        if self._steps is None:
            self._steps = set()
        if name in self._steps:
            raise DoubledStep(
                f"This attempt uses the name {name!r} for two steps, but ATP finds a step by its "
                "name. In a loop, give each round a key: step(name, function, key=item.pk)."
            )
        self._steps.add(name)
        return name, self._keeper or _NoKeeper(), self  # type: ignore[return-value]


def store_result(
    keeper: Keeper, context: StepContext, name: str, value: Any, took: timedelta | None = None
) -> Any:
    """Store the result of a step. Raises UnusableResult.

    Returns the result as later attempts will get it, that is, serialized and read back.
    """
    try:
        payload = codec.encode(
            value,
            format=keeper.format(context),
            limit=settings.MAX_STEP_SIZE,
            what=f"The result of step {name!r}",
        )
        # Pickling can succeed for a value that cannot be unpickled.
        found = codec.decode(payload)
    except (NotSerializable, TooLarge, CorruptData) as error:
        raise UnusableResult(str(error)) from error
    keeper.keep(context, name, payload, took)
    return found


@contextmanager
def _transactional_block(
    keeper: Keeper, context: StepContext, name: str
) -> Iterator[TransactionalStep]:
    found = keeper.find(context, name)
    step = TransactionalStep(found)
    if found is not None and found.is_done:
        yield step
        _refuse_unchecked(step, name)
        return
    began = time.monotonic()
    with keeper.transaction(context, name):
        yield step
        _refuse_unchecked(step, name)
        took = timedelta(seconds=time.monotonic() - began)
        step.result = store_result(keeper, context, name, step.result, took)


def _refuse_unchecked(step: TransactionalStep, name: str) -> None:
    if not step.is_checked:
        raise UncheckedStep(
            f"The block of step {name!r} runs in each attempt, so the block must test whether the "
            "step is done: with context.step_in_transaction(name) as step: if not step.is_done: …"
        )


class _NoKeeper:
    """The Keeper for handlers that run without a daemon, such as in tests.

    This Keeper stores nothing, and lets a sleep return at once.
    """

    def find(self, context: StepContext, name: str) -> None:
        return None

    def begin(self, context: StepContext, name: str, delay: timedelta | None = None) -> None:
        return None

    def keep(
        self, context: StepContext, name: str, payload: codec.Payload, took: timedelta | None = None
    ) -> None:
        pass

    def transaction(self, context: StepContext, name: str) -> AbstractContextManager[Any]:
        return transaction.atomic(using=settings.DATABASE)

    def fenced(self, context: StepContext) -> AbstractContextManager[Any]:
        return transaction.atomic(using=settings.DATABASE)

    def format(self, context: StepContext) -> str:
        return codec.JSON
