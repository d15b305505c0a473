"""``pending()`` finds waiting inputs that would fail in this code (docs/deploying.md)."""

import os
from datetime import timedelta

import pytest

from atp import Graph, queue, result, task_type
from atp.models import Daemon, Gate, Inputs, Limit, Response, Schedule, Task
from atp.operations.registry import registry
from atp.payload.codec import PICKLE_CONTENT_TYPE, to_pickle
from atp.reports import pending
from atp.reports.pending import Kind
from atp.reports.pending import pending as look
from atp.states import Event
from atp.store import get_store
from atp.store.values import ResponseData

from ..app.tasks import echo
from ..app.tasks_graphs import fetch
from ..app.tasks_graphs import shade as shade_node
from .conftest import SHADE

pytestmark = pytest.mark.django_db


def found(**options):
    """Return the findings as tuples of kind, Type and count."""
    return [(each.kind, each.type, each.count) for each in look(**options).findings]


def only(**options):
    """Return the only finding."""
    [finding] = look(**options).findings
    return finding


def test_compatible_inputs_are_not_reported(shade, release):
    assert (look().looked_at, look().findings, look().failing) == (0, (), ())
    shade.enqueue(path="a")
    shade.enqueue(path="b", azimuth=1.0)
    assert (look().looked_at, look().findings) == (2, ())
    release(lambda context, *, path, azimuth=0.0, zoom=1: 0)
    assert found() == []


def test_a_required_or_renamed_argument_is_reported(shade, release, host):
    """Running Instances are checked too, because a lost one would run again."""
    first, *_ = [shade.enqueue(path="a") for _ in range(3)]
    host.claim(1, types=(SHADE,))
    for handler, why in (
        (lambda context, *, path, zoom: 0, "argument 'zoom' is required"),
        (
            lambda context, *, paths: 0,
            "argument 'paths' is required; there is no argument 'path' (did you mean 'paths'?)",
        ),
    ):
        release(handler)
        finding = only()
        assert (finding.kind, finding.type, finding.count) == (Kind.MISFIT, SHADE, 3)
        assert (finding.why, finding.instance, finding.since) == (why, first.uuid, first.created)
        assert finding.fails


def test_an_undeclared_type_is_reported_with_the_daemons_that_serve_it(shade, release, world):
    """These are the daemons of the old release."""
    shade.enqueue(path="a")
    release()
    assert only().kind is Kind.UNDECLARED
    assert "no daemon that is alive serves it" in only().why
    world.host(SHADE, name="web1")
    assert "served by daemon web1:1" in only().why
    release(shade.handler, identifier="deploys.renamed", formerly=[SHADE])
    assert found() == []
    # A tailer's records stay in the source, and whether a scan is live is chance.
    release(identifier="deploys.renamed")
    assert only().kind is Kind.UNDECLARED
    get_store().tailers.begin(SHADE, source="/srv/scenes")
    assert found() == []


def test_unreadable_inputs_are_reported(shade):
    inputs = Inputs.objects.filter(instance=shade.enqueue(path="a").pk)
    shade.enqueue(path="b")
    for data in ("no json", "[1]", '"text"', "", '{"*": 7}', "null"):
        inputs.update(data=data)
        assert found() == [(Kind.UNREADABLE, SHADE, 1)], data
    inputs.update(format="xml")
    assert only().why == "unknown format 'xml'"
    inputs.delete()
    assert found() == [(Kind.UNREADABLE, SHADE, 1)]


def test_inputs_that_an_adapter_converts_are_reported_but_are_no_failure(
    shade, release, monkeypatch
):
    """Without ``deep`` only some of the inputs are tried; the others count as the same."""
    monkeypatch.setattr(pending, "EXAMPLES", 2)
    for number in range(4):
        shade.enqueue(path=str(number))
    tried = []
    next_release = release(lambda context, *, paths: 0)

    @next_release.adapt
    def _(inputs):
        tried.append(inputs["path"])
        return {"paths": [inputs["path"]]}

    finding = only()
    assert (finding.kind, finding.count, finding.fails) == (Kind.ADAPTED, 4, False)
    assert tried == ["0", "1"]
    tried.clear()
    assert found(deep=True) == [(Kind.ADAPTED, SHADE, 4)]
    assert tried == ["0", "1", "2", "3"]
    assert Inputs.objects.first().value == {"path": "0"}


def test_values_are_checked_against_the_contract_of_this_code(shade, release, monkeypatch):
    for azimuth in (1.0, 2.0, 3.0):
        shade.enqueue(path="a", azimuth=azimuth)

    def handler(context, *, path: str, azimuth: str):
        return path

    release(handler)
    finding = only()
    assert (finding.kind, finding.count, finding.fails) == (Kind.MISFIT, 3, True)
    assert finding.why == "the contract refuses the value of azimuth"
    monkeypatch.setattr(pending, "EXAMPLES", 2)
    assert found() == [(Kind.MISFIT, SHADE, 2), (Kind.UNOPENED, SHADE, 1)]
    assert found(deep=True) == [(Kind.MISFIT, SHADE, 3)]


class Deadly:
    """Ends the process that unpickles the value."""

    def __reduce__(self):
        return os._exit, (3,)


@pytest.fixture
def pickles(settings):
    settings.ATP = settings.ATP | {"ALLOW_PICKLE": True}


def test_only_the_deep_check_opens_pickles_and_it_uses_a_child_process(pickles, release, settings):
    pickling = release(lambda context, *, path: 0, serializer="pickle")
    _, deadly, _ = (pickling.enqueue(path=path) for path in ("a", Deadly(), "b"))
    finding = only()
    assert (finding.kind, finding.fails) == (Kind.UNOPENED, False)
    assert finding.why == pending.NOT_OPENED
    finding = only(deep=True)
    assert (finding.kind, finding.instance) == (Kind.MISFIT, deadly.uuid)
    assert "ended" in finding.why
    # What this project does not open any more.
    settings.ATP = settings.ATP | {"ALLOW_PICKLE": False}
    assert {kind for kind, *_ in found()} == {Kind.FORMAT}
    settings.ATP = settings.ATP | {"ALLOW_PICKLE": True}
    settings.SECRET_KEY = "another"
    assert {kind for kind, *_ in found()} == {Kind.FORMAT}
    assert all("signature" in each.why for each in look().findings)


def test_the_deep_check_finds_pickled_inputs_that_do_not_fit(pickles, release):
    release(lambda context, *, path: 0, serializer="pickle").enqueue(path={"a"})
    assert found(deep=True) == []
    declared = release(lambda context, *, paths: 0, serializer="pickle")
    assert "'paths'" in only(deep=True).why
    declared.adapt(lambda inputs: {"paths": [*inputs["path"]]})
    assert found(deep=True) == [(Kind.ADAPTED, SHADE, 1)]


def submit(key):
    """Submit a graph whose second node needs this key of the first node's result."""
    with Graph() as graph:
        scene = graph.add(fetch, url="x")
        graph.add(shade_node, after=scene, path=result(scene)[key])


@pytest.fixture
def finish(world):
    """Finish the first node of such a graph."""
    host = world.host("graphs.fetch", "graphs.shade")

    def finish(value=None):
        [case] = host.claim(types=("graphs.fetch",))
        data = b'{"scene":"x"}' if value is None else to_pickle(value).encode()
        kind = "application/json" if value is None else PICKLE_CONTENT_TYPE
        response = ResponseData(content_type=kind, data=data, size=len(data))
        host.move(case, Event.FINISH, started=world.store.now(), response=response)

    return finish


def test_a_result_that_lacks_a_key_or_its_file_is_reported(finish, monkeypatch):
    submit("scene")
    finish()
    submit("nothing")
    assert found() == []
    finish()
    finding = only()
    assert (finding.kind, finding.type) == (Kind.RESULT, "graphs.shade")
    assert "no entry ['nothing']" in finding.why
    with monkeypatch.context() as patch:
        patch.setattr(pending, "MOST_RESULTS", 0)
        assert found() == [(Kind.UNOPENED, "graphs.shade", 2)]
        assert found(deep=True) == [(Kind.RESULT, "graphs.shade", 1)]
    Response.objects.update(data=None, file="gone")
    whys = [each.why for each in look().findings if each.kind is Kind.RESULT]
    assert whys
    assert all("FileNotFoundError" in why for why in whys)


def test_only_the_deep_check_opens_a_pickled_result(pickles, finish, monkeypatch):
    """An adapter does not open the result either; ``deep`` uses a child process (G14)."""
    submit("scene")
    finish(Deadly())
    assert (only().kind, only().why) == (Kind.UNOPENED, pending.RESULT_NOT_OPENED)
    assert (only(deep=True).kind, "ended" in only(deep=True).why) == (Kind.RESULT, True)
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    registry.remove("graphs.shade")
    made = task_type("graphs.shade")(lambda context, *, paths: 0)
    made.adapt(lambda inputs: {"paths": [inputs["path"]]})
    assert (Kind.UNOPENED, "graphs.shade", 1) in found()


def test_the_deep_check_finds_a_key_that_a_pickled_result_lacks(pickles, finish, settings):
    submit("scene")
    finish({"scene": "x"})
    assert found(deep=True) == []
    submit("nothing")
    finish({"scene": "x"})
    assert [kind for kind, *_ in found(deep=True)] == [Kind.RESULT]
    settings.ATP = settings.ATP | {"ALLOW_PICKLE": False}
    assert "ALLOW_PICKLE" in only().why


def schedule(type, **inputs):
    queue.register(type)
    return queue.create_schedule("nightly", str(type), every=60, inputs=inputs)


def test_incompatible_inputs_of_a_schedule_are_reported(shade, release):
    """A schedule that was declared by deleted code is ignored, as ``migrate`` will retire it."""
    schedule(shade, path="a")
    assert found() == []
    release(lambda context, *, paths: 0)
    finding = only()
    assert (finding.kind, finding.schedule, finding.count) == (Kind.MISFIT, "nightly", None)
    assert "did you mean 'paths'?" in finding.why
    release()
    assert found() == [(Kind.UNDECLARED, SHADE, None)]
    release(shade.handler)
    Schedule.objects.update(data="no json")
    assert found() == [(Kind.UNREADABLE, SHADE, None)]
    release()
    Schedule.objects.update(declared={}, is_set=False)
    assert found() == []
    # A handler may have no argument for the slot any more.
    Schedule.objects.all().delete()
    schedule(release(lambda context, *, slot: 0))
    assert found() == []
    release(lambda context: 0)
    assert "'slot'" in only().why


def test_gates_and_limits_of_an_undeclared_type_are_reported(shade, release):
    queue.register(shade)
    queue.hold(shade, until=timedelta(hours=1))
    queue.limit(shade, max_running=1)
    assert found() == []
    release()
    finding = only()
    assert (finding.kind, finding.fails) == (Kind.LEFTOVER, False)
    assert "gate and limits" in finding.why
    # A gate that is open again is none.
    Limit.objects.all().delete()
    Gate.objects.update(until=get_store().now() - timedelta(seconds=1))
    assert found() == []


def test_types_that_differ_from_those_of_a_daemon_are_reported(shade, release, world):
    world.host(SHADE, name="web1")
    Daemon.objects.update(release="3f2a", signatures={SHADE: shade.fingerprint, "other": "1"})
    assert look().differences == ()
    other = release(lambda context, *, paths: 0)
    [difference] = look().differences
    assert (difference.type, difference.daemon, difference.release) == (SHADE, "web1:1", "3f2a")
    assert (difference.here, difference.there) == (other.fingerprint, shade.fingerprint)


def test_the_pending_check_writes_nothing(shade, release, world):
    shade.enqueue(path="a")
    echo.enqueue()
    release(lambda context: 0)
    before = world.snapshot()
    look(deep=True)
    assert world.snapshot() == before


@pytest.mark.each_database
def test_grouping_by_the_shape_of_inputs_returns_each_instance_exactly_once(shade, release):
    inputs = get_store().inputs
    for _ in range(3):
        shade.enqueue(path="a")
    echo.enqueue(b=1, a={"c": [1]})
    release(lambda context, *more: 0, serializer="json").enqueue(1, 2)
    submit("scene")
    keys = Task.objects.values_list("pk", flat=True)
    shapes, last = inputs.shapes()
    assert last == max(keys)
    assert sorted((s.placed, s.names, s.has_results, len(s.keys)) for s in shapes) == [
        (0, ("a", "b"), False, 1),
        (0, ("path",), False, 3),
        (0, ("path",), True, 1),
        (0, ("url",), False, 1),
        (2, (), False, 1),
    ]
    seen, after = [], 0
    while after is not None:
        shapes, last = inputs.shapes(after, limit=2)
        assert last is None or last > after
        seen += [key for shape in shapes for key in shape.keys]
        after = last
    assert sorted(seen) == sorted(keys)
