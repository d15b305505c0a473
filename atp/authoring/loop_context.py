"""The Context of an attempt that runs in a loop, beside others: what waits is awaited."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from inspect import isawaitable
from pathlib import Path
from typing import IO, Any, NoReturn

from asgiref.sync import iscoroutinefunction, sync_to_async

from .context import Context
from .steps import store_result


class LoopContext(Context):
    """The first argument of a handler whose Type has a ``concurrency``.

    It is a :class:`Context`. What reads or writes the database or a file is a coroutine here: it
    runs in a thread, so that the other attempts of the loop go on.
    """

    async def step(  # type: ignore[override]
        self, name: str, function: Callable[..., Any], *args: Any, key: object = None, **kwargs: Any
    ) -> Any:
        """Await ``function(*args, **kwargs)``, store the result under ``name``, and return it.

        A plain function is called in a thread. The rest is as in :meth:`Context.step`.
        """
        name, keeper, context = self._begin_step(name, key)
        found = await sync_to_async(keeper.begin)(context, name)
        if found is not None and found.is_done:
            return found.value
        if iscoroutinefunction(function):
            value = await function(*args, **kwargs)
        else:
            value = await sync_to_async(function)(*args, **kwargs)
            if isawaitable(value):
                value = await value
        return await sync_to_async(store_result)(keeper, context, name, value)

    async def step_in_transaction(  # type: ignore[override]
        self, name: str, function: Callable[..., Any], *args: Any, key: object = None, **kwargs: Any
    ) -> Any:
        """Run a step whose writes to the queue's database happen exactly once or not at all (G17).

        ``function`` is a plain function, which is called in a thread: Django has no transactions
        for coroutines.
        """
        run: Any = super().step_in_transaction
        return await sync_to_async(run)(name, function, *args, key=key, **kwargs)

    async def sleep(  # type: ignore[override]
        self, duration: timedelta | float, *, name: str = "sleep", key: object = None
    ) -> None:
        """End this attempt, and start the next one after ``duration``, as :meth:`Context.sleep`.

        For a short wait, ``asyncio.sleep()`` is cheaper: it keeps the attempt and its place.
        """
        await sync_to_async(super().sleep)(duration, name=name, key=key)

    async def publish(  # type: ignore[override]
        self,
        file: str | Path | bytes | bytearray | memoryview | IO[bytes],
        name: str | None = None,
        content_type: str | None = None,
    ) -> dict[str, Any]:
        """Store a result file, as :meth:`Context.publish` does."""
        return await sync_to_async(super().publish)(file, name, content_type)

    def paused(self, message: object = "") -> NoReturn:
        """Raise TypeError: an attempt that waits in a loop keeps nobody from working."""
        raise TypeError(
            "context.paused(): an attempt of a Type with a concurrency cannot pause. Await what it "
            "waits for: that keeps no worker."
        )
