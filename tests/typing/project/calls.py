"""Correct and wrong calls of the project's handlers; each wrong one expects its type error.

If an expected error does not occur, its comment is unused, which is an error too.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_type
from uuid import UUID

from atp import Context, TaskType, queue, task_type
from atp.models import Gate, Instance, Limit, LogRecord, Response, Task, Type
from atp.testing import Fault, Kit, Run

from .tasks import alert, hillshade, hooked, picture, transfer, unhinted


def enqueueing(tonight: datetime) -> None:
    instance = hillshade.enqueue(path="scene.tif")
    assert_type(instance, Instance)
    hillshade.enqueue(path="scene.tif", azimuth=90)
    hillshade.enqueue()  # type: ignore[call-arg]
    hillshade.enqueue(path=1)  # type: ignore[arg-type]
    hillshade.enqueue(path="scene.tif", azimut=90)  # type: ignore[call-arg]
    hillshade.enqueue("scene.tif")  # type: ignore[call-arg]
    hillshade.enqueue(None, path="scene.tif")  # type: ignore[arg-type, misc]

    transfer.enqueue(1, 2, amount=3)
    transfer.enqueue(1, "2")  # type: ignore[arg-type]

    picture.enqueue(640, "rivers", "roads", rivers="blue")
    picture.enqueue(width=640)  # type: ignore[call-arg, arg-type]

    # What has no hints has names all the same.
    unhinted.enqueue(path=1)
    unhinted.enqueue(paht=1)  # type: ignore[call-arg]

    many = hillshade.enqueue_many({"path": path} for path in ("a", "b"))
    assert_type(many, Sequence[Instance])
    transfer.enqueue_many([(1, 2), (3, 4)], identifiers=["a", None])
    transfer.enqueue_many([1, 2])  # type: ignore[list-item]


def enqueueing_with_options(tonight: datetime) -> None:
    urgent = hillshade.using(priority=10, run_after=tonight, start_before=timedelta(days=1))
    assert_type(urgent.enqueue(path="scene.tif"), Instance)
    urgent.enqueue(path=1)  # type: ignore[arg-type]
    hillshade.using(existing="return", identifier="S2A-42").enqueue(path="scene.tif")
    hillshade.using(existing="reject")  # type: ignore[arg-type]
    hillshade.using(on_full="delay", delay_tolerance=3600, exact=True).enqueue(path="scene.tif")
    hillshade.using(on_full="drop")  # type: ignore[arg-type]
    hillshade.using(urgency=10)  # type: ignore[call-arg]

    assert_type(hooked.using(on_failed=alert).enqueue(number=1), Instance)
    hooked.enqueue(number="1")  # type: ignore[arg-type]
    # A hook by pattern keeps its signature.
    alert.enqueue(uuid="", type="", state="", reason="")
    alert.enqueue(uuid=1, type="", state="", reason="")  # type: ignore[arg-type]
    hillshade.using(on_fail=alert)  # type: ignore[call-arg]


def stepping(context: Context) -> None:
    assert_type(context.step("add", lambda: 3, key=7), int)
    assert_type(context.step_in_transaction("add", "a".upper), str)
    with context.step_in_transaction("book") as step:
        assert_type(step.is_done, bool)
        step.result = 5
    context.sleep(timedelta(days=1))
    context.sleep("1d")  # type: ignore[arg-type]
    context.step("add")  # type: ignore[call-arg]


def calling(context: Context) -> None:
    assert_type(hillshade(context, path="scene.tif"), dict[str, float])
    hillshade(None, path="scene.tif", azimuth=1)
    hillshade(context)  # type: ignore[call-arg]
    hillshade(context, path=1)  # type: ignore[arg-type]


def declaring() -> None:
    @task_type("typing.declared")
    def declared(context: Context, number: int) -> str:
        return str(number)

    assert_type(declared.enqueue(number=1), Instance)
    assert_type(declared.identifier, str)

    @task_type("typing.without", max_retry=3)  # type: ignore[call-arg]
    def misspelt(context: Context) -> None: ...

    @task_type("typing.wrong", timeout="1h")  # type: ignore[arg-type]
    def wrong(context: Context) -> None: ...

    @task_type("typing.none")  # type: ignore[arg-type]
    def without_context() -> None: ...

    @hillshade.adapt  # type: ignore[type-var]
    def adapted(inputs: int) -> None:
        print(inputs)

    @task_type("typing.former", formerly=[1])  # type: ignore[list-item]
    def former(context: Context) -> None:
        context.check()


def verbs(instance: Instance, any_type: TaskType) -> None:
    assert_type(queue.enqueue(hillshade, path="scene.tif"), Instance)
    queue.enqueue(hillshade, path=1)  # type: ignore[arg-type]
    queue.enqueue_many(transfer, [(1, 2)])
    calls = [queue.Call(task_type=hillshade, kwargs={"path": "scene.tif"})]
    assert_type(queue.enqueue_calls(calls), list[Instance])
    queue.declared("typing.hillshade").enqueue(path="scene.tif")
    any_type.enqueue(anything="goes")

    assert_type(queue.get(type="typing.hillshade", identifier="S2A-42"), Instance)
    assert_type(queue.get(instance.uuid), Instance)
    assert_type(queue.response(instance), Response | None)
    assert_type(queue.task(instance), Task | None)
    assert_type(queue.release(instance, by="jane"), bool)
    assert_type(queue.cancel(instance, str(instance.uuid)), list[Instance])
    assert_type(queue.delete(instance, cancel=True, wait=5), int)
    queue.change(instance, priority=3, postpone=timedelta(hours=1))
    queue.change(instance, due=5)  # type: ignore[arg-type]
    queue.redrive(instance, who="jane")  # type: ignore[call-arg]

    assert_type(queue.hold(hillshade, "esa", until=timedelta(hours=1)), Gate)
    assert_type(queue.limit("typing.hillshade", rate="100/m", burst=None), Limit)
    queue.limit("typing.hillshade", rate=100)  # type: ignore[arg-type]
    assert_type(queue.get_type("typing.hillshade"), Type)
    queue.command("host:1", "quiet")
    assert_type(queue.size(hillshade), int)


def rows(instance: Instance) -> None:
    assert_type(instance.wait(timeout=60), Instance)
    assert_type(instance.uuid, UUID)
    assert_type(instance.finished, datetime | None)
    assert_type(instance.type, Type)
    for record in instance.log:
        assert_type(record, LogRecord)
        assert_type(record.message, str)
    dead = Instance.objects.of_type("typing.hillshade").dead_letter().newest_first()
    assert_type(dead.first(), Instance | None)
    assert_type(Task.objects.waiting().in_claiming_order().get(), Task)


def testing(atp: Kit) -> None:
    """Use the testing kit as pytest passes it to a test."""
    assert_type(atp.assert_enqueued(hillshade, path="a", priority=3), Instance)
    assert_type(atp.enqueued("typing.hillshade"), list[Instance])
    runs = atp.drain(hillshade, twice=True)
    assert_type(runs, list[Run])
    assert_type(runs[0].state, str)
    assert_type(atp.drain(lose="after"), list[Run])
    atp.drain(lose=Fault("after charge"))
    atp.drain(lose="middle")  # type: ignore[arg-type]
    assert_type(atp.work(hillshade, path="a", attempt=2), Run)
    with atp.inline():
        hillshade.enqueue(path="a")
    atp.later(hours=2, schedules=["nightly"])
    assert_type(hillshade(atp.context(hillshade), path="a"), dict[str, float])
    assert_type(atp.daemon("-t", "dem.*").wait_for(atp.enqueued(hillshade)[0]), Instance)
