"""What is given in place of a Type or a number gets an error that says what to give (G13)."""

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


def test_something_else_than_a_type(specs):
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


def test_an_option_that_a_schedule_has_not(specs):
    for name, value in (("unique", "key"), ("run_after", timedelta(hours=1))):
        with pytest.raises(InvalidSchedule, match=f"tests.echo is given with {name}:"):
            schedule("optional", echo.using(**{name: value}), every=60)


def test_a_module_that_is_imported_again_with_another_schedule(tmp_path, specs, monkeypatch):
    """As with Types: a shell that reloads a module gets what the module says now."""
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


def test_words_in_place_of_a_number():
    context = MemoryContext()
    with pytest.raises(TypeError, match="total is 'nearly', no number; say message="):
        context.progress(0.9, "nearly")
    with pytest.raises(TypeError, match="must be seconds or a timedelta"):
        context.sleep("1h")
    context.close()
