"""``pending()``: what waits, and would fail under the code of this process (docs/deploying.md)."""

import os
from datetime import timedelta

import pytest

from atp import Graph, queue, result, task_type
from atp.models import Daemon, Gate, Inputs, Response, Schedule
from atp.payload.codec import PICKLE_CONTENT_TYPE
from atp.payload.signed_pickle import to_pickle
from atp.reports.deploys import findings, opening, pending
from atp.reports.deploys.findings import Kind
from atp.reports.deploys.pending import pending as look
from atp.states import Event
from atp.store import get_store
from atp.store.common.inputs import Inputs as Portable
from atp.store.values import ResponseData
from atp.verbs.registry import registry

from ..app.tasks import echo
from ..app.tasks_graphs import fetch
from ..app.tasks_graphs import shade as shade_node
from .conftest import SHADE

pytestmark = pytest.mark.django_db


def found(**options):
    """Return the findings as triples: kind, Type, count."""
    return [(each.kind, each.type, each.count) for each in look(**options).findings]


def only(**options):
    """Return the only finding."""
    [finding] = look(**options).findings
    return finding


def test_nothing_waits():
    assert (look().looked_at, look().findings, look().failing) == (0, (), ())


def test_what_fits_is_no_finding(shade):
    shade.enqueue(path="a")
    shade.enqueue(path="b", azimuth=1.0)
    assert look().looked_at == 2
    assert look().findings == ()


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (lambda context, *, path, zoom: 0, "argument 'zoom' is required"),
        (lambda context: 0, "there is no argument 'path'"),
        (
            lambda context, *, paths: 0,
            "argument 'paths' is required; there is no argument 'path' (did you mean 'paths'?)",
        ),
    ],
    ids=["made required", "removed", "renamed"],
)
def test_an_argument_was(shade, release, handler, why):
    first, *_ = [shade.enqueue(path="a") for _ in range(3)]
    release(handler)
    finding = only()
    assert (finding.kind, finding.type, finding.count) == (Kind.MISFIT, SHADE, 3)
    assert (finding.why, finding.instance, finding.since) == (why, first.uuid, first.created)
    assert finding.fails


def test_an_optional_argument_that_is_new_fits(shade, release):
    shade.enqueue(path="a")
    release(lambda context, *, path, azimuth=0.0, zoom=1: 0)
    assert found() == []


def test_arguments_by_position(release):
    def handler(context, first, *more):
        return first

    release(handler).enqueue(1, 2, 3)
    release(lambda context, first: 0)
    assert only().why == "too many positional arguments"


def test_what_runs_is_looked_at_too(shade, release, world, host):
    """It may be lost, and is run again then."""
    shade.enqueue(path="a")
    host.claim(types=(SHADE,))
    release(lambda context: 0)
    assert found() == [(Kind.MISFIT, SHADE, 1)]


def test_a_type_that_no_code_declares(shade, release, world):
    """Who serves it is told: the daemons of the old release."""
    shade.enqueue(path="a")
    release()
    assert only().kind is Kind.UNDECLARED
    assert "no daemon that is alive serves it" in only().why
    world.host(SHADE, name="web1")
    assert "served by daemon web1:1" in only().why


def test_a_look_of_a_tailer_that_no_code_declares_is_no_finding(shade, release):
    """Whether one is live at that moment is chance; what it would read stays in the source."""
    get_store().tailers.begin(SHADE, source="/srv/scenes")
    shade.enqueue(path="a")
    release()
    assert look().findings == ()


def test_a_type_that_was_renamed(shade, release):
    shade.enqueue(path="a")
    release(shade.handler, identifier="deploys.renamed", formerly=[SHADE])
    assert found() == []


@pytest.mark.parametrize("data", ["no json", "[1]", '"text"', "", '{"*": 7}', "null"])
def test_inputs_that_cannot_be_read_are_listed(shade, data):
    Inputs.objects.filter(instance=shade.enqueue(path="a").pk).update(data=data)
    shade.enqueue(path="b")
    assert found() == [(Kind.UNREADABLE, SHADE, 1)]


def test_inputs_that_are_gone(shade):
    Inputs.objects.filter(instance=shade.enqueue(path="a").pk).delete()
    assert found() == [(Kind.UNREADABLE, SHADE, 1)]


def test_a_format_that_nobody_knows(shade):
    Inputs.objects.filter(instance=shade.enqueue(path="a").pk).update(format="xml")
    assert only().why == "unknown format 'xml'"


class TestAdapting:
    def test_inputs_that_are_adapted_are_a_note(self, shade, release):
        shade.enqueue(path="a")
        next_release = release(lambda context, *, path, azimuth, zoom: 0)

        @next_release.adapt
        def _(inputs):
            return {"azimuth": 0.0, "zoom": 1, **inputs}

        finding = only()
        assert (finding.kind, finding.fails) == (Kind.ADAPTED, False)
        assert Inputs.objects.get().value == {"path": "a"}

    def test_inputs_that_no_adapter_makes_fit(self, shade, release):
        shade.enqueue(path="a")
        next_release = release(lambda context, *, paths: 0)
        next_release.adapt(lambda inputs: {"pats": inputs["path"]})
        assert "did you mean 'paths'?" in only().why

    def test_some_are_tried_and_with_deep_all(self, shade, release, monkeypatch):
        """The others are taken for like them."""
        monkeypatch.setattr(pending, "EXAMPLES", 2)
        for number in range(4):
            shade.enqueue(path=str(number))
        tried = []
        next_release = release(lambda context, *, paths: 0)

        @next_release.adapt
        def _(inputs):
            tried.append(inputs["path"])
            return {"paths": [inputs["path"]]}

        assert found() == [(Kind.ADAPTED, SHADE, 4)]
        assert tried == ["0", "1"]
        tried.clear()
        assert found(deep=True) == [(Kind.ADAPTED, SHADE, 4)]
        assert tried == ["0", "1", "2", "3"]


class Deadly:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (3,)


class TestPickles:
    @pytest.fixture(autouse=True)
    def allowed(self, settings):
        settings.ATP = settings.ATP | {"ALLOW_PICKLE": True}

    @pytest.fixture
    def pickling(self, release):
        return release(lambda context, *, path: 0, serializer="pickle")

    def test_they_are_not_opened(self, pickling):
        pickling.enqueue(path=Deadly())
        finding = only()
        assert (finding.kind, finding.why, finding.fails) == (
            Kind.UNOPENED,
            opening.NOT_OPENED,
            False,
        )

    def test_pickle_is_not_allowed_any_more(self, pickling, settings):
        pickling.enqueue(path="a")
        settings.ATP = settings.ATP | {"ALLOW_PICKLE": False}
        assert only().kind is Kind.FORMAT

    def test_another_secret_key(self, pickling, settings):
        pickling.enqueue(path="a")
        settings.SECRET_KEY = "another"
        assert only().kind is Kind.FORMAT
        assert "signature" in only().why

    def test_deep_opens_them(self, pickling, release):
        pickling.enqueue(path="a")
        assert found(deep=True) == []
        release(lambda context, *, paths: 0, serializer="pickle")
        assert "'paths'" in only(deep=True).why

    def test_what_ends_the_process_that_opens_it_is_listed(self, pickling):
        _, deadly, _ = (pickling.enqueue(path=path) for path in ("a", Deadly(), "b"))
        finding = only(deep=True)
        assert (finding.kind, finding.instance) == (Kind.MISFIT, deadly.uuid)
        assert "ended" in finding.why

    def test_they_are_adapted(self, pickling, release):
        pickling.enqueue(path={"a"})
        release(lambda context, *, paths: 0).adapt(lambda inputs: {"paths": [*inputs["path"]]})
        assert found(deep=True) == [(Kind.ADAPTED, SHADE, 1)]


class TestGraphs:
    @pytest.fixture
    def host(self, world):
        return world.host("graphs.fetch", "graphs.shade")

    def graph(self, key):
        with Graph() as graph:
            scene = graph.add(fetch, url="x")
            graph.add(shade_node, after=scene, path=result(scene)[key])

    def finish(self, host, content_type="application/json", data=b'{"scene":"x"}'):
        [case] = host.claim(types=("graphs.fetch",))
        response = ResponseData(content_type=content_type, data=data, size=len(data))
        host.move(case, Event.FINISH, started=host.world.store.now(), response=response)

    def test_a_result_that_is_not_there_yet_is_no_finding(self, host):
        self.graph("nothing")
        assert found() == []

    def test_a_result_without_that_key(self, host):
        self.graph("nothing")
        self.finish(host)
        finding = only()
        assert (finding.kind, finding.type) == (Kind.RESULT, "graphs.shade")
        assert "nothing at ['nothing']" in finding.why

    def test_a_result_that_is_there(self, host):
        self.graph("scene")
        self.finish(host)
        assert found() == []

    @pytest.fixture
    def pickled(self, host, settings):
        """A node waits that has the pickled result of another one."""
        settings.ATP = settings.ATP | {"ALLOW_PICKLE": True}

        def make(key, value):
            self.graph(key)
            data = to_pickle(value).encode()
            self.finish(host, content_type=PICKLE_CONTENT_TYPE, data=data)

        return make

    def test_a_pickled_result_is_not_opened(self, pickled):
        """G14."""
        pickled("scene", Deadly())
        assert (only().kind, only().why) == (Kind.UNOPENED, opening.RESULT_NOT_OPENED)

    def test_deep_opens_it_in_a_process_of_its_own(self, pickled):
        pickled("scene", Deadly())
        assert (only(deep=True).kind, "ended" in only(deep=True).why) == (Kind.RESULT, True)

    @pytest.mark.parametrize(("key", "kinds"), [("scene", []), ("nothing", [Kind.RESULT])])
    def test_deep_finds_what_is_in_it(self, pickled, key, kinds):
        pickled(key, {"scene": "x"})
        assert [kind for kind, *_ in found(deep=True)] == kinds

    def test_no_adapter_is_given_a_pickled_result(self, pickled, monkeypatch):
        monkeypatch.setattr(registry, "_types", dict(registry._types))
        pickled("scene", Deadly())
        registry.remove("graphs.shade")
        made = task_type("graphs.shade")(lambda context, *, paths: 0)
        made.adapt(lambda inputs: {"paths": [inputs["path"]]})
        assert (Kind.UNOPENED, "graphs.shade", 1) in found()

    def test_a_pickled_result_that_this_project_does_not_open(self, pickled, settings):
        pickled("scene", {"scene": "x"})
        settings.ATP = settings.ATP | {"ALLOW_PICKLE": False}
        assert (only().kind, "ALLOW_PICKLE" in only().why) == (Kind.RESULT, True)

    def test_a_result_whose_file_is_gone(self, host):
        self.graph("scene")
        self.finish(host)
        Response.objects.update(data=None, file="gone")
        assert (only().kind, "FileNotFoundError" in only().why) == (Kind.RESULT, True)

    def test_not_all_are_looked_at(self, host, monkeypatch):
        monkeypatch.setattr(pending, "MOST_RESULTS", 0)
        self.graph("nothing")
        self.finish(host)
        assert found() == [(Kind.UNOPENED, "graphs.shade", 1)]
        assert found(deep=True) == [(Kind.RESULT, "graphs.shade", 1)]


class TestSchedules:
    def make(self, type, **inputs):
        return queue.create_schedule("nightly", str(type), every=60, inputs=inputs)

    def test_inputs_that_do_not_fit(self, shade, release):
        queue.register(shade)
        self.make(shade, path="a")
        assert found() == []
        release(lambda context, *, paths: 0)
        finding = only()
        assert (finding.kind, finding.schedule, finding.count) == (Kind.MISFIT, "nightly", None)
        assert "did you mean 'paths'?" in finding.why

    def test_its_type_is_gone(self, shade, release):
        queue.register(shade)
        self.make(shade, path="a")
        release()
        assert found() == [(Kind.UNDECLARED, SHADE, None)]

    def test_the_slot_is_given(self, release):
        declared = release(lambda context, *, slot: 0)
        queue.register(declared)
        self.make(declared)
        assert found() == []
        release(lambda context: 0)
        assert "'slot'" in only().why

    def test_inputs_that_cannot_be_read(self, shade):
        queue.register(shade)
        self.make(shade, path="a")
        Schedule.objects.update(data="no json")
        assert found() == [(Kind.UNREADABLE, SHADE, None)]

    def test_one_that_is_retired_with_the_switch_is_left_out(self, shade, release):
        """The code that declared it is gone: ``migrate`` retires it."""
        queue.register(shade)
        self.make(shade, path="a")
        Schedule.objects.update(declared={}, is_set=False)
        release()
        assert found() == []


def test_gates_and_limits_of_a_type_that_is_gone(shade, release):
    queue.register(shade)
    queue.hold(shade)
    queue.limit(shade, max_running=1)
    assert found() == []
    release()
    finding = only()
    assert (finding.kind, finding.fails) == (Kind.LEFTOVER, False)
    assert "gate and limits" in finding.why


def test_gate_that_is_open_again_is_no_leftover(shade, release):
    queue.register(shade)
    queue.hold(shade, until=timedelta(hours=1))
    Gate.objects.update(until=get_store().now() - timedelta(seconds=1))
    release()
    assert found() == []


def test_values_are_compared_with_the_contract_of_this_code(shade, release, monkeypatch):
    for azimuth in (1.0, 2.0, 3.0):
        shade.enqueue(path="a", azimuth=azimuth)

    def handler(context, *, path: str, azimuth: str):
        return path

    release(handler)
    finding = only()
    assert (finding.kind, finding.count, finding.fails) == (Kind.MISFIT, 3, True)
    assert finding.why == "the contract refuses the value of azimuth"
    monkeypatch.setattr(pending, "EXAMPLES", 2)
    kinds = [(Kind.MISFIT, SHADE, 2), (Kind.UNOPENED, SHADE, 1)]
    assert found() == kinds
    assert found(deep=True) == [(Kind.MISFIT, SHADE, 3)]


def test_only_some_types(shade, release):
    shade.enqueue(path="a")
    echo.enqueue()
    release()
    assert found(wants=lambda identifier: identifier == "tests.echo") == []


def test_types_that_differ_from_those_of_a_living_daemon(shade, release, world):
    world.host(SHADE, name="web1")
    Daemon.objects.update(release="3f2a", signatures={SHADE: shade.fingerprint, "other": "1"})
    assert look().differences == ()
    other = release(lambda context, *, paths: 0)
    [difference] = look().differences
    assert (difference.type, difference.daemon, difference.release) == (SHADE, "web1:1", "3f2a")
    assert (difference.here, difference.there) == (other.fingerprint, shade.fingerprint)


def test_it_only_reads(shade, release, world):
    shade.enqueue(path="a")
    echo.enqueue()
    release(lambda context: 0)
    before = world.snapshot()
    look(deep=True)
    assert world.snapshot() == before


def test_portions(shade, monkeypatch):
    """Each Instance is looked at once, however many are asked for at a time."""
    inputs = get_store().inputs
    keys = {shade.enqueue(path="a").pk for _ in range(5)} | {echo.enqueue(a=1).pk}
    seen, after = [], 0
    while True:
        shapes, last = inputs.shapes(after, limit=2)
        if last is None:
            break
        assert last > after
        seen += [key for shape in shapes for key in shape.keys]
        after = last
    assert sorted(seen) == sorted(keys)


def test_both_ways_of_reading_shapes_say_the_same(shade, release):
    shade.enqueue(path="a")
    echo.enqueue(b=1, a={"c": [1]})
    release(lambda context, *more: 0, serializer="json").enqueue(1, 2)
    with Graph() as graph:
        scene = graph.add(fetch, url="x")
        graph.add(shade_node, after=scene, path=result(scene)["scene"])
    store = get_store()

    def said(inputs):
        shapes, last = inputs.shapes()
        return sorted(shapes, key=lambda shape: shape.keys), last

    assert said(store.inputs) == said(Portable(store))


def test_like_findings_are_one(shade):
    collected = findings.Collected()
    for _ in range(2):
        keys = [shade.enqueue(path="a").pk]
        collected.add(Kind.MISFIT, SHADE, "why", keys, None)
    assert [each.count for each in collected.findings()] == [2]
