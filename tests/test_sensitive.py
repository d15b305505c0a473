"""Tests that a mask replaces sensitive inputs wherever inputs are shown or logged (G14)."""

import json
import logging
import re

import pytest
from django.urls import reverse

from atp import Context, contracts, queue, task_type
from atp.exceptions import InvalidInputs, InvalidType
from atp.models import ErrorGroup, Inputs, Instance, LogRecord, Type
from atp.operations.registry import registry
from atp.payload.binding import (
    MASK,
    adapt_arguments,
    mask_inputs,
    mask_json,
    mask_texts,
    sensitive_texts,
)
from atp.store import get_store

from .api.client import Api
from .api.test_routes import OPERATIONS
from .helpers import shell
from .views.pages import PAGES

SECRET = "correct horse 'battery'"
NAME = "tests.secret"


@pytest.fixture
def secret(db, own_types):
    """Declare and register a Type with a sensitive argument."""

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
def api(admin_user):
    return Api(admin_user)


@pytest.fixture
def failed(secret, atp, caplog):
    """Return an Instance whose handler has raised. A schedule and a hook have similar inputs."""
    instance = secret.using(on_finished=(secret, {"user": "ann", "password": SECRET})).enqueue(
        user="ann", password=SECRET, fails=True
    )
    with caplog.at_level(logging.ERROR, "atp.worker"):
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


def test_sensitive_value_appears_in_no_log_error_or_progress_message(failed, caplog):
    """The daemon's own log does not contain the value either."""
    own = [each for each in caplog.get_records("setup") if each.name == "atp.worker"]
    told = [logging.Formatter().format(record) for record in own]
    assert any(f"ann has another password than {MASK}" in text for text in told)
    told += [record.message for record in LogRecord.objects.all()]
    told += [group.title for group in ErrorGroup.objects.all()]
    told += [each.progress_message for each in Instance.objects.all()]
    assert not any(map(leaks, told))
    assert any(f"logging in as ann with {MASK}" in text for text in told)
    assert any(f"ann has another password than {MASK}" in text for text in told)
    assert f"ValueError: ann has another password than {MASK}" in told


@pytest.mark.slow
def test_api_and_shell_do_not_show_a_sensitive_value(failed, api):
    """All operations of the API that read are tested, including new ones."""
    [group] = ErrorGroup.objects.all()
    names = {"uuid": failed.uuid, "number": 0}
    for path, method in OPERATIONS.values():
        if method == "GET" and "/daemons/{" not in path:
            of = "logins" if "/schedules/" in path else NAME
            at = path.format(**names, identifier=of, name=group.name)
            assert not leaks(api.get(at).body.decode()), path
    inputs = api.get(f"instances/{failed.uuid}/inputs").json()["value"]
    assert inputs == {"user": "ann", "password": MASK, "fails": True}
    queue.redrive(failed)
    assert queue.inputs(failed).value["password"] == SECRET
    assert api.get("schedules/logins").json()["inputs"] == {"user": "bob", "password": MASK}
    assert api.get(f"types/{NAME}").json()["sensitive"] == ["password"]
    for words in (["show", str(failed.uuid)], ["schedule", "show", "logins"], ["types"]):
        assert not leaks(shell(*words) + shell(*words, "--json"))
    # A process that does not declare the Type reads the masked names from the row of the Type.
    registry.remove(NAME)
    assert api.get(f"instances/{failed.uuid}/inputs").json()["value"]["password"] == MASK


@pytest.mark.slow
def test_pages_do_not_contain_a_sensitive_value(failed, admin_client):
    """The pages of the admin do not contain the value either."""
    [group] = ErrorGroup.objects.all()
    names = {"finished": failed.uuid, "failed": failed.uuid, "error": group.name}
    for case in PAGES:
        if case.method == "get" and not re.search("{(accepted|graph|daemon)}", case.path):
            path = case.path.replace("tests.add", NAME).replace("nightly", "logins")
            answer = admin_client.get(path.format(**names))
            shown = answer.getvalue() if answer.streaming else answer.content
            assert not leaks(shown.decode()), path
    again = admin_client.get(f"/atp/types/{NAME}/enqueue/?like={failed.uuid}")
    assert MASK in again.content.decode()
    assert not leaks(again.content.decode())
    rows = [failed, Inputs.objects.get(pk=failed.pk), queue.get_schedule("logins")]
    for row in [*rows, Type.objects.get(identifier=NAME)]:
        shown = admin_client.get(reverse(f"admin:atp_{row._meta.model_name}_change", args=[row.pk]))
        assert shown.status_code == 200
        assert not leaks(shown.content.decode())


# A mask is not a valid value


def test_mask_is_refused_as_an_input(secret, failed, api, admin_client):
    before = Instance.objects.count()
    with pytest.raises(InvalidInputs, match="'password' is sensitive"):
        secret.enqueue(user="ann", password=MASK)
    answer = api.post("instances", {"type": NAME, "inputs": {"user": "ann", "password": MASK}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "inputs.password"
    again = (
        admin_client.get(f"/atp/types/{NAME}/enqueue/?like={failed.uuid}").context["form"].initial
    )
    form = {name: "" if value is None else value for name, value in again.items()}
    assert admin_client.post(f"/atp/types/{NAME}/enqueue/", form).status_code == 422
    told = api.send("PATCH", "schedules/logins", {"inputs": {"user": "eve", "password": MASK}})
    assert told.status_code == 422
    assert Instance.objects.count() == before
    assert json.loads(queue.get_schedule("logins").data)["password"] == f"{SECRET}!"


def test_form_of_a_schedule_keeps_the_inputs_that_it_masks(failed, admin_client):
    form = admin_client.get("/atp/schedules/logins/change/").context["form"]
    shown = {name: "" if value is None else value for name, value in form.initial.items()}
    hidden_too = {f"initial-{name}": value for name, value in shown.items()}
    sent = {**shown, **hidden_too, "priority": "3"}
    assert admin_client.post("/atp/schedules/logins/change/", sent).status_code == 302
    row = queue.get_schedule("logins")
    assert (row.priority, json.loads(row.data)["password"]) == (3, f"{SECRET}!")


# Errors about inputs that do not fit


def test_errors_about_inputs_do_not_reveal_a_sensitive_value(secret, api, atp):
    [problem] = contracts.check(secret, {"user": "ann", "password": [SECRET]})
    assert problem.path == "password"
    assert not leaks(problem.text)
    answer = api.post("instances", {"type": NAME, "inputs": {"user": 7, "password": {SECRET: 1}}})
    assert not leaks(answer.body.decode())

    def old(inputs):
        raise ValueError(f"{inputs.pop('password')} is too old")

    _, why = adapt_arguments(secret.signatures, [old], {"password": SECRET}, secret.sensitive)
    assert f"ValueError: {MASK} is too old" in why
    # An enqueue that returns an existing Instance cannot be used to guess its sensitive value.
    secret.using(identifier="a").enqueue(user="ann", password=SECRET)
    body = {"type": NAME, "identifier": "a", "existing": "return"}
    told = [
        api.post("instances", body | {"inputs": {"user": user, "password": password}}).json()
        for user, password in (("ann", SECRET), ("ann", "guess"), ("bob", SECRET))
    ]
    assert [each["inputs_differ"] for each in told] == [False, False, True]
    # Nor do the assertions for tests quote it.
    for assertion, given in (
        (atp.assert_enqueued, {"user": "ann", "password": f"another {SECRET}"}),
        (atp.refute_enqueued, {"user": "ann"}),
    ):
        with pytest.raises(AssertionError) as wrong:
            assertion(secret, **given)
        assert not leaks(str(wrong.value))


# The declaration, and the masks


@pytest.mark.usefixtures("own_types")
def test_sensitive_parameter_rejects_names_that_are_not_arguments():
    def handler(context, password):
        pass

    def takes_any_name(context, **more):
        pass

    for names, why in (
        ("password", "must be a list"),
        (["passwort"], "is not an argument of the handler"),
        (["password", "password"], "each once"),
        ([7], "must be a list"),
        (["context"], "is not an argument of the handler"),
    ):
        with pytest.raises(InvalidType, match=why):
            task_type("tests.wrong", sensitive=names)(handler)
    assert task_type("tests.open", sensitive=["token"])(takes_any_name)
    with pytest.raises(InvalidType, match="name the arguments"):
        task_type("tests.wrong", sensitive=["more"])(takes_any_name)


def test_sensitive_value_is_masked_in_inputs_and_wherever_text_contains_it():
    """All positional arguments are masked. Inputs that cannot be parsed are masked as a whole."""
    given = {"*": ["ann", SECRET], "a": 1, "password": {"x": SECRET}}
    assert mask_inputs(given, ["password"]) == {"*": [MASK, MASK], "a": 1, "password": MASK}
    assert mask_inputs(given, []) is given
    for text in ("{", "[1]", '"x"', "7"):
        assert json.loads(mask_json(text, ["password"])) == MASK
    inputs = {"a": {"deep": ["line\none", "sëcret"]}, "b": 123456, "c": "abc", "d": b"bytes!"}
    texts = sensitive_texts(inputs, ["a", "b", "c", "d"])
    for said in ("line\none", repr("line\none"), json.dumps("sëcret"), "n=123456", "bytes!"):
        assert MASK in mask_texts(said, texts)
    # A value this short is not masked, because it would be found in other words.
    assert mask_texts("abcdef", texts) == "abcdef"
    assert sensitive_texts(inputs, []) == ()
