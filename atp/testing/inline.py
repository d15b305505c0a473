"""Inline: enqueued Instances run at the commit, in the process of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from ..conf import settings
from ..store import get_store
from .commits import after_commit, forget
from .draining.nesting import drains


class Inline:
    """Calls ``drain()`` at each commit that may have made a Task due.

    The end of the block raises the first exception of ``drain()``. As in production, the code
    that enqueues does not see it. ``drain()`` is not called while another one runs, but after it.
    """

    def __init__(self, drain: Callable[[], object]) -> None:
        self._drain = drain
        self._is_draining = False
        self._is_open = False
        self._errors: list[BaseException] = []

    def __enter__(self) -> None:
        store: Any = get_store()
        names = ("enqueue", "record", "change", "open", "cancel")
        verbs = [(store, name) for name in names]
        verbs += [(store.graphs, "submit"), (store.schedules, "backfill")]
        # The attributes from before: those of an outer Inline, if there is one.
        self._before = [(owner, name, vars(owner).get(name)) for owner, name in verbs]
        for owner, name in verbs:
            setattr(owner, name, self._watch(getattr(owner, name)))
        self._is_open = True

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        self._is_open = False
        for owner, name, before in self._before:
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        forget(settings.DATABASE)
        if kind is None and self._errors:
            raise self._errors[0]

    def _watch(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(verb)
        def watched(*args: Any, **kwargs: Any) -> Any:
            answer = verb(*args, **kwargs)
            self.call()
            return answer

        return watched

    def call(self) -> None:
        """Drain at the commit; if a drain of somebody else is running, after that."""
        if self._is_draining or not self._is_open:
            return
        if drains.are_running:
            drains.call_after(self.call)
        else:
            after_commit(settings.DATABASE, self._run)

    def _run(self) -> None:
        if self._is_draining:
            return
        if drains.are_running:
            self.call()
            return
        with self._draining():
            try:
                self._drain()
            except Exception as error:
                self._errors.append(error)

    @contextmanager
    def _draining(self) -> Iterator[None]:
        self._is_draining = True
        try:
            yield
        finally:
            self._is_draining = False
