"""Handlers of a project that uses type hints."""

from datetime import timedelta
from typing import Any

from atp import Context, Fatal, Output, Retry, on_failed, task_type


@task_type("typing.hillshade", timeout=600, max_retries=3, retention=timedelta(days=30))
def hillshade(context: Context, *, path: str, azimuth: float = 315.0) -> dict[str, float]:
    context.check()
    context.progress(1, total=2, message=path)
    context.log("half of it", level="WARNING")
    published: dict[str, object] = context.publish(context.scratch / "shade.tif")
    context.log(str(published["path"]))
    return {"azimuth": azimuth}


@hillshade.adapt
def renamed(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"path": inputs.pop("file"), **inputs}


@task_type("typing.transfer", transactional=True, max_running=1, rate="10/m", max_wait=600)
def transfer(context: Context, source: int, target: int, amount: int = 1) -> None:
    if amount < 0:
        raise Fatal(f"{context.attempt}: {source} to {target}")
    raise Retry("not yet", after=timedelta(seconds=30))


@task_type("typing.picture", formerly=["typing.image"])
def picture(context: Context, width: int, /, *layers: str, **colours: str) -> Output:
    with context.paused("waiting for the licence"):
        return Output(b"", "image/png")


@task_type("typing.unhinted")
def unhinted(context, *, path, factor=2):  # type: ignore[no-untyped-def]
    return path * factor


@on_failed("typing.*")
@task_type("typing.alert")
def alert(context: Context, *, uuid: str, type: str, state: str, reason: str) -> None:
    context.log(f"{type} {uuid}: {state} {reason}")


@task_type("typing.hooked", on_finished=[alert], on_failed=(alert, {}))
def hooked(context: Context, *, number: int) -> int:
    return number
