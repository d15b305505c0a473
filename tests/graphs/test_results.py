"""Placeholders for results in the inputs of nodes."""

import json
import os
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import Path

import pytest

from atp import Graph, result, task_type
from atp.exceptions import NotSerializable
from atp.graphs import placeholders
from atp.operations.registry import registry
from atp.payload import codec
from tests.app.tasks import echo

Pair = namedtuple("Pair", "first second")


class Tiles(list):
    pass


@dataclass
class Scene:
    path: object


def test_containers_of_results_keep_their_type():
    given = [Pair(1, result("a")), OrderedDict(x=result("a")), Tiles([result("a")]), (1, [2])]
    found = placeholders.resolve_results(
        placeholders.with_placeholders(given), lambda name: name * 2
    )
    assert found == [Pair(1, "aa"), OrderedDict(x="aa"), Tiles(["aa"]), (1, [2])]
    assert [type(each) for each in found] == [Pair, OrderedDict, Tiles, tuple]
    assert found[3] is given[3]
    assert isinstance(given[0].second, placeholders.Result)
    # What holds itself is not entered again.
    loop = [result("a")]
    loop.append(loop)
    assert len(placeholders.results_in(loop)) == 1


USES = (
    *(str, bool, hash, int, float, round, os.fspath, Path, sorted, iter, len),
    *("%s".__mod__, "{}".format, lambda it: f"{it}", lambda it: f"{it:>5}"),
    *(lambda it: it == "x", lambda it: it != "x", lambda it: it < 1),
    *(lambda it: it + 1, lambda it: "x" + it, lambda it: 2 * it, lambda it: -it),
    *(lambda it: "x" in it, lambda it: it in ["x"], lambda it: {it}, lambda it: {it: 1}),
    *(lambda it: range(3)[it], lambda it: [*it], lambda it: it or 1, json.dumps),
    *(lambda it: it[1:], lambda it: Path("/data") / it, ",".join, lambda it: json.dumps([it])),
)


def test_using_a_result_placeholder_as_a_value_raises(db):
    """Without the error a path would contain the placeholder's repr, for example (G13)."""
    for number, use in enumerate(USES):
        with pytest.raises(TypeError):
            pytest.fail(f"use {number} gives {use(result('a')['b'])!r}")
    assert "'a'" in repr(result("a"))
    with pytest.raises(TypeError, match=r"names=\('a',\).*compute .* in that node's handler"):
        f"/data/{result('a')}.tif"
    with Graph() as g, pytest.raises(TypeError, match=r"result\(…\) for its output"):
        f"/data/{g.add(echo)}.tif"
    # The number of results of a map is known.
    three = placeholders.Result(("a", "b", "c"), is_list=True)
    assert [each.names for each in three] == [("a",), ("b",), ("c",)]
    assert len(three) == 3
    for use in (bool, lambda it: "x" in it):
        with pytest.raises(TypeError):
            use(three)


@pytest.fixture
def pickled(db, settings, monkeypatch):
    settings.ATP = {"ALLOW_PICKLE": True}
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    return task_type("graphs.pick", serializer="pickle")(lambda context, value=None: value)


@pytest.mark.slow
def test_a_result_in_a_pickle_is_resolved_or_rejected(pickled):
    """Otherwise the handler would get the placeholder instead of the output."""
    payload = codec.encode(
        placeholders.with_placeholders({"path": result("a")["b"]}), format=codec.PICKLE
    )
    assert codec.may_have_results(payload)
    found = placeholders.resolve_results(codec.decode(payload), lambda name: {"b": name})
    assert found == {"path": "a"}
    assert not codec.may_have_results(codec.encode({"path": "a"}, format=codec.PICKLE))
    for value in (Scene(result("a")), result("a")):
        with pytest.raises(NotSerializable, match="only nodes of the same graph"):
            codec.encode(value, format=codec.PICKLE)
    with Graph() as g:
        first = g.add(pickled, name="a")
        with pytest.raises(NotSerializable, match="dicts, lists and tuples"):
            g.add(pickled, Scene(result("a")), after=first)
