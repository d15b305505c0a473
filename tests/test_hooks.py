"""Hooks as code declares them: of Types, of one Instance, by pattern (G13)."""

import pytest

from atp import Graph, on_failed, on_finished, queue, task_type
from atp.checks import check_hooks
from atp.deadletters.task import redrive
from atp.exceptions import InvalidGraph, InvalidOption, InvalidType, TypeInUse
from atp.models import Instance, Type
from atp.rows.log import Kind
from atp.rows.task import HOOKED
from atp.signals import enqueued
from atp.states import State
from atp.verbs import hook_specs
from atp.verbs.enqueueing import Call
from atp.verbs.hook_specs import declared_hooks
from atp.verbs.registry import registry

from .app.tasks import echo
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
        on_failed("dem.*", "tiles.?")(alert)
        assert names(declare("dem.one")) == [("on_failed", "hooked.alert")]
        assert names(declare("tiles.a")) == [("on_failed", "hooked.alert")]
        assert names(declare("tiles.ab")) == []

    def test_a_pattern_is_for_types_that_are_declared_before_it_too(self, alert):
        made = declare("dem.one")
        assert names(made) == []
        on_finished("dem.*")(alert)
        assert names(made) == [("on_finished", "hooked.alert")]

    def test_a_pattern_leaves_out_what_is_a_hook(self, alert):
        """Else each hook that fails would enqueue another, and so on."""
        index = hook("hooked.index")
        declare("dem.one", on_finished=index)
        on_failed("*")(alert)
        assert names(alert) == names(index) == []

    @pytest.mark.parametrize("pattern", ["*", "atp.*", "atp.redriv?"])
    def test_a_pattern_leaves_out_the_types_of_atp(self, alert, pattern):
        """An operator has started them, and looks at what becomes of them."""
        on_failed(pattern)(alert)
        assert names(redrive) == []

    def test_a_type_of_atp_is_named_exactly(self, alert):
        on_failed("atp.redrive")(alert)
        assert names(redrive) == [("on_failed", "hooked.alert")]

    def test_one_named_twice_is_one(self, alert):
        on_failed("dem.*", "*.one")(alert)
        assert names(declare("dem.one", on_failed=[alert, alert])) == [
            ("on_failed", "hooked.alert")
        ]

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
        @task_type("hooked.told")
        def told(context, *, uuid, type, state, reason, collection, identifier=None):
            """Both are given to it."""

        queue.cancel(declare("dem.one", on_failed=told).using(collection="x").enqueue())
        [made] = Instance.objects.filter(type__identifier="hooked.told")
        inputs = queue.inputs(made).value
        assert (inputs["collection"], inputs["identifier"]) == ("x", None)

    @pytest.mark.django_db
    def test_what_a_hook_is_given_of_its_own_is_not_replaced(self):
        @task_type("hooked.told")
        def told(context, *, uuid, type, state, reason, collection):
            """The collection is its own input."""

        made = declare("dem.one", on_failed=(told, {"collection": "mine"}))
        queue.cancel(made.using(collection="x").enqueue())
        [hook] = Instance.objects.filter(type__identifier="hooked.told")
        assert queue.inputs(hook).value["collection"] == "mine"

    def test_a_type_without_hooks_has_none(self):
        assert declare("dem.one").registration().hooks is None


class TestRefused:
    """Bad hooks are told when they are declared, by name."""

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("hooked.alert", r"must be a Type .* not 'hooked.alert'\. Give the Type itself"),
            (lambda context: None, "must be a Type that @task_type has declared"),
            (None, "must be a Type that @task_type has declared"),
            (7, "must be a Type that @task_type has declared"),
        ],
    )
    def test_what_is_no_type(self, given, message):
        with pytest.raises(InvalidType, match=f"on_failed: {message}"):
            declare("dem.one", on_failed=given)

    def test_a_hook_of_a_hook(self, alert):
        second = hook("hooked.second", on_failed=alert)
        with pytest.raises(InvalidType, match=r"'hooked.second' has hooks itself"):
            declare("dem.one", on_failed=second)

    def test_a_hook_with_hooks_of_its_own(self, alert):
        second = hook("hooked.second").using(on_failed=alert)
        with pytest.raises(InvalidType, match=r"'hooked.second' is given with on_failed"):
            declare("dem.one", on_failed=second)

    def test_a_signature_that_cannot_take_the_facts(self):
        wrong = declare("hooked.wrong")
        with pytest.raises(InvalidType, match=r"called as handler\(context, uuid=…, type=…, "):
            declare("dem.one", on_failed=wrong)
        with pytest.raises(InvalidType, match=r"called as handler"):
            on_failed("dem.*")(wrong)

    def test_any_keyword_is_enough(self):
        assert names(declare("dem.one", on_failed=echo)) == [("on_failed", "tests.echo")]

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ({"whom": "ann"}, "no argument 'whom'"),
            ({"uuid": "7"}, "'uuid' is given to every hook"),
            ({"to": object()}, "to"),
            ("ann", "must be a mapping"),
        ],
    )
    def test_inputs_that_do_not_fit(self, alert, inputs, message):
        with pytest.raises(InvalidType, match=message):
            declare("dem.one", on_failed=(alert, inputs))

    @pytest.mark.parametrize(
        "options", [{"identifier": "a"}, {"unique": "a"}, {"created_by": "ann"}]
    )
    def test_options_that_make_no_sense(self, alert, options):
        [name] = options
        with pytest.raises(InvalidType, match=f"is given with {name}"):
            declare("dem.one", on_failed=alert.using(**options))

    def test_pickle(self, settings):
        settings.ATP = {"ALLOW_PICKLE": True}
        with pytest.raises(InvalidType, match="with its inputs in JSON"):
            declare("dem.one", on_failed=hook("hooked.pickle", serializer="pickle"))

    @pytest.mark.parametrize("pattern", ["", "dem/*", "dem *", 7, None])
    def test_a_pattern_that_is_none(self, pattern):
        with pytest.raises(InvalidType, match="takes patterns of the names of Types"):
            on_failed(pattern)

    def test_no_pattern(self):
        with pytest.raises(InvalidType, match="names no Type"):
            on_finished()

    def test_of_one_instance(self):
        with pytest.raises(InvalidOption, match=r"using\(\): on_failed: must be a Type"):
            echo.using(on_failed="hooked.alert")

    @pytest.mark.django_db
    def test_what_undoes_a_node_has_none_of_its_own(self, alert):
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

    def test_of_a_type(self, alert):
        made = declare("dem.one", on_failed=alert).enqueue()
        queue.cancel(made)
        [found] = Instance.objects.filter(type__identifier="hooked.alert")
        assert found.hook_of == str(made.uuid)
        assert made.log.filter(kind=Kind.HOOK).get().detail == str(found.uuid)

    def test_of_one_instance(self, alert):
        given = alert, {"to": "ann"}
        first, other = echo.using(on_failed=given).enqueue(), echo.enqueue()
        for instance in (first, other):
            queue.cancel(instance)
        [found] = Instance.objects.filter(type__identifier="hooked.alert")
        assert found.hook_of == str(first.uuid)
        assert Type.objects.get(identifier="tests.echo").hooks is None

    def test_of_some_of_many(self, alert):
        calls = [Call(task_type=echo), Call(task_type=echo.using(on_failed=alert))]
        plain, hooked = queue.enqueue_calls(calls)
        assert (plain.task.waits, hooked.task.waits) == (None, HOOKED)

    def test_of_a_node(self, alert):
        with Graph("hooked") as g:
            g.add(echo, name="a")
            g.add(echo.using(on_failed=alert), after="a", name="b")
        queue.cancel_graph(g.row)
        [found] = Instance.objects.filter(type__identifier="hooked.alert")
        assert found.hook_of == str(Instance.objects.get(node__name="b").uuid)

    def test_a_type_is_registered_with_its_hooks(self, alert):
        queue.register(declare("dem.one", on_failed=alert))
        assert Type.objects.filter(identifier="hooked.alert").exists()
        with pytest.raises(TypeInUse, match="it is a hook of"):
            queue.unregister("hooked.alert")

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
class TestSignal:
    @pytest.fixture
    def sent(self):
        found = []

        def receive(sender, instance, **kwargs):
            found.append((sender, instance))

        enqueued.connect(receive)
        yield found
        enqueued.disconnect(receive)

    def test_one(self, sent):
        made = echo.enqueue()
        assert sent == [(Instance, made)]
        assert made.state == State.ACCEPTED

    def test_many(self, sent):
        made = echo.enqueue_many([{}, {}])
        assert [instance for _, instance in sent] == list(made)

    def test_what_is_there_already_is_not_enqueued(self, sent):
        same = echo.using(identifier="same", existing="return")
        same.enqueue()
        same.enqueue()
        assert len(sent) == 1

    def test_a_receiver_that_fails_harms_nothing(self, caplog):
        def fail(**kwargs):
            raise ZeroDivisionError

        enqueued.connect(fail)
        try:
            made = echo.enqueue()
        finally:
            enqueued.disconnect(fail)
        assert Instance.objects.get() == made


def test_what_is_asked_at_every_enqueue_is_looked_up_once(alert, monkeypatch):
    made = declare("dem.one", on_failed=alert)
    declared_hooks.of(made)
    monkeypatch.setattr(hook_specs, "registry", None)
    assert names(made) == [("on_failed", "hooked.alert")]
