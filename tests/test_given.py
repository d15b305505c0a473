"""Tests that the error for a wrong argument says what to pass instead (G13)."""

from datetime import timedelta
from importlib import import_module, reload
from types import SimpleNamespace

import pytest

from atp import Graph, schedule
from atp.exceptions import InvalidGraph, InvalidSchedule
from atp.models import Type
from atp.schedules import declaring
from atp.testing.memory import MemoryContext
from tests.app.tasks import echo


@pytest.fixture
def specs(monkeypatch):
    monkeypatch.setattr(
        declaring.declared_schedules, "_specs", dict(declaring.declared_schedules._specs)
    )


def test_schedules_graphs_and_contexts_reject_an_argument_of_the_wrong_kind(specs):
    for given, words in (
        ("tests.echo", "Give the Type itself, not its name"),
        (len, "must be a Type that @task_type has declared"),
        (Type(identifier="tests.echo", handler="x.y"), r"give atp.queue.declared\('tests.echo'\)"),
        (SimpleNamespace(module_path="shop.send"), "if its backend is ATPBackend"),
    ):
        with pytest.raises(InvalidSchedule, match=words):
            schedule("wrong", given, every=60)
        for add in (Graph("a").add, echo.then, lambda given: Graph("b").map(given, [])):
            with pytest.raises(InvalidGraph, match=words):
                add(given)
        with pytest.raises(InvalidGraph, match="must be a Type, or a Type and its arguments"):
            Graph("c").add(echo, undo=given)
    for name, value in (("unique", "key"), ("run_after", timedelta(hours=1))):
        with pytest.raises(InvalidSchedule, match=f"tests.echo is given with {name},"):
            schedule("optional", echo.using(**{name: value}), every=60)
    context = MemoryContext()
    with pytest.raises(TypeError, match=r"total is 'nearly', which is not a number; .* message="):
        context.progress(0.9, "nearly")
    with pytest.raises(TypeError, match="must be seconds or a timedelta"):
        context.sleep("1h")
    context.close()


def test_reloaded_module_can_change_its_schedule_but_another_module_cannot(
    tmp_path, specs, monkeypatch
):
    """As with a Type, the new declaration of a reloaded module replaces the old one."""
    monkeypatch.syspath_prepend(tmp_path)
    imports = "from atp import schedule\nfrom tests.app.tasks import echo\n"
    text = imports + "schedule('again', echo, every={})"
    path = tmp_path / "given_again.py"
    path.write_text(text.format(60))
    module = import_module("given_again")
    path.write_text(text.format(120) + "\n# changed")
    reload(module)
    assert declaring.declared_schedules._specs["again"][0].every == timedelta(seconds=120)
    other = tmp_path / "given_otherwise.py"
    other.write_text(text.format(180))
    with pytest.raises(InvalidSchedule, match="declared twice, with other values"):
        import_module("given_otherwise")
