"""Hooks: of Types, of one Instance, by pattern; what is refused (G13), and where they are shown."""

import json
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

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
from .store.hooks import check


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test declares is forgotten afterwards."""
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
        """What it does."""

    return handler


def declare(identifier, **parameters):
    @task_type(identifier, **parameters)
    def handler(context, value=1):
        return value

    return handler


def names(task_type):
    return [(spec.hook.on, spec.hook.type) for spec in declared_hooks.of(task_type)]


class TestDeclaring:
    def test_of_a_type(self, alert):
        index = hook("hooked.index")
        made = declare("dem.one", on_failed=alert, on_finished=[index, alert])
        assert names(made) == [
            ("on_finished", "hooked.index"),
            ("on_finished", "hooked.alert"),
            ("on_failed", "hooked.alert"),
        ]

    def test_by_pattern(self, alert):
        """Also of Types that are declared before it; what is named twice is one."""
        before = declare("dem.zero")
        assert names(before) == []
        on_failed("dem.*", "*.one", "tiles.?")(alert)
        of_alert = [("on_failed", "hooked.alert")]
        assert names(before) == names(declare("tiles.a")) == of_alert
        assert names(declare("dem.one", on_failed=[alert, alert])) == of_alert
        assert names(declare("tiles.ab")) == []

    def test_a_pattern_leaves_out_hooks_and_the_types_of_atp_if_it_does_not_name_them(self, alert):
        """Else each hook that fails would enqueue another; an operator looks at what he started."""
        index = hook("hooked.index")
        declare("dem.one", on_finished=index)
        on_failed("*", "atp.*", "atp.redriv?")(alert)
        assert names(alert) == names(index) == names(redrive) == []
        on_failed("atp.redrive")(alert)
        assert names(redrive) == [("on_failed", "hooked.alert")]

    def test_its_options_and_inputs(self, alert):
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
    def test_its_handler_has_parameters_for_more_of_the_instance(self):
        """What it is given of its own is not replaced."""

        @task_type("hooked.told")
        def told(context, *, uuid, type, state, reason, collection, identifier=None):
            """Both are given to it."""

        mine = declare("dem.two", on_failed=(told, {"collection": "mine"}))
        for made, collection in ((declare("dem.one", on_failed=told), "x"), (mine, "mine")):
            queue.cancel(made.using(collection="x").enqueue())
            hook = Instance.objects.filter(type__identifier="hooked.told").latest("pk")
            inputs = queue.inputs(hook).value
            assert (inputs["collection"], inputs["identifier"]) == (collection, None)


@pytest.mark.django_db
def test_what_cannot_be_a_hook(alert, settings):
    """G13: it is told when it is declared, by name."""
    settings.ATP = {"ALLOW_PICKLE": True}
    pickled = hook("hooked.pickle", serializer="pickle")
    wrong = declare("hooked.wrong")
    for given, message in (
        ("hooked.alert", r"on_failed: must be a Type .* not 'hooked.alert'\. Give the Type itself"),
        (lambda context: None, "on_failed: must be a Type that @task_type has declared"),
        (None, "on_failed: must be a Type that @task_type has declared"),
        (hook("hooked.second", on_failed=alert), "'hooked.second' has hooks itself"),
        (hook("hooked.third").using(on_failed=alert), "'hooked.third' is given with on_failed"),
        (pickled, "with its inputs in JSON"),
        (wrong, r"called as handler\(context, uuid=…, type=…, "),
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
    with pytest.raises(InvalidType, match=r"called as handler"):
        on_failed("dem.*")(wrong)
    for pattern in ("", "dem/*", "dem *", 7, None):
        with pytest.raises(InvalidType, match="takes patterns of the names of Types"):
            on_failed(pattern)
    with pytest.raises(InvalidType, match="names no Type"):
        on_finished()
    with pytest.raises(InvalidOption, match=r"using\(\): on_failed: must be a Type"):
        echo.using(on_failed="hooked.alert")
    with pytest.raises(InvalidGraph, match="on_failed cannot be given"), Graph("odd") as g:
        g.add(echo, undo=echo.using(on_failed=alert))


def test_a_pattern_that_matches_no_type_is_a_warning(alert):
    declare("dem.one")
    on_failed("dme.one", "dem.*")(alert)
    [problem] = check_hooks(None)
    assert problem.id == "atp.W014"
    assert problem.msg == (
        "on_failed of 'hooked.alert': no Type matches 'dme.one'. Did you mean 'dem.one'?"
    )


@pytest.mark.django_db
class TestEnqueueing:
    @pytest.fixture(autouse=True)
    def each_end_has_its_hooks(self):
        yield
        check()

    def test_of_one_instance(self, alert):
        """Its log tells of it; the Type has none."""
        given = alert, {"to": "ann"}
        first, other = echo.using(on_failed=given).enqueue(), echo.enqueue()
        for instance in (first, other):
            queue.cancel(instance)
        [found] = Instance.objects.filter(type__identifier="hooked.alert")
        assert found.hook_of == str(first.uuid)
        assert first.log.filter(kind=Kind.HOOK).get().detail == str(found.uuid)
        assert Type.objects.get(identifier="tests.echo").hooks is None

    def test_of_a_node(self, alert):
        with Graph("hooked") as g:
            g.add(echo, name="a")
            g.add(echo.using(on_failed=alert), after="a", name="b")
        queue.cancel_graph(g.row)
        [found] = Instance.objects.filter(type__identifier="hooked.alert")
        assert found.hook_of == str(Instance.objects.get(node__name="b").uuid)

    def test_hooks_that_are_given_up(self, alert):
        """The row says what the code says now."""
        queue.register(declare("dem.one", on_failed=alert))
        made = declare("dem.one").enqueue()
        registry.remove("dem.one")
        queue.register(declare("dem.one"))
        assert Type.objects.get(identifier="dem.one").hooks is None
        queue.cancel(made)
        assert not Instance.objects.filter(type__identifier="hooked.alert").exists()


@pytest.mark.django_db
def test_a_signal_tells_of_each_new_instance_and_a_receiver_that_fails_harms_nothing():
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


@pytest.mark.django_db
class TestShown:
    @pytest.fixture
    def ended(self):
        """An Instance that was cancelled, and its hook."""
        queue.register_all()
        made = hooked.enqueue()
        queue.cancel(made)
        return made, Instance.objects.get(type__identifier="chaos.hook")

    @pytest.fixture
    def root(self, client):
        user = User.objects.create_superuser("root", password="secret")
        client.force_login(user)
        return user

    def test_the_api_and_the_shell(self, ended, root):
        def shell(*arguments):
            out = StringIO()
            call_command("atp", *arguments, stdout=out)
            return out.getvalue()

        api = Api(root)
        made, hook = ended
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
        assert json.loads(shell("show", str(made.uuid), "--json"))["hooks"] == [str(hook.uuid)]
        assert "on_failed: chaos.hook" in shell("types")

    def test_the_pages(self, ended, root, client):
        def page(address):
            return client.get(f"/atp/{address}/").content.decode()

        made, hook = ended
        shown = page(f"instances/{made.uuid}")
        assert "<h2>Hooks</h2>" in shown
        assert f'href="/atp/instances/{hook.uuid}/"' in shown
        shown = page(f"instances/{hook.uuid}")
        assert "<dt>Hook of</dt>" in shown
        assert f'href="/atp/instances/{made.uuid}/"' in shown
        assert "<h2>Hooks</h2>" not in shown
        queue.delete(hook, cancel=True)
        shown = page(f"instances/{made.uuid}")
        assert f'href="/atp/instances/{hook.uuid}/"' not in shown
        assert '<span class="quiet">removed</span>' in shown
        assert "<dt>When one failed</dt><dd>chaos.hook</dd>" in page("types/chaos.hooked")
        assert "When one failed" not in page("types/chaos.hook")
