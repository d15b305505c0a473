"""Results in the inputs of nodes: where they may stand, and what stays as it is."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest

from atp import Graph, result, task_type
from atp.exceptions import NotSerializable
from atp.graphs import results
from atp.payload import codec
from atp.verbs.registry import registry

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

    @pytest.mark.parametrize("value", [{result("a")}, Scene(result("a")), result("a")])
    def test_a_result_where_nobody_looks_for_it_is_refused(self, value):
        """Else the handler would get it instead of the output."""
        with pytest.raises(NotSerializable, match="nodes of its graph only"):
            codec.encode(value, format=codec.PICKLE)


def test_a_node_with_a_result_where_nobody_looks_for_it_is_refused(declare_pickled):
    with Graph() as g:
        first = g.add(declare_pickled, name="a")
        with pytest.raises(NotSerializable, match="dicts, lists and tuples"):
            g.add(declare_pickled, {result("a")}, after=first)


@pytest.fixture
def declare_pickled(db, settings, monkeypatch):
    settings.ATP = {"ALLOW_PICKLE": True}
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    return task_type("graphs.pick", serializer="pickle")(lambda context, value=None: value)
