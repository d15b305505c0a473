"""What is given in place of a Type or a number gets an error that says what to give (G13)."""

from datetime import timedelta
from importlib import import_module, reload
from types import SimpleNamespace

import pytest

from atp import Graph, queue, result, schedule
from atp.exceptions import InvalidGraph, InvalidSchedule, UnknownInstance
from atp.models import Type
from atp.testing.memory import MemoryContext
from atp.verbs import schedule_specs
from tests.app.tasks import echo


@pytest.fixture
def specs(monkeypatch):
    monkeypatch.setattr(schedule_specs.declared, "_specs", dict(schedule_specs.declared._specs))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("tests.echo", "Give the Type itself, not its name"),
        (len, "must be a Type that @task_type has declared"),
        (Type(identifier="tests.echo", handler="x.y"), r"give atp.queue.declared\('tests.echo'\)"),
        (SimpleNamespace(module_path="shop.send"), "if its backend is ATPBackend"),
    ],
)
def test_something_else_than_a_type(given, words, specs):
    with pytest.raises(InvalidSchedule, match=words):
        schedule("wrong", given, every=60)
    undone = Graph("c")
    for add in (Graph("a").add, echo.then, lambda given: Graph("b").map(given, [])):
        with pytest.raises(InvalidGraph, match=words):
            add(given)
    with pytest.raises(InvalidGraph, match="must be a Type, or a Type and its arguments"):
        undone.add(echo, undo=given)


@pytest.mark.parametrize(
    "options", [{"max_retries": 5}, {"unique": "key"}, {"run_after": timedelta(hours=1)}]
)
def test_an_option_that_a_schedule_has_not(options, specs):
    with pytest.raises(InvalidSchedule, match=f"tests.echo is given with {next(iter(options))}:"):
        schedule("optional", echo.using(**options), every=60)


def test_a_schedule_that_is_declared_twice_with_other_values(specs):
    for _ in range(2):
        schedule("twice", echo, every=60)
    with pytest.raises(InvalidSchedule, match="declared twice, with other values"):
        schedule("twice", echo, every=120)


@pytest.mark.django_db
def test_the_name_of_a_node_that_is_misspelt():
    with pytest.raises(InvalidGraph, match=r"there is no such node\. Did you mean 'echo'"):
        echo.then(echo, value=result("ecko")).enqueue()
    graph = Graph("misspelt")
    graph.add(echo)
    graph.add(echo, after="ecko")
    with pytest.raises(InvalidGraph, match=r"There is no node 'ecko'\. Did you mean 'echo'"):
        graph.submit()
    with pytest.raises(InvalidGraph, match=r"There is no node 'mosaik'\.$"):
        Graph("own").add(echo, name="mosaic", after="mosaik").graph.submit()
    with pytest.raises(InvalidGraph, match=r"there is no such node\.$"):
        Graph("own").add(echo, name="mosaic", value=result("mosaik")).graph.submit()
    given = echo.enqueue()
    with pytest.raises(InvalidGraph, match="is no node of this graph"):
        Graph("another").add(echo, after=given)


@pytest.mark.parametrize("node", [None, 5, ("a", "b")])
def test_the_result_of_no_node(node):
    with pytest.raises(InvalidGraph, match="is no node of a graph, nor a name"):
        result(node)


def test_before_a_node_that_is_no_name():
    graph = Graph("before")
    with pytest.raises(InvalidGraph, match="is no name"):
        graph.add(echo, before=graph.add(echo))


def test_a_module_that_is_imported_again_with_another_schedule(tmp_path, specs, monkeypatch):
    """As with Types: a shell that reloads a module gets what the module says now."""
    monkeypatch.syspath_prepend(tmp_path)
    lines = (
        "from atp import schedule",
        "from tests.app.tasks import echo",
        "schedule('again', echo, ",
    )
    text = "\n".join(lines) + "every={})"
    path = tmp_path / "given_again.py"
    path.write_text(text.format(60))
    module = import_module("given_again")
    path.write_text(text.format(120) + "\n# changed")
    reload(module)
    assert schedule_specs.declared._specs["again"][0].every == timedelta(seconds=120)
    other = tmp_path / "given_otherwise.py"
    other.write_text(text.format(180))
    with pytest.raises(InvalidSchedule, match="declared twice, with other values"):
        import_module("given_otherwise")


@pytest.mark.django_db
def test_why_suggests_a_type():
    queue.register(echo)
    with pytest.raises(UnknownInstance, match=r"Did you mean 'tests.echo'"):
        queue.explain("tests.ecko")


def test_words_in_place_of_a_number():
    context = MemoryContext()
    with pytest.raises(TypeError, match="total is 'nearly', no number; say message="):
        context.progress(0.9, "nearly")
    with pytest.raises(TypeError, match="must be seconds or a timedelta"):
        context.sleep("1h")
    context.close()
