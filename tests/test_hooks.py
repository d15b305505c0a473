"""Tests of hooks: their declaration, what is refused (G13), and how they are shown."""

import pytest
from django.contrib.auth.models import User

from atp import Graph, on_failed, on_finished, queue, task_type
from atp.checks import check_hooks
from atp.deadletters.tasks import redrive
from atp.exceptions import InvalidGraph, InvalidOption, InvalidType
from atp.models import Instance, Kind, Type
from atp.operations.registry import declared_hooks, registry
from atp.signals import enqueued

from .api.client import Api
from .app.tasks import echo
from .app.tasks_hooks import hooked
from .helpers import shell
from .store.hooks import check


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """Remove after each test the Types and hooks that it has declared."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    monkeypatch.setattr(declared_hooks, "_patterns", {})
    declared_hooks.forget()
    yield
    declared_hooks.forget()


@pytest.fixture
def alert():
    return hook("hooked.alert")


def hook(identifier, **parameters):
    @task_type(identifier, **parameters)
    def handler(context, *, uuid, type, state, reason, to=""):
        """Take the arguments of a hook."""

    return handler


def declare(identifier, **parameters):
    @task_type(identifier, **parameters)
    def handler(context, value=1):
        return value

    return handler


def names(task_type):
    return [(spec.hook.on, spec.hook.type) for spec in declared_hooks.of(task_type)]


class TestDeclaring:
    def test_type_declares_its_hooks_and_a_pattern_those_of_matching_types(self, alert):
        """A pattern also matches Types declared earlier. A hook that is named twice counts once.

        It matches no hook, and Types of ATP only by their exact names. Otherwise a hook that
        fails would enqueue another hook.
        """
        before, index = declare("dem.zero"), hook("hooked.index")
        assert names(before) == []
        both = declare("of.both", on_failed=alert, on_finished=[index, alert])
        of_finished = [("on_finished", "hooked.index"), ("on_finished", "hooked.alert")]
        assert names(both) == [*of_finished, ("on_failed", "hooked.alert")]
        on_failed("dem.*", "*.one", "tiles.?")(alert)
        of_alert = [("on_failed", "hooked.alert")]
        assert names(before) == names(declare("tiles.a")) == of_alert
        assert names(declare("dem.one", on_failed=[alert, alert])) == of_alert
        assert names(declare("tiles.ab")) == []
        declare("other", on_finished=index)
        on_failed("*", "atp.*", "atp.redriv?")(alert)
        assert names(alert) == names(index) == names(redrive) == []
        on_failed("atp.redrive")(alert)
        assert names(redrive) == of_alert

    def test_hook_is_declared_with_its_own_options_and_inputs(self, alert):
        given = alert.using(priority=9, collection="ops", timeout=5, max_retries=1), {"to": "ann"}
        [entry] = declare("dem.one", on_failed=given).registration().hooks
        assert entry == {
            "on": "on_failed",
            "type": "hooked.alert",
            "inputs": '{"to":"ann"}',
            "priority": 9,
            "collection": "ops",
            "own": '{"timeout":5.0,"max_retries":1}',
        }

    @pytest.mark.django_db
    def test_hook_handler_can_take_more_attributes_of_the_instance(self):
        """An input that the declaration sets is not replaced by an attribute of the Instance."""

        @task_type("hooked.told")
        def told(context, *, uuid, type, state, reason, collection, identifier=None):
            """Take two optional arguments of a hook: ``collection`` and ``identifier``."""

        mine = declare("dem.two", on_failed=(told, {"collection": "mine"}))
        for made, collection in ((declare("dem.one", on_failed=told), "x"), (mine, "mine")):
            queue.cancel(made.using(collection="x").enqueue())
            hook = Instance.objects.filter(type__identifier="hooked.told").latest("pk")
            inputs = queue.inputs(hook).value
            assert (inputs["collection"], inputs["identifier"]) == (collection, None)


@pytest.mark.django_db
def test_invalid_hook_is_rejected_when_declared(alert, settings):
    """G13: the error names the cause. A pattern that matches no Type is only a warning."""
    settings.ATP = {"ALLOW_PICKLE": True}
    pickled = hook("hooked.pickle", serializer="pickle")
    wrong = declare("hooked.wrong")
    for given, message in (
        ("hooked.alert", r"on_failed: must be a Type .* not 'hooked.alert'\. Give the Type itself"),
        (lambda context: None, "on_failed: must be a Type that @task_type has declared"),
        (None, "on_failed: must be a Type that @task_type has declared"),
        (hook("hooked.second", on_failed=alert), "'hooked.second' cannot be a hook"),
        (hook("hooked.third").using(on_failed=alert), "'hooked.third' is given with on_failed"),
        (pickled, "with its inputs in JSON"),
        (wrong, r"call this hook as handler\(context, uuid=…, type=…, "),
        (alert.using(identifier="a"), "is given with identifier"),
        (alert.using(unique="a"), "is given with unique"),
        (alert.using(created_by="ann"), "is given with created_by"),
        ((alert, {"whom": "ann"}), "no argument 'whom'"),
        ((alert, {"uuid": "7"}), "'uuid' is given to every hook"),
        ((alert, {"to": object()}), "to"),
        ((alert, "ann"), "must be a mapping"),
    ):
        with pytest.raises(InvalidType, match=message):
            declare("dem.one", on_failed=given)
    with pytest.raises(InvalidType, match=r"call this hook as handler"):
        on_failed("dem.*")(wrong)
    for pattern in ("", "dem/*", "dem *", 7, None):
        with pytest.raises(InvalidType, match="takes patterns for identifiers of Types"):
            on_failed(pattern)
    with pytest.raises(InvalidType, match="needs at least one pattern"):
        on_finished()
    with pytest.raises(InvalidOption, match=r"using\(\): on_failed: must be a Type"):
        echo.using(on_failed="hooked.alert")
    with pytest.raises(InvalidGraph, match="the Type cannot have on_failed"), Graph("odd") as g:
        g.add(echo, undo=echo.using(on_failed=alert))
    declare("dem.one")
    on_failed("dme.one", "dem.*")(alert)
    [problem] = [each for each in check_hooks(None) if "dme.one" in each.msg]
    assert (problem.id, "Did you mean 'dem.one'?" in problem.msg) == ("atp.W014", True)


@pytest.mark.django_db
class TestEnqueueing:
    @pytest.fixture(autouse=True)
    def each_end_has_its_hooks(self):
        yield
        check()

    def test_hook_of_one_instance_is_enqueued_at_its_end(self, alert):
        """The log of the Instance names the hook. The Type itself has no hook."""
        with Graph("hooked") as g:
            g.add(echo, name="a")
            g.add(echo.using(on_failed=(alert, {"to": "ann"})), after="a", name="b")
        queue.cancel_graph(g.row)
        [found] = Instance.objects.filter(type__identifier="hooked.alert")
        first = Instance.objects.get(node__name="b")
        assert found.hook_of == str(first.uuid)
        assert first.log.filter(kind=Kind.HOOK).get().detail == str(found.uuid)
        assert Type.objects.get(identifier="tests.echo").hooks is None

    def test_removed_hook_is_not_enqueued_after_the_next_registration(self, alert):
        """The row of the Type has the hooks that the code declares now."""
        queue.register(declare("dem.one", on_failed=alert))
        made = declare("dem.one").enqueue()
        registry.remove("dem.one")
        queue.register(declare("dem.one"))
        assert Type.objects.get(identifier="dem.one").hooks is None
        queue.cancel(made)
        assert not Instance.objects.filter(type__identifier="hooked.alert").exists()


@pytest.mark.django_db
def test_enqueued_signal_is_sent_for_each_new_instance_despite_receiver_errors():
    sent = []

    def receive(sender, instance, **kwargs):
        sent.append((sender, instance))
        raise ZeroDivisionError

    enqueued.connect(receive)
    try:
        made = echo.enqueue()
        many = echo.enqueue_many([{}, {}])
        same = echo.using(identifier="same", existing="return")
        assert same.enqueue() == same.enqueue()
    finally:
        enqueued.disconnect(receive)
    assert [instance for _, instance in sent[:3]] == [made, *many]
    assert len(sent) == Instance.objects.count() == 4
    assert {sender for sender, _ in sent} == {Instance}


@pytest.mark.slow
@pytest.mark.django_db
def test_each_user_interface_shows_hooks(client):
    def page(address):
        return client.get(f"/atp/{address}/").content.decode()

    queue.register_all()
    made = hooked.enqueue()
    queue.cancel(made)
    hook = Instance.objects.get(type__identifier="chaos.hook")
    root = User.objects.create_superuser("root", password="secret")
    client.force_login(root)
    api = Api(root)
    told = api.get(f"instances/{made.uuid}").json()
    assert (told["hooks"], told["hook_of"]) == ([str(hook.uuid)], None)
    # The record that its hook was enqueued is later, and not the error.
    assert told["error"] == "cancelled"
    told = api.get(f"instances/{hook.uuid}").json()
    assert (told["hooks"], told["hook_of"]) == ([], str(made.uuid))
    told = api.get("types/chaos.hooked").json()
    assert told["on_finished"] == told["on_failed"] == ["chaos.hook"]
    assert f"hook         {hook.uuid}" in shell("show", str(made.uuid))
    assert f"hook of      {made.uuid}" in shell("show", str(hook.uuid))
    assert "on_failed: chaos.hook" in shell("types")
    assert f'href="/atp/instances/{hook.uuid}/"' in page(f"instances/{made.uuid}")
    assert f'href="/atp/instances/{made.uuid}/"' in page(f"instances/{hook.uuid}")
    queue.delete(hook, cancel=True)
    shown = page(f"instances/{made.uuid}")
    assert f'href="/atp/instances/{hook.uuid}/"' not in shown
    assert '<span class="quiet">removed</span>' in shown
    assert "<dt>When one failed</dt><dd>chaos.hook</dd>" in page("types/chaos.hooked")
