"""Tests of the API for coroutines, and of coroutines as handlers."""

import asyncio
import threading

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction

from atp import queue
from atp.daemon.worker import execution
from atp.daemon.worker.execution import CoroutineCall, is_any_abandoned
from atp.exceptions import Interrupted, UnknownInstance, WaitInTransaction, WaitTimeout

from .app.tasks import echo
from .helpers import wait_for


@pytest.mark.django_db(transaction=True)
def test_await_end_returns_at_the_end_or_raises_after_its_timeout():
    """Other coroutines of the event loop run meanwhile."""
    instance = echo.enqueue()
    with pytest.raises(WaitTimeout, match=r"still ACCEPTED after 0\.05 s\. No daemon is alive"):
        async_to_sync(instance.await_end)(timeout=0.05)
    with pytest.raises(WaitInTransaction), transaction.atomic():
        async_to_sync(instance.await_end)()

    async def inside():
        waiting = asyncio.create_task(instance.await_end(timeout=60))
        await sync_to_async(queue.cancel)(instance.uuid)
        return await waiting

    assert async_to_sync(inside)().reason == "CANCELLED"


@pytest.mark.django_db
def test_coroutine_can_enqueue_and_get_instances():
    async def inside():
        made = await echo.using(identifier="a").aenqueue(number=1)
        many = await echo.aenqueue_many([{}, {}], identifiers=["b", "c"])
        assert [each.identifier for each in many] == ["b", "c"]
        with pytest.raises(UnknownInstance):
            await queue.aget(type="tests.echo", identifier="d")
        assert await queue.aget(type="tests.echo", identifier="a") == made

    async_to_sync(inside)()


class TestCall:
    def test_cancelled_coroutine_does_not_start_but_may_ignore_a_later_cancel(self):
        ran = []

        async def handler():
            ran.append(1)
            call.cancel()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "all the same"

        call = CoroutineCall(handler)
        call.cancel()
        with pytest.raises(Interrupted):
            call()
        assert ran == []
        call = CoroutineCall(handler)
        assert call() == "all the same"

    def test_asyncio_task_left_by_a_handler_can_clean_up_but_a_thread_is_not_awaited(self):
        """The asyncio task can run synchronous code, for example queries, while it cleans up."""
        cleaned, leave = [], threading.Event()

        async def behind():
            try:
                await asyncio.sleep(600)
            finally:
                await sync_to_async(cleaned.append)(1)

        async def handler():
            handler.task = asyncio.ensure_future(behind())
            try:
                await asyncio.wait_for(asyncio.to_thread(leave.wait, 600), 0.01)
            except TimeoutError:
                return "gave up"

        try:
            assert CoroutineCall(handler)() == "gave up"
            assert not leave.is_set()
            assert not is_any_abandoned()
            assert cleaned == [1]
        finally:
            leave.set()

    @pytest.mark.parametrize("how", ["ignores its cancel", "blocks the loop", "generator"])
    def test_asyncio_task_or_generator_that_never_ends_is_abandoned(self, monkeypatch, how):
        monkeypatch.setattr(execution, "GRACE", 0.05)
        leave = threading.Event()

        async def behind():
            while not leave.is_set():
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    if how == "blocks the loop":
                        leave.wait(600)

        async def numbers():
            try:
                yield 1
            finally:
                while not leave.is_set():
                    await asyncio.sleep(0.01)

        async def handler():
            if how == "generator":
                handler.left = numbers()
                await anext(handler.left)
            else:
                handler.left = asyncio.ensure_future(behind())
                await asyncio.sleep(0)
            return "done"

        try:
            assert CoroutineCall(handler)() == "done"
            assert is_any_abandoned()
        finally:
            leave.set()
        wait_for(lambda: not is_any_abandoned(), what="the end of the loop")
