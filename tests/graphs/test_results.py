"""Results in the inputs of nodes: where they may stand, and what stays as it is."""

import json
import os
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import Path

import pytest

from atp import Graph, result, task_type
from atp.exceptions import NotSerializable
from atp.graphs import results
from atp.payload import codec
from atp.verbs.registry import registry
from tests.app.tasks import echo

Pair = namedtuple("Pair", "first second")


class Tiles(list):
    pass


@dataclass
class Scene:
    path: object


def test_what_holds_a_result_keeps_its_type():
    given = [Pair(1, result("a")), OrderedDict(x=result("a")), Tiles([result("a")]), (1, [2])]
    found = results.resolved(results.placed(given), lambda name: name * 2)
    assert found == [Pair(1, "aa"), OrderedDict(x="aa"), Tiles(["aa"]), (1, [2])]
    assert [type(each) for each in found] == [Pair, OrderedDict, Tiles, tuple]
    assert found[3] is given[3]
    assert isinstance(given[0].second, results.Result)


@pytest.mark.parametrize(
    "use",
    [
        *(str, bool, hash, int, float, round, os.fspath, Path, sorted, iter, len),
        *("%s".__mod__, "{}".format, lambda it: f"{it}", lambda it: f"{it:>5}"),
        *(lambda it: it == "x", lambda it: it != "x", lambda it: it < 1),
        *(lambda it: it + 1, lambda it: "x" + it, lambda it: 2 * it, lambda it: -it),
        *(lambda it: "x" in it, lambda it: it in ["x"], lambda it: {it}, lambda it: {it: 1}),
        *(lambda it: range(3)[it], lambda it: [*it], lambda it: it or 1, json.dumps),
        *(lambda it: it[1:], lambda it: Path("/data") / it, ",".join, lambda it: json.dumps([it])),
    ],
)
def test_a_result_that_is_used_as_a_value_raises(use):
    """G13: else its repr would be a path, and a comparison would be false, without a word."""
    with pytest.raises(TypeError):
        use(result("a")["b"])
    assert "'a'" in repr(result("a"))


def test_the_error_says_what_to_do():
    with pytest.raises(TypeError, match=r"names=\('a',\).*compute .* in that node's handler"):
        f"/data/{result('a')}.tif"


def test_a_node_in_a_text_raises(db):
    with Graph() as g, pytest.raises(TypeError, match=r"result\(…\) stands for its output"):
        f"/data/{g.add(echo)}.tif"


def test_the_number_of_results_of_a_map_is_known():
    three = results.Result(("a", "b", "c"), is_list=True)
    assert len(three) == 3
    assert [each.names for each in three] == [("a",), ("b",), ("c",)]
    with pytest.raises(TypeError):
        bool(three)
    with pytest.raises(TypeError):
        "x" in three  # noqa: B015


def test_what_holds_itself_is_not_entered_again():
    loop = [result("a")]
    loop.append(loop)
    assert len(results.results_in(loop)) == 1


class TestPickled:
    @pytest.fixture(autouse=True)
    def allowed(self, settings):
        settings.ATP = {"ALLOW_PICKLE": True}

    def test_a_result_comes_back(self):
        payload = codec.encode(results.placed({"path": result("a")["b"]}), format=codec.PICKLE)
        assert codec.may_have_results(payload)
        found = results.resolved(codec.decode(payload), lambda name: {"b": name})
        assert found == {"path": "a"}

    def test_without_a_result_nobody_looks_for_one(self):
        assert not codec.may_have_results(codec.encode({"path": "a"}, format=codec.PICKLE))

    @pytest.mark.parametrize("value", [Scene(result("a")), result("a")])
    def test_a_result_where_nobody_looks_for_it_is_refused(self, value):
        """Else the handler would get it instead of the output."""
        with pytest.raises(NotSerializable, match="nodes of its graph only"):
            codec.encode(value, format=codec.PICKLE)


def test_a_node_with_a_result_where_nobody_looks_for_it_is_refused(declare_pickled):
    with Graph() as g:
        first = g.add(declare_pickled, name="a")
        with pytest.raises(NotSerializable, match="dicts, lists and tuples"):
            g.add(declare_pickled, Scene(result("a")), after=first)


@pytest.fixture
def declare_pickled(db, settings, monkeypatch):
    settings.ATP = {"ALLOW_PICKLE": True}
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    return task_type("graphs.pick", serializer="pickle")(lambda context, value=None: value)
