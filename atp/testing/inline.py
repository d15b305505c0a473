"""Inline: what is enqueued runs at the commit, in the process of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from ..conf import settings
from ..store import get_store
from .commits import after_commit, forget


class Inline:
    """Calls ``drain()`` at each commit by which something may be due.

    What it raises is kept for the end of the block: nothing of it reaches the code that
    enqueues, as in production. ``drain()`` is not called while it runs.
    """

    def __init__(self, drain: Callable[[], object]) -> None:
        self._drain = drain
        self._is_draining = False
        self._errors: list[BaseException] = []

    def __enter__(self) -> None:
        store: Any = get_store()
        verbs = [(store, "enqueue"), (store, "record"), (store, "change"), (store, "open")]
        verbs += [(store.graphs, "submit"), (store.schedules, "backfill")]
        # What stood there before: another of these, where one is in another.
        self._before = [(owner, name, vars(owner).get(name)) for owner, name in verbs]
        for owner, name in verbs:
            setattr(owner, name, self._watch(getattr(owner, name)))

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
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
        """Have everything run that is due, at the commit."""
        if not self._is_draining:
            after_commit(settings.DATABASE, self._run)

    def _run(self) -> None:
        if self._is_draining:
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
