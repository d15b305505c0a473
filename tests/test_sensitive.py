"""Sensitive inputs: a mask stands for them wherever they are shown or logged (G14)."""

import json
import logging
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.urls import reverse

from atp import Context, contracts, queue, task_type
from atp.exceptions import InvalidInputs, InvalidType
from atp.models import ErrorGroup, Inputs, Instance, LogRecord, Type
from atp.payload.adapting import fitted
from atp.payload.sensitive import MASK, hidden, masked, masked_json, texts_of
from atp.store import get_store
from atp.verbs.registry import registry

from .api.client import Api
from .api.test_routes import OPERATIONS
from .views.pages import PAGES

SECRET = "correct horse 'battery'"
NAME = "tests.secret"


@pytest.fixture
def secret(db, monkeypatch):
    """A Type with a sensitive argument, declared and registered."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))

    @task_type(NAME, sensitive=["password"], max_retries=0)
    def handler(
        context: Context, user: str, password: str = "", fails: bool = False, **of_hook: str
    ) -> None:
        context.log(f"logging in as {user} with {password}")
        context.progress(0.5, message=f"sent {password}")
        logging.getLogger("of.a.library").warning("password=%r", password)
        if fails:
            raise ValueError(f"{user} has another password than {password}")

    queue.register(handler)
    return handler


@pytest.fixture
def root(db):
    return User.objects.create_superuser("root", password="secret")


@pytest.fixture
def api(root):
    return Api(root)


@pytest.fixture
def page(root, client):
    client.force_login(root)
    return client


@pytest.fixture
def failed(secret, atp):
    """An Instance whose handler has raised, and a schedule and a hook with the same inputs."""
    instance = secret.using(on_finished=(secret, {"user": "ann", "password": SECRET})).enqueue(
        user="ann", password=SECRET, fails=True
    )
    atp.drain(raises=False)
    get_store().errors.count()
    inputs = {"user": "ann", "password": SECRET}
    queue.create_schedule("logins", NAME, every=3600, inputs=inputs)
    queue.change_schedule("logins", inputs=inputs | {"user": "bob", "password": f"{SECRET}!"})
    instance.refresh_from_db()
    assert instance.state == "FAILED"
    return instance


def leaks(text):
    return "battery" in text or "correct horse" in text


def test_the_handler_and_the_code_have_the_value(secret, atp):
    seen = []
    object.__setattr__(secret, "handler", lambda context, **given: seen.append(given))
    instance = secret.enqueue(user="ann", password=SECRET)
    atp.drain()
    assert seen == [{"user": "ann", "password": SECRET}]
    assert queue.inputs(instance).value["password"] == SECRET


def test_no_log_no_error_and_no_progress_has_the_value(failed):
    told = [record.message for record in LogRecord.objects.all()]
    told += [group.title for group in ErrorGroup.objects.all()]
    told += [each.progress_message for each in Instance.objects.all()]
    assert not any(map(leaks, told))
    assert any(f"logging in as ann with {MASK}" in text for text in told)
    assert any(f"ann has another password than {MASK}" in text for text in told)
    assert f"ValueError: ann has another password than {MASK}" in told


def test_the_daemons_log_has_a_mask(secret, atp, caplog):
    secret.enqueue(user="ann", password=SECRET, fails=True)
    with caplog.at_level(logging.ERROR, "atp.worker"):
        atp.drain(raises=False)
    [record] = [each for each in caplog.records if each.name == "atp.worker"]
    assert not leaks(logging.Formatter().format(record))
    assert f"ann has another password than {MASK}" in record.getMessage()


def test_no_answer_of_the_api_has_the_value(failed, api):
    """Of all that can be read, whatever is added."""
    [group] = ErrorGroup.objects.all()
    names = {"uuid": failed.uuid, "number": 0}
    for path, method in OPERATIONS.values():
        if method == "GET" and "/daemons/{" not in path:
            of = "logins" if "/schedules/" in path else NAME
            at = path.format(**names, identifier=of, name=group.name)
            assert not leaks(api.get(at).body.decode()), path
    inputs = api.get(f"instances/{failed.uuid}/inputs").json()["value"]
    assert inputs == {"user": "ann", "password": MASK, "fails": True}
    assert api.get("schedules/logins").json()["inputs"] == {"user": "bob", "password": MASK}
    assert api.get(f"types/{NAME}").json()["sensitive"] == ["password"]


def test_no_page_has_the_value(failed, page):
    [group] = ErrorGroup.objects.all()
    names = {"finished": failed.uuid, "failed": failed.uuid, "error": group.name}
    for case in PAGES:
        if case.method == "get" and not {"{accepted}", "{graph}", "{daemon}"} & {
            f"{{{part}" + "}" for part in ("accepted", "graph", "daemon") if part in case.path
        }:
            path = case.path.replace("tests.add", NAME).replace("nightly", "logins")
            assert not leaks(page.get(path.format(**names)).content.decode()), path
    again = page.get(f"/atp/types/{NAME}/enqueue/?like={failed.uuid}")
    assert MASK in again.content.decode()
    assert not leaks(again.content.decode())


def test_the_admin_has_masks(failed, page):
    failed.refresh_from_db()
    rows = [failed, Inputs.objects.get(pk=failed.pk), queue.get_schedule("logins")]
    for row in [*rows, Type.objects.get(identifier=NAME)]:
        shown = page.get(reverse(f"admin:atp_{row._meta.model_name}_change", args=[row.pk]))
        assert shown.status_code == 200
        assert not leaks(shown.content.decode())


@pytest.mark.parametrize("words", [["show", "{}"], ["schedule", "show", "logins"], ["types"]])
def test_the_shell_has_masks(failed, words):
    for more in ([], ["--json"]):
        out = StringIO()
        call_command("atp", *(word.format(failed.uuid) for word in words), *more, stdout=out)
        assert not leaks(out.getvalue())


# A mask is no value


def test_a_mask_is_not_enqueued(secret, failed, api, page):
    before = Instance.objects.count()
    with pytest.raises(InvalidInputs, match="'password' is sensitive"):
        secret.enqueue(user="ann", password=MASK)
    answer = api.post("instances", {"type": NAME, "inputs": {"user": "ann", "password": MASK}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "inputs.password"
    again = page.get(f"/atp/types/{NAME}/enqueue/?like={failed.uuid}").context["form"].initial
    form = {name: "" if value is None else value for name, value in again.items()}
    assert page.post(f"/atp/types/{NAME}/enqueue/", form).status_code == 422
    told = api.send("PATCH", "schedules/logins", {"inputs": {"user": "eve", "password": MASK}})
    assert told.status_code == 422
    assert Instance.objects.count() == before
    assert json.loads(queue.get_schedule("logins").data)["password"] == f"{SECRET}!"


def test_a_form_of_a_schedule_leaves_the_inputs_that_it_masks(failed, page):
    form = page.get("/atp/schedules/logins/change/").context["form"]
    shown = {name: "" if value is None else value for name, value in form.initial.items()}
    hidden_too = {f"initial-{name}": value for name, value in shown.items()}
    sent = {**shown, **hidden_too, "priority": "3"}
    assert page.post("/atp/schedules/logins/change/", sent).status_code == 302
    row = queue.get_schedule("logins")
    assert (row.priority, json.loads(row.data)["password"]) == (3, f"{SECRET}!")


def test_a_redrive_gives_the_value_again(failed, atp):
    queue.redrive(failed)
    assert queue.inputs(failed).value["password"] == SECRET


# What is told of inputs that do not fit


def test_a_problem_with_a_sensitive_input_does_not_quote_it(secret, api):
    [problem] = contracts.check(secret, {"user": "ann", "password": [SECRET]})
    assert problem.path == "password"
    assert not leaks(problem.text)
    answer = api.post("instances", {"type": NAME, "inputs": {"user": 7, "password": {SECRET: 1}}})
    assert not leaks(answer.body.decode())


def test_an_enqueue_cannot_guess_at_a_sensitive_input(secret, api):
    secret.using(identifier="a").enqueue(user="ann", password=SECRET)
    body = {"type": NAME, "identifier": "a", "existing": "return"}
    told = [
        api.post("instances", body | {"inputs": {"user": user, "password": password}}).json()
        for user, password in (("ann", SECRET), ("ann", "guess"), ("bob", SECRET))
    ]
    assert [each["inputs_differ"] for each in told] == [False, False, True]


def test_the_testing_kit_does_not_quote_it(secret, atp):
    secret.enqueue(user="ann", password=SECRET)
    with pytest.raises(AssertionError) as wrong:
        atp.assert_enqueued(secret, user="ann", password=f"another {SECRET}")
    assert not leaks(str(wrong.value))
    with pytest.raises(AssertionError) as there:
        atp.refute_enqueued(secret, user="ann")
    assert not leaks(str(there.value))


# The declaration


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("password", "must be a list"),
        (["passwort"], "is not an argument of the handler"),
        (["password", "password"], "each once"),
        ([7], "must be a list"),
        (["context"], "is not an argument of the handler"),
    ],
)
def test_names_that_are_no_arguments_are_refused(names, why):
    with pytest.raises(InvalidType, match=why):

        @task_type("tests.wrong", sensitive=names)
        def handler(context, password):
            pass


def test_what_a_type_takes_by_any_name_is_named_itself(monkeypatch):
    monkeypatch.setattr(registry, "_types", dict(registry._types))

    @task_type("tests.open", sensitive=["token"])
    def handler(context, **more):
        pass

    with pytest.raises(InvalidType, match="name the arguments"):
        task_type("tests.wrong", sensitive=["more"])(handler.handler)


def test_a_process_that_does_not_declare_the_type_masks_by_its_row(failed, api):
    registry.remove(NAME)
    inputs = api.get(f"instances/{failed.uuid}/inputs").json()["value"]
    assert inputs["password"] == MASK


def test_what_an_adapter_raises_does_not_quote_it(secret):
    def old(inputs):
        raise ValueError(f"{inputs.pop('password')} is too old")

    _, why = fitted(secret.signatures, [old], {"password": SECRET}, secret.sensitive)
    assert f"ValueError: {MASK} is too old" in why


# The masks


def test_arguments_by_position_are_all_masked():
    given = {"*": ["ann", SECRET], "a": 1, "password": {"x": SECRET}}
    assert masked(given, ["password"]) == {"*": [MASK, MASK], "a": 1, "password": MASK}
    assert masked(given, []) is given


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', "7"])
def test_what_cannot_be_read_is_masked_as_a_whole(text):
    assert json.loads(masked_json(text, ["password"])) == MASK


def test_each_form_of_a_value_is_found_in_text():
    inputs = {"a": {"deep": ["line\none", "sëcret"]}, "b": 123456, "c": "abc", "d": b"bytes!"}
    texts = texts_of(inputs, ["a", "b", "c", "d"])
    for said in ("line\none", repr("line\none"), json.dumps("sëcret"), "n=123456", "bytes!"):
        assert MASK in hidden(said, texts)
    # Too short: it would be found in other words.
    assert hidden("abcdef", texts) == "abcdef"
    assert texts_of(inputs, []) == ()
